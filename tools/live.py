"""Pack the delivered model for the live page: python -m tools.live

Writes `weights-0.js` and so on, which a page can load from a folder, without a server; how many have come says how
far it is. A weight takes nine bits: each row of a matrix is divided by its largest number and rounded to 255 steps on
either side of 0. Small steps are frequent, and take fewer bits in the files (`encode`). `recorded.js` has what the
page needs before: the vocabulary, shapes and frequencies, and the first sentence's translation step by step. And
`beam.js` is the search that chapter 08 has, too.
"""

import json
from pathlib import Path

import numpy as np
import torch

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode, next_log_probs
from annotated.masking import padding_mask
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


def main() -> None:
    """Write all files."""
    write_whole(LIVE / BEAM.name, BEAM.read_bytes())
    for name, content in packed(MODEL).items():
        write_whole(LIVE / name, content)


def packed(run: Path) -> dict[str, bytes]:
    """Give the files' names and contents for a model with subwords and tied embeddings, and its tokenizer."""
    model, tokenizer, scales, steps = rounded(run)
    merges = json.loads((run / TOKENIZER).read_text("utf-8"))["model"]["merges"]
    symbols = np.concatenate([each.flatten().numpy() for each in steps.values()]) + STEPS
    counts = np.bincount(symbols, minlength=2 * STEPS + 1)
    frequencies = np.maximum(1, (counts * (TOTAL / counts.sum())).round().astype(int))
    frequencies[STEPS] += TOTAL - frequencies.sum()
    tensors = dict(model.named_parameters())  # a tied one is there once
    floats = b"".join(scales.get(name, each).detach().numpy().astype("<f4").tobytes() for name, each in tensors.items())
    texts = [encode(np.frombuffer(floats, np.uint8), np.full(256, TOTAL // 256))]
    texts += [encode(part, frequencies) for part in np.split(symbols, PARTS)]
    files = {f"weights-{i}.js": script(f'WEIGHTS[{i}] = "{text}"', "utf-16") for i, text in enumerate(texts)}
    config = {name: getattr(model.config, name) for name in ("d_model", "heads", "layers", "max_length")}
    known = {
        "config": config,
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


def rounded(run: Path) -> tuple[Transformer, Tokenizer, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Give a model as the page has it, its tokenizer, and by the matrices' names each row's scale, and the steps."""
    model, tokenizer, _ = load_translator([run])
    scales, steps = {}, {}
    with torch.no_grad():
        for name, matrix in model.named_parameters():
            if matrix.dim() == 2:
                scales[name] = matrix.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / STEPS
                steps[name] = (matrix / scales[name]).round()
                matrix.copy_(steps[name] * scales[name])
    return model.eval(), tokenizer, scales, {name: each.int() for name, each in steps.items()}


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
    for _ in range(3):
        state, digit = divmod(state, DIGITS)
        digits.append(digit)
    return "".join(chr(digit + (0x100 if digit < 0xD700 else 0x900)) for digit in reversed(digits))


def script(statement: str, encoding: str) -> bytes:
    """Give a script; its first bytes tell UTF-16, whatever a server may say."""
    return f'// Written by python -m tools.live: change nothing here.\n"use strict";\n{statement};\n'.encode(encoding)


@torch.inference_mode()
def translation(model: Transformer, tokenizer: Tokenizer) -> dict[str, object]:
    """Record how `FIRST` is translated: the likeliest five of each step, and where the last layer looks."""
    src = torch.tensor([[*tokenizer.encode(FIRST, "de"), EOS]])
    mask = padding_mask(src)
    tgt = torch.tensor([[BOS, *greedy_decode(model, src)[0].ids]])
    with record_attention(model) as looks:
        memory = model.encode(src, mask)
        steps = [next_log_probs(model, tgt[:, :end], memory, mask, None)[0] for end in range(1, tgt.size(1) + 1)]
    (*_, weights) = looks[f"decoder.layers.{model.config.layers - 1}.cross_attention"]
    best = [[[int(id), round(float(p), 6)] for p, id in zip(*step.exp().topk(5), strict=True)] for step in steps]
    return {
        "text": FIRST,
        "source": src[0].tolist(),
        "steps": [{"token": each[0][0], "best": each} for each in best],
        "look": [[round(float(weight), 3) for weight in row] for row in weights[0].mean(dim=0)],
    }


if __name__ == "__main__":
    main()
