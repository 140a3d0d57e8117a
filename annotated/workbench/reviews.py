"""Texts with labels: movie reviews, and one's own in the same layout of folders."""

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from annotated.workbench.data import Labelled, data_folder, download, hold_out, read_lines

REVIEWS = ("rt_polarity", "imdb")
SPLITS = ("train", "val", "test")
IMDB_URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
IMDB_MD5 = "md5:7c2ac02c03563afcf9b574c7e56c153a"

PLACE = re.compile(r"(?:.*/)?(train|test)/([^/]+)/[^/]+\.txt")  # of a review: its part and its label
UNLABELLED = "unsup"  # IMDb has a folder of these
LONGEST_REVIEW = 2**20  # bytes


def load_reviews(name: str, split: str) -> Labelled:
    """Read one split of a collection of reviews this course knows.

    "rt_polarity" (Pang and Lee, 2005), ten thousand sentences, is taken from $ANNOTATED_DATA/rt_polarity: train.pos and
    train.neg, a sentence a line; a random tenth is the test set. "imdb" (Maas et al., 2011), 50,000 whole reviews, is
    taken from $ANNOTATED_DATA/imdb, where its archive or its unpacked folders may lie, or else downloaded.

    Args:
        name: one of `REVIEWS`.
        split: one of `SPLITS`; "val" is a random tenth of what is there for training.

    Raises:
        ValueError: the name or split is unknown, or a download has the wrong checksum.
        FileNotFoundError: the files are not here and cannot be downloaded; says where to put them.
    """
    if name not in REVIEWS:
        raise ValueError(f"unknown reviews {name!r}; there are {', '.join(REVIEWS)}.")
    folder = data_folder(name)
    if name == "rt_polarity":
        if folder is None:
            raise FileNotFoundError(
                "rt_polarity has no address to download it from: put train.pos and train.neg, a sentence a line, into "
                "a folder rt_polarity and set ANNOTATED_DATA to the folder around it."
            )
        sides = {label: read_lines(folder / f"train.{label}") for label in ("neg", "pos")}
        texts = [text for side in sides.values() for text in side]
        labels = [label for label, side in sides.items() for _ in side]
        return split_reviews({"train": Labelled(texts, labels)}, split)
    if folder is None:
        path = download(name, IMDB_URL, Path(IMDB_URL).name, IMDB_MD5)
    else:
        archive = folder / Path(IMDB_URL).name
        path = archive if archive.exists() else folder
    return split_reviews(read_reviews(path), split)


def split_reviews(parts: dict[str, Labelled], split: str) -> Labelled:
    """Choose a split of what is read: where there is no test set it is a tenth; "val" is a tenth of the rest.

    Args:
        parts: "train", and "test" if there is one.
        split: one of `SPLITS`.

    Raises:
        ValueError: the split is unknown, or there are too few texts to hold any out.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; there are {', '.join(SPLITS)}.")
    train, test = parts["train"], parts.get("test")
    if test is None:
        train, test = hold_out(train, max(1, len(train.texts) // 10))
    if split == "test":
        return test
    train, val = hold_out(train, max(1, len(train.texts) // 10))
    return train if split == "train" else val


def read_reviews(path: str | Path) -> dict[str, Labelled]:
    """Read a collection in the layout of IMDb: train/<label>/<name>.txt, and the same in test, one text a file.

    Args:
        path: the folder, or one around it; or an archive of it (.tar, .tar.gz …), which is read where it lies: nothing
            is unpacked.

    Returns:
        The texts by part, "train" and perhaps "test", in the order of their files' names.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: no text of two labels is in train, test has other labels, or a file is damaged or not UTF-8.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}. Give a folder with train/pos, train/neg …, or its archive.")
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for name, content in _members(path):
        if (match := PLACE.fullmatch(name)) and match[2] != UNLABELLED:
            rows.setdefault(match[1], []).append((name, match[2], _text(content, f"{path}: {name}")))
    found = {
        part: Labelled([text for _, _, text in sorted(lines)], [label for _, label, _ in sorted(lines)])
        for part, lines in rows.items()
    }
    labels = {part: set(labelled.labels) for part, labelled in found.items()}
    if len(labels.get("train", ())) < 2:
        raise ValueError(
            f"{path} has texts of {len(labels.get('train', ()))} labels to learn from: it needs train/<label>/*.txt of "
            "two labels at least."
        )
    if unknown := sorted(labels.get("test", set()) - labels["train"]):
        raise ValueError(f"{path}: test has the label {unknown[0]!r}, and train has none of it.")
    return found


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Give the names and contents of the text files of a folder or archive; links are not followed."""
    if path.is_dir():
        for file in path.rglob("*.txt"):
            if file.is_file() and not file.is_symlink():
                yield file.relative_to(path.parent).as_posix(), file.read_bytes()
        return
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and PLACE.fullmatch(member.name):
                    if member.size > LONGEST_REVIEW:
                        raise ValueError(f"{path}: {member.name} has {member.size:,} bytes, and a review has few.")
                    content = archive.extractfile(member)
                    assert content is not None
                    yield member.name, content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole archive ({error}). Get it again.") from None


def _text(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 ({error.reason}, byte {error.start}). Convert it.") from None
    return " ".join(text.replace("<br />", " ").split())
