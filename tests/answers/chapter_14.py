"""Wrong answers to the exercises of chapter 14, each with a pattern of its diagnosis; and other right answers."""

import itertools
import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from annotated_course.exercises.chapter_14 import bayes


def largest(states, real):
    found = states.masked_fill(~real[..., None], -math.inf).amax(dim=1)
    return found.masked_fill(~real.any(dim=1, keepdim=True), 0.0)


def largest_by_text(states, real):
    return torch.stack(
        [row[keep].max(0).values if keep.any() else row[0] * 0 for row, keep in zip(states, real, strict=True)]
    )


def largest_zero_by_text(states, real):
    """Right, where a text without tokens holds no NaN."""
    found = [
        row[keep].amax(dim=0) if keep.any() else row.new_zeros(row.size(1))
        for row, keep in zip(states, real, strict=True)
    ]
    return torch.stack(found)


def largest_by_product(states, real):
    found = (states * real[..., None] - 1e9 * ~real[..., None]).amax(dim=1)
    return torch.where(real.any(dim=1, keepdim=True), found, 0.0)


def largest_in_place(states, real):
    return states.masked_fill_(~real[..., None], -math.inf).amax(dim=1).nan_to_num(neginf=0.0)


def largest_from_below(states, real):
    found = states.masked_fill(~real[..., None], torch.finfo(states.dtype).min).amax(dim=1)
    return found * real.any(dim=1, keepdim=True)


def mean(states, real):
    return states.masked_fill(~real[..., None], 0.0).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)


def smallest(states, real):
    return -largest(-states, real)


def five_axes(images, size):
    batch, height, width = images.shape
    return images.reshape(batch, height // size, size, width // size, size)


def permuted(*order: int) -> Callable:
    """Patches whose five axes (batch, patch row, row, patch column, column) stand in some order."""

    def cut(images, size):
        return five_axes(images, size).permute(order).reshape(len(images), -1, size**2)

    return cut


def cut_by_unfold(images, size):
    return F.unfold(images[:, None], size, stride=size).transpose(1, 2)


def cut_by_loops(images, size):
    rows, columns = (range(0, end, size) for end in images.shape[1:])
    found = [images[:, r : r + size, c : c + size].flatten(1) for r in rows for c in columns]
    return torch.stack(found, dim=1)


def cut_far_apart(images, size):
    batch, height, width = images.shape
    axes = images.reshape(batch, size, height // size, size, width // size)
    return axes.permute(0, 2, 4, 1, 3).reshape(batch, -1, size**2)


def bayes_with(**change) -> Callable:
    """Naive Bayes with a mistake in it."""
    return lambda *given: bayes(*given, **change)


def bayes_by_products(counts, labels, new, classes):
    own = F.one_hot(labels, classes).to(counts.dtype)
    words = own.T @ counts + 1
    words = words / words.sum(dim=1, keepdim=True)
    found = own.mean(dim=0) * (words[None] ** new[:, None]).prod(dim=-1)
    return found / found.sum(dim=1, keepdim=True)


def bayes_by_safe_products(counts, labels, new, classes):
    """Products whose sum may be 0, and is then left alone."""
    own = F.one_hot(labels, classes).to(counts.dtype)
    words = own.T @ counts + 1
    words = words / words.sum(dim=1, keepdim=True)
    found = own.mean(dim=0) * (words[None] ** new[:, None]).prod(dim=-1)
    return found / found.sum(dim=1, keepdim=True).clamp(min=1e-30)


def bayes_by_class(counts, labels, new, classes):
    """One class after the other, in 64 bits."""
    columns = []
    for c in range(classes):
        words = counts[labels == c].double().sum(0) + 1
        columns.append((labels == c).double().mean().log() + new.double() @ (words / words.sum()).log())
    logs = torch.stack(columns, dim=1)
    return (logs - logs.logsumexp(dim=1, keepdim=True)).exp()


def reviews(
    *,
    adverbs=("really", "very"),
    other=None,
    orders=(("good", "bad"), ("bad", "good")),
    things=("plot", "cast", "music"),
    clause="the {thing} was {negation}{adverb} {word}",
    between=" , ",
    label=lambda negated: int(negated == "bad"),
) -> Callable:
    """A corpus whose parts can be exchanged; `other` is the adverb of the second clause, the first one's by default."""

    def write():
        found = []
        for adverb, pair in itertools.product(adverbs, itertools.permutations(things, 2)):
            for order, negated in itertools.product(orders, ("good", "bad")):
                clauses = [
                    clause.format(
                        thing=thing, negation="not " if word == negated else "", adverb=place, word=word
                    ).replace("  ", " ")
                    for thing, word, place in zip(pair, order, (adverb, other or adverb), strict=True)
                ]
                found.append((between.join(clauses), label(negated)))
        return found

    return write


def longer_texts():
    return [(f"well , {text} indeed", label) for text, label in reviews(between=" and ")()]


def lists_and_tensors():
    return [[text, torch.tensor(label)] for text, label in reviews()()]


def unbalanced():
    return reviews()()[:-1]


WRONG = [
    ("14.1", [2, 2, 0.4], r"number 2, counted from 0, is not 0\.4\."),
    ("14.1", [3.6, 1.6, float(torch.tensor([1.8, 1.6, 1.0]).mul(math.log(2)).softmax(0)[1])], "padding is in the mean"),
    ("14.1", [1.2, 1.2, float(torch.tensor([0.6, 1.2, 1.0]).mul(math.log(2)).softmax(0)[1])], "all five places"),
    ("14.1", [6, 6, float(torch.tensor([3.0, 6, 1]).mul(math.log(2)).softmax(0)[1])], "this is the sum"),
    ("14.1", [4, 3, 8 / 14], "largest of each feature"),
    ("14.1", [2, 2, 4 / 7], "bias of class 2"),
    ("14.1", [2, 2, 2 * math.log(2)], "is the logit of class 1"),
    ("14.1", [2, 2, 4], "exponential of class 1"),
    ("14.1", [2, 2, math.log(0.5)], "logarithm of the probability"),
    ("14.1", [2, 2, 0.25], "class 0 or 2"),
    ("14.1", [2, 2], "give three numbers"),
    ("14.1", "2, 2, ½", "raised (ValueError|TypeError)"),
    ("14.2", lambda x, real: x.amax(dim=1), "padding counts"),
    ("14.2", lambda x, real: x.masked_fill(~real[..., None], 0).amax(dim=1), "values below 0 are lost"),
    ("14.2", lambda x, real: x.masked_fill(~real[..., None], -math.inf).amax(dim=1), "no token: it stays at −∞"),
    ("14.2", lambda x, real: x.masked_fill(~real[..., None], -1e9).amax(dim=1), "no token: it stays at −∞"),
    ("14.2", lambda x, real: largest(x, real).clamp(min=0), "values below 0 are lost"),
    ("14.2", largest_by_product, "NaN came through"),
    ("14.2", largest_by_text, "a text has no token: NaN came through"),
    ("14.2", largest_in_place, "changed what it was given"),
    ("14.2", lambda x, real: x.max(dim=1), "got a tuple"),
    ("14.2", mean, "the mean of the tokens"),
    ("14.2", lambda x, real: x.masked_fill(~real[..., None], 0).sum(dim=1), "the sum of the tokens"),
    ("14.2", smallest, "the smallest"),
    ("14.2", lambda x, real: largest(x, ~real), "largest of the padding"),
    ("14.2", lambda x, real: x.masked_fill(~real[..., None], -math.inf).amax(dim=2), "not over features"),
    ("14.2", lambda x, real: largest(x, real)[:, None], r"expected shape \(4, 3\), got \(4, 1, 3\)"),
    ("14.2", lambda x, real: largest(x, real).tolist(), "expected a tensor, got list"),
    ("14.2", lambda x, real: print(end=""), "does it end in a return"),
    ("14.3", lambda images, size: images.reshape(len(images), -1, size**2), "only counted off"),
    ("14.3", permuted(0, 3, 1, 2, 4), "the patches stand column by column"),
    ("14.3", permuted(0, 1, 3, 4, 2), "the pixels stand column by column"),
    ("14.3", permuted(0, 3, 1, 4, 2), "turned the picture"),
    ("14.3", permuted(0, 2, 3, 1, 4), "are exchanged"),
    ("14.3", cut_far_apart, "not neighbours"),
    ("14.3", lambda images, size: cut_by_unfold(images, size).transpose(1, 2), "exchange the last two axes"),
    ("14.3", lambda images, size: five_axes(images, size).transpose(2, 3), "two axes too many"),
    ("14.3", lambda images, size: cut_by_unfold(images, 2), r"size 3\)?: expected shape|raised|\(2, 9, 6\), size 3"),
    ("14.3", lambda images, size: cut_by_unfold(images, size)[:, 1:], "expected shape"),
    ("14.3", lambda images, size: print(end=""), "does it end in a return"),
    ("14.4", bayes_with(prior="none"), r"p\(c\) is missing"),
    ("14.4", bayes_with(prior="words"), "share of the texts, not of the words"),
    ("14.4", bayes_with(prior="smoothed"), r"not to p\(c\)"),
    ("14.4", bayes_with(numerator_alone=True), "above only"),
    ("14.4", bayes_with(added=1e-9), "add 1 to each count"),
    ("14.4", bayes_with(added=0.0), "NaN: is a count of 0"),
    ("14.4", bayes_with(over_all=True), "words of its own class"),
    ("14.4", bayes_with(presence=True), "counts twice"),
    ("14.4", bayes_with(logs=True), "these are logarithms"),
    ("14.4", lambda *given: bayes(*given).log(), "these are logarithms"),
    ("14.4", lambda *given: bayes(*given, logs=True).exp(), "do not sum to 1"),
    ("14.4", bayes_with(dim=0), "over the texts"),
    ("14.4", lambda *given: bayes(*given).T, "exchange the axes"),
    ("14.4", bayes_by_products, "thousands of words: NaN"),
    ("14.4", bayes_by_safe_products, "thousands of words: all is 0"),
    ("14.4", lambda *given: bayes(*given).argmax(dim=1), "expected torch.float32, got torch.int64"),
    ("14.4", lambda *given: bayes(*given).tolist(), "expected a tensor, got list"),
    ("14.4", lambda *given: print(end=""), "does it end in a return"),
    ("14.5", reviews(clause="the {thing} was {negation}{word}"), "is a bigram itself|must all be different"),
    (
        "14.5",
        reviews(adverbs=("",), things=("plot", "cast", "music", "end", "pace")),
        "'not good' is a bigram itself|'not bad' is a bigram itself",
    ),
    ("14.5", reviews(other="so"), "must be the same in both clauses"),
    ("14.5", reviews(orders=(("good", "bad"),)), "the place of 'not' does"),
    (
        "14.5",
        reviews(clause="{negation}{adverb} {word} the {thing} was", orders=(("good", "bad"),)),
        "at the edge of its clause",
    ),
    ("14.5", reviews(label=lambda negated: int(negated == "good")), "the label is 0 if 'good' comes first"),
    ("14.5", reviews(label=lambda negated: negated), r"a string and 0 or 1"),
    ("14.5", reviews(between=" "), "',' must stand exactly once"),
    ("14.5", reviews(between=", "), "',' must stand exactly once"),
    ("14.5", reviews(clause="the {thing} was {adverb} {word} {negation}"), "single spaces"),
    ("14.5", reviews(adverbs=("really",), orders=(("good", "bad"),)), "at least 16 texts are wanted; got 12"),
    ("14.5", lambda: reviews()() * 2, "must all be different"),
    ("14.5", unbalanced, "of the texts with the bigrams of .* have label 0 and"),
    ("14.5", lambda: [text for text, _ in reviews()()], "is a pair"),
    ("14.5", lambda: print(end=""), "does it end in a return"),
]

RIGHT = [
    ("14.1", (2, 2, 0.5)),
    ("14.1", torch.tensor([2.0, 2.0, 0.5])),
    ("14.2", largest),
    ("14.2", largest_zero_by_text),
    ("14.2", largest_from_below),
    ("14.3", permuted(0, 1, 3, 2, 4)),
    ("14.3", cut_by_unfold),
    ("14.3", cut_by_loops),
    ("14.4", bayes_with()),
    ("14.4", bayes_by_class),
    ("14.5", reviews()),
    ("14.5", longer_texts),
    ("14.5", reviews(clause="{negation}{adverb} {word} the {thing} was")),
    ("14.5", lists_and_tensors),
    ("14.5", reviews(adverbs=("really very",), clause="the {thing} was {negation}{adverb} {word} to me")),
]
