"""export: a run in, a folder for another engine out."""

import shlex
from argparse import Namespace
from pathlib import Path

from annotated_workbench.checkpoint import load_run
from annotated_workbench.commands.options import MODEL, Command
from annotated_workbench.export import export


def run(args: Namespace) -> None:
    """Write the folder, and say how to translate with it."""
    model, tokenizer, _ = load_run(args.model)
    export(model, tokenizer, args.to, args.out)
    print(f"Try it: python {shlex.quote(str(Path(args.out) / 'translate.py'))} < sentences.txt")


COMMAND = Command(
    "write a model for another engine: CTranslate2, Hugging Face transformers, ONNX Runtime",
    run,
    ("data/checkpoints/de-en-best --to ctranslate2 --out exported",),
    MODEL,
    "to out",
)
