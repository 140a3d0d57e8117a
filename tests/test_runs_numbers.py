"""The numbers of a run, by hand: which batches a seed gives, and what the clock says."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from annotated.config import TransformerConfig
from annotated.transformer import Transformer
from annotated_workbench import runs
from annotated_workbench.data import Pairs, encode_pairs, make_batches
from annotated_workbench.runs import TrainingOptions, train
from annotated_workbench.tasks import Batches, TranslationTask
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer

# Three pairs, and room for one in a batch: three updates an epoch, of (2 + 3) + (3 + 4) + (4 + 5) = 21 tokens.
PAIRS = Pairs(["eins", "eins zwei", "eins zwei drei"], ["one", "one two", "one two three"])
OPTIONS = TrainingOptions(epochs=4, batch_tokens=5, warmup=5, average=1)
TOKENIZER = WordTokenizer(Vocabulary([*SPECIALS, "eins", "zwei", "drei", "one", "two", "three"]), ("de", "en"))
TIMES = re.compile(r"(\S+) tokens/s  (\S+) min done, (\S+) min left")


class Watched:
    """A model, the sources of the batches it is trained on, and a clock by which each batch takes half a minute."""

    def __init__(self, patch: pytest.MonkeyPatch, began: float = 0.0) -> None:
        self.model = Transformer(TransformerConfig(len(TOKENIZER), d_model=8, d_ff=8, heads=2, layers=1, max_length=9))
        self.sources: list[list[list[int]]] = []
        self.began = began
        update = TranslationTask.update

        def watch(task: TranslationTask, model: nn.Module, batches: Batches, *rest: Any, **how: Any) -> float:
            self.sources += [src.tolist() for src, _ in batches] if model is self.model else []
            return update(task, model, batches, *rest, **how)

        patch.setattr(TranslationTask, "update", watch)
        patch.setattr(runs.time, "perf_counter", self.clock)

    def clock(self) -> float:
        return self.began + 30.0 * len(self.sources)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_no_generator_takes_is_named(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"seed={seed} must be at least 0 and at most 4,294,967,295"):
        TrainingOptions(seed=seed)


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_seeds_from_end_to_end_are_taken(seed: int) -> None:
    assert TrainingOptions(seed=seed).seed == seed
    torch.manual_seed(TrainingOptions(seed=seed).seed)


def test_no_two_runs_share_an_epoch_s_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epoch e of the run with seed s has the seed 1000 s + e: seeds and epochs are not interchangeable."""
    watched = Watched(monkeypatch)
    train(watched.model, TOKENIZER, PAIRS, PAIRS, tmp_path, options=replace(OPTIONS, seed=2, epochs=6))
    sources, targets, _ = encode_pairs(PAIRS, TOKENIZER, "de", "en", 9)
    expected = [
        batch.src.tolist() for seed in range(2000, 2006) for batch in make_batches(sources, targets, 5, seed=seed)
    ]
    assert watched.sources == expected


def report(capsys: pytest.CaptureFixture[str]) -> list[list[float]]:
    """Tokens a second, minutes done and minutes left, as each epoch's line prints them."""
    return [[float(number) for number in found] for found in TIMES.findall(capsys.readouterr().out)]


def test_minutes_and_speed_are_those_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = train(
        Watched(monkeypatch, began=1000.0).model, TOKENIZER, PAIRS, PAIRS, tmp_path, options=replace(OPTIONS, epochs=2)
    )
    assert [line["minutes"] for line in metrics] == [1.5, 3.0]
    assert [line["tokens_per_second"] for line in metrics] == pytest.approx([21 / 90] * 2)
    assert report(capsys) == [[0, 1.5, 1.5], [0, 3.0, 0.0]]

    resumed = Watched(monkeypatch, began=50.0)  # another day's clock; what was done before counts on
    metrics = train(resumed.model, TOKENIZER, PAIRS, PAIRS, tmp_path, options=OPTIONS, resume=True)
    assert [line["minutes"] for line in metrics] == [1.5, 3.0, 4.5, 6.0]
    assert report(capsys) == [[0, 4.5, 1.5], [0, 6.0, 0.0]]


def test_what_ends_first_says_how_many_minutes_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four epochs would take 6 minutes and 5 are allowed: the fourth ends after its first update."""
    metrics = train(
        Watched(monkeypatch, began=1000.0).model,
        TOKENIZER,
        PAIRS,
        PAIRS,
        tmp_path,
        options=replace(OPTIONS, max_minutes=5.0),
    )
    assert [line["epoch"] for line in metrics] == pytest.approx([1, 2, 3, 3 + 1 / 3])
    assert [line[1:] for line in report(capsys)] == [[1.5, 3.5], [3.0, 2.0], [4.5, 0.5], [5.0, 0.0]]

    train(
        Watched(monkeypatch).model,
        TOKENIZER,
        PAIRS,
        PAIRS,
        tmp_path / "long",
        options=replace(OPTIONS, max_minutes=20.0),
    )
    assert [line[1:] for line in report(capsys)] == [[1.5, 4.5], [3.0, 3.0], [4.5, 1.5], [6.0, 0.0]]
