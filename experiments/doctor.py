"""Examine the doctor: healthy models, other people's, each of chapter 19's patients, and the ward of exercise 19.3.

    python -m experiments.doctor data/results/doctor.json

Of each model the file holds whether it is sick, and which checks rang. A healthy model on which one rings is a false
alarm, a sick one on which none does is a miss.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from annotated.config import TransformerConfig
from annotated.models.gpt import Gpt as OurGpt
from annotated.models.gpt import GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.transformer import Transformer
from annotated_course.chapters.c19_debugging.exercises import WARD, patients
from annotated_course.doctor import examine
from experiments import strangers
from experiments.debugging import LESSON
from experiments.results import about, arguments, names_of_lesson, save

SIZES: dict[str, Any] = {"d_model": 32, "d_ff": 64, "heads": 2, "layers": 2, "max_length": 16}


class Case(NamedTuple):
    """A model to examine, and what is wrong with it: "" where nothing is, so that every alarm is a false one."""

    group: str
    name: str
    model: Any
    sick: str = ""
    parts: Mapping[str, Any] = MappingProxyType({})


def cases() -> Iterator[Case]:
    """List all models."""
    ours = {"Transformer": lambda: Transformer(TransformerConfig(14, **SIZES))}
    ours["Transformer, pre-norm"] = lambda: Transformer(TransformerConfig(14, norm_first=True, **SIZES))
    ours["LanguageModel"] = lambda: LanguageModel(LanguageModelConfig(14, **SIZES))
    ours["Gpt"] = lambda: OurGpt(GptConfig(14, **SIZES))
    yield from (Case("ours", name, make) for name, make in ours.items())
    yield Case("others", "The Annotated Transformer", strangers.Annotated, "its first two rates are equal")
    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)
    yield Case("others", "nn.Transformer", strangers.Wrapped, "torch < 2.5: NaN from a row of padding" if old else "")
    for fault in strangers.WRAPPED_FAULTS:
        yield Case("nn.Transformer", fault, lambda fault=fault: strangers.Wrapped(fault), fault)
    with redirect_stdout(None):
        lesson = names_of_lesson(*LESSON)
    for name, patient in (lesson["PATIENTS"] | lesson["unseen"]).items():
        sound = name == "healthy"
        group = "chapter 19, section 8" if name in lesson["unseen"] else "chapter 19"
        parts = {"like": lesson["SIZES"]} if name in lesson["unseen"] else {}
        yield Case(group, name, patient, "" if sound else name, parts)
    ward = [(WARD[letter], patient) for letter, patient in patients().items()]
    for fault, patient in sorted(ward, key=lambda bed: bed[0]):  # without their letters: the exercise asks who has what
        yield Case("the ward", fault, patient, "" if fault == "healthy" else fault)


def main() -> None:
    """Examine all, write the file."""
    args = arguments(__doc__).parse_args()
    rows = [examined(case) for case in tqdm(list(cases()))]
    save(args.results, {"about": about(), "models": rows})


def examined(case: Case) -> dict[str, Any]:
    """Examine one model."""
    begun = time.monotonic()
    try:
        rang = examine(case.model, **case.parts).failed
    except ValueError as error:
        rang = [str(error)]
    verdict = ("found" if case.sick else "false alarm") if rang else ("missed" if case.sick else "healthy")
    row = {"group": case.group, "model": case.name, "sick": case.sick, "verdict": verdict, "rang": rang}
    return row | {"seconds": round(time.monotonic() - begun, 1)}


if __name__ == "__main__":
    main()
