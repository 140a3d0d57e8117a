"""Texts with labels: movie reviews, and one's own in the same layout of folders."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from annotated_workbench.data import Labelled, data_folder, decode, download, hold_out, read_lines

REVIEWS = ("rt_polarity", "imdb")
SPLITS = ("train", "val", "test")
IMDB = "aclImdb_v1.tar.gz"
# A review: split, label and name. IMDb's folder unsup has no labels; systems leave files such as "._0_9.txt".
PLACE = re.compile(r"(?:.*/)?(train|val|test)/(?!unsup/)([^/]+)/[^/.][^/]*\.txt")


def load_reviews(name: str, split: str) -> Labelled:
    """Read one split of a collection in `REVIEWS`; "val" is a random tenth of what is there for training.

    "rt_polarity" (Pang and Lee, 2005), ten thousand sentences, is taken from $ANNOTATED_DATA/rt_polarity: train.pos and
    train.neg, a sentence a line; a random tenth is the test set. "imdb" (Maas et al., 2011), 50,000 whole reviews, is
    taken from $ANNOTATED_DATA/imdb, where its archive or its unpacked folders may lie, or else downloaded.
    """
    if name not in REVIEWS:
        raise ValueError(f"unknown reviews {name!r}; there are {', '.join(REVIEWS)}.")
    folder = data_folder(name)
    if name == "imdb":
        path = folder or download(name, IMDB)
        archive = path / IMDB
        return split_reviews(read_reviews(archive if archive.exists() else path), split)
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
    """Read a collection in the layout of IMDb: train/<label>/<name>.txt, the same in val and test, one text a file.

    `path` is the folder, one around it, or an archive (.tar, .tar.gz …), of which nothing is unpacked. Returns the
    texts of each part in the order of their files' names.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}. Give a folder with train/pos, train/neg …, or its archive.")
    parts: dict[str, Labelled] = {}
    for name, content in sorted(_files_of_folder(path) if path.is_dir() else _files_of_archive(path)):
        if place := PLACE.fullmatch(name):
            labelled = parts.setdefault(place[1], Labelled([], []))
            labelled.texts.append(" ".join(decode(content, f"{path}: {name}").replace("<br />", " ").split()))
            labelled.labels.append(place[2])
    count = len(set(parts["train"].labels)) if "train" in parts else 0
    if count < 2:
        needs = "it needs train/<label>/*.txt of two labels at least."
        raise ValueError(f"{path} has texts of {count} labels to learn from: {needs}")
    return parts


def _files_of_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if PLACE.fullmatch(name) and file.is_file():
            yield name, file.read_bytes()


def _files_of_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member) if PLACE.fullmatch(member.name) else None
                if content is not None:
                    yield member.name, content.read()
    except Exception as error:  # each kind of compression has its own
        raise ValueError(f"{path} is no tar archive, or not a whole one ({error}). Get it again.") from None
