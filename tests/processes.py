"""What each of several processes does for `tests.test_distributed`: `python -m tests.processes FOLDER [die]`."""

import contextlib
import io
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from annotated.__main__ import main
from annotated.config import TransformerConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.transformer import Transformer
from annotated_workbench import distributed, runs
from annotated_workbench.data import Labelled, Pairs
from annotated_workbench.distributed import is_first, joined
from annotated_workbench.runs import TrainingOptions, fit
from annotated_workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated_workbench.vocabulary import CharacterTokenizer, WordTokenizer
from tests.runs import SENTENCES, train_arguments

OPTIONS = TrainingOptions(epochs=2, batch_tokens=50, accumulate=2, warmup=8, rate=0.3, average=2)
CASES = {  # not all batches have a row for every process
    "translation": OPTIONS,
    "generation": replace(OPTIONS, batch_tokens=32 * 3, smoothing=0.0),
    "classification": replace(OPTIONS, batch_tokens=40),
}


def make_task(case: str) -> Task:
    """Make a task on texts of four to eight words; the longest fills a batch alone."""
    rows = [(" ".join([source] * n), " ".join([target] * n)) for n in (1, 2) for source, target in SENTENCES[n::3]]
    pairs = Pairs(*([*side, f"{side[0]} " * 5] for side in map(list, zip(*rows, strict=True))))
    tokenizer = WordTokenizer.train(pairs, ("de", "en"), min_freq=1)
    if case == "generation":
        text = " ".join(pairs.source)
        return TextTask(CharacterTokenizer.train(text), text, text[::3], 32)
    if case == "classification":
        labelled = Labelled(pairs.target, [str(len(text.split()) > 4) for text in pairs.target])
        return ClassificationTask(tokenizer, labelled, labelled, "en", 32)
    return TranslationTask(tokenizer, pairs, Pairs(*(side[:3] for side in pairs)), "de", "en", 32)


def follow(case: str, out: Path, options: TrainingOptions, dropout: float = 0.0, resume: bool = False) -> dict:
    """Train; return each update's loss and the size of its gradient, the metrics, and a sum of all weights."""
    task, losses, draws, whole = make_task(case), [], [], distributed.update
    torch.manual_seed(3 if is_first() else 4)  # other processors draw other weights
    sizes: Any = dict(vocab_size=len(task.tokenizer), d_model=16, heads=2, d_ff=24, layers=1, max_length=32)
    model: Any = {
        "generation": lambda: LanguageModel(LanguageModelConfig(**sizes, dropout=dropout)),
        "classification": lambda: Classifier(ClassifierConfig(**sizes, dropout=dropout, word_dropout=dropout)),
    }.get(case, lambda: Transformer(TransformerConfig(**sizes, dropout=dropout)))()

    def update(*arguments: Any) -> tuple[float, int]:
        draws.append(int(torch.get_rng_state().sum()))
        loss, targets = whole(*arguments)  # Adam would not feel gradients that are all half as large
        losses.append((loss, float(sum(parameter.grad.abs().sum() for parameter in model.parameters()))))
        return loss, targets

    with patch.object(distributed, "update", update):
        metrics = fit(model, task, out, options=options, resume=resume)
    weights = float(sum(parameter.detach().double().abs().sum() for parameter in model.parameters()))
    return {"losses": losses, "draws": draws, "metrics": metrics, "weights": weights}


def error_of(folder: Path, options: TrainingOptions) -> str:
    """Train, and return the error's message."""
    try:
        follow("translation", folder, options)
    except ValueError as error:
        return str(error)
    return ""


def train_together(folder: Path) -> dict:
    """Do all that is compared; return what came out."""
    result: dict[str, Any] = {case: follow(case, folder / case, options) for case, options in CASES.items()}
    result["whole"] = follow("translation", folder / "whole", OPTIONS, 0.3)
    follow("translation", folder / "halves", replace(OPTIONS, epochs=1), 0.3)
    result["halves"] = follow("translation", folder / "halves", OPTIONS, 0.3, resume=True)
    result["resumed"] = follow("translation", folder / "one", OPTIONS, resume=True)
    result["different"] = error_of(folder / "different", replace(OPTIONS, seed=int(not is_first())))
    speed, clock, loss = (1.0 if is_first() else 1e4), time.perf_counter, TranslationTask.loss
    with patch.object(runs.time, "perf_counter", lambda: speed * clock()):
        limited = replace(OPTIONS, epochs=10**6, max_minutes=0.005, schedule="linear")
        result["clock"] = follow("translation", folder / "clock", limited)
    with patch.object(TranslationTask, "loss", lambda *args: loss(*args) * (1 if is_first() else torch.nan)):
        result["nonsense"] = error_of(folder / "nonsense", OPTIONS)
    return result


def die(folder: Path) -> int:
    """Train from the command line; the second process is killed in its third update. Return the exit status."""
    left, whole = iter(range(2)), distributed.update

    def update(*arguments: Any) -> tuple[float, int]:
        if not is_first() and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*arguments)

    distributed.update = update
    return main(train_arguments(folder, folder / "run", "--epochs", "3", "--device", "cpu"))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["die"]:
        sys.exit(die(folder))
    with contextlib.redirect_stdout(io.StringIO()) as printed, joined(torch.device("cpu")):
        result = train_together(folder)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(result | {"printed": printed.getvalue()}))
