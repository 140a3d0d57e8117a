"""Texts with labels: movie reviews, and one's own in the same layout of folders."""

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from annotated_workbench.data import Labelled, data_folder, decode, download, hold_out, is_utf_8, read_lines

REVIEWS = ("rt_polarity", "imdb")
SPLITS = ("train", "val", "test")
IMDB_URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
IMDB_MD5 = "md5:7c2ac02c03563afcf9b574c7e56c153a"

PLACE = re.compile(r"(?:.*/)?(train|val|test)/([^/]+)/([^/]+\.(?i:txt))?")  # of a review or its folder: part and label
HIDDEN = re.compile(r"/(?:\.[^./]|__MACOSX/)")  # what systems leave in folders, such as "._0_9.txt"
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

    Every label is in "train", and in the others if it has enough texts.

    Args:
        parts: "train", and "val" and "test" if there are such.
        split: one of `SPLITS`.

    Raises:
        ValueError: the split is unknown, or there are too few texts to hold any out.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; there are {', '.join(SPLITS)}.")
    parts = dict(parts)
    for part in ("test",) if split == "test" else ("test", "val"):
        if part not in parts:
            parts["train"], parts[part] = _hold_out_tenth(parts["train"])
    return parts[split]


def _hold_out_tenth(labelled: Labelled) -> tuple[Labelled, Labelled]:
    """Hold out a random tenth of all; or, where a label would be on one side only, of each label that has two texts."""
    left, held_out = hold_out(labelled, max(1, len(labelled.texts) // 10))
    if set(left.labels) == set(held_out.labels):
        return left, held_out
    left, held_out = Labelled([], []), Labelled([], [])
    for label in sorted(set(labelled.labels)):
        texts = [text for text, its in zip(*labelled, strict=True) if its == label]
        own, few = Labelled(texts, [label] * len(texts)), Labelled([], [])
        if len(texts) > 1:
            own, few = hold_out(own, max(1, len(texts) // 10))
        for side, part in ((left, own), (held_out, few)):
            side.texts.extend(part.texts)
            side.labels.extend(part.labels)
    if not held_out.texts:
        raise ValueError(
            f"no label has a text to hold out: {len(labelled.texts)} texts, each of another label. Give more of each."
        )
    return left, held_out


def read_reviews(path: str | Path) -> dict[str, Labelled]:
    """Read a collection in the layout of IMDb: train/<label>/<name>.txt, the same in val and test, one text a file.

    Args:
        path: the folder, or one around it; or an archive of it (.tar, .tar.gz …), which is read where it lies: nothing
            is unpacked.

    Returns:
        The texts by part, "train" and perhaps "val" and "test", in the order of their files' names.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: no text of two labels is in train, another part has other labels, a label has no text or is not
            UTF-8, or a file is damaged, too long or not UTF-8.
    """
    path = Path(path)
    if not (path.is_dir() or path.is_file()):
        raise FileNotFoundError(f"there is no {path}. Give a folder with train/pos, train/neg …, or its archive.")
    entries: list[tuple[str, str, str, str, str | None]] = []  # name, what is before the part, part, label, text
    for name, content in _members_of_folder(path) if path.is_dir() else _members_of_archive(path):
        match = PLACE.match(name)
        if not match or match[2] == UNLABELLED:
            continue
        if not is_utf_8(match[2]):
            raise ValueError(f"{path}: the name of the folder {match[1]}/{match[2]!r} is not UTF-8: rename it.")
        if len(content) > LONGEST_REVIEW:
            raise ValueError(f"{path}: {name} has more than {LONGEST_REVIEW:,} bytes, and a review has few.")
        text = None
        if PLACE.fullmatch(name) and not name.endswith("/"):
            text = " ".join(decode(content, f"{path}: {name}").replace("<br />", " ").split())
        entries.append((name, name[: match.start(1)], match[1], match[2], text))
    # A part in which a whole collection lies is a folder that is only called so, such as "test" in test/train/pos.
    collections = {place for _, place, part, _, text in entries if part == "train" and text is not None}
    around = {
        (place, part) for _, place, part, _, _ in entries if any(c.startswith(f"{place}{part}/") for c in collections)
    }
    entries = sorted(entry for entry in entries if entry[1:3] not in around)
    parts: dict[str, Labelled] = {}
    for _, _, part, label, text in entries:
        if text is not None:
            labelled = parts.setdefault(part, Labelled([], []))
            labelled.texts.append(text)
            labelled.labels.append(label)
    labels = {part: set(labelled.labels) for part, labelled in parts.items()}
    for _, _, part, label, _ in entries:
        if label not in labels.get(part, ()):
            raise ValueError(
                f"{path}: {part}/{label} has no .txt file right in it: put its texts there, or remove the folder."
            )
    if len(labels.get("train", ())) < 2:
        raise ValueError(
            f"{path} has texts of {len(labels.get('train', ()))} labels to learn from: it needs train/<label>/*.txt of "
            "two labels at least."
        )
    for part in labels:
        if unknown := sorted(labels[part] - labels["train"]):
            raise ValueError(f"{path}: {part} has the label {unknown[0]!r}, and train has none of it.")
    return parts


# Both give the names of text files, and what they hold, or the first bytes of too much; and the names of folders, with
# a "/" at their end. Symbolic links are not followed; a hard link is a file like any other.


def _members_of_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for folder, folders, names in os.walk(path, onerror=_fail):
        for inner in folders:
            name = f"{Path(folder, inner).relative_to(path.parent).as_posix()}/"
            if not HIDDEN.search(f"/{name}"):
                yield name, b""
        for file in (Path(folder, name) for name in names):
            name = file.relative_to(path.parent).as_posix()
            if _is_review(name) and file.is_file() and not file.is_symlink():
                with open(file, "rb") as content:
                    yield name, content.read(LONGEST_REVIEW + 1)


def _members_of_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    with open(path, "rb") as file:
        zipped = file.read(4) in (b"PK\3\4", b"PK\5\6")  # its beginning: what ends like one may hold one
    if zipped:
        raise ValueError(f"{path} is a zip archive: unpack it, and give the folder.")
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isdir() and not HIDDEN.search(f"/{member.name}/"):
                    yield f"{member.name}/", b""
                if (member.isfile() or member.islnk()) and _is_review(member.name):
                    text = archive.extractfile(member)
                    assert text is not None
                    yield member.name, text.read(LONGEST_REVIEW + 1)
            assert archive.fileobj is not None
            archive.fileobj.seek(archive.offset)
            if archive.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0") or archive.fileobj.tell() == archive.offset:
                raise EOFError("its end is missing, or what comes next is damaged")  # `tarfile` takes either for an end
            while archive.fileobj.read(LONGEST_REVIEW):
                pass  # to where the checksum is
    except Exception as error:  # each kind of compression has its own
        raise ValueError(f"{path} is no tar archive, or not a whole one ({error}). Get it again.") from None


def _is_review(name: str) -> bool:
    return bool(PLACE.fullmatch(name)) and not name.endswith("/") and not HIDDEN.search(name)


def _fail(error: OSError) -> NoReturn:
    raise error
