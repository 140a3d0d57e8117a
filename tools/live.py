"""Pack the delivered model for the live page: python -m tools.live

Writes `weights.js`: sizes, vocabulary and merges, and all weights as text, which a page can load from a folder, without
a server; and beside it `beam.js`, the search that chapter 08 has, too. A weight takes nine bits: each row of a
matrix is divided by its largest number and rounded to 255 steps.
"""

import base64
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.files import write_whole
from annotated_workbench.vocabulary import TOKENIZER
from tools.sync import ROOT

LIVE = ROOT / "docs" / "live"
BEAM = ROOT / "annotated_course" / "play" / "beam.js"
MODEL = ROOT / "data" / "checkpoints" / "de-en-best"
STEPS = 255  # on either side of 0, of a weight in nine bits


def main() -> None:
    """Write both files."""
    write_whole(LIVE / BEAM.name, BEAM.read_bytes())
    write_whole(LIVE / "weights.js", packed(MODEL).encode())


def packed(run: Path) -> str:
    """Give a model with subwords and tied embeddings, and its tokenizer, as a script that sets `WEIGHTS`."""
    model, _ = load_checkpoint(run)
    tokenizer = json.loads((run / TOKENIZER).read_text("utf-8"))["model"]
    vocabulary = tokenizer["vocab"]
    tensors = {name: tensor.detach().float() for name, tensor in model.named_parameters()}  # a tied one is there once
    content = b"".join(pack(tensor) for tensor in tensors.values())
    weights = {
        "config": {name: getattr(model.config, name) for name in ("d_model", "heads", "layers", "max_length")},
        "bits": 9,
        "tokens": sorted(vocabulary, key=vocabulary.__getitem__),
        "merges": [" ".join(pair) for pair in tokenizer["merges"]],
        "shapes": [[name, list(tensor.shape)] for name, tensor in tensors.items()],
        "data": base64.b85encode(content + bytes(-len(content) % 4)).decode(),  # of four bytes, five characters
    }
    text = json.dumps(weights, ensure_ascii=False, separators=(",", ":"))
    return f'// Written by python -m tools.live: change nothing here.\n"use strict";\nconst WEIGHTS = {text};\n'


def pack(tensor: Tensor) -> bytes:
    """Give a vector's bytes as they are; of a matrix scales, then the steps' upper eight bits, then their last bits."""
    if tensor.dim() == 1:
        return tensor.numpy().astype("<f4").tobytes()
    scales = tensor.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / STEPS
    steps = (tensor / scales[:, None]).round().int().numpy()
    last = np.packbits((steps & 1).astype(bool), bitorder="little")
    return scales.numpy().astype("<f4").tobytes() + (steps >> 1).astype(np.int8).tobytes() + last.tobytes()


if __name__ == "__main__":
    main()
