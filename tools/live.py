"""Pack the delivered model for the live page: python -m tools.live

Writes `weights.js`: sizes, vocabulary and merges, and all weights as text, which a page can load from a folder, without
a server; and beside it `beam.js`, the search that chapter 08 has, too. A weight takes nine bits: each row of a
matrix is divided by its largest number and rounded to 255 steps. `recorded.js` has what the page needs before its
weights have come: the vocabulary, and the first sentence's translation step by step.
"""

import base64
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode, next_log_probs
from annotated.masking import padding_mask
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_checkpoint, load_translator
from annotated_workbench.files import write_whole
from annotated_workbench.vocabulary import TOKENIZER, Tokenizer
from tools.sync import ROOT

LIVE = ROOT / "docs" / "live"
BEAM = ROOT / "annotated_course" / "play" / "beam.js"
MODEL = ROOT / "data" / "checkpoints" / "de-en-best"
FIRST = "Zwei Hunde spielen im Schnee mit einem Ball."  # what the page begins with
STEPS = 255  # on either side of 0, of a weight in nine bits


def main() -> None:
    """Write both files."""
    write_whole(LIVE / BEAM.name, BEAM.read_bytes())
    write_whole(LIVE / "weights.js", packed(MODEL).encode())
    write_whole(LIVE / "recorded.js", recorded(MODEL).encode())


def rounded(run: Path) -> tuple[Transformer, Tokenizer]:
    """Give a model as the page has it, and its tokenizer."""
    model, tokenizer, _ = load_translator([run])
    with torch.no_grad():
        for matrix in (each for each in model.parameters() if each.dim() == 2):
            scales = scales_of(matrix)
            matrix.copy_((matrix / scales).round() * scales)
    return model.eval(), tokenizer


@torch.inference_mode()
def recorded(run: Path) -> str:
    """Give the vocabulary, and how `FIRST` is translated word by word, as a script that sets `RECORDED`."""
    model, tokenizer = rounded(run)
    src = torch.tensor([[*tokenizer.encode(FIRST, "de"), EOS]])
    mask = padding_mask(src)
    tgt = torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]])
    with record_attention(model) as looks:
        memory = model.encode(src, mask)
        steps = [next_log_probs(model, tgt[:, :end], memory, mask, None)[0] for end in range(1, tgt.size(1) + 1)]
    name = f"decoder.layers.{model.config.layers - 1}.cross_attention"
    merges = json.loads((run / TOKENIZER).read_text("utf-8"))["model"]["merges"]
    best = [[[int(id), round(float(p), 6)] for p, id in zip(*step.exp().topk(5), strict=True)] for step in steps]
    record = {
        "config": {name: getattr(model.config, name) for name in ("d_model", "heads", "layers", "max_length")},
        "text": FIRST,
        "source": src[0].tolist(),
        "steps": [{"token": each[0][0], "best": each} for each in best],
        "look": [[round(float(weight), 3) for weight in row] for row in looks[name][-1][0].mean(dim=0)],
        "merges": [" ".join(pair) for pair in merges],
    }
    return script("RECORDED", record)


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
    return script("WEIGHTS", weights)


def script(name: str, value: object) -> str:
    """Give a script that sets a constant."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f'// Written by python -m tools.live: change nothing here.\n"use strict";\nconst {name} = {text};\n'


def scales_of(matrix: Tensor) -> Tensor:
    """The size of a row's steps, for each row."""
    return matrix.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / STEPS


def pack(tensor: Tensor) -> bytes:
    """Give a vector's bytes as they are; of a matrix scales, then the steps' upper eight bits, then their last bits."""
    if tensor.dim() == 1:
        return tensor.numpy().astype("<f4").tobytes()
    scales = scales_of(tensor)
    steps = (tensor / scales).round().int().numpy()
    last = np.packbits((steps & 1).astype(bool), bitorder="little")
    return scales.numpy().astype("<f4").tobytes() + (steps >> 1).astype(np.int8).tobytes() + last.tobytes()


if __name__ == "__main__":
    main()
