"""translate: sentences in, translations out."""

import sys
from argparse import Namespace
from typing import Any

from torch import nn

from annotated_workbench.commands.options import COMPUTE, MODEL, SEARCH, TEXTS_TO_READ, Command
from annotated_workbench.commands.shared import load_model, one_line, read_texts, search_options
from annotated_workbench.data import Pairs
from annotated_workbench.metrics import log_probs
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import Tokenizer

UNSURE = 0.65  # nats a token of its own translation; the model of the course is surer of nine captions in ten


def run(args: Namespace) -> None:
    """Translate the arguments, or the lines of standard input as they come."""
    model, tokenizer, info = load_model(args, "translation")
    done = 0
    for texts in read_texts(args, f"Sentences to translate from {info['src']}"):
        try:
            translations = translate(model, tokenizer, texts, info["src"], **search_options(args))
        except ValueError as error:
            raise ValueError(f"after {done} lines: {error}" if done else str(error)) from error
        for translation in translations:
            print(one_line(translation))
        sys.stdout.flush()
        if (args.texts or sys.stdin.isatty()) and not args.ensemble:
            for text in find_unsure(model, tokenizer, Pairs(list(texts), translations), info, args.plain):
                print(
                    f"annotated: unsure of {text!r}: a model knows only what is like the sentences it learned from.",
                    file=sys.stderr,
                )
        done += len(texts)


def find_unsure(model: nn.Module, tokenizer: Tokenizer, pairs: Pairs, info: dict[str, Any], plain: bool) -> list[str]:
    """Find the texts whose translations the model itself takes for unlikely; arguments as for `log_probs`."""
    scores = log_probs(model, tokenizer, pairs, info["src"], info["tgt"], plain=plain)
    lengths = [len(ids) + 1 for ids in tokenizer.encode_batch(pairs.target, info["tgt"])]
    rows = zip(pairs.source, scores, lengths, strict=True)
    return [text for text, score, length in rows if text and -score / length > UNSURE]


COMMAND = Command(
    "translate sentences",
    run,
    (
        'data/checkpoints/de-en-best "Ein Mann mit Hut spielt auf der Straße Gitarre."',
        "data/checkpoints/de-en-best  # asks for sentences",
        "data/checkpoints/de-en-best < my.de > my.en",
    ),
    MODEL | TEXTS_TO_READ,
    f"{SEARCH} {COMPUTE}",
)
