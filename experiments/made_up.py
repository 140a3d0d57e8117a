"""The paper's training for a while, by the command line, on text that is made up: nothing needs to be downloaded."""

import json
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from annotated.__main__ import main as command_line

SHORTEST, LONGEST = 10, 50  # words of a sentence
WORDS = 18_000  # in each of the two languages: about as many subwords as the paper's 37,000 (§5.1)


def train(
    settings: Sequence[str], pairs: int, epochs: int, device: torch.device, words: int = WORDS, seed: int = 0
) -> dict[str, Any]:
    """Train on made-up pairs with the paper's schedule.

    Args:
        settings: preset, batch size and size of the vocabulary, as options of `python -m annotated train`.
        pairs: sentences with their translations.
        epochs: passes over them.
        device: where to train.
        words: in each language.
        seed: of the text and of the training.

    Returns:
        The seconds of it all, the most memory of the GPU in GB, and each epoch's line of metrics.jsonl.

    Raises:
        RuntimeError: the command failed.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        files = write_text(Path(folder), pairs, words, seed)
        schedule = ["--schedule", "noam", "--warmup", "4000", "--rate", "1", "--epochs", str(epochs)]
        where = ["--device", device.type, "--seed", str(seed), "--out", f"{folder}/run"]
        began = time.perf_counter()
        if command_line(["train", *files, *settings, *schedule, *where]):
            raise RuntimeError("the training failed: it has said why.")
        seconds = time.perf_counter() - began
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else 0.0
    return {"seconds": seconds, "gigabytes": memory, "epochs": [json.loads(line) for line in lines]}


def write_text(folder: Path, pairs: int, words: int, seed: int) -> list[str]:
    """Write sentences of words with frequencies 1 / rank, and their translation word by word; name the files."""
    draw = random.Random(seed)
    up_to = list(accumulate(1 / rank for rank in range(1, words + 1)))
    lengths = [draw.randint(SHORTEST, LONGEST) for _ in range(pairs)]
    sentences = [draw.choices(range(words), cum_weights=up_to, k=length) for length in lengths]
    files = []
    for side in ("source", "target"):
        language = ["".join(draw.choices("abdefgiklmnoprstu", k=draw.randint(4, 9))) for _ in range(words)]
        text = "".join(" ".join(language[word] for word in sentence) + "\n" for sentence in sentences)
        (folder / side).write_text(text, encoding="utf-8")
        files += [f"--{side}", str(folder / side)]
    return files
