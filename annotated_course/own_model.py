"""The reader's own model: trained in chapter 07, searched in 08, opened in 09."""

import os
from pathlib import Path
from typing import Any

from annotated_workbench import command_line
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import Tokenizer, load_tokenizer

OWN = Path(os.environ.get("ANNOTATED_MINE", DATA_FOLDER.parent / "work" / "mine"))  # make gives none to what it checks
# As in the paper, but for the sizes, the rate's factor, the steps of warm-up and epochs, and dropout.
TRAINING = (
    "train --corpus grammar --src de --tgt en --preset tiny --tokenizer bpe --vocab-size 2000 --dropout 0 "
    "--batch-tokens 1200 --warmup 200 --rate 0.5 --epochs 12 --average 5"
)


def train_my_model() -> None:
    """Train the reader's own model into work/mine, for two to four minutes; what was interrupted there goes on."""
    more = " --resume" * (OWN / "state.safetensors").exists()
    print(f"python -m annotated {TRAINING}{more} --out work/mine", flush=True)
    command_line.main([*f"{TRAINING}{more}".split(), "--out", str(OWN)])


def my_model(name: str = "mine") -> tuple[Any, Tokenizer]:
    """Load the reader's own model, or a copy: "mine", "mine-minute" (early) or "mine-1" (another seed); say which."""
    own = name == "mine" and (OWN / "model.safetensors").exists()
    folder = OWN if own else DATA_FOLDER / "checkpoints" / name
    print("Your own model, from work/mine." if own else f"The course's copy, data/checkpoints/{name}.")
    return load_checkpoint(folder)[0], load_tokenizer(folder)
