"""How far counting and packing get where a language model writes on, in tiny Shakespeare.

    python -m experiments.counting data/results/counting.json

Bits a character of the last tenth, in which `python -m annotated evaluate` measures, too: by counting, by packing alone
and after the training text, and by the delivered model. LONGEST and WEIGHT were chosen on that last tenth itself, so in
favour of counting. Beside it, of the same characters, what the model needs when it reads the last half of its window
again, as `generate` does, and when it sees all but the whole window before each (some minutes).
"""

import bz2
import lzma
import math
import zlib
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.fast.accelerate import accelerate
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_text, split_text
from annotated_workbench.metrics import text_loss
from annotated_workbench.vocabulary import load_tokenizer
from experiments.results import arguments, save

PACKERS = {
    "zlib": lambda content: zlib.compress(content, 9),
    "bz2": lambda content: bz2.compress(content, 9),
    "lzma": lambda content: lzma.compress(content, preset=9 | lzma.PRESET_EXTREME),
}
LONGEST, WEIGHT = 8, 40.0  # characters looked back at; what the shorter run counts for, in occurrences
ONE_BLOCK = 899_000  # bytes; bz2 packs each 900,000 by themselves, so more than that before a text is no help to it


def main() -> None:
    """Count, pack, and write the bits of all."""
    args = arguments(__doc__).parse_args()
    training, held_out = split_text(load_text("tinyshakespeare"))
    bits = {"counting": [nats / math.log(2) for nats in counted_losses(training, held_out, LONGEST, WEIGHT)]}
    for name in PACKERS:
        sizes = packed_size(name, "", held_out), packed_size(name, training, held_out)
        bits[name] = [8 * size / len(held_out) for size in sizes]
    run = DATA_FOLDER / "checkpoints" / "shakespeare"
    ids = torch.tensor(load_tokenizer(run).encode(held_out, ""))
    model = load_checkpoint(run)[0]
    bits["model"] = [text_loss(model, part) / math.log(2) for part in (ids, ids[:30_000])]
    half, full = (window_costs(model, ids[:30_000], step) for step in (model.config.max_length // 2, 4))
    lost = half[-len(full) :] - full
    bits["window"] = [half[-len(full) :].mean().item(), full.mean().item(), lost.std().item() / math.sqrt(len(lost))]
    rounded = {name: [round(cost, 4 if name == "window" else 3) for cost in costs] for name, costs in bits.items()}
    print(rounded)
    save(args.results, {"characters": [len(training), len(held_out)], "bits": rounded}, indent=None)


@torch.inference_mode()
def window_costs(model: Any, ids: Tensor, step: int) -> Tensor:
    """Predict a text from full windows that begin every `step` tokens, the last `step` of each; return bits a token."""
    size, reader = model.config.max_length, accelerate(model.eval())
    rows = ids[(len(ids) - size - 1) % step :].unfold(0, size + 1, step).split(64)  # all end with the text
    nats = [
        F.cross_entropy(reader(row[:, :-1])[:, -step:].transpose(1, 2), row[:, -step:], reduction="none")
        for row in rows
    ]
    return torch.cat(nats).flatten() / math.log(2)


def packed_size(name: str, before: str, text: str) -> int:
    """Pack a text after another one, and tell how many bytes that adds.

    Args:
        name: of the packer.
        before: what it may learn from; bz2 gets as much of its end as goes into one block with the text.
        text: what to pack.
    """
    known, new = before.encode(), text.encode()
    if name == "bz2":
        known = known[max(0, len(known) + len(new) - ONE_BLOCK) :]
    return len(PACKERS[name](known + new)) - (len(PACKERS[name](known)) if known else 0)


def counted_losses(training: str, held_out: str, longest: int, weight: float) -> list[float]:
    """Predict each held-out character from the last 0, 1, … characters by counts; longer runs lean on shorter ones.

    Args:
        training: the text to count in.
        held_out: the text to predict.
        longest: how many characters to look back at, at most.
        weight: how many occurrences the prediction of the next shorter run counts for.

    Returns:
        The loss in nats a character, for each number of characters looked back at.
    """
    runs = Counter(training[i : i + n] for n in range(1, longest + 2) for i in range(len(training) - n + 1))
    begun: Counter[str] = Counter()
    for run, count in runs.items():
        begun[run[:-1]] += count
    nats, nothing_known = [0.0] * (longest + 1), 1 / len(set(training))
    for i in range(longest, len(held_out)):
        p = nothing_known
        for n in range(longest + 1):
            run = held_out[i - n : i + 1]
            p = (runs[run] + weight * p) / (begun[run[:-1]] + weight)
            nats[n] -= math.log(p)
    return [total / (len(held_out) - longest) for total in nats]


if __name__ == "__main__":
    main()
