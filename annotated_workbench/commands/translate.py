"""translate: sentences in, translations out."""

import sys
from argparse import Namespace

from annotated_workbench.commands.options import COMPUTE, MODEL, SEARCH, TEXTS_TO_READ, Command
from annotated_workbench.commands.shared import load_model, read_texts, search_options, tell
from annotated_workbench.translation import GUESS, is_unsure, n_best, words_written


def run(args: Namespace) -> None:
    """Translate the arguments, or the lines of standard input as they come."""
    options = search_options(args) | {"nbest": args.nbest or 1}
    if options["nbest"] > max(args.beam, 1):
        raise ValueError(f"--nbest {args.nbest} needs as wide a --beam at least, and that is {args.beam}.")
    model, tokenizer, info = load_model(args, "translation")
    done = 0
    for texts in read_texts(args, f"Sentences to translate from {info['src']}"):
        try:
            found = n_best(model, tokenizer, texts, info["src"], **options)
        except ValueError as error:
            raise ValueError(f"after {done} lines: {error}" if done else str(error)) from error
        for number, best in enumerate(found, start=done + 1):
            for text, score in best:
                print(f"{number}\t{score:.4f}\t" * bool(args.nbest) + text.replace("\n", " "))  # line n stays line n
        sys.stdout.flush()
        for text, ((translation, _), *_) in zip(texts, found, strict=True) if args.texts or sys.stdin.isatty() else ():
            words = words_written(model, tokenizer, text, translation, info["src"], info["tgt"])
            if text and is_unsure(words):
                guesses = f"words guessed: {sum(word.probability < GUESS for word in words)} of {len(words)}"
                why = "a model knows only what is like the sentences it learned from."
                tell(f"annotated: unsure of {text!r} ({guesses}): {why}")
        done += len(texts)


COMMAND = Command(
    "translate sentences",
    run,
    (
        'data/checkpoints/de-en-best "Ein Mann mit Hut spielt auf der Straße Gitarre."',
        "data/checkpoints/de-en-best  # asks for sentences",
        "data/checkpoints/de-en-best < my.de > my.en",
        'data/checkpoints/de-en-best --nbest 3 "Ein Hund schläft."',
    ),
    MODEL | TEXTS_TO_READ,
    f"nbest {SEARCH} {COMPUTE}",
)
