"""generate: the beginning of a text in, and what a model adds to it out."""

from argparse import Namespace
from typing import Any

import torch

from annotated.config import UNK
from annotated.fast.accelerate import accelerate, has_fast_form
from annotated.models.language_model import generate
from annotated_workbench.commands.options import COMPUTE, MODEL, Command
from annotated_workbench.commands.shared import load_model, name_files
from annotated_workbench.data import decode
from annotated_workbench.vocabulary import CharacterTokenizer


def run(args: Namespace) -> None:
    """Print a text and what a model adds to it."""
    model, tokenizer, _ = load_model(args, "generation")
    assert isinstance(tokenizer, CharacterTokenizer)  # no other is for texts to continue
    vocabulary = tokenizer.vocabulary
    text = args.beginning
    if text is None:
        text = "\n" if "\n" in vocabulary else vocabulary.words[UNK + 1]
    name_files([text], '"$(cat {})"')
    text = decode(text, repr(text))
    if unknown := sorted(set(text) - set(vocabulary.words)):
        raise ValueError(f"the model has never seen {unknown[0]!r}: begin with characters of the text it learned from.")
    writer: Any = accelerate(model) if has_fast_form(model) and not args.plain else model
    device = next(model.parameters()).device
    ids = generate(
        writer,
        torch.tensor([tokenizer.encode(text, "")], dtype=torch.int64, device=device),
        args.count,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        generator=torch.Generator(device).manual_seed(args.seed),
    )
    print(tokenizer.decode(ids[0]))


COMMAND = Command(
    "continue a text, with a model that learned from one",
    run,
    ('runs/writer "Once upon a time"', 'runs/writer --temperature 0.7 --count 2000 "Once upon a time"'),
    MODEL | {"beginning": dict(nargs="?", help="of the text; the end of a line unless given")},
    f"count temperature top-k top-p seed {COMPUTE}",
)
