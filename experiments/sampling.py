"""What each way to draw costs: words that do not exist, or few different words; for section 5 of 15_generation.

    python -m experiments.sampling data/results/sampling.json

The delivered Shakespeare model writes on from the beginning of a line; the texts of a way fall into five groups. Of the
first words of each group: which share stands in the text that the model has learned from, and how many different ones
of those there are. Beside it as many words of the held-out tenth, from 80 beginnings of lines, too. Some minutes.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch

from annotated.fast.accelerate import accelerate
from annotated.models.language_model import generate
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_text, split_text
from annotated_workbench.vocabulary import load_tokenizer
from experiments.results import about, arguments, save

TEXTS, COUNT, GROUPS = 80, 400, 5  # of each way; characters of each text; of the texts
WORDS = 1000  # of each group: as many everywhere, since a longer text has more different ones
WAYS: dict[str, dict[str, Any]] = {"as the model says": {}}
WAYS |= {f"T = {value}": {"temperature": value} for value in (0.3, 0.5, 0.7, 0.85, 1.2)}
WAYS |= {f"k = {value}": {"top_k": value} for value in (2, 5, 10)}
WAYS |= {f"p = {value}": {"top_p": value} for value in (0.5, 0.7, 0.9, 0.97)}


def words_in(text: str) -> list[str]:
    """Find the words of a text, in small letters."""
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text.lower())


def measure(texts: Sequence[str], known: set[str], most: int) -> dict[str, float]:
    """Measure the first words of some texts: how many are known, in percent, and how many different ones of those.

    The last word of each may be cut off, and does not count. A ValueError says that these are fewer than `most`.
    """
    words = [word for text in texts for word in words_in(text)[:-1]][:most]
    if len(words) < most:
        raise ValueError(f"{most} words are wanted; the texts have {len(words)}.")
    exist = [word for word in words if word in known]
    return {"exist": 100 * len(exist) / most, "different": len(set(exist))}


def main() -> None:
    """Write with each way, measure, and save."""
    args = arguments(__doc__).parse_args()
    folder = DATA_FOLDER / "checkpoints" / "shakespeare"
    model, tokenizer = accelerate(load_checkpoint(folder)[0].eval()), load_tokenizer(folder)
    training, held_out = split_text(load_text("tinyshakespeare"))
    known, size = set(words_in(training)), TEXTS // GROUPS
    begins = [held_out.index("\n", i * (len(held_out) // TEXTS)) + 1 for i in range(TEXTS)]
    cut = [held_out[begin : begin + COUNT] for begin in begins]
    ways = {"real": [measure(cut[i::GROUPS], known, WORDS) for i in range(GROUPS)]}  # from all over the plays
    start = torch.tensor([tokenizer.encode("\n", "")] * TEXTS)
    for name, options in WAYS.items():
        ids = generate(model, start, COUNT, generator=torch.Generator().manual_seed(0), **options)
        texts = [tokenizer.decode(row)[1:] for row in ids]
        ways[name] = [measure(texts[i * size :][:size], known, WORDS) for i in range(GROUPS)]
        print(name, ways[name], flush=True)
    facts = {"texts": TEXTS, "count": COUNT, "words": WORDS, "known": len(known)}
    save(args.results, about() | facts | {"ways": ways})


if __name__ == "__main__":
    main()
