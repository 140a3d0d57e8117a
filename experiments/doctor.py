"""Examine the doctor: healthy models, other people's, each of chapter 19's patients, and sixty planted faults.

    python -m experiments.doctor data/results/doctor.json

Of each model the file holds whether it is sick, and which checks rang. A healthy model on which one rings is a false
alarm, a sick one on which none does is a miss. A planted fault is named if a check rings that is meant for it and says
what it must; of these the file holds the loss before and after sixty updates, too, and what was only noted.
"""

import time
from collections import Counter
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
from annotated_course.doctor import Recipe, Report, examine
from experiments import strangers
from experiments.debugging import LESSON
from experiments.results import about, arguments, names_of_lesson, save
from tests.doctor import texts, translators
from tests.doctor.faults import STRUCTURE, TRAINING, named, sick
from tests.doctor.patient import RECIPE

SIZES: dict[str, Any] = {"d_model": 32, "d_ff": 64, "heads": 2, "layers": 2, "max_length": 16}


class Case(NamedTuple):
    """A model to examine, and what is wrong with it: "" where nothing is, so that every alarm is a false one."""

    group: str
    name: str
    model: Any
    sick: str = ""
    parts: Mapping[str, Any] = MappingProxyType({})
    meant: str = ""  # of a planted fault, the checks that name it


def cases() -> Iterator[Case]:
    """List all models."""
    ours = {"Transformer": lambda: Transformer(TransformerConfig(14, **SIZES))}
    ours["Transformer, pre-norm"] = lambda: Transformer(TransformerConfig(14, norm_first=True, **SIZES))
    ours["LanguageModel"] = lambda: LanguageModel(LanguageModelConfig(14, **SIZES))
    ours["Gpt"] = lambda: OurGpt(GptConfig(14, **SIZES))
    yield from (Case("ours", name, make) for name, make in ours.items())
    for name, recipe in (vars(texts) | vars(translators)).items():
        if isinstance(recipe, Recipe):
            fault = "its loss is divided by all places" if name == "gordicaleksa" else ""
            yield Case("as the best known", name, recipe, fault)
    yield Case("others", "nn.Transformer", strangers.Wrapped)
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
    yield Case("others", "the patient in which faults are planted", RECIPE)
    for group, faults in (("planted, structure", STRUCTURE), ("planted, training", TRAINING)):
        for fault, (changes, meant) in faults.items():
            yield Case(group, fault, sick(changes), fault, meant=meant)


def main() -> None:
    """Examine all, write the file, print the planted faults and who is healthy."""
    args = arguments(__doc__).parse_args()
    rows = [examined(case) for case in tqdm(list(cases()))]
    save(args.results, {"about": about(), "models": rows})
    for row in rows:
        if row["group"].startswith("planted") or not row["sick"]:
            print(f"{row['verdict']:12} {row['model']:44} {', '.join(row['rang'] + row['noted'])}")
    print(*Counter((row["group"], row["verdict"]) for row in rows).items(), sep="\n")


def examined(case: Case) -> dict[str, Any]:
    """Examine one model."""
    begun = time.monotonic()
    try:
        report = examine(case.model, **case.parts)
        rang, noted = report.failed, report.noted
    except ValueError as error:
        report, rang, noted = Report(), [str(error)], []
    verdict = ("found" if case.sick else "false alarm") if rang else ("missed" if case.sick else "healthy")
    row: dict[str, Any] = {"seconds": round(time.monotonic() - begun, 1)}
    if case.meant:
        verdict = "named" if named(report, case.meant) else "found" if rang + noted else "missed"
        row |= {"meant": case.meant.removeprefix("–"), "loss": losses(case.model)}
    said = {
        "group": case.group,
        "model": case.name,
        "sick": case.sick,
        "verdict": verdict,
        "rang": rang,
        "noted": noted,
    }
    return said | row


def losses(recipe: Any) -> list[float]:
    """Give the loss of a fresh model, by its own measure, before and after sixty updates."""
    torch.manual_seed(0)
    model, batch = recipe.build(), recipe.batch()
    optimizer, found = recipe.optimizer(model), []
    for step in range(62):
        if step in (0, 61):
            found.append(round(recipe.loss(model.eval(), *batch).item(), 2))
        recipe.update(model, optimizer, batch, step + 1)
    return found


if __name__ == "__main__":
    main()
