"""What the project's notebooks need for a reader's own pairs or text: a look at them, milestones, rivals, intervals."""

import math
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from html.entities import html5
from importlib import import_module
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.models.language_model import LanguageModelConfig
from annotated_workbench import data
from annotated_workbench.architectures import PRESETS, config_of
from annotated_workbench.checkpoint import WEIGHTS, load_tensors, load_weights
from annotated_workbench.data import Pairs, bare, hold_out, load_corpus
from annotated_workbench.extras import load
from annotated_workbench.files import checksum
from annotated_workbench.metrics import check_texts, sacrebleus_words
from annotated_workbench.repeats import has_ended, read_metrics
from annotated_workbench.run_folder import STATE
from annotated_workbench.runs import fit
from annotated_workbench.tasks import Batch, Task
from annotated_workbench.training_options import WARMUP, TrainingOptions, defaults_for
from annotated_workbench.vocabulary import normal_form

MILESTONES = ("data", "train", "diagnose", "evaluate")
LEAST = 200  # pairs; below that nothing can be held out that would tell anything
FEWEST = 16  # different sentences that a part needs: of fewer, the notebook cannot draw its eight
FEW = 2000  # pairs from which a Transformer learns little more than its examples
SMALL = 12_000  # pairs, as which more are treated where there is little time
LONGEST = 100  # words of a sentence
LEAST_TEXT, FEW_TEXT, SMALL_TEXT = 10_000, 100_000, 400_000  # characters, as LEAST, FEW and SMALL are pairs
PASSAGE = 50  # characters; so many in a row are seldom alike by chance
RARE = 10  # occurrences: below that a model learns little of a character
MISREAD = "cp1250", "cp1251", "cp437", "iso8859-2", "koi8-r", "mac-roman"  # for UTF-8; ftfy knows the commonest best
LOOP = re.compile(r"(?:^| )(\S+(?: \S+){0,3})(?: \1){2,}(?= |$)")  # one to four words, three times in a row
LINEAR: dict[str, Any] = {"schedule": "linear", "average": 1}
Lines = Mapping[int, tuple[str, ...]]  # by their numbers, from 1: a text, or a pair


class Outcome(NamedTuple):
    """A statement; whether it holds, None where it was not examined; and what to do where it does not, or why."""

    statement: str
    holds: bool | None
    remedy: str = ""

    def __str__(self) -> str:
        mark = {True: "✓", False: "✗", None: "○"}[self.holds]
        return f"{mark} {self.statement}" + ("" if self.holds else f": {self.remedy}")


_reached: dict[str, bool] = {}


def milestone(name: str, outcomes: Iterable[tuple[str, bool | None, str]], *, rehearsal: bool = False) -> None:
    """Print each outcome of one of `MILESTONES`, and how far the project is; what comes after it is open again.

    It is reached when every statement holds, and no rehearsal.
    """
    all_outcomes = [Outcome(*outcome) for outcome in outcomes]
    _reached[name] = not rehearsal and all(outcome.holds is not False for outcome in all_outcomes)
    for later in MILESTONES[MILESTONES.index(name) + 1 :]:
        _reached.pop(later, None)
    print(*all_outcomes, sep="\n")
    print("\nYour project:", "   ".join(f"{'✓' if _reached.get(each) else '○'} {each}" for each in MILESTONES))


def load_project(
    source: str | Path | None, target: str | Path | None, src: str, tgt: str, leave_out: Container[int] = ()
) -> tuple[Pairs, dict[str, Pairs]]:
    """Read two aligned files and split them; without files, take the grammar's sentences, with faults planted.

    A tenth is for the test and a tenth for validation, at most 1,000 pairs each. What shares a sentence with either,
    on any side, is left out of the training pairs; a ValueError says that too few remain. Returned are the pairs as
    they stand in the files (of the grammar's, the training pairs), and "train", "val" and "test", without the lines
    to `leave_out`, counted from 1.
    """
    if source is None and target is None:
        splits = {split: load_corpus("grammar", split, src, tgt) for split in data.CORPORA["grammar"]}
        left, right = map(list, splits["train"])
        right[2000:2003] = right[2001], right[2002], right[2000]  # out of step
        right[3500] = left[3500]  # not translated
        right[5000] = right[5000][: len(right[5000]) // 5]  # cut off
        right[6500] = f"{right[6500]} {right[6501]}"  # two sentences in a line
        left[8000], right[8000] = (side[8000].encode().decode("latin-1") for side in (left, right))  # a wrong encoding
        right[9500] = f"&quot;{right[9500]}&quot;"
        left[11000:11300], right[11000:11300] = left[1000:1300], right[1000:1300]  # a part is there twice
        return Pairs(left, right), splits | {"train": _chosen(Pairs(left, right), leave_out)}
    if source is None or target is None or Path(source).resolve() == Path(target).resolve():
        raise ValueError(
            f"SOURCE is {source!r} and TARGET is {target!r}: give a file for each language, or None twice. Of one file "
            "with both (TSV, CSV, TMX), make two, as shown under “how one file becomes two”."
        )
    pairs = data.read_pairs(source, target)
    count = len(pairs.source)
    if count < LEAST:
        raise ValueError(
            f"{source} has {count} lines, and a project needs at least {LEAST}, better {FEW:,}: to learn from, and "
            "to validate and test on. Find more pairs, or set SOURCE, TARGET = None, None for the grammar's sentences."
        )
    held_out = min(1000, count // 10)
    rest, test = hold_out(_chosen(pairs, leave_out), held_out, seed=0)
    train, val = hold_out(rest, held_out, seed=1)
    val = _without(val, [test])
    train = _without(train, [test, val])
    remaining, validating = (min(len({*map(bare, side)}) for side in part) for part in (train, val))
    if min(remaining, validating) < FEWEST:
        raise ValueError(
            f"{source} has {count} lines, but too few different ones: where no part shares a sentence with another, "
            f"{remaining} different sentences remain to learn from and {validating} to validate on; {FEWEST} "
            "is the least. Find more pairs."
        )
    return pairs, {"train": train, "val": val, "test": test}


def _chosen(pairs: Pairs, leave_out: Container[int]) -> Pairs:
    return Pairs(*([text for i, text in enumerate(side, start=1) if i not in leave_out] for side in pairs))


def _without(pairs: Pairs, others: Iterable[Pairs]) -> Pairs:
    """Leave out the pairs that share a sentence with others, but for case and punctuation."""
    seen = [{*map(bare, chain.from_iterable(side))} for side in zip(*others, strict=True)]
    kept = [pair for pair in zip(*pairs, strict=True) if not any(bare(a) in b for a, b in zip(pair, seen, strict=True))]
    return Pairs([source for source, _ in kept], [target for _, target in kept])


def _is_garbled(text: str) -> bool:
    """Tell whether a text looks like UTF-8 read as something else, or gives two characters where that is undone."""
    for encoding in MISREAD:
        with suppress(ValueError):
            if sum(sign > "\x7f" for sign in text.encode(encoding).decode()) > 1:
                return True
    return bool({"\0", "\ufffd"} & {*text}) or load("ftfy.badness").is_bad(text)


ENTITY = rf"&(#\d+;|#x[\da-f]+;|{'|'.join(name for name in html5 if name[-1] == ';')})"
FAULTS: dict[str, tuple[Callable[[str], object], str]] = {  # of a text: how each is found, and what to do
    "broken characters": (_is_garbled, "Read in a wrong encoding: in Python, ftfy.fix_encoding(line) mends most."),
    "columns": (
        re.compile(r'\t|\|\|\||^".*"[,;]".*"$').search,
        "Make two files of them, as “how one file becomes two” shows; a stray tab becomes a space.",
    ),
    "tags": (re.compile(r"</?[A-Za-z][\w:-]*(\s[^<>]*)?/?>|<\?xml|<!--").search, "Keep only the text between them."),
    "entities": (re.compile(ENTITY).search, "In Python, html.unescape(line) puts in what they stand for."),
    "cut words": (re.compile(r"\S@@(\s|$)|@-@|▁|￭|(^|\s)##\w").search, "Take the text from before it was tokenised."),
    f"sentence of more than {LONGEST} words or {10 * LONGEST:,} characters": (
        lambda text: max(len(text.split()), len(text) / 10) > LONGEST,
        "Split it into sentences on both sides, or remove it from both.",
    ),
}


def look_at(
    pairs: Pairs, splits: Mapping[str, Pairs], src: str, tgt: str, leave_out: Container[int] = ()
) -> list[Outcome]:
    """Examine pairs, in the order of their files, for what most often spoils a run: each fault with its first line."""
    lines = {i: pair for i, pair in enumerate(zip(*pairs, strict=True), start=1) if i not in leave_out}
    learned = len(splits["train"].source)
    shared = learned - len(_without(splits["train"], [splits["val"], splits["test"]]).source)
    lengths = torch.tensor([[*map(len, pair)] for pair in lines.values()], dtype=torch.float64)
    r = lengths.T.corrcoef()[0, 1]
    seen: Counter[tuple[str, ...]] = Counter()
    most = 0.02 if src != tgt else 0.5  # who simplifies a language leaves much as it is

    def is_double(*pair: str) -> bool:
        seen[key := tuple(map(bare, pair))] += 1
        return seen[key] > 1

    return [
        Outcome(
            f"enough pairs to learn from: {learned:,}",
            learned >= FEW,
            f"below {FEW:,} it mostly learns its examples by heart. Go on to try everything, and look for more.",
        ),
        *_look_for(FAULTS, lines),
        _fault("no pair appears twice", lines, is_double, "Keep one of each: sort both files together, unique.", 0.02),
        _fault("the two sides differ", lines, str.__eq__, "Not translated: remove these lines from both files.", most),
        Outcome(
            "long sentences have long translations",
            bool(r > 0.4),  # where one file is shifted by a line, they do not
            f"the correlation of lengths is {r:.2f} and should be above 0.4. Lines do not belong together: was one "
            "removed from one file only? Look at ten pairs, from the end, too.",
        ),
        _languages(lines, src, tgt),
        Outcome(
            "no sentence is in both training and test",
            shared == 0,
            f"{shared:,} training pairs share one, but for case and punctuation: leave them out.",
        ),
    ]


def _look_for(kinds: Iterable[str], lines: Lines) -> list[Outcome]:
    """Look for some kinds of `FAULTS` in any text of a line."""
    return [
        _fault(f"no {kind}", lines, lambda *texts, bad=FAULTS[kind][0]: any(map(bad, texts)), FAULTS[kind][1])
        for kind in kinds
    ]


def _fault(statement: str, lines: Lines, is_bad: Callable[..., bool], remedy: str, allowed: float = 0.0) -> Outcome:
    """Tell whether no more than an allowed share of the lines is bad; name the first that is."""
    bad = [number for number, texts in lines.items() if is_bad(*texts)]
    if len(bad) <= allowed * len(lines):
        return Outcome(statement, True)
    first = " | ".join(text[:40].strip() for text in lines[bad[0]])
    where = f"line {bad[0]}" if len(bad) == 1 else f"{len(bad):,} of {len(lines):,} lines, the first is {bad[0]}"
    return Outcome(statement, False, f"{where} ({first}). {remedy}")


def _languages(lines: Lines, src: str, tgt: str) -> Outcome:
    """Tell by frequent words whether each side is in its language."""
    statement, frequent = f"left is {src}, right is {tgt}", [_frequent_words(language) for language in (src, tgt)]
    if not all(frequent):
        return Outcome(statement, None, f"there is no list of frequent words of {tgt if frequent[0] else src!r}.")

    def surplus(text: str) -> int:
        """How many more words of the left language than of the right one a text has."""
        return sum((word in frequent[0]) - (word in frequent[1]) for word in re.findall(r"\w+", text.lower()))

    remedy = "They look exchanged: exchange their sides; if most lines do, SOURCE and TARGET, or SRC and TGT."
    exchanged = _fault(statement, lines, lambda left, right: surplus(left) < 0 < surplus(right), remedy, 0.01)
    sides = zip(*lines.values(), strict=True)
    for language, name, own, side in zip((src, tgt), ("SRC", "TGT"), frequent, sides, strict=True):
        words = re.findall(r"\w+", " ".join(side).lower())
        count = sum(word in own for word in words)
        if exchanged.holds and count < 0.03 * len(words):
            counted = f"only {count:,} of {len(words):,} words are among the frequent ones of {language!r}"
            return Outcome(statement, False, f"{counted}. Is {name} right?")
    return exchanged


def _frequent_words(language: str) -> set[str]:
    """List a language's most frequent words; empty where spaCy has none, or where they are not between spaces."""
    code = re.split("[-_]", language.lower())[0]
    if code in ("zh", "ja", "th", "lo", "km", "my"):
        return set()
    try:
        return set(import_module(f"spacy.lang.{code}.stop_words").STOP_WORDS)
    except ImportError:
        return set()


def load_own_text(path: str | Path | None, leave_out: Container[int] = ()) -> tuple[list[str], dict[str, str]]:
    """Read a text and split it in its order; without a file, take Shakespeare's Coriolanus, with faults planted.

    Eight tenths are to learn from, the next tenth is for validation, the last for the test. Returned are the lines as
    they stand in the file, and "train", "val" and "test" without the lines to `leave_out`, counted from 1.
    """
    text = data.read_text(path) if path else data.load_text("tinyshakespeare")[:145_000]
    lines = normal_form(text).replace("\r\n", "\n").splitlines(keepends=True)  # as the tokens will be
    if not path:
        lines[3899:3899] = ["<p>page 97</p>\n"]
        lines[3499:3499] = lines[700:820]  # a passage is there twice
        lines[3000:3040] = [line.replace("'", "â€™") for line in lines[3000:3040]]  # read in a wrong encoding
        lines[2399:2399] = [f"{line}\n" for line in load_corpus("grammar", "val").source[:12]]  # another language
    kept = "".join(line for i, line in enumerate(lines, start=1) if i not in leave_out)
    if len(kept) < LEAST_TEXT:
        raise ValueError(
            f"{path} has {len(kept):,} characters, and a project needs at least {LEAST_TEXT:,}, better {FEW_TEXT:,}: "
            "to learn from, and to validate and test on. Find more, or set TEXT = None for Shakespeare."
        )
    ends = 0, int(0.8 * len(kept)), int(0.9 * len(kept)), len(kept)
    return lines, {name: kept[a:b] for name, a, b in zip(("train", "val", "test"), ends, ends[1:], strict=False)}


def look_at_text(lines: Sequence[str], splits: Mapping[str, str], leave_out: Container[int] = ()) -> list[Outcome]:
    """Examine a text for what most often spoils a run: each fault with its first line."""
    train, text = splits["train"], "".join(splits.values())
    numbered = {i: (line,) for i, line in enumerate(lines, start=1) if i not in leave_out}
    counts, ends = Counter(train), [*accumulate(len(line) for (line,) in numbered.values())]
    rare = sorted(sign for sign, count in counts.items() if count < RARE)
    new = [sign for sign in text[len(train) :] if sign not in counts]
    first: dict[str, int] = {}
    for i in range(0, len(text) - PASSAGE + 1, PASSAGE):
        first.setdefault(text[i : i + PASSAGE], i)
    twice = {i: j for i in range(len(text)) if (j := first.get(text[i : i + PASSAGE], i)) < i}  # to where
    same = PASSAGE * len({i // PASSAGE for i in twice})
    leaked = PASSAGE * len({i // PASSAGE for i, before in twice.items() if i >= len(train) > before})
    line = [*numbered][bisect(ends, min(twice, default=0))]
    return [
        Outcome(
            f"enough characters to learn from: {len(train):,}",
            len(train) >= FEW_TEXT,
            f"below {FEW_TEXT:,} it mostly learns them by heart. Go on to try everything, and look for more.",
        ),
        *_look_for(("broken characters", "tags", "entities", "cut words"), numbered),
        Outcome(
            "hardly any character is rare",
            sum(counts[sign] for sign in rare) <= len(train) / 1000,
            f"{len(rare)} of {len(counts)} stand there fewer than {RARE} times, such as {rare[:8]}: replace odd ones.",
        ),
        Outcome(
            "hardly any held-out character is new",
            len(new) <= (len(text) - len(train)) / 1000,
            f"{len(new):,} never stand in the training text, such as {sorted({*new})[:8]}. Is the end of another kind?",
        ),
        Outcome(
            "no long passage stands twice",
            same <= len(text) / 100,
            f"{same:,} characters of {len(text):,} have stood before; the first passage is in line "
            f"{line}. Is a part there twice? Keep one.",
        ),
        Outcome(
            "what is held out is not in the training text",
            leaked <= (len(text) - len(train)) / 100,
            f"{leaked:,} characters of it are: a model could know them by heart. Leave them out.",
        ),
    ]


def writing_faults(texts: Sequence[str], training: str) -> dict[str, float]:
    """Count, of 100, the words that the training never showed, the texts that loop, and the pieces copied from it."""
    known = {*re.findall(r"[^\W\d_]+", training.lower())}
    words = [word for text in texts for word in re.findall(r"[^\W\d_]+", text.lower())[1:-1]]  # may be cut off
    pieces = [text[i : i + PASSAGE] for text in texts for i in range(0, len(text) - PASSAGE + 1, PASSAGE)]
    counted = {
        "unknown words": [word not in known for word in words],
        "texts that loop": [bool(LOOP.search(" ".join(text.lower().split()))) for text in texts],
        "copied pieces": [piece in training for piece in pieces],
    }
    return {kind: 100 * sum(found) / max(1, len(found)) for kind, found in counted.items()}


def plan(pairs: int, vocabulary: int, minutes: int | float | None) -> tuple[TransformerConfig, TrainingOptions]:
    """Choose a model and a training for a number of pairs and of tokens, and for the time in minutes.

    No minutes are a first look: the smallest model, and 24,000 pairs in all or four passes.
    """
    if minutes is None:
        look = TransformerConfig(vocabulary, d_model=64, d_ff=128, heads=4, layers=1)
        epochs, rate = max(4, round(24_000 / pairs)), math.sqrt(0.1)
        return look, TrainingOptions(epochs, batch_tokens=500, warmup=100, rate=rate, **LINEAR)
    chosen = defaults_for(pairs if minutes >= 10 else min(pairs, SMALL))
    warmup = max(50, min(WARMUP, round(WARMUP / 20 * minutes)))
    tokens, rate = chosen["batch_tokens"], math.sqrt(warmup / WARMUP)
    tokens = tokens if minutes >= 10 else min(1000, tokens)
    options = TrainingOptions(1000, None, float(minutes), tokens, warmup=warmup, rate=rate, **LINEAR)
    preset: Any = PRESETS[chosen["preset"]]
    return preset(vocabulary, dropout=chosen["dropout"]), options


def plan_text(characters: int, vocabulary: int, minutes: int | float | None) -> tuple[Any, TrainingOptions]:
    """Choose a language model and a training, as `plan` does: as `train --text`, or smaller where the text is small."""
    if minutes is None:
        options = TrainingOptions(9, batch_tokens=512, warmup=50, rate=0.5, smoothing=0, **LINEAR)
        return LanguageModelConfig(vocabulary, 64, 256, 4, 2, max_length=32, dropout=0.0), options
    options = TrainingOptions(1000, None, minutes, 1024, warmup=100, rate=0.25, smoothing=0, **LINEAR)
    if characters < SMALL_TEXT:
        return LanguageModelConfig(vocabulary, 96, 384, 4, 3, dropout=0.2), options
    return LanguageModelConfig(vocabulary, dropout=0.1), options


def record_losses(task: Task) -> list[float]:
    """Keep what a task computes from now on, in the list that is returned: the loss of each batch, in nats a token."""
    losses: list[float] = []
    compute = task.loss

    def loss(model: nn.Module, batch: Batch, options: TrainingOptions) -> Tensor:
        summed = compute(model, batch, options)
        losses.append(summed.item() / data.count_targets(batch))
        return summed

    task.loss = loss  # type: ignore[method-assign]
    return losses


def train_once(
    model: nn.Module, task: Task, home: str | Path, options: TrainingOptions, held_out: Iterable[str]
) -> tuple[Path, list[dict[str, Any]]]:
    """Train a new model as `fit` does, or read what the same training has left; go on where it was interrupted.

    In `home` the same texts, tokens, sizes and options have the same run. Returned are its folder, and the lines of its
    metrics.jsonl; the model ends with the trained weights. Of the texts `held_out` for validation the run keeps a sum.
    """
    name = checksum([repr((sorted(task.identity.items()), config_of(model), options)).encode()])
    run = Path(home) / f"run-{name[:6]}"
    lines = read_metrics(run)
    if has_ended(lines, asdict(options)):
        load_weights(model, load_tensors(run / WEIGHTS)[0])
        return run, lines
    settings = asdict(options) | task.identity | {"held_out": checksum(text.encode() for text in held_out)}
    return run, fit(model, task, run, options=options, settings=settings, resume=(run / STATE).exists())


def faults(translations: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> dict[str, list[int]]:
    """Find the translations with a fault that needs no reading: their numbers, from 0, by the kind of fault."""
    numbers: dict[str, list[int]] = {name: [] for name in ("empty", "copies", "loops", "too short", "too long")}
    for i, (text, source, reference) in enumerate(zip(translations, sources, references, strict=True)):
        words, given = text.lower().split(), set(source.lower().split())
        kinds = {
            "empty": not words,
            "copies": len(words) > 2 and sum(word in given for word in words) > 0.7 * len(words),
            "loops": LOOP.search(text.lower()),
            "too short": words and len(text) < len(reference) / 2,
            "too long": len(text) > 2 * len(reference),
        }
        for kind in filter(kinds.get, kinds):
            numbers[kind].append(i)
    return numbers


def make_dictionary(pairs: Pairs) -> dict[str, str]:
    """For each source word, choose the word that most reliably shares its pairs: the largest both / (one + other)."""
    together: dict[str, Counter[str]] = defaultdict(Counter)
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for source, target in zip(*pairs, strict=True):
        sides = set(source.split()), set(target.split())
        for count, words in zip(counts, sides, strict=True):
            count.update(words)
        for word in sides[0]:
            together[word].update(sides[1])

    def best(word: str) -> str:
        return max(together[word], key=lambda one: (together[word][one] / (counts[0][word] + counts[1][one]), one))

    return {word: best(word) for word in together}


def paired_bootstrap(
    ours: Sequence[str], theirs: Sequence[str], references: Sequence[str], language: str = "", draws: int = 1000
) -> list[tuple[float, float]]:
    """Score two systems on the same sentences, drawn with replacement, again and again (Koehn, 2004): pairs of BLEU."""
    from sacrebleu.metrics import BLEU

    check_texts(ours=ours, theirs=theirs, references=references)
    metric = BLEU(tokenize=sacrebleus_words(language), effective_order=True)

    def counted(texts: Sequence[str]) -> torch.Tensor:
        scores = [metric.sentence_score(text, [reference]) for text, reference in zip(texts, references, strict=True)]
        return torch.tensor([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores])

    def score(row: list[int]) -> float:
        return float(BLEU.compute_bleu(row[:4], row[4:8], row[8], row[9], smooth_method="exp").score)

    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(references), (draws, len(references)), generator=generator)
    rows = [system[drawn].sum(dim=1).tolist() for system in (counted(ours), counted(theirs))]
    return [(score(one), score(other)) for one, other in zip(*rows, strict=True)]
