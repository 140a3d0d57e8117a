"""Pack the delivered models for the live page: python -m tools.live

Writes `weights-0.js` and so on, scripts, which a page can load from a folder, without a server; `recorded.js`, what
the page needs before them; `weights-assistant.js`, chapter 23's model; and `beam.js`, chapter 08's search. A weight
takes nine bits: each row of a matrix is divided by its largest number and rounded to 255 steps on either side of 0. The
files keep them in fewer (`encode`).
"""

import json
from pathlib import Path

import numpy as np
import torch

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode
from annotated.multi_head import record_attention
from annotated_course import stories
from annotated_workbench.checkpoint import load_checkpoint, load_translator
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
    """Give the files' names and contents for a model with subwords and tied embeddings, and for the assistant."""
    model, tokenizer, _ = load_translator([run])
    numbers, texts = coded(model, PARTS)
    files = {f"weights-{i}.js": script(f"WEIGHTS[{i}]", text, "utf-16") for i, text in enumerate(texts)}
    known = {
        "config": {name: getattr(model.config, name) for name in ("d_model", "heads", "layers", "max_length")},
        "parts": len(files),
        "megabytes": round(sum(map(len, files.values())) / 1e6, 1),
        **translation(model, tokenizer),
        **numbers,
        "merges": [" ".join(pair) for pair in json.loads((run / TOKENIZER).read_text("utf-8"))["model"]["merges"]],
        "foreign": json.loads((ROOT / "data" / "results" / "doubt.json").read_text("utf-8"))["foreign"],  # pieces
    }
    assistant, _ = load_checkpoint(MODEL.with_name("assistant"))
    numbers, texts = coded(assistant, 1)
    kinds = [stories.ACTORS, stories.VERBS, stories.THINGS, stories.COLOURS, stories.NUMBERS, stories.PLACES]
    known_too = {"config": vars(assistant.config), "parts": 2, **numbers, "words": stories.WORDS, "kinds": kinds}
    files["weights-assistant.js"] = script("const ASSISTANT", {**known_too, "texts": texts}, "utf-16")
    return {"recorded.js": script("const RECORDED", known, "utf-8"), **files}


def coded(model: torch.nn.Module, parts: int) -> tuple[dict[str, list], list[str]]:
    """Round a model; give what the page must know to unpack its numbers, and these, the steps in parts."""
    scales = rounded(model)
    tensors = {name: each.data for name, each in model.named_parameters()}  # a tied one is there once
    steps = [(tensors[name] / scale).round().flatten() for name, scale in scales.items()]
    symbols = torch.cat(steps).int().numpy() + STEPS
    counts = np.bincount(symbols, minlength=2 * STEPS + 1)
    frequencies = np.maximum(1, (counts * (TOTAL / counts.sum())).round().astype(int))
    frequencies[STEPS] += TOTAL - frequencies.sum()
    floats = b"".join(scales.get(name, each).numpy().astype("<f4").tobytes() for name, each in tensors.items())
    first = encode(np.frombuffer(floats, np.uint8), np.full(256, TOTAL // 256))
    texts = [first, *(encode(part, frequencies) for part in np.split(symbols, parts))]
    shapes = [[name, list(tensor.shape)] for name, tensor in tensors.items()]
    return {"shapes": shapes, "frequencies": frequencies.tolist()}, texts


def rounded(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Round a model in place, as the page has it; give by the matrices' names the scale of each row."""
    matrices = {name: each.data for name, each in model.named_parameters() if each.dim() == 2}
    scales = {name: each.abs().amax(1, keepdim=True).clamp(min=1e-30) / STEPS for name, each in matrices.items()}
    for name, matrix in matrices.items():
        matrix.copy_((matrix / scales[name]).round() * scales[name])
    return scales


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


def script(name: str, value: object, encoding: str) -> bytes:
    """Give a script that sets a value; its first bytes tell UTF-16, whatever a server may say."""
    set_ = f"{name} = {json.dumps(value, ensure_ascii=False, separators=(',', ':'))};"
    return f'// Written by python -m tools.live: change nothing here.\n"use strict";\n{set_}\n'.encode(encoding)


@torch.inference_mode()
def translation(model: torch.nn.Module, tokenizer: Tokenizer) -> dict[str, object]:
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
    for name, content in {BEAM.name: BEAM.read_bytes(), **packed(MODEL)}.items():
        write_whole(LIVE / name, content)
