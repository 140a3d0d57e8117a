"""What several commands do alike: choose a device, load a run, read standard input."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from annotated.fast.decoding import in_bfloat16, in_int8
from annotated.fast.memory import keep_memory
from annotated.fast.training import bf16_is_fast
from annotated_workbench.architectures import TaskName
from annotated_workbench.checkpoint import load_run, load_translator, require_task
from annotated_workbench.data import Labelled, sentence
from annotated_workbench.reviews import load_reviews, read_reviews, split_reviews
from annotated_workbench.vocabulary import CharacterTokenizer, Tokenizer

LONGEST_LINE = 2**20  # bytes
READ_AT_ONCE = 2**15  # bytes of standard input, some hundred sentences: they are translated together


def find_device(name: str) -> torch.device:
    """Choose the device that --device names; a ValueError says which are usable if it is not.

    From then on attention on a GPU is left to PyTorch's own kernels.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    usable = [*(["cuda"] if gpus else []), *gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if name not in ("auto", *usable):
        raise ValueError(f"device {name!r} is not usable here; there are {', '.join(usable)}. Try --device auto.")
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN makes a plan for every new shape of a batch, and most are new
    return torch.device(usable[0] if name == "auto" else name)


def wants_bfloat16(args: Namespace) -> bool:
    """Tell whether to compute in bfloat16, by --precision, --plain and --device."""
    if args.precision != "auto":
        return args.precision == "bf16"
    return not args.plain and bf16_is_fast(find_device(args.device))


def refuse_eight_bits(args: Namespace) -> None:
    """Raise a ValueError where --precision asks for them and nothing is translated."""
    if args.precision == "int8":
        raise ValueError(f"--precision int8 is for translation, and {args.command} does something else.")


def load_model(args: Namespace, task: TaskName) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    """Read the run, or the ensemble, that a command names, onto its device and in its precision."""
    keep_memory()
    if task == "translation":
        model, tokenizer, info = load_translator([args.model, *args.ensemble])
    else:
        refuse_eight_bits(args)
        model, tokenizer, info = load_run(args.model)
        require_task(model, task, args.model)
    if args.precision == "int8":
        model = in_int8(model)
    elif wants_bfloat16(args):
        model = in_bfloat16(model)
    return model.to(find_device(args.device)), tokenizer, info


def load_language_model(args: Namespace) -> tuple[nn.Module, CharacterTokenizer]:
    """Do what `load_model` does, for a model of characters."""
    model, tokenizer, _ = load_model(args, "generation")
    if not isinstance(tokenizer, CharacterTokenizer):
        raise ValueError(f"{args.model} was not trained on characters: train it anew.")
    return model, tokenizer


def search_options(args: Namespace) -> dict[str, Any]:
    """Pick the options that `translate` takes."""
    return {name: getattr(args, name) for name in ("beam", "alpha", "max_extra", "plain")}


def load_split(args: Namespace, split: str) -> Labelled:
    """Read a split of --reviews or of a corpus of reviews."""
    return split_reviews(read_reviews(args.reviews), split) if args.reviews else load_reviews(args.corpus, split)


def typed_path(path: str) -> str:
    """Write a path as one must type it."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def one_line(text: str) -> str:
    """Keep line n of the output the translation of line n of the input, even if a model writes a line's end."""
    return text.replace("\n", " ")


def read_texts(args: Namespace, prompt: str) -> Iterator[list[str]]:
    """Give the texts that were typed, or lines of standard input as they come: up to `READ_AT_ONCE` bytes at a time.

    Someone at a terminal is asked for them by `prompt`. A ValueError names a line that is too long or not UTF-8.
    """
    if args.texts:
        yield args.texts
        return
    asking = sys.stdin.isatty()
    if asking:
        print(f"{prompt}, one a line; Ctrl-D ends.\n> ", end="", file=sys.stderr, flush=True)
    stream: Any = sys.stdin.buffer
    rest, number, ended = b"", 1, False
    while not ended:
        content = stream.read1(READ_AT_ONCE)
        ended = not content
        *lines, rest = (rest + content).split(b"\n")
        if ended and rest:
            lines.append(rest)
        if lines:
            yield [sentence(line, f"standard input, line {i}") for i, line in enumerate(lines, start=number)]
            number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"standard input, line {number} has more than {LONGEST_LINE:,} bytes: give sentences.")
        if asking:
            print("\n" if ended else "> ", end="", file=sys.stderr, flush=True)
