"""Numbers that a user types: what each may be, as types for argparse."""

import operator
import reprlib
from argparse import ArgumentTypeError
from collections.abc import Callable

from annotated.models.language_model import HOTTEST
from annotated_workbench.vocabulary import LARGEST_VOCABULARY

MANY = 10**9  # of whatever is counted
COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}


def number_within(kind: type[int] | type[float], **limits: int | float) -> Callable[[str | float], int | float]:
    """Make a type for argparse: a number within limits, each named as in `COMPARISONS`."""

    def number(text: str | float) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            wanted = "whole number" if kind is int else "number"
            raise ArgumentTypeError(f"{reprlib.repr(text)} is no {wanted}") from None
        if not all(COMPARISONS[name](value, limit) for name, limit in limits.items()):
            wanted = " and ".join(f"{name.replace('_', ' ')} {limit:,}" for name, limit in limits.items())
            raise ArgumentTypeError(f"{reprlib.repr(value)} must be {wanted}")
        return value

    return number


COUNT = number_within(int, at_least=1, at_most=MANY)
COUNT_OR_NONE = number_within(int, at_least=0, at_most=MANY)
SHARE = number_within(float, at_least=0, below=1)
NUCLEUS = number_within(float, above=0, at_most=1)
LENGTH_PENALTY = number_within(float, at_least=0, at_most=100)
TEMPERATURE = number_within(float, at_least=0, at_most=HOTTEST)
MINUTES = number_within(float, above=0, at_most=1_000_000)  # two years
RATE = number_within(float, above=0, at_most=1e30)  # what float32 holds, with room for an optimizer's factors
BEAM_WIDTH = number_within(int, at_least=0, at_most=100)  # wider beams find worse translations, and need memory
LAYERS = number_within(int, at_least=1, at_most=1000)  # deeper than any that was trained
SEED = number_within(int, at_least=0, at_most=2**32 - 1)
BATCH_TOKENS = number_within(int, at_least=1, at_most=1_000_000)  # what an update of the largest models sees
VOCABULARY_SIZE = number_within(int, at_least=1, at_most=LARGEST_VOCABULARY)
