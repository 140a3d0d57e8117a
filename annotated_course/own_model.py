"""The reader's own model: trained in chapter 07, searched in 08, opened in 09."""

import os
from pathlib import Path
from typing import Any

from annotated_workbench import command_line
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import Tokenizer, load_tokenizer

OWN = Path(os.environ.get("ANNOTATED_MINE", DATA_FOLDER.parent / "work" / "mine"))  # make gives none to what it checks
EPOCHS = 12
# As in the paper, but for the sizes, the rate's factor, the steps of warm-up and epochs, and dropout.
TRAINING = (
    "train --corpus grammar --src de --tgt en --preset tiny --tokenizer bpe --vocab-size 2000 --dropout 0 "
    f"--batch-tokens 1200 --warmup 200 --rate 0.5 --epochs {EPOCHS} --average 5"
)


def train_my_model() -> None:
    """Train the reader's own model into work/mine, for two to five minutes; what was interrupted there goes on."""
    if epochs_done() >= EPOCHS:
        print(f"Your model has done its {EPOCHS} epochs. To train another, move {OWN} away.")
        return
    more = " --resume" * (OWN / "state.safetensors").exists()
    print(f"python -m annotated {TRAINING}{more} --out {OWN}", flush=True)
    command_line.main([*f"{TRAINING}{more}".split(), "--out", str(OWN)])


def epochs_done() -> int:
    """Count the epochs that the reader's own model has learned for, each a line of its measurements."""
    measured = OWN / "metrics.jsonl"
    return len(measured.read_text(encoding="utf-8").splitlines()) if measured.is_file() else 0


def my_model(name: str = "mine") -> tuple[Any, Tokenizer]:
    """Load the reader's own model once it is trained, or a copy: "mine", "mine-minute" (early), "mine-1" (other seed).

    Which, and how far the reader's own has got, is printed.
    """
    done = epochs_done() if name == "mine" else 0
    own = done >= EPOCHS
    folder = OWN if own else DATA_FOLDER / "checkpoints" / name
    if 0 < done < EPOCHS:
        print(f"Your own model has done {done} of {EPOCHS} epochs: call train_my_model() again. Until then:")
    print(f"Your own model, from {OWN}." if own else f"The course's copy, data/checkpoints/{name}.")
    return load_checkpoint(folder)[0], load_tokenizer(folder)
