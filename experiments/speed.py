"""How fast training and decoding are, beside other people's code and our LSTM, in one run: `make bench`.

    python -m experiments.speed [--quick] [--parts training neighbours recurrence decoding]

Each contestant has a process of its own, so that nobody finds memory that another has left; they take turns, so that a
slow moment of the machine hits all alike. Medians: quote the ratios. Peers that are not installed are left out: Hugging
Face and CTranslate2 come with the newer torch, which `make bench` takes.
"""

import argparse
import importlib.metadata
import importlib.util
import math
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import beam_search, greedy_decode, in_bfloat16, in_int8
from annotated.fast.memory import keep_memory
from annotated.fast.products import linear
from annotated.fast.training import bf16_is_fast, make_optimizer, train_step
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.training import make_optimizer as make_plain_optimizer
from annotated.training import train_step as plain_step
from annotated.transformer import Transformer
from annotated_course.bench import processor
from annotated_workbench.data import pad
from experiments import peers

VOCAB, SENTENCES, TOKENS = 6000, 240, 17
TO_TRANSLATE, SOURCE_TOKENS, BATCH = 1000, 16, 128
RATE = 1e-4
PARTS = ("training", "neighbours", "recurrence", "decoding")
PRODUCTS = 50  # of which the peak is measured: a single one is over before all threads are awake


class Contestant(NamedTuple):
    """What makes, in a process of its own, the function that is timed; and whether idle threads sleep there."""

    make: Callable[[], Callable[[], object]]
    passive: bool = False


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one repetition of everything: are all paths alive?")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to time")
    given = parser.parse_args()
    quick, began, bf16 = given.quick, time.perf_counter(), bf16_is_fast(torch.device("cpu"))
    print(f"{processor()}, torch {torch.__version__}, {_versions()}{time.strftime('%Y-%m-%d')}", flush=True)
    if "training" in given.parts:
        for threads in (1, 2):
            training(bf16, threads, 1 if quick else 7)
    if "neighbours" in given.parts:
        neighbours(bf16, 1 if quick else 5)
    if "recurrence" in given.parts:
        for threads in (1, 2):
            recurrence(bf16, threads, 1 if quick else 7)
    if "decoding" in given.parts:
        decoding(bf16, 1 if quick else 3)
    print(f"\n{(time.perf_counter() - began) / 60:.1f} minutes in all")


def training(bf16: bool, threads: int, repetitions: int) -> None:
    """Time one update at equal sizes, batch and loss."""
    contestants = {
        "ours, float32": Contestant(_ours, passive=True),
        "ours, float32, the plain form": Contestant(_plain, passive=True),
        "torch.nn.Transformer": Contestant(_library),
    }
    if bf16:
        contestants["ours, bfloat16"] = Contestant(partial(_ours, True), passive=True)
        contestants["torch.nn.Transformer, bfloat16 autocast"] = Contestant(partial(_library, True))
        contestants["the same, told to keep its memory"] = Contestant(partial(_library, True, keep=True))
    if installed("transformers"):
        contestants["Hugging Face MarianMTModel"] = Contestant(_marian)
        if bf16:
            contestants["Hugging Face MarianMTModel, bfloat16 autocast"] = Contestant(partial(_marian, True))
    kinds = {"float32": torch.float32} | ({"bfloat16": torch.bfloat16} if bf16 else {})
    multiply = {"PyTorch's @": torch.matmul, "our product": linear}
    contestants |= {
        f"{how}, {name}": Contestant(partial(_product, function, kind))
        for name, kind in kinds.items()
        for how, function in multiply.items()
    }
    seconds = _medians(contestants, threads, repetitions)
    rates = {
        name: {how: PRODUCTS * 2 * 1024**3 / seconds.pop(f"{how}, {name}") / 1e9 for how in multiply} for name in kinds
    }

    operations = multiplications(TransformerConfig.small(VOCAB), SENTENCES, TOKENS) * 6 / 1e9
    print(
        f"\nTraining step, {SENTENCES} × {TOKENS} tokens a side, {threads} thread{'s' * (threads > 1)}; "
        f"one step is {operations:.0f} GFLOP of matrix products\n  {'':46} {'ms':>6} {'tokens/s':>9} {'times ours':>11}"
    )
    _print_steps(seconds, seconds[f"ours, {'bfloat16' if bf16 else 'float32'}"])
    for name, peaks in rates.items():
        rate = operations / seconds[f"ours, {name}"]
        shares = ", ".join(f"{rate / peak:.0%} of the {peak:.0f} of {how}" for how, peak in peaks.items())
        print(f"  {name}: ours runs at {rate:.0f} GFLOP/s, {shares} (1,024 × 1,024)")


def neighbours(bf16: bool, repetitions: int) -> None:
    """Time one update on two threads while two other processes keep the processor busy."""
    contestants = {
        "threads wait passively, as in the command line": Contestant(partial(_ours, bf16), passive=True),
        "threads wait in a loop, as OpenMP likes it": Contestant(partial(_ours, bf16)),
    }
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    seconds = _medians(contestants, 2, repetitions)
    for other in others:
        other.terminate()
    print(
        f"\nTraining step, 2 threads beside two busy processes\n  {'':46} {'ms':>6} {'tokens/s':>9} {'times ours':>11}"
    )
    _print_steps(seconds, next(iter(seconds.values())))


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    src, tgt = (torch.randint(UNK, VOCAB, (SENTENCES, TOKENS + i)) for i in (0, 1))
    return src, tgt


def _ours(bf16: bool = False) -> Callable[[], object]:
    keep_memory()
    model = Transformer(TransformerConfig.small(VOCAB))
    return partial(train_step, model, *_batch(), make_optimizer(model, RATE), bf16=bf16)


def _lstm(bf16: bool) -> Callable[[], object]:
    keep_memory()
    model = RecurrentTranslator(RecurrentConfig(VOCAB))
    return partial(train_step, model, *_batch(), make_optimizer(model, RATE), bf16=bf16)


def _plain() -> Callable[[], object]:
    model = Transformer(TransformerConfig.small(VOCAB))
    return partial(plain_step, model, *_batch(), make_plain_optimizer(model, RATE))


def _library(bf16: bool = False, keep: bool = False) -> Callable[[], object]:
    if keep:
        keep_memory()
    config, (src, tgt) = TransformerConfig.small(VOCAB), _batch()
    model = peers.LibraryTransformer(config, Transformer(config).positions)
    return textbook_step(lambda: model(src, tgt[:, :-1]), tgt, make_plain_optimizer(model, RATE), bf16)


def _marian(bf16: bool = False) -> Callable[[], object]:
    model, (src, tgt) = peers.marian(TransformerConfig.small(VOCAB)).train(), _batch()
    inputs = {"input_ids": src, "attention_mask": src != PAD, "decoder_input_ids": tgt[:, :-1]}
    return textbook_step(lambda: model(**inputs).logits, tgt, make_plain_optimizer(model, RATE), bf16)


def textbook_step(
    logits: Callable[[], torch.Tensor], tgt: torch.Tensor, optimizer: torch.optim.Optimizer, bf16: bool
) -> Callable[[], float]:
    """Make the update of the tutorials, which returns its loss, as ours does."""

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast(tgt.device.type, dtype=torch.bfloat16, enabled=bf16):
            found, wanted = logits().flatten(0, 1), tgt[:, 1:].flatten()
            loss = F.cross_entropy(found, wanted, ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _product(multiply: Callable[..., torch.Tensor], kind: torch.dtype) -> Callable[[], object]:
    square = torch.randn(1024, 1024).to(kind)
    return lambda: [multiply(square, square) for _ in range(PRODUCTS)]


def _spin() -> None:
    while True:
        math.sqrt(2.0)


def recurrence(bf16: bool, threads: int, repetitions: int) -> None:
    """Time one update of the Transformer and of the LSTM with attention, of about the same size."""
    contestants = {
        "Transformer": Contestant(partial(_ours, bf16), passive=True),
        "LSTM with attention": Contestant(partial(_lstm, bf16), passive=True),
    }
    seconds = _medians(contestants, threads, repetitions)
    precision = "bfloat16" if bf16 else "float32"
    print(f"\nTraining step as above, {threads} thread{'s' * (threads > 1)}, {precision}")
    _print_steps(seconds, seconds["Transformer"])


def decoding(bf16: bool, repetitions: int) -> None:
    """Time the translation of sentences that all take 16 steps: random weights, and no more tokens than the source."""
    print(
        f"\nTranslating {TO_TRANSLATE:,} sentences of {SOURCE_TOKENS} tokens, batches of {BATCH}, one thread"
        f"\n  {'':34} {'s':>6} {'times ours':>11}"
    )
    for beam in (1, 4):
        ours = {"float32": nn.Module.float} | ({"bfloat16": in_bfloat16} if bf16 else {}) | {"int8": in_int8}
        contestants = {
            f"ours, {kind}": Contestant(partial(_search, beam, change), passive=True) for kind, change in ours.items()
        }
        if installed("ctranslate2"):
            for kind in ("float32", "int8"):
                contestants[f"CTranslate2, {kind}"] = Contestant(partial(_ctranslate2, beam, kind))
        if installed("transformers"):
            contestants["Hugging Face generate"] = Contestant(partial(_generate, beam))
        seconds = _medians(contestants, 1, repetitions)
        best = seconds["ours, int8"]
        for name, time_ in seconds.items():
            print(
                f"  {f'beam {beam}' if beam > 1 else 'greedy':8}{name:26} {time_:6.2f} {time_ / best:11.2f}", flush=True
            )


def _medians(contestants: dict[str, Contestant], threads: int, repetitions: int) -> dict[str, float]:
    """Keep the seconds alone of what `contest` finds."""
    return {name: seconds for name, (seconds, _) in contest(contestants, threads, repetitions).items()}


def contest(contestants: dict[str, Contestant], threads: int, repetitions: int) -> dict[str, tuple[float, float]]:
    """Start each in its process and call it once to warm up, then all in turn.

    Returns:
        Each one's median seconds, and the megabytes by which its process grew.
    """
    context, seconds = multiprocessing.get_context("spawn"), {name: [] for name in contestants}
    processes, ends, megabytes = [], {}, {}
    for name, (make, passive) in contestants.items():
        ends[name], end = context.Pipe()
        processes.append(context.Process(target=_compete, args=(end, make, threads), daemon=True))
        os.environ.pop("OMP_WAIT_POLICY", None)
        if passive:
            os.environ["OMP_WAIT_POLICY"] = "passive"
        processes[-1].start()
        ends[name].recv()
    for _ in range(repetitions):
        for name, end in ends.items():
            end.send(True)
            seconds[name].append(end.recv())
    for (name, end), process in zip(ends.items(), processes, strict=True):
        end.send(False)
        megabytes[name] = end.recv()
        process.join()
    return {name: (statistics.median(times), megabytes[name]) for name, times in seconds.items()}


def _compete(end: Connection, make: Callable[[], Callable[[], object]], threads: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call = make()
    call()
    end.send(True)
    while end.recv():
        began = time.perf_counter()
        call()
        end.send(time.perf_counter() - began)
    end.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def _print_steps(seconds: dict[str, float], unit: float) -> None:
    for name, time_ in seconds.items():
        print(f"  {name:46} {time_ * 1e3:6.0f} {2 * SENTENCES * TOKENS / time_:9,.0f} {time_ / unit:11.2f}")


def _rows() -> list[list[list[int]]]:
    rows = [[*row, EOS] for row in torch.randint(UNK, VOCAB, (TO_TRANSLATE, SOURCE_TOKENS - 1)).tolist()]
    return [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]


def _search(beam: int, change: Callable[[nn.Module], nn.Module]) -> Callable[[], object]:
    keep_memory()
    model: Any = accelerate(change(Transformer(TransformerConfig.small(VOCAB)).eval())).frozen()
    search = partial(beam_search, beam=beam, max_extra=0) if beam > 1 else partial(greedy_decode, max_extra=0)
    batches = _rows()
    return lambda: [search(model, pad(batch)) for batch in batches]


def _ctranslate2(beam: int, kind: str) -> Callable[[], object]:
    model = Transformer(TransformerConfig.small(VOCAB)).eval()
    translate = peers.ctranslate2(model, kind, beam=beam, alpha=0.6 if beam > 1 else 0.0, max_extra=0)
    batches = _rows()
    return lambda: [translate(batch) for batch in batches]


def _generate(beam: int) -> Callable[[], object]:
    model = peers.marian(TransformerConfig.small(VOCAB)).eval()
    options = dict(num_beams=beam, do_sample=False, max_new_tokens=SOURCE_TOKENS, min_new_tokens=SOURCE_TOKENS)
    batches = _rows()
    return lambda: [
        model.generate(
            input_ids=pad(batch), attention_mask=torch.ones(len(batch), SOURCE_TOKENS), bos_token_id=BOS, **options
        )
        for batch in batches
    ]


def multiplications(config: TransformerConfig, sentences: int, length: int) -> int:
    """Count the multiplications with weights and between positions in one forward pass, both sides equally long."""
    tokens, d = sentences * length, config.d_model
    attention = 4 * tokens * d * d + 2 * tokens * length * d
    feed_forward = 2 * tokens * d * config.d_ff
    return config.layers * (3 * attention + 2 * feed_forward) + tokens * d * config.vocab_size


def _versions() -> str:
    names = ("transformers", "ctranslate2")
    return "".join(f"{name} {importlib.metadata.version(name)}, " for name in names if installed(name))


def installed(name: str) -> bool:
    """Tell whether a package is there."""
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
