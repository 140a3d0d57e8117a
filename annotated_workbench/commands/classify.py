"""classify: texts in, labels and their probabilities out."""

import sys
from argparse import Namespace

from annotated_workbench.classification import classify
from annotated_workbench.commands.options import COMPUTE, MODEL, TEXTS_TO_READ, Command
from annotated_workbench.commands.shared import load_model, read_texts


def run(args: Namespace) -> None:
    """Print the likeliest label and its probability for each argument, or for lines of standard input as they come."""
    model, tokenizer, info = load_model(args, "classification")
    for texts in read_texts(args, f"Texts to sort, in {info['language']}"):
        probabilities = classify(model, tokenizer, texts, info["language"], plain=args.plain)
        for probability, label in zip(*probabilities.max(dim=-1), strict=True):
            print(f"{info['labels'][label]}\t{probability:.2f}")
        sys.stdout.flush()


COMMAND = Command(
    "sort texts, with a model that learned from reviews",
    run,
    ('runs/critic "Not bad at all."', "runs/critic < texts.txt"),
    MODEL | TEXTS_TO_READ,
    COMPUTE,
)
