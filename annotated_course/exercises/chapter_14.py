"""The exercises of chapter 14, classification."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.diagnosis import Exercise, compare


def three_classes(answer: Any) -> str | None:
    """The mean of three states, and the probability of class 1."""
    found = torch.as_tensor(answer, dtype=torch.float32)
    if found.shape != (3,):
        return "give three numbers: the two entries of the mean, then the probability of class 1."

    def right(first: float, second: float, bias: float = math.log(2)) -> Tensor:
        logits = torch.tensor([first * math.log(2) / 2, second * math.log(2), bias])
        return torch.tensor([first, second, float(logits.softmax(dim=0)[1])])

    logits = torch.tensor([math.log(2), 2 * math.log(2), math.log(2)])
    mistakes = {
        "the padding is in the mean: three tokens are real.": right(3.6, 1.6),
        "the sum is divided by all five places: three tokens are real.": right(1.2, 1.2),
        "this is the sum; divide it by the number of tokens.": right(6.0, 6.0),
        "this is the largest of each feature, not the mean.": right(4.0, 3.0),
        "the bias of class 2 is missing.": right(2.0, 2.0, bias=0.0),
        "the third number is the logit of class 1: exponentials, divided by their sum.": torch.tensor(
            [2.0, 2.0, 2 * math.log(2)]
        ),
        "the third number is the exponential of class 1: divide it by the sum of the three.": torch.tensor(
            [2.0, 2.0, 4.0]
        ),
        "the third number is the logarithm of the probability.": torch.tensor([2.0, 2.0, math.log(0.5)]),
        "the third number is the logit's share of the logits' sum; the softmax takes exponentials.": torch.tensor(
            [2.0, 2.0, float(logits[1] / logits.sum())]
        ),
        "the third number is the probability of class 0 or 2; classes are counted from 0.": torch.tensor(
            [2.0, 2.0, 0.25]
        ),
    }
    return compare(found, right(2.0, 2.0), mistakes, tolerance=2e-3, by_hand=True)


def largest_of_tokens(answer: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """The largest real value of each feature: padding in front and behind, values below 0, NaN, nothing real."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 5, 3, generator=generator)
    behind = torch.tensor([5, 3, 2, 1])[:, None] > torch.arange(5)
    states[~behind] += 9
    below, empty, unknown = states.clone(), behind.clone(), states.clone()
    below[behind] -= 900
    empty[2] = False
    unknown[~behind] = math.nan
    cases = [
        ("", states, behind),
        ("where all real values lie below 0: ", below, behind),
        ("where padding stands in front: ", states.flip(1), behind.flip(1)),
        ("where a text has no token: ", below, empty),
        ("where NaN stands at the padding: ", unknown, behind),
        (
            "where NaN stands at the padding, and a text has no token: ",
            unknown.masked_fill(~empty[..., None], math.nan),
            empty,
        ),
    ]
    for remark, x, real in cases:
        expected = torch.stack(
            [row[keep].amax(dim=0) if keep.any() else row.new_zeros(3) for row, keep in zip(x, real, strict=True)]
        )
        given, mask = x.clone(), real.clone()
        found = answer(given, mask)
        if not (torch.equal(given.nan_to_num(), x.nan_to_num()) and torch.equal(mask, real)):
            return "your function changed what it was given: make a new tensor (masked_fill, not masked_fill_)."
        if isinstance(found, tuple):
            return "expected a tensor, got a tuple: max(dim=…) also returns places; take amax, or .values."
        if isinstance(found, Tensor) and found.shape == expected.shape and remark:
            if (found < -1e4).any():
                return f"{remark}it stays at −∞ (or a huge negative number); zeros are wanted."
            if found.isnan().any():
                return f"{remark}NaN came through: replace padding (masked_fill, where); NaN times 0 is NaN."
        everything = x.amax(dim=1)
        kept = x.masked_fill(~real[..., None], 0.0)
        turned = x.masked_fill(real[..., None], -math.inf).amax(dim=1)
        mistakes = {
            "padding counts: it may hold larger values than the tokens.": everything,
            "values below 0 are lost: padding is replaced by 0, or the result is cut off there.": kept.amax(dim=1),
            "this is the mean of the tokens, not the largest.": (
                kept.sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)
            ),
            "this is the sum of the tokens, not the largest.": kept.sum(dim=1),
            "you took the largest of the padding: True means real.": turned.masked_fill(turned == -math.inf, 0.0),
            "you took the largest of the padding (True means real), and −∞ where there is none.": turned,
            "this is the smallest, not the largest.": torch.where(
                real.any(dim=1, keepdim=True), x.masked_fill(~real[..., None], math.inf).amin(dim=1), 0.0
            ),
            "the largest is that of each feature over the tokens (dim=1), not over features.": (
                x.masked_fill(~real[..., None], -math.inf).amax(dim=2)
            ),
            "values below 0 are lost: the largest may be one of them.": expected.clamp(min=0),
        }
        if diagnosis := compare(found, expected, mistakes):
            return remark + diagnosis
    return None


def in_patches(answer: Callable[[Tensor, int], Tensor]) -> str | None:
    """Pictures cut into patches: square, wide and high ones, sizes 1, 2 and 3, no picture at all."""
    generator = torch.Generator().manual_seed(0)
    for batch, height, width, size in ((3, 8, 8, 2), (2, 4, 8, 2), (2, 9, 6, 3), (1, 3, 5, 1), (2, 4, 4, 4)):
        images = torch.randn(batch, height, width, generator=generator)
        rows, columns = height // size, width // size
        axes = images.view(batch, rows, size, columns, size)
        expected = axes.permute(0, 1, 3, 2, 4).reshape(batch, rows * columns, size**2)
        mistakes = {
            "the numbers are only counted off: that cuts a row of pixels into pieces. A patch holds several rows.": (
                images.reshape(expected.shape)
            ),
            "the patches stand column by column; they are wanted row by row.": (
                axes.permute(0, 3, 1, 2, 4).reshape(expected.shape)
            ),
            "in each patch the pixels stand column by column; they are wanted row by row.": (
                axes.permute(0, 1, 3, 4, 2).reshape(expected.shape)
            ),
            "patches and pixels both stand column by column: you have turned the picture.": (
                axes.permute(0, 3, 1, 4, 2).reshape(expected.shape)
            ),
            "these are pixels that are `size` apart, not neighbours: the inner axis of each pair is the pixel's.": (
                images.view(batch, size, rows, size, columns).permute(0, 2, 4, 1, 3).reshape(expected.shape)
            ),
            "the rows of patches and the rows in them are exchanged.": (
                axes.permute(0, 2, 3, 1, 4).reshape(expected.shape)
            ),
            "this is (batch, pixels, patches): exchange the last two axes.": expected.transpose(1, 2),
            "two axes too many: join rows and columns of patches, and rows and columns of pixels.": (
                axes.permute(0, 1, 3, 2, 4)
            ),
        }
        if diagnosis := compare(answer(images.clone(), size), expected, mistakes):
            return f"({batch}, {height}, {width}), size {size}: {diagnosis}"
    return None


def bayes(counts: Tensor, labels: Tensor, new: Tensor, classes: int, **change: Any) -> Tensor:
    """Naive Bayes in the logarithm, with a choice of what is usually got wrong."""
    own = torch.nn.functional.one_hot(labels, classes).to(counts.dtype)  # (text, class)
    if change.get("presence"):
        counts, new = (counts > 0).to(counts.dtype), (new > 0).to(new.dtype)
    words = own.T @ counts
    added = change.get("added", 1.0)
    below = words.sum(dim=1, keepdim=True) + (0 if change.get("numerator_alone") else added * counts.size(1))
    given_class = (words + added) / (words + added).sum() if change.get("over_all") else (words + added) / below
    prior = {
        "texts": own.mean(dim=0),
        "words": words.sum(dim=1) / words.sum(),
        "none": torch.full((classes,), 1 / classes),
        "smoothed": (own.sum(dim=0) + 1) / (len(labels) + classes),
    }[change.get("prior", "texts")]
    logs = new @ given_class.log().T + prior.log()
    return logs if change.get("logs") else logs.softmax(dim=change.get("dim", 1))


def a_baseline(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> str | None:
    """Two and three classes of unequal sizes; words never seen; an empty text; texts of a thousand words."""
    generator = torch.Generator().manual_seed(2)
    for classes, sizes, texts, long, remark in (
        (2, (7, 5), 4, False, ""),
        (3, (11, 6), 5, False, "three classes: "),
        (2, (6, 9), 3, True, "texts of thousands of words: "),
    ):
        counts = torch.poisson(torch.rand(*sizes, generator=generator) * 1.2, generator=generator)
        counts[:, -1] = 0  # a word that no training text has
        labels = torch.randint(classes, (sizes[0],), generator=generator)
        labels[: classes + 2] = torch.tensor([*range(classes), 0, 0])
        new = torch.poisson(torch.rand(texts, sizes[1], generator=generator) * 1.5, generator=generator)
        new[0] = 0
        new[1, -1] += 1
        if long:
            new[1:] = 1000 + new[1:]
        given = (counts.double(), labels, new.double(), classes)
        expected = bayes(*given).to(counts.dtype)
        found = answer(counts.clone(), labels.clone(), new.clone(), classes)
        if isinstance(found, Tensor):
            found = found.to(counts.dtype) if found.is_floating_point() else found
            if long and found.shape == expected.shape and not found.isfinite().all():
                return f"{remark}NaN: the products have become 0, and 0 / 0 is no number. Add logarithms."
            if long and found.shape == expected.shape and (found.sum(dim=1) < 0.5).any():
                return f"{remark}all is 0: the products have become too small. Add logarithms."
        mistakes = {
            "p(c) is missing: the share of the training texts that have class c.": bayes(*given, prior="none"),
            "p(c) is the share of the texts, not of the words.": bayes(*given, prior="words"),
            "the one is added to the words' counts, not to p(c).": bayes(*given, prior="smoothed"),
            "the one is added above only; below, each word of the vocabulary adds one, too.": bayes(
                *given, numerator_alone=True
            ),
            "add 1 to each count before you divide: a word never seen would forbid the class.": bayes(
                *given, added=1e-9
            ),
            "p(w | c) is divided by the words of its own class, not of all classes together.": bayes(
                *given, over_all=True
            ),
            "a word that stands twice counts twice; you count whether it is there.": bayes(*given, presence=True),
            "these are logarithms; probabilities are wanted.": bayes(*given, logs=True),
            "these are logarithms; probabilities are wanted, that is, no logarithm of them.": bayes(*given).log(),
            "these are products, which do not sum to 1: divide each by its text's sum.": bayes(*given, logs=True).exp(),
            "the probabilities sum to 1 over the texts; they shall over the classes.": bayes(*given, dim=0),
            "this is (class, text): exchange the axes.": expected.double().T,
        }
        rounded = {text: wrong.to(counts.dtype) for text, wrong in mistakes.items()}
        if isinstance(found, Tensor) and found.shape == expected.shape and found.isnan().any():
            return f"{remark}NaN: is a count of 0 divided, or its logarithm multiplied by 0? Add 1 to each count."
        if diagnosis := compare(found, expected, rounded):
            return remark + diagnosis
    return None


def verdict(words: Sequence[str]) -> int | None:
    """0 if "good" is the first of "good" and "bad" after "not", 1 if it is "bad"; None if neither follows."""
    after = [word for word in words[words.index("not") + 1 :] if word in ("good", "bad")]
    return ("good", "bad").index(after[0]) if after else None


def no_bigram_helps(answer: Callable[[], Any]) -> str | None:
    """The whole list is counted: form, labels, bags of bigrams, and the place of "not"."""
    found = answer()
    if found is None:
        return "your function returned None: does it end in a return?"
    found = list(found)
    for one in found:
        if not (isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str) and one[1] in (0, 1)):
            return f"each entry is a pair (text, label), a string and 0 or 1; got {one!r:.80}."
    if len(found) < 16:
        return f"at least 16 texts are wanted; got {len(found)}."
    twice = next((text for text, count in Counter(text for text, _ in found).items() if count > 1), None)
    if twice is not None:
        return f"the texts must all be different; {twice!r:.80} is there more than once."
    bigrams: dict[Any, list[str]] = defaultdict(list)
    places: dict[int, list[int]] = defaultdict(list)
    labels = {text: int(label) for text, label in found}
    for text, label in labels.items():
        words = text.split(" ")
        if "" in words or "<" in words or ">" in words:
            return f"words are separated by single spaces, and < and > are no words: {text!r:.80}."
        for word in (",", "not", "good", "bad"):
            if words.count(word) != 1:
                return f"{word!r} must stand exactly once in each text: {text!r:.80}."
        if verdict(words) is None:
            return f"after 'not' neither 'good' nor 'bad' follows: {text!r:.80}."
        if label != verdict(words):
            return f"the label is 0 if 'good' comes first after 'not', 1 if 'bad' does: {text!r:.80} has {label}."
        bag = Counter(pairwise(["<", *words, ">"]))
        bigrams[frozenset(bag.items())].append(text)
        places[words.index("not")].append(label)
    for texts in bigrams.values():
        ones = sum(labels[text] for text in texts)
        if 2 * ones != len(texts):
            return _what_tells(texts[0], len(texts) - ones, ones)
    for place, here in sorted(places.items()):
        if 2 * sum(here) != len(here):
            return (
                f"the bigrams tell nothing, but the place of 'not' does: of the texts that have it at place {place}, "
                f"{len(here) - sum(here)} have label 0 and {sum(here)} have label 1. Let either clause come first."
            )
    return None


def _what_tells(text: str, zeros: int, ones: int) -> str:
    """Say why a bag of bigrams is not balanced, with the likeliest reason."""
    words = text.split(" ")
    not_at = words.index("not")
    counted = f"of the texts with the bigrams of {text!r:.80}, {zeros} have label 0 and {ones} have label 1"
    if words[not_at + 1] in ("good", "bad"):
        return f"{counted}: 'not {words[not_at + 1]}' is a bigram itself. Put a word between, in both clauses."
    if not_at == 0 or not_at == len(words) - 1 or words[not_at - 1] == ",":
        return f"{counted}: 'not' stands at the edge of its clause; what is beside it tells which clause it is in."
    return (
        f"{counted}. Where 'not' goes, the bigrams around the gap change: the word before it and the word behind it "
        "must be the same in both clauses."
    )


EXERCISES = {
    "14.1": Exercise("Three classes by hand", three_classes),
    "14.2": Exercise("The largest in place of the mean", largest_of_tokens, copies=False),
    "14.3": Exercise("Cut a picture into patches", in_patches),
    "14.4": Exercise("A baseline that may win", a_baseline),
    "14.5": Exercise("A corpus that no bigram can sort", no_bigram_helps),
}
