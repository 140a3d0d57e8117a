"""Text and batches of it (§5.1): corpora, one's own files, and token-budget batches with little padding."""

import gzip
import os
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import Tokenizer, normal_form, sentence

CORPORA = {"grammar": ("train", "val", "test"), "multi30k": ("train", "val", "test_2016_flickr")}
TEXTS = ("tinyshakespeare",)
LANGUAGES = ("de", "en")
GZIP = b"\x1f\x8b"  # how such a file begins, whatever its name
DATA_FOLDER = Path(__file__).parents[1] / "data"
DOWNLOADS = Path(__file__).with_name("downloads.txt")


class Pairs(NamedTuple):
    """Aligned sentences: `target[i]` is the translation of `source[i]`."""

    source: Sequence[str]
    target: Sequence[str]


class Labelled(NamedTuple):
    """Texts, and the label of each."""

    texts: list[str]
    labels: list[str]


Aligned = TypeVar("Aligned", Pairs, Labelled)


class Encoded(NamedTuple):
    """Aligned rows of ids: sources end in <eos>, targets start with <bos> and end in <eos>; `kept` are their pairs."""

    sources: list[list[int]]
    targets: list[list[int]]
    kept: list[int]


class Batch(NamedTuple):
    """Sentence pairs as int64 ids, padded with `PAD` on the right."""

    src: Int[Tensor, "batch source"]
    tgt: Int[Tensor, "batch target"]


@contextmanager
def opened(path: str | Path, needs: str = "Give a text file with one sentence a line.") -> Iterator[Any]:
    """Open a file or a pipe to be read once, unpacked if it is gzip's; an OSError names it, and what one `needs`."""
    path, at_once = Path(path), getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to is empty, not waited for
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}. {needs}")
    if not (path.is_file() or path.is_fifo()):
        raise OSError(f"{path} is a folder or a device. {needs}")
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as file:
            if at_once:
                os.set_blocking(file.fileno(), True)
            packed = file.peek(2)[:2] in (GZIP[:1], GZIP)  # a pipe may give one byte first
            yield gzip.GzipFile(fileobj=file) if packed else file
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise OSError(f"{path} cannot be read ({why}): copy it again, or see to its rights.") from error


def read_lines(path: str | Path) -> list[str]:
    """Read the sentences of a UTF-8 file, perhaps packed by gzip, one a line, each as `sentence` gives it.

    Only a newline ends a line, as in other tools: a Unicode line separator inside a sentence ends nothing. An error
    says that the file is missing, empty or damaged, or which line is empty or not UTF-8.
    """
    texts = []
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            name = f"{path}, line {number}"
            if not (text := sentence(decode(line, name))):
                raise ValueError(f"{name}: empty. Remove this line from both files of the pair.")
            texts.append(text)
    if not texts:
        raise ValueError(f"{path} has no lines. Give a text file with one sentence a line.")
    return texts


def decode(content: bytes | str, name: str | Path) -> str:
    """Decode UTF-8, or what is typed and the locale can't read, into `normal_form`; a ValueError begins with `name`."""
    content = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    try:
        return normal_form(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        why = f"not UTF-8 ({error.reason}, byte {error.start})"
        remedy = "Unpack it by gunzip" if content.startswith(GZIP) else "Convert it to UTF-8"
        raise ValueError(f"{name}: {why}. {remedy}.") from None


def read_pairs(source_path: str | Path, target_path: str | Path) -> Pairs:
    """Read two aligned files: line n of one is the translation of line n of the other; errors as for `read_lines`."""
    pairs = Pairs(read_lines(source_path), read_lines(target_path))
    source, target = map(len, pairs)
    if source != target:
        raise ValueError(
            f"{source_path} has {source} lines and {target_path} has {target}. "
            "Line n of one file must be the translation of line n of the other."
        )
    if (same := sum(map(str.__eq__, *pairs))) > source / 2:
        careful = f"Careful: {same:,} of the {source:,} lines in {source_path} stand untranslated in {target_path}"
        print(f"{careful}: give a text in one language, and its translation.", flush=True)
    return pairs


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, perhaps packed by gzip, as one text; an OSError or ValueError says what is wrong with it."""
    with opened(path, "Give a text file.") as file:
        text = decode(file.read(), path)
    if not sentence(text):
        raise ValueError(f"{path} is empty. Give a text to learn from.")
    return text


def load_corpus(name: str, split: str, src: str = "de", tgt: str = "en") -> Pairs:
    """Read one split of a corpus in `CORPORA`, in either direction.

    "grammar" lies in the repository. "multi30k" (Elliott et al., 2016) is taken from $ANNOTATED_DATA/multi30k where
    that is set, else from the user's cache, else downloaded into that cache; both with a checksum.
    """
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; there are {', '.join(CORPORA)}.")
    if split not in CORPORA[name]:
        raise ValueError(f"unknown split {split!r} of {name}; there are {', '.join(CORPORA[name])}.")
    if {src, tgt} != set(LANGUAGES):
        raise ValueError(f"{name} translates between {' and '.join(LANGUAGES)}; got from {src!r} to {tgt!r}.")
    return read_pairs(*(_corpus_file(name, f"{split}.{language}") for language in (src, tgt)))


def _corpus_file(name: str, file: str) -> Path:
    folder = DATA_FOLDER / name if name == "grammar" else data_folder(name)
    if folder is None:
        return download(name, f"{file}.gz")
    if not (folder / file).is_file():
        remedy = "Correct ANNOTATED_DATA, or unset it to download the corpus."
        if name == "grammar":
            remedy = "It comes with the repository: `pip install -e .` in a clone of it."
        raise FileNotFoundError(f"there is no {folder / file}. {remedy}")
    return folder / file


def load_text(name: str) -> str:
    """Read one of `TEXTS`, such as "tinyshakespeare" (Karpathy, 2015), which come with the repository."""
    if name not in TEXTS:
        raise ValueError(f"unknown text {name!r}; there are {', '.join(TEXTS)}.")
    return read_text(DATA_FOLDER / name / "input.txt.gz")


def data_folder(name: str) -> Path | None:
    """Tell where a corpus must lie, if $ANNOTATED_DATA is set."""
    folder = os.environ.get("ANNOTATED_DATA")
    return Path(folder) / name if folder else None


def download(name: str, file: str) -> Path:
    """Find a file of a corpus in the user's cache, or download it; its checksum is compared each time."""
    pooch = load("pooch")
    cache = pooch.create(pooch.os_cache("annotated"), base_url="")
    cache.load_registry(DOWNLOADS)
    files = ", ".join(key.removeprefix(f"{name}/").removesuffix(".gz") for key in cache.registry if f"{name}/" in key)
    by_hand = f"put {files} into a folder {name} and set ANNOTATED_DATA to the folder around it."
    try:
        return Path(cache.fetch(f"{name}/{file}"))
    except ValueError as error:
        raise ValueError(f"{file} is not the file it was: {error} Try again, or {by_hand}") from None
    except OSError as error:
        raise FileNotFoundError(f"cannot download {file} ({error}). Without a network, {by_hand}") from None


def split_text(text: str) -> tuple[str, str]:
    """Hold out the last tenth of a text: return what to train on, and what to validate on."""
    end = int(0.9 * len(text))
    return text[:end], text[end:]


def bare(text: str) -> str:
    """Reduce a text to its letters and digits: in case, punctuation and spaces, doubles often differ."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in plain if unicodedata.category(sign)[0] in "LMN") or plain


def hold_out(pairs: Aligned, count: int, seed: int = 0) -> tuple[Aligned, Aligned]:
    """Split off `count` random pairs, or labelled texts, the same for the same seed everywhere.

    Returns the remaining pairs and the held-out ones, each in their old order; neither may be empty.
    """
    total = len(pairs[0])
    if not 1 <= count < total:
        raise ValueError(
            f"cannot hold out {count} of {total}: at least one must be held out, and one left to learn from. Give more "
            "sentences, one a line, or more texts; or others for validation."
        )
    chosen = set(torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].tolist())

    def select(held_out: bool) -> Aligned:
        kept = [i for i in range(total) if (i in chosen) == held_out]
        return type(pairs)(*([side[i] for i in kept] for side in pairs))

    return select(False), select(True)


def encode_pairs(
    pairs: Pairs, tokenizer: Tokenizer, src: str, tgt: str, max_length: int, *, drop_long: bool = False
) -> Encoded:
    """Turn sentence pairs into rows of ids: source + <eos>, and <bos> + target + <eos>.

    A pair is too long if source + <eos> or <bos> + target has more than `max_length` positions: `drop_long` leaves it
    out, as one does in training; else a ValueError gives its number.
    """
    encoded = Encoded([], [], [])
    sources, targets = tokenizer.encode_batch(pairs.source, src), tokenizer.encode_batch(pairs.target, tgt)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        length = max(len(source), len(target)) + 1
        if length <= max_length:
            encoded.sources.append([*source, EOS])
            encoded.targets.append([BOS, *target, EOS])
            encoded.kept.append(i)
        elif not drop_long:
            raise ValueError(
                f"line {i + 1} ({pairs.source[i][:40]!r} …) is {length} tokens long with its end symbol; the limit is "
                f"{max_length}. Shorten the line, or remove it on both sides."
            )
    return encoded


def pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "rows longest"]:
    """Stack rows of ids, at least one, into one tensor, filled with `PAD` on the right up to the longest."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.int64)


class Batches(Sequence[Batch]):
    """Batches of the rows that `groups` number, padded when they are asked for: all at once would take more memory."""

    def __init__(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], groups: Sequence[Tensor]):
        self.sources, self.targets, self.groups = sources, targets, groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Batches(self.sources, self.targets, self.groups[index])
        rows = self.groups[index].tolist()
        return Batch(pad([self.sources[i] for i in rows]), pad([self.targets[i] for i in rows]))


def make_batches(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], max_tokens: int, *, seed: int | None = None
) -> Batches:
    """Group pairs of similar length into batches of r rows: r · longest row ≤ max_tokens, on both sides (§5.1).

    A seed, one an epoch, shuffles pairs of equal length and the order of the batches, the same everywhere; None keeps
    everything sorted by length.
    """
    if len(sources) != len(targets) or not len(sources):
        raise ValueError(f"need as many sources as targets, at least one; got {len(sources)} and {len(targets)}.")
    source, target = (torch.tensor([len(row) for row in rows]) for rows in (sources, targets))
    longer = torch.maximum(source, target)
    if longer.max() > max_tokens:
        pair = int(longer.argmax())
        raise ValueError(f"pair {pair + 1} has {longer[pair]} tokens; max_tokens = {max_tokens} must hold any pair.")
    generator = torch.Generator()
    order = torch.arange(len(longer))
    if seed is not None:
        order = torch.randperm(len(longer), generator=generator.manual_seed(seed))

    # The longer side decides how many rows fit. The shorter is sorted up where the longer is odd, down where it is
    # even, so that neighbours stay alike where one length ends and the next begins.
    difference = torch.where(longer % 2 == 1, source - target, target - source)
    for key in (difference, longer):
        order = order[key[order].argsort(stable=True)]
    starts: list[int] = []
    for place, longest in enumerate(longer[order].tolist()):
        if not starts or (place + 1 - starts[-1]) * longest > max_tokens:
            starts.append(place)
    groups: Sequence[Tensor] = order.tensor_split(starts[1:])
    if seed is not None:
        groups = [groups[i] for i in torch.randperm(len(groups), generator=generator)]
    return Batches(sources, targets, groups)


def make_text_batches(
    ids: Int[Tensor, "length"], window: int, max_tokens: int, *, seed: int | None = None
) -> list[tuple[Int[Tensor, "rows window_1"]]]:
    """Cut a text into pieces of `window` + 1 tokens, each beginning with the last of the one before, and batch them.

    So each token but the first is predicted once, from at most `window` before it. The ends are padded. A batch has at
    most `max_tokens` / `window` rows. A seed, one an epoch, shifts the cuts and shuffles the pieces.
    """
    if len(ids) < 2:
        raise ValueError(f"a text of {len(ids)} tokens has nothing to predict.")
    if window > max_tokens:
        raise ValueError(f"a window has {window} tokens; max_tokens = {max_tokens} must hold at least one.")
    generator = torch.Generator()
    first = 0 if seed is None else int(torch.randint(window, (), generator=generator.manual_seed(seed)))
    starts = range(first - window if first else 0, len(ids) - 1, window)  # a first piece may begin before the text
    pieces = [ids[max(start, 0) : start + window + 1] for start in starts]
    rows = torch.stack([F.pad(piece, (0, window + 1 - len(piece)), value=PAD) for piece in pieces])
    if seed is not None:
        rows = rows[torch.randperm(len(rows), generator=generator)]
    return [(part,) for part in rows.split(max_tokens // window)]


def padding_share(batches: Sequence[tuple[Tensor, ...]]) -> float:
    """Measure the share of `PAD` among all ids of at least one batch: 0 is none."""
    total = sum(side.numel() for batch in batches for side in batch if side.ndim > 1)
    return (total - sum(map(count_tokens, batches))) / total


def count_tokens(batch: Sequence[Tensor]) -> int:
    """Count the tokens of a batch without its padding; a row of labels has none."""
    return sum(int((side != PAD).sum()) for side in batch if side.ndim > 1)


def count_targets(batch: Sequence[Tensor]) -> int:
    """Count what is to be predicted in a batch: the targets' tokens after the first, or the labels."""
    return len(batch[-1]) if batch[-1].ndim == 1 else int((batch[-1][:, 1:] != PAD).sum())
