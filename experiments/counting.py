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

import torch

from annotated.fast.accelerate import accelerate
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_text, split_text
from annotated_workbench.metrics import text_loss, window_bits
from annotated_workbench.rivals import count_runs, counted_bits
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
    counts = count_runs(training + held_out, LONGEST, len(training))[:, :, len(training) + LONGEST :]
    bits = {"counting": counted_bits(counts, WEIGHT, len(set(training))).mean(dim=1).tolist()}
    for name in PACKERS:
        sizes = packed_size(name, "", held_out), packed_size(name, training, held_out)
        bits[name] = [8 * size / len(held_out) for size in sizes]
    run = DATA_FOLDER / "checkpoints" / "shakespeare"
    ids = torch.tensor(load_tokenizer(run).encode(held_out, ""))
    model = load_checkpoint(run)[0]
    bits["model"] = [text_loss(model, part) / math.log(2) for part in (ids, ids[:30_000])]
    half, full = (window_bits(accelerate(model), ids[:30_000], step) for step in (model.config.max_length // 2, 4))
    lost = half[-len(full) :] - full
    bits["window"] = [half[-len(full) :].mean().item(), full.mean().item(), lost.std().item() / math.sqrt(len(lost))]
    rounded = {name: [round(cost, 4 if name == "window" else 3) for cost in costs] for name, costs in bits.items()}
    print(rounded)
    save(args.results, {"characters": [len(training), len(held_out)], "bits": rounded}, indent=None)


def packed_size(name: str, before: str, text: str) -> int:
    """Pack a text by a packer that may learn from what stands before, and tell how many bytes that adds.

    Of that bz2 gets as much of the end as goes into one block with the text.
    """
    known, new = before.encode(), text.encode()
    if name == "bz2":
        known = known[max(0, len(known) + len(new) - ONE_BLOCK) :]
    return len(PACKERS[name](known + new)) - (len(PACKERS[name](known)) if known else 0)


if __name__ == "__main__":
    main()
