"""Pack the delivered model for the live page: python -m tools.live

Writes `weights-0.js` and so on, scripts, which a page can load from a folder, without a server; `recorded.js`, what
the page needs before them; and `beam.js`, chapter 08's search. A weight takes nine bits: each row of a matrix is
divided by its largest number and rounded to 255 steps on either side of 0. The files keep them in fewer (`encode`).
"""

import json
from pathlib import Path

import numpy as np
import torch

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.files import write_whole
from annotated_workbench.vocabulary import TOKENIZER, Tokenizer
from tools.sync import ROOT

LIVE = ROOT / "docs" / "live"
BEAM = ROOT / "annotated_course" / "play" / "beam.js"
MODEL = ROOT / "data" / "checkpoints" / "de-en-best"
FIRST = "Zwei Hunde spielen im Schnee mit einem Ball."  # what the page begins with
STEPS = 255  # on either side of 0, of a weight in nine bits
PARTS = 10  # files of steps, after one with all other numbers
TOTAL = 1 << 16  # of all frequencies
DIGITS = 0x10000 - 0x800 - 0x100  # UTF-16 has as many units that are no half of a pair, without the first 256


def packed(run: Path) -> dict[str, bytes]:
    """Give the files' names and contents for a model with subwords and tied embeddings, and its tokenizer."""
    model, tokenizer, scales = rounded(run)
    tensors = {name: each.data for name, each in model.named_parameters()}  # a tied one is there once
    merges = json.loads((run / TOKENIZER).read_text("utf-8"))["model"]["merges"]
    steps = [(tensors[name] / scale).round().flatten().int().numpy() for name, scale in scales.items()]
    symbols = np.concatenate(steps) + STEPS
    counts = np.bincount(symbols, minlength=2 * STEPS + 1)
    frequencies = np.maximum(1, (counts * (TOTAL / counts.sum())).round().astype(int))
    frequencies[STEPS] += TOTAL - frequencies.sum()
    floats = b"".join(scales.get(name, each).numpy().astype("<f4").tobytes() for name, each in tensors.items())
    first = encode(np.frombuffer(floats, np.uint8), np.full(256, TOTAL // 256))
    texts = [first, *(encode(part, frequencies) for part in np.split(symbols, PARTS))]
    files = {f"weights-{i}.js": script(f'WEIGHTS[{i}] = "{text}"', "utf-16") for i, text in enumerate(texts)}
    known = {
        "config": {name: getattr(model.config, name) for name in ("d_model", "heads", "layers", "max_length")},
        "parts": len(files),
        "megabytes": round(sum(map(len, files.values())) / 1e6, 1),
        **translation(model, tokenizer),
        "shapes": [[name, list(tensor.shape)] for name, tensor in tensors.items()],
        "frequencies": frequencies.tolist(),
        "merges": [" ".join(pair) for pair in merges],
        "foreign": json.loads((ROOT / "data" / "results" / "doubt.json").read_text("utf-8"))["foreign"],  # pieces
    }
    text = json.dumps(known, ensure_ascii=False, separators=(",", ":"))
    return {"recorded.js": script(f"const RECORDED = {text}", "utf-8"), **files}


def rounded(run: Path) -> tuple[Transformer, Tokenizer, dict[str, torch.Tensor]]:
    """Give a model as the page has it, its tokenizer, and by the matrices' names the scale of each row."""
    model, tokenizer, _ = load_translator([run])
    matrices = {name: each.data for name, each in model.named_parameters() if each.dim() == 2}
    scales = {name: each.abs().amax(1, keepdim=True).clamp(min=1e-30) / STEPS for name, each in matrices.items()}
    for name, matrix in matrices.items():
        matrix.copy_((matrix / scales[name]).round() * scales[name])
    return model.eval(), tokenizer, scales


def encode(symbols: np.ndarray, frequencies: np.ndarray) -> str:
    """Write whole numbers with the fewer bits, the more frequent they are: asymmetric numeral systems (Duda, 2009)."""
    starts = (np.cumsum(frequencies) - frequencies).tolist()
    often, state, digits = frequencies.tolist(), TOTAL, []
    for symbol in symbols[::-1].tolist():  # the page reads the last one first
        frequency = often[symbol]
        while state >= DIGITS * frequency:
            state, digit = divmod(state, DIGITS)
            digits.append(digit)
        state = state // frequency * TOTAL + state % frequency + starts[symbol]
    digits += [state // DIGITS**i % DIGITS for i in range(3)]
    return "".join(chr(digit + (0x100 if digit < 0xD700 else 0x900)) for digit in reversed(digits))


def script(statement: str, encoding: str) -> bytes:
    """Give a script; its first bytes tell UTF-16, whatever a server may say."""
    return f'// Written by python -m tools.live: change nothing here.\n"use strict";\n{statement};\n'.encode(encoding)


@torch.inference_mode()
def translation(model: Transformer, tokenizer: Tokenizer) -> dict[str, object]:
    """Record how `FIRST` is translated: the likeliest five of each step, and where the last layer looks."""
    src = torch.tensor([[*tokenizer.encode(FIRST, "de"), EOS]])
    with record_attention(model) as looks:
        (probabilities,) = model(src, torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]])).softmax(dim=-1)
    weights = looks[f"decoder.layers.{model.config.layers - 1}.cross_attention"][-1]
    best = [[[int(id), round(float(p), 6)] for p, id in zip(*each.topk(5), strict=True)] for each in probabilities]
    return {
        "text": FIRST,
        "source": src[0].tolist(),
        "steps": [{"token": each[0][0], "best": each} for each in best],
        "look": [[round(float(weight), 3) for weight in row] for row in weights[0].mean(dim=0)],
    }


if __name__ == "__main__":
    write_whole(LIVE / BEAM.name, BEAM.read_bytes())
    for name, content in packed(MODEL).items():
        write_whole(LIVE / name, content)
