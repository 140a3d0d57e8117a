"""translate: sentences in, translations out."""

import sys
from argparse import Namespace
from functools import partial

from annotated_workbench.checkpoint import load_translator
from annotated_workbench.commands.options import COMPUTE, MODEL, SEARCH, TEXTS_TO_READ, Command
from annotated_workbench.commands.shared import find_device, load_model, read_texts, search_options
from annotated_workbench.data import Pairs
from annotated_workbench.engine import CTranslate2
from annotated_workbench.metrics import loss_per_token
from annotated_workbench.translation import translate

UNSURE = 0.65  # nats a token of its own translation; the model of the course is surer of nine captions in ten


def run(args: Namespace) -> None:
    """Translate the arguments, or the lines of standard input as they come."""
    options = search_options(args)
    if args.engine:
        if options.pop("plain") or args.ensemble:
            raise ValueError("--plain and --ensemble do nothing beside --engine: it has one form, of one model.")
        model, tokenizer, info = load_translator([args.model])
        device = "auto" if args.device == "auto" else str(find_device(args.device))
        search = CTranslate2(model, tokenizer, args.precision, device).translate
    else:
        model, tokenizer, info = load_model(args, "translation")
        search = partial(translate, model, tokenizer)
    done = 0
    for texts in read_texts(args, f"Sentences to translate from {info['src']}"):
        try:
            translations = search(texts, info["src"], **options)
        except ValueError as error:
            raise ValueError(f"after {done} lines: {error}" if done else str(error)) from error
        for translation in translations:
            print(translation.replace("\n", " "))  # line n stays the translation of line n
        sys.stdout.flush()
        for text, translation in zip(texts, translations, strict=True) if args.texts or sys.stdin.isatty() else ():
            pair = Pairs([text], [translation])
            if text and loss_per_token(model, tokenizer, pair, info["src"], info["tgt"], plain=args.plain) > UNSURE:
                why = "a model knows only what is like the sentences it learned from."
                print(f"annotated: unsure of {text!r}: {why}", file=sys.stderr)
        done += len(texts)


COMMAND = Command(
    "translate sentences",
    run,
    (
        'data/checkpoints/de-en-best "Ein Mann mit Hut spielt auf der Straße Gitarre."',
        "data/checkpoints/de-en-best  # asks for sentences",
        "data/checkpoints/de-en-best < my.de > my.en",
    ),
    MODEL | TEXTS_TO_READ,
    f"engine {SEARCH} {COMPUTE}",
)
