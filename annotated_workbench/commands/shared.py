"""What several commands do alike: choose a device, load a run, read standard input."""

import io
import os
import shlex
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from annotated.fast.accelerate import has_fast_form
from annotated.fast.decoding import in_bfloat16
from annotated.fast.training import bf16_is_fast
from annotated_workbench.architectures import TaskName
from annotated_workbench.checkpoint import load_run, load_translator
from annotated_workbench.data import Aligned, Labelled, bare, decode
from annotated_workbench.reviews import load_reviews, read_reviews, split_reviews
from annotated_workbench.vocabulary import Tokenizer, sentence

READ_AT_ONCE = 2**15  # bytes of standard input, some hundred sentences: they are translated together


def find_device(name: str) -> torch.device:
    """Choose the device that --device names; a ValueError says which are usable if it is not."""
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    usable = [*(["cuda"] if gpus else []), *gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if name not in ("auto", *usable):
        raise ValueError(f"device {name!r} is not usable here; there are {', '.join(usable)}. Try --device auto.")
    return torch.device(usable[0] if name == "auto" else name)


def wants_bfloat16(args: Namespace, model: nn.Module) -> bool:
    """Tell whether to compute in bfloat16, by --precision, --plain and --device; only a fast form can."""
    fast = has_fast_form(model) and not args.plain
    if args.precision == "bf16" and not fast:
        why = "--plain" if args.plain else f"a {type(model).__name__}"
        raise ValueError(f"{why} computes in float32: leave --precision bf16 away.")
    return args.precision == "bf16" or (args.precision == "auto" and fast and bf16_is_fast(find_device(args.device)))


def load_model(args: Namespace, task: TaskName) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    """Read the run, or the ensemble, that a command names, onto its device and in its precision."""
    if task == "translation":
        if args.plain and args.ensemble:
            raise ValueError("--plain does nothing beside --ensemble: only the fast forms of models compute together.")
        model, tokenizer, info = load_translator([args.model, *args.ensemble])
    else:
        model, tokenizer, info = load_run(args.model, task)
    if wants_bfloat16(args, model):
        model = in_bfloat16(model)
    return model.to(find_device(args.device)), tokenizer, info


def search_options(args: Namespace) -> dict[str, Any]:
    """Pick the options that `translate` takes."""
    return {name: getattr(args, name) for name in ("beam", "alpha", "max_extra", "plain")}


def load_splits(args: Namespace, *splits: str) -> list[Labelled]:
    """Read splits of --reviews or of a corpus of reviews."""
    if not args.reviews:
        return [load_reviews(args.corpus, split) for split in splits]
    parts = read_reviews(args.reviews)
    return [split_reviews(parts, split) for split in splits]


def tell(text: str, end: str = "\n") -> None:
    """Say something on standard error or, where that is full, to nobody: it changes no exit status."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = io.StringIO()  # to the other Python would try to write again at its end


def name_files(texts: Sequence[str], remedy: str) -> None:
    """Say of each text that is the name of a file that it is taken as it stands."""
    for text in filter(os.path.isfile, texts):
        how = remedy.format(shlex.quote(text))
        tell(f"annotated: {text!r} is taken as a text; for what that file holds, give {how}")


def tell_doubles(scored: Aligned, training: Aligned, purpose: str = "validation") -> None:
    """Say how many of the pairs, or labelled texts, held out for a purpose are also in the training part."""
    held_out, learned = (zip(*(map(bare, side) for side in sides), strict=False) for sides in (scored, training))
    counts = Counter(held_out)
    if count := sum(counts[pair] for pair in set(counts).intersection(learned)):
        careful = f"Careful: {count:,} of the {len(scored[0]):,} held out for {purpose} are also in the training part"
        print(f"{careful}: the scores will be too good. Keep one of each, or give others for {purpose}.", flush=True)


def read_texts(args: Namespace, prompt: str) -> Iterator[list[str]]:
    """Give the texts that were typed, or lines of standard input as they come: up to `READ_AT_ONCE` bytes at a time.

    Someone at a terminal is asked for them by `prompt`. A ValueError names a line that is not UTF-8.
    """
    if args.texts:
        name_files(args.texts, "< {}")
        yield [sentence(decode(text, repr(text))) for text in args.texts]
        return
    asking = sys.stdin.isatty()
    if asking:
        tell(f"{prompt}, one a line; Ctrl-D ends.\n> ", end="")
    stream: Any = sys.stdin.buffer
    rest, number = b"", 1
    while content := stream.read1(READ_AT_ONCE):
        *lines, rest = (rest + content).split(b"\n")
        if lines:
            yield [sentence(decode(line, f"standard input, line {i}")) for i, line in enumerate(lines, start=number)]
            number += len(lines)
        if asking:
            tell("> ", end="")
    if rest:
        yield [sentence(decode(rest, f"standard input, line {number}"))]
    if asking:
        tell("")
