"""Texts with labels: sentences about films, and one's own texts in the layout of IMDb's folders."""

import re
import unicodedata
from pathlib import Path

from annotated_workbench.data import Labelled, data_folder, decode, hold_out, opened, read_lines
from annotated_workbench.vocabulary import sentence

REVIEWS = ("rt_polarity",)
SPLITS = ("train", "val", "test")
LAYOUT = "train/<label>/<name>.txt"
PLACE = re.compile(r"(?:.*/)?(train|val|test)/([^/]+)/[^/]*\.(?i:txt)")  # a review: split and label
BESIDE = re.compile(r"README|imdb\.vocab|imdbEr\.txt|\w+Bow\.feat|urls_\w+\.txt")  # IMDb's other files


def load_reviews(name: str, split: str) -> Labelled:
    """Read one split of a collection in `REVIEWS`, as `split_reviews` chooses it.

    "rt_polarity" (Pang and Lee, 2005), ten thousand sentences, is taken from $ANNOTATED_DATA/rt_polarity: train.pos and
    train.neg, a sentence a line.
    """
    if name not in REVIEWS:
        raise ValueError(f"unknown reviews {name!r}; there are {', '.join(REVIEWS)}.")
    folder = data_folder(name)
    if folder is None:
        raise FileNotFoundError(
            "rt_polarity has no address to download it from: put train.pos and train.neg, a sentence a line, into "
            "a folder rt_polarity and set ANNOTATED_DATA to the folder around it."
        )
    negative, positive = (read_lines(folder / f"train.{label}") for label in ("neg", "pos"))
    labels = ["neg"] * len(negative) + ["pos"] * len(positive)
    return split_reviews({"train": Labelled(negative + positive, labels)}, split)


def split_reviews(parts: dict[str, Labelled], split: str) -> Labelled:
    """Choose one of `SPLITS`: where there is no test set it is a tenth of the texts; "val" is a tenth of the rest."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; there are {', '.join(SPLITS)}.")
    parts = dict(parts)
    for part in ("test", "val"):
        if part not in parts:
            parts["train"], parts[part] = hold_out(parts["train"], max(1, len(parts["train"].texts) // 10))
    return parts[split]


def read_reviews(path: str | Path) -> dict[str, Labelled]:
    """Read a folder in the layout of IMDb (Maas et al., 2011): train/<label>/<name>.txt, the same in val and test.

    `path` may also be a folder around it. Returns the texts of each part in the order of their
    files' names, and prints what it leaves out. An error says that there is no such folder, that it holds fewer than
    two labels to learn from, or which file is damaged or not UTF-8.
    """
    path = Path(path)
    if not path.is_dir():
        problem = f"{path} is a file" if path.exists() else f"there is no folder {path}"
        raise FileNotFoundError(f"{problem}. Give a folder with a file for each text: {LAYOUT}.")
    parts: dict[str, Labelled] = {}
    left_out: list[str] = []
    files = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    # Systems leave files such as "._0_9.txt"; IMDb's folder unsup has no labels.
    seen = (file for file in files if not any(part[0] == "." or part == "unsup" for part in file.parts))
    for name in sorted(file.as_posix() for file in seen):
        if not (found := PLACE.fullmatch(name)):
            left_out += [name] * (not BESIDE.fullmatch(Path(name).name))
            continue
        with opened(path / name, "Give a text.") as file:
            text = sentence(decode(file.read(), path / name).replace("<br />", " "))
        if not text:
            left_out.append(name)
            continue
        labelled = parts.setdefault(found[1], Labelled([], []))
        labelled.texts.append(" ".join(text.split()))
        labelled.labels.append(unicodedata.normalize("NFC", found[2]))
    if left_out:
        such = ", ".join(str(path / name) for name in left_out[:3])
        print(f"{len(left_out)} left out, such as {such}: texts are {LAYOUT}, not empty.", flush=True)
    count = len(set(parts["train"].labels)) if "train" in parts else 0
    if count < 2:
        needs = "it needs train/<label>/*.txt of two labels at least."
        raise ValueError(f"{path} has texts of {count} labels to learn from: {needs}")
    return parts
