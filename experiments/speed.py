"""How fast training and decoding are, beside other people's code and our LSTM, in one run: `make bench`.

    python -m experiments.speed [--quick]

Medians of interleaved repetitions, so that a slow moment of the machine hits all alike: quote the ratios. Each table is
made by a process of its own: memory that training has left to a process makes what follows there faster, some libraries
more than others, and who translates has not trained before. Peers that are not installed are left out: Hugging Face and
CTranslate2 come with the newer torch, which `make bench` takes.
"""

import argparse
import copy
import importlib.metadata
import importlib.util
import math
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.decoding import beam_search, greedy_decode
from annotated.fast.decoding import in_bfloat16
from annotated.fast.training import bf16_is_fast, train_step
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.training import make_optimizer
from annotated.transformer import Transformer
from annotated.workbench.data import pad
from experiments import peers

VOCAB, SENTENCES, TOKENS = 6000, 240, 17
TO_TRANSLATE, SOURCE_TOKENS, BATCH = 1000, 16, 128
RATE = 1e-4
Timed = dict[str, Callable[[], object]]


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one repetition of everything: are all paths alive?")
    repetitions = 1 if parser.parse_args().quick else None
    began = time.perf_counter()
    print(f"{processor()}, torch {torch.__version__}, {_versions()}{time.strftime('%Y-%m-%d')}", flush=True)
    parts = (training, 1, 7), (training, 2, 7), (recurrence, 1, 7), (recurrence, 2, 7), (decoding, 1, 3), (growth, 1, 5)
    for part, threads, usual in parts:
        arguments = part, threads, repetitions or usual
        process = multiprocessing.get_context("spawn").Process(target=_alone, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)
    print(f"\n{(time.perf_counter() - began) / 60:.1f} minutes in all")


def training(bf16: bool, repetitions: int) -> None:
    """Time one update at equal sizes, batch and loss."""
    threads = torch.get_num_threads()
    config = TransformerConfig.small(VOCAB)
    src = torch.randint(UNK, VOCAB, (SENTENCES, TOKENS))
    tgt = torch.randint(UNK, VOCAB, (SENTENCES, TOKENS + 1))

    def textbook_step(model: torch.nn.Module, logits: Callable[[], torch.Tensor], optimizer: torch.optim.Adam) -> None:
        optimizer.zero_grad()
        F.cross_entropy(logits().flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1).backward()
        optimizer.step()

    ours = Transformer(config)
    library = peers.LibraryTransformer(config, copy.deepcopy(ours.positions))
    optimizers = {model: make_optimizer(model, RATE) for model in (ours, library)}
    timed: Timed = {"ours, float32": partial(train_step, ours, src, tgt, optimizers[ours])}
    if bf16:
        timed["ours, bfloat16"] = partial(train_step, ours, src, tgt, optimizers[ours], bf16=True)
    timed["torch.nn.Transformer"] = partial(
        textbook_step, library, lambda: library(src, tgt[:, :-1]), optimizers[library]
    )
    if _installed("transformers"):
        marian = peers.marian(config).train()
        timed["Hugging Face MarianMTModel"] = partial(
            textbook_step,
            marian,
            lambda: marian(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt[:, :-1]).logits,
            make_optimizer(marian, RATE),
        )
    squares = {
        name: torch.randn(1024, 1024).to(dtype) for name, dtype in (("float32", None), ("bfloat16", torch.bfloat16))
    }
    timed |= {f"peak, {name}": partial(torch.matmul, x, x) for name, x in squares.items() if bf16 or name == "float32"}
    seconds = _medians(timed, repetitions)

    peaks = {
        name: 2 * 1024**3 / seconds.pop(f"peak, {name}") / 1e9
        for name in ("float32", "bfloat16")
        if f"peak, {name}" in seconds
    }
    best = seconds["ours, bfloat16" if bf16 else "ours, float32"]
    operations = _multiplications(config) * 6 / 1e9
    print(
        f"\nTraining step, {SENTENCES} × {TOKENS} tokens a side, {threads} thread{'s' * (threads > 1)}; "
        f"one step is {operations:.0f} GFLOP of matrix products\n  {'':28} {'ms':>6} {'tokens/s':>9} {'times ours':>11}"
    )
    _print_steps(seconds, best)
    for name, peak in peaks.items():
        time_ = seconds[f"ours, {name}"]
        print(f"  measured {name} peak {peak:.0f} GFLOP/s: ours runs at {operations / time_ / peak:.0%} of it")


def recurrence(bf16: bool, repetitions: int) -> None:
    """Time one update of the Transformer and of the LSTM with attention, of about the same size."""
    threads = torch.get_num_threads()
    src, tgt = (torch.randint(UNK, VOCAB, (SENTENCES, TOKENS + i)) for i in (0, 1))
    models = {
        "Transformer": Transformer(TransformerConfig.small(VOCAB)),
        "LSTM with attention": RecurrentTranslator(RecurrentConfig(VOCAB)),
    }
    timed: Timed = {
        name: partial(train_step, model, src, tgt, make_optimizer(model, RATE), bf16=bf16)
        for name, model in models.items()
    }
    seconds = _medians(timed, repetitions)
    precision = "bfloat16" if bf16 else "float32"
    print(f"\nTraining step as above, {threads} thread{'s' * (threads > 1)}, {precision}")
    _print_steps(seconds, seconds["Transformer"])


def decoding(bf16: bool, repetitions: int) -> None:
    """Time the translation of sentences that all take 16 steps: random weights, and no more tokens than the source."""
    model = Transformer(TransformerConfig.small(VOCAB)).eval()
    low = in_bfloat16(model)
    rows = [[*row, EOS] for row in torch.randint(UNK, VOCAB, (TO_TRANSLATE, SOURCE_TOKENS - 1)).tolist()]
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]

    def over_batches(translate: Callable[[list[list[int]]], object]) -> Callable[[], object]:
        return lambda: [translate(batch) for batch in batches]

    print(
        f"\nTranslating {TO_TRANSLATE:,} sentences of {SOURCE_TOKENS} tokens, batches of {BATCH}, one thread"
        f"\n  {'':34} {'s':>6} {'times ours':>11}"
    )
    for beam in (1, 4):
        search = partial(beam_search, beam=beam, max_extra=0) if beam > 1 else partial(greedy_decode, max_extra=0)
        timed: Timed = {"ours, float32": over_batches(lambda batch, search=search: search(model, pad(batch)))}
        if bf16:
            timed["ours, bfloat16"] = over_batches(lambda batch, search=search: search(low, pad(batch)))
        if _installed("ctranslate2"):
            for kind in ("float32", "int8"):
                alpha = 0.6 if beam > 1 else 0.0
                timed[f"CTranslate2, {kind}"] = over_batches(
                    peers.ctranslate2(model, kind, beam=beam, alpha=alpha, max_extra=0)
                )
        if _installed("transformers"):
            timed["Hugging Face generate"] = over_batches(_generate(beam))
        seconds = _medians(timed, repetitions)
        best = seconds["ours, bfloat16" if bf16 else "ours, float32"]
        for name, time_ in seconds.items():
            print(
                f"  {f'beam {beam}' if beam > 1 else 'greedy':8}{name:26} {time_:6.2f} {time_ / best:11.2f}", flush=True
            )


def growth(bf16: bool, repetitions: int) -> None:
    """Time one update, and weigh what it keeps for the backward pass, as one size grows."""
    print(
        f"\nOne step as one size grows, one thread, {'bfloat16' if bf16 else 'float32'}; else 32 × 32 tokens "
        "(8 × length), N = 3, d_model = 256, d_ff = 2 d_model"
        f"\n  {'':14} {'ms':>7} {'MB kept':>8}   exponents since the row above"
    )
    for name, sizes in (
        ("length", (16, 32, 64, 128, 256, 512)),
        ("batch", (8, 16, 32, 64, 128)),
        ("layers", (1, 2, 4, 8)),
        ("d_model", (64, 128, 256, 512)),
    ):
        steps: Timed = {}
        kept = []
        for size in sizes:
            chosen = {"length": 32, "batch": 8 if name == "length" else 32, "layers": 3, "d_model": 256} | {name: size}
            width = chosen["d_model"]
            config = TransformerConfig.small(
                VOCAB, layers=chosen["layers"], d_model=width, d_ff=2 * width, max_length=513
            )
            model = Transformer(config)
            src, tgt = (torch.randint(UNK, VOCAB, (chosen["batch"], chosen["length"] + i)) for i in (0, 1))
            step = partial(train_step, model, src, tgt, make_optimizer(model, RATE), bf16=bf16)
            kept.append(_megabytes_kept(model, step))
            steps[str(size)] = step
        seconds = _medians(steps, repetitions)
        for i, size in enumerate(sizes):
            exponents = ""
            if i:
                ratio = math.log(size / sizes[i - 1])
                grown = (seconds[str(size)] / seconds[str(sizes[i - 1])], kept[i] / kept[i - 1])
                exponents = "time {:.2f}, memory {:.2f}".format(*(math.log(x) / ratio for x in grown))
            print(f"  {name:8}{size:6} {seconds[str(size)] * 1e3:7.0f} {kept[i]:8.0f}   {exponents}", flush=True)


def _alone(part: Callable[[bool, int], None], threads: int, repetitions: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    part(bf16_is_fast(torch.device("cpu")), repetitions)


def _medians(timed: Timed, repetitions: int) -> dict[str, float]:
    """Call each once to warm up, then all in turn; return each one's median seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for repetition in range(repetitions + 1):
        for name, call in timed.items():
            began = time.perf_counter()
            call()
            if repetition:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _print_steps(seconds: dict[str, float], unit: float) -> None:
    for name, time_ in seconds.items():
        print(f"  {name:28} {time_ * 1e3:6.0f} {2 * SENTENCES * TOKENS / time_:9,.0f} {time_ / unit:11.2f}")


def _generate(beam: int) -> Callable[[list[list[int]]], object]:
    model = peers.marian(TransformerConfig.small(VOCAB)).eval()
    options = dict(num_beams=beam, do_sample=False, max_new_tokens=SOURCE_TOKENS, min_new_tokens=SOURCE_TOKENS)
    return lambda batch: model.generate(
        input_ids=pad(batch), attention_mask=torch.ones(len(batch), SOURCE_TOKENS), bos_token_id=BOS, **options
    )


def _megabytes_kept(model: Transformer, step: Callable[[], object]) -> float:
    """Sum the storages that autograd keeps in one step, the weights not counted."""
    kept: dict[int, int] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = max(kept.get(storage.data_ptr(), 0), storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step()
    return sum(kept.values()) / 1e6


def _multiplications(config: TransformerConfig) -> int:
    """Count the multiplications with weights and between positions in one forward pass of the training batch."""
    tokens, d = SENTENCES * TOKENS, config.d_model
    attention = 4 * tokens * d * d + 2 * SENTENCES * TOKENS**2 * d
    feed_forward = 2 * tokens * d * config.d_ff
    return config.layers * (3 * attention + 2 * feed_forward) + tokens * d * config.vocab_size


def processor() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def _versions() -> str:
    names = ("transformers", "ctranslate2")
    return "".join(f"{name} {importlib.metadata.version(name)}, " for name in names if _installed(name))


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
