import math
from typing import Any

import numpy as np
import pytest
import torch

from annotated_course.claims import claim, more_checks
from annotated_course.comparison import IN_ANOTHER_ORDER, difference


def raise_value_error() -> None:
    raise ValueError("no such head")


@pytest.mark.parametrize(
    ("found", "options", "problem"),
    [
        (True, {}, None),
        (torch.tensor([[True, True]]), {}, None),
        (0.1 + 0.2, {"expected": 0.3}, None),
        (0.31, {"expected": 0.3, "within": 0.02}, None),
        (torch.ones(2, 3), {"expected": 1}, None),
        ([torch.ones(2), {"a": 0.5}], {"expected": [[1.0, 1.0], {"a": 0.5}]}, None),
        (lambda: 7, {"expected": 7}, None),
        (0.04, {"between": (0, 0.05)}, None),
        (torch.tensor([0.0, 0.05]), {"between": (0, 0.06)}, None),
        (raise_value_error, {"raises": ValueError}, None),
        (False, {}, "False, expected True"),
        (torch.tensor([[True, False]]), {}, "at [0, 1]: False, expected True"),
        (10_001, {"expected": 10_000}, "10001, expected 10000"),
        (None, {"expected": 0.5}, "None, expected 0.5"),
        (torch.ones(2).cumsum(0), {"expected": torch.tensor([2, 1])}, f"at [0]: 1, expected 2{IN_ANOTHER_ORDER}"),
        (torch.tensor([1.0, 0.83]), {"expected": 1}, "at [1]: 0.83, expected 1"),
        (torch.tensor([math.nan]), {"expected": torch.tensor([math.nan])}, "at [0]: nan, expected nan"),
        (torch.ones(1), {"expected": torch.ones(3)}, "shape (1,), expected (3,)"),
        (torch.ones(0), {"expected": 1}, "nothing to compare"),
        ([1, [2, 3]], {"expected": [1, [2, 4]]}, "at [1]: at [1]: 3, expected 4"),
        ({"a": 1}, {"expected": {"b": 1}}, "the names ['a'], expected ['b']"),
        (math.nan, {"between": (0, 1)}, "nan, expected 0 to 1"),
        (torch.tensor([0.5, -1.0]), {"between": (0, 1)}, "-1, expected 0 to 1"),
        (raise_value_error, {}, "ValueError: no such head"),
        (lambda: 1, {"raises": TypeError}, "no error, expected TypeError"),
        ("4", {"expected": torch.ones(2)}, "a string, '4', expected a tensor of torch.float32, shape (2,)"),
        ([1, [2]], {"between": (0, 1)}, "a list of 2 (an int, a list), expected 0 to 1"),
        (None, {"between": (0, 1)}, "None, expected 0 to 1"),
    ],
)
def test_a_claim_is_ticked_or_told_what_does_not_hold(found: Any, options: dict, problem: str | None, capsys) -> None:
    claim("it is so", found, **options)
    assert capsys.readouterr().out == (f"✗ it is so: {problem}\n" if problem else "✓ it is so\n")


@pytest.mark.parametrize(
    ("given", "expected", "said"),
    [
        (3, 3.0, None),
        (np.float64(0.5), 0.5, None),
        (np.array([1, 2]), [1, 2], None),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), None),
        (True, 1, "got a bool, expected an int"),
        (1.0, 1, "got a float, expected an int"),
        (3, torch.ones(2), "got an int, expected a tensor of torch.float32"),
        (torch.ones(2).double(), torch.ones(2), "got a tensor of torch.float64, expected a tensor of torch.float32: t"),
        ({"a": [1, True]}, {"a": [1, False]}, "at ['a']: at [1]: True, expected False"),
    ],
)
def test_a_strict_comparison_knows_types_but_takes_what_says_the_same(given: Any, expected: Any, said: Any) -> None:
    text = difference(given, expected, strict=True)
    assert text is None if said is None else text and text.startswith(said)


def test_more_checks_are_one_line_that_unfolds_what_fails_is_printed_and_no_error_hides_one(
    monkeypatch, capsys
) -> None:
    displayed: list[dict[str, str]] = []  # in a notebook
    monkeypatch.setattr("IPython.get_ipython", object)
    monkeypatch.setattr("IPython.display.display", lambda data, raw: displayed.append(data) if raw else None)
    with pytest.raises(ValueError, match="no such head"), more_checks():
        claim("a < b", 1 < 2)
        claim("the sum is 1", 0.83, 1)
        assert capsys.readouterr().out == "✗ the sum is 1: 0.83, expected 1\n"
        with more_checks():
            claim("inside", True)
        claim('"b" is 2', 2, 2)
        raise_value_error()
    claim("after them", True)
    unfolded = '<details><summary>✓ 2 more checks</summary>\n✓ a &lt; b<br>\n✓ "b" is 2\n</details>'
    assert displayed == [{"text/plain": "✓ 2 more checks", "text/html": unfolded}]
    assert capsys.readouterr().out == "✓ 1 more check\n  ✓ inside\n✓ after them\n"
