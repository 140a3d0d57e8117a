"""Write the grammar corpus: German-English sentence pairs made by a small grammar, the same on every machine.

    python data/grammar/generate.py           write {train,val,test}.{de,en} beside this file
    python data/grammar/generate.py --check   say whether the files on disk are what this program makes
    python -m pytest data/grammar/proof.py    prove that the files on disk are right: after they were made anew

Training and validation never see a held-out combination (see `is_held_out`); every test sentence contains one.
"""

import argparse
import random
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from templates import TEMPLATES, Combination, Implausible, Sentence

FOLDER = Path(__file__).parent
SIZES = {"train": 12_000, "val": 600, "test": 800}
SEED = 1
LENGTHS = range(3, 21)
# One combination in so many is held out.
HELD_OUT_ONE_IN = {"subject verb object": 10, "adjective noun": 12, "object first": 4, "conjunction verb": 8}


def is_held_out(combination: Combination) -> bool:
    """Whether a combination of words is kept for the test split.

    The first item names its type, as in ("adjective noun", "rot", "Ball"). A checksum decides, so that the choice is
    spread over the lexicon and owes nothing to the random numbers.
    """
    return zlib.crc32(" ".join(combination).encode()) % HELD_OUT_ONE_IN[combination[0]] == 0


def words(text: str) -> list[str]:
    """The words of a sentence in lower case, without punctuation."""
    return re.findall(r"[\w']+", text.lower())


def stream(seed: int) -> Iterator[Sentence]:
    """Endless random sentences."""
    rng = random.Random(seed)
    templates = [template for template, weight in TEMPLATES for _ in range(weight)]
    while True:
        try:
            yield from rng.choice(templates)(rng)
        except Implausible:
            continue


def generate(seed: int = SEED) -> dict[str, list[Sentence]]:
    """Make the three splits.

    No sentence of either language occurs in two splits, no German sentence occurs twice, and every word of the test
    split occurs in training.
    """
    splits: dict[str, list[Sentence]] = {"train": [], "val": [], "test": []}
    home: dict[str, str] = {}  # the split in which an English sentence was first used
    seen: set[str] = set()
    known: set[str] = set()
    for pair in stream(seed):
        if pair.german in seen or any(len(words(text)) not in LENGTHS for text in pair[:2]):
            continue
        if len(splits["train"]) < SIZES["train"]:
            wanted = "train"
        elif len(splits["val"]) < SIZES["val"]:
            wanted = "val"
        elif len(splits["test"]) < SIZES["test"]:
            wanted = "test"
        else:
            return splits
        if any(map(is_held_out, pair.combinations)) != (wanted == "test"):
            continue
        if home.setdefault(pair.english, wanted) != wanted:
            continue
        found = {*words(pair.german), *words(pair.english)}
        if wanted == "train":
            known |= found
        elif not found <= known:
            continue
        seen.add(pair.german)
        splits[wanted].append(pair)
    raise AssertionError("the stream of sentences is endless")


def files(splits: dict[str, list[Sentence]]) -> dict[str, bytes]:
    """The content of each file by its name."""
    texts = {}
    for split, pairs in splits.items():
        texts[f"{split}.de"] = "".join(f"{pair.german}\n" for pair in pairs).encode()
        texts[f"{split}.en"] = "".join(f"{pair.english}\n" for pair in pairs).encode()
    return texts


def main() -> int:
    """Run the command line; the exit status is 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description="Make the grammar corpus.")
    parser.add_argument("--check", action="store_true", help="compare with the files on disk and write nothing")
    check = parser.parse_args().check
    different = []
    for name, content in files(generate()).items():
        path = FOLDER / name
        if not check:
            path.write_bytes(content)
        elif not path.is_file() or path.read_bytes() != content:
            different.append(name)
    if different:
        print(f"not what generate.py makes: {', '.join(different)}; run it without --check", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
