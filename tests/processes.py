"""What each of two processes does for `tests.test_distributed`: `python -m tests.processes FOLDER [die]`.

Most of it can be done by one process alone, too, to compare.
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from annotated.__main__ import main
from annotated.config import PAD, TransformerConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.transformer import Transformer
from annotated_workbench import distributed, run_folder, runs, tasks
from annotated_workbench.data import Labelled, Pairs
from annotated_workbench.distributed import is_first, joined
from annotated_workbench.runs import TrainingOptions, fit
from annotated_workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated_workbench.vocabulary import SPECIALS, CharacterTokenizer, Vocabulary, WordTokenizer
from tests.runs import SENTENCES, train_arguments

SIZES = dict(d_model=16, heads=2, d_ff=24, layers=1, max_length=32)
OPTIONS = TrainingOptions(epochs=9, batch_tokens=50, accumulate=2, warmup=20, rate=0.1, average=2)
CASES = {  # fifty updates each, and not all batches have a row for every process
    "translation": OPTIONS,
    "plain": TrainingOptions(epochs=5, batch_tokens=50, warmup=20, rate=0.1, average=2, plain=True),
    "generation": TrainingOptions(epochs=3, batch_tokens=32 * 3, warmup=20, rate=0.1, smoothing=0.0),
    "classification": TrainingOptions(epochs=4, batch_tokens=40, warmup=20, rate=0.1),
}
HALVES = TrainingOptions(epochs=2, batch_tokens=80, warmup=20, rate=0.1)


def make_pairs() -> Pairs:
    """Make sentence pairs of one to twelve words; the longest fills a batch alone."""
    rows = [(" ".join([source] * n), " ".join([target] * n)) for n in (1, 2) for source, target in SENTENCES[n::2]]
    return Pairs(*([*side, f"{side[0]} " * 5] for side in map(list, zip(*rows, strict=True))))


def make_task(case: str) -> Task:
    """Make a task on the small corpus."""
    pairs = make_pairs()
    words = sorted({word for side in pairs for text in side for word in text.replace(".", " .").split()})
    tokenizer = WordTokenizer(Vocabulary([*SPECIALS, *words]), ("de", "en"))
    val = Pairs(*(side[:2] for side in pairs))
    if case == "generation":
        text = " ".join(pairs.source)
        return TextTask(CharacterTokenizer.train(text), text, text, SIZES["max_length"])
    if case == "classification":
        labelled = Labelled(pairs.target, [str(len(text.split()) > 4) for text in pairs.target])
        return ClassificationTask(tokenizer, labelled, labelled, "en", SIZES["max_length"])
    return TranslationTask(tokenizer, pairs, val, "de", "en", SIZES["max_length"])


def make_model(case: str, task: Task, dropout: float) -> torch.nn.Module:
    """Make the model for a task, in the second process with other weights; without dropout nothing else is drawn."""
    torch.manual_seed(3 if is_first() else 4)  # as on another kind of processor
    sizes = {"vocab_size": len(task.tokenizer), "dropout": dropout, **SIZES}
    if case == "generation":
        return LanguageModel(LanguageModelConfig(**sizes))
    if case == "classification":
        return Classifier(ClassifierConfig(**sizes, word_dropout=dropout))
    return Transformer(TransformerConfig(**sizes))


def follow(case: str, out: Path, options: TrainingOptions, dropout: float = 0.0, resume: bool = False) -> dict:
    """Train, without validation; return each update's loss, the rows that this process saw in it, and what came out."""
    task = make_task(case)
    model = make_model(case, task, dropout)
    losses, rows, draws = [], [], []

    def update(*args: Any, **how: Any) -> tuple[float, int]:
        rows.append([])
        draws.append(int(torch.get_rng_state().sum()))
        loss, tokens = whole_update(*args, **how)
        losses.append(loss)
        return loss, tokens

    def update_share(model: torch.nn.Module, batches: Any, *args: Any, **how: Any) -> float:
        for *given, tgt in batches:
            sides = [*given, tgt if tgt.ndim > 1 else tgt[:, None]]
            rows[-1] += [[[i for i in ids if i != PAD or len(row) < 2] for ids in row] for row in lists(sides)]
        return share_update(model, batches, *args, **how)

    whole_update, share_update = distributed.update, task.update
    nothing = dict.fromkeys(("val_bleu", "val_loss", "val_accuracy"), 0.0)
    with (
        patch.object(distributed, "update", update),
        patch.object(task, "update", update_share),
        patch.object(task, "validate", lambda *args, **how: nothing),
    ):
        metrics = fit(model, task, out, options=options, resume=resume)
    total = float(sum(parameter.detach().double().abs().sum() for parameter in model.parameters()))
    return {"losses": losses, "rows": rows, "draws": draws, "metrics": metrics, "weights": total}


def lists(sides: list[torch.Tensor]) -> list[list[list[int]]]:
    """Return the ids of each row's sides."""
    return [list(row) for row in zip(*(side.tolist() for side in sides), strict=True)]


def halves(folder: Path) -> dict:
    """Train with dropout, at once and in two halves."""
    whole = follow("translation", folder / "whole", HALVES, 0.3)
    follow("translation", folder / "halves", replace(HALVES, epochs=1), 0.3)
    return {"whole": whole, "resumed": follow("translation", folder / "halves", HALVES, 0.3, resume=True)}


def error_of(*args: Any, **options: Any) -> str:
    """Train, and return the error's message."""
    try:
        follow(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def nonsense_in_the_second() -> Iterator[None]:
    """Let the second process have a loss that is no number at its third update."""
    left = 3

    def check(self: Any, model: torch.nn.Module, *args: Any, **how: Any) -> float:
        nonlocal left
        left -= 1
        if not is_first() and not left:
            next(model.parameters()).data.fill_(float("nan"))
        return whole(self, model, *args, **how)

    whole = TranslationTask.update
    with patch.object(TranslationTask, "update", check):
        yield


FAILURES = {  # where one process alone fails, and with what
    "update": (TranslationTask, "update", KeyError),
    "forward": (Transformer, "encode", ValueError),
    "translate": (tasks, "translate", TypeError),
    "check": (runs, "_require_finite", OSError),
}
IN_THE_FIRST = {  # which alone writes
    "locked": (runs, "locked", OSError),
    "save": (run_folder, "_save_average", OSError),
    "save_state": (run_folder, "save_state", RuntimeError),
    "load": (runs, "load_weights", ValueError),
}


def failures(folder: Path) -> dict[str, str]:
    """Let something fail in one process alone, wherever it may; return what this process says."""
    said = {}
    options = replace(OPTIONS, epochs=1, accumulate=1, plain=True)

    def failing(whole: Any, kind: type[Exception], here: bool) -> Any:
        def fail(*args: Any, **how: Any) -> Any:
            if here:
                raise kind("what is wrong")
            return whole(*args, **how)

        return fail

    for name, (room, what, kind) in (FAILURES | IN_THE_FIRST).items():
        fail = failing(getattr(room, what), kind, is_first() == (name in IN_THE_FIRST))
        with patch.object(room, what, fail):
            task, model = make_task("translation"), make_model("translation", make_task("translation"), 0.0)
            try:
                fit(model, task, folder / name, options=options)
            except Exception as error:
                said[name] = f"{type(error).__name__}: {error}"
    return said


@contextlib.contextmanager
def fast_clock_in_the_second() -> Iterator[None]:
    """Let the second process's clock run ten thousand times faster."""
    speed, clock = (1.0 if is_first() else 1e4), time.perf_counter
    with patch.object(runs.time, "perf_counter", lambda: speed * clock()):
        yield


def together(folder: Path) -> dict:
    """All that two processes are asked to do."""
    result: dict[str, Any] = {case: follow(case, folder / case, options) for case, options in CASES.items()}
    result["halves"] = halves(folder)
    result["resumed"] = follow("translation", folder / "one", HALVES, resume=True)
    with nonsense_in_the_second():
        result["nonsense"] = error_of("translation", folder / "nonsense", OPTIONS)
    with fast_clock_in_the_second():
        limited = TrainingOptions(epochs=10**6, batch_tokens=50, warmup=20, max_minutes=0.005, schedule="linear")
        result["clock"] = follow("translation", folder / "clock", limited)
    seeds = TrainingOptions(epochs=1, batch_tokens=50, seed=int(not is_first()))
    result["different"] = error_of("translation", folder / "different", seeds)
    result["failures"] = failures(folder)
    return result


def end_alike(folder: Path) -> dict:
    """Do everything, then fail as the other process does; return what came out, and how it ended."""
    result = {}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), joined(torch.device("cpu")):
            result = together(folder)
            raise ValueError("all fail alike")
    except ValueError as error:
        result["end"] = str(error)
    except SystemExit as error:
        result["end"] = error.code
    return result | {"printed": printed.getvalue()}


def die(folder: Path) -> int:
    """Train from the command line; the second process is killed in its third update. Return the exit status."""
    if os.environ["RANK"] == "1":
        left = 3
        whole = distributed.update

        def update(*args: Any, **how: Any) -> tuple[float, int]:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(*args, **how)

        distributed.update = update
    return main(train_arguments(folder, folder / "run", "--epochs", "50", "--device", "cpu"))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["die"]:
        sys.exit(die(folder))
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(end_alike(folder)))
