"""Wrong answers to the exercises of chapter 07, each with a pattern of its diagnosis; and other right answers."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F

from annotated.training import label_smoothed_loss, noam_rate
from annotated_course.exercises.chapter_07 import (
    adam_variant,
    faulty_train_once,
    learn_merges,
    logged_rates,
    smallest_budget,
)
from annotated_workbench.data import make_batches


def smoothed(
    target_of: Callable[..., torch.Tensor], finish: Callable[..., torch.Tensor] | None = None
) -> Callable[..., torch.Tensor]:
    """A loss with its target made of the sharp one, the tokens that are not padding, ε and V."""

    def answer(logits, target, smoothing, pad_id):
        vocab = logits.size(-1)
        sharp, real = F.one_hot(target, vocab).float(), (torch.arange(vocab) != pad_id).float()
        losses = -(target_of(sharp, real, smoothing, vocab) * logits.log_softmax(-1)).sum(-1)
        counts = target != pad_id
        return finish(losses, counts) if finish else losses[counts].mean()

    return answer


def right_target(sharp: torch.Tensor, real: torch.Tensor, smoothing: float, vocab: int) -> torch.Tensor:
    """1 − ε for the right token, and ε spread over all others but padding."""
    return (1 - smoothing) * sharp + smoothing * real * (1 - sharp) / (vocab - 2)


def naive_softmax(logits, target, smoothing, pad_id):
    log_p = (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()
    real = (torch.arange(logits.size(-1)) != pad_id).float()
    q = right_target(F.one_hot(target, logits.size(-1)).float(), real, smoothing, logits.size(-1))
    return -(q * log_p).sum(-1)[target != pad_id].mean()


def loss_without_return(logits, target, smoothing, pad_id):
    naive_softmax(logits, target, smoothing, pad_id)


def scaled(factor: Callable[[int], float]) -> Callable[..., torch.Tensor]:
    """Our loss with another ε, found from n, the number of tokens but padding."""
    return lambda logits, target, smoothing, pad_id: label_smoothed_loss(
        logits, target, smoothing * factor(logits.size(-1) - 1), pad_id
    )


def merges_by_text(counts, merges):
    """Join the pair wherever its letters stand in the text with spaces, inside longer pieces, too."""
    words, learned = {" ".join(word): count for word, count in counts.items()}, []
    for _ in range(merges):
        pairs = Counter()
        for text, count in words.items():
            for pair in pairwise(text.split()):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        learned.append(best)
        words = {text.replace(" ".join(best), "".join(best)): count for text, count in words.items()}
    return learned


def merges_with(**switches: bool) -> Callable[..., list[tuple[str, str]]]:
    """Byte-pair merges with one of the usual mistakes."""
    return lambda counts, merges: learn_merges(counts, merges, **switches)


def budget_with(**switches) -> Callable[..., int]:
    """The smallest budget with one of the usual mistakes."""
    return lambda lengths, limit: smallest_budget(lengths, limit, **switches)


def budget_by_halving(lengths: list[int], limit: int) -> int:
    """Halve an interval, and leave the counting to the module's batches."""
    rows = [[9] * length for length in lengths]
    low, high = max(lengths), len(lengths) * max(lengths)
    while low < high:
        middle = (low + high) // 2
        if len(make_batches(rows, rows, middle)) <= limit:
            high = middle
        else:
            low = middle + 1
    return low


def budget_by_one_too_many(lengths: list[int], limit: int) -> int:
    """The budget for one batch less, where there is one."""
    return smallest_budget(lengths, max(1, limit - 1))


def adam_with(**switches) -> Callable[..., torch.Tensor]:
    """Adam with one of the usual mistakes."""
    return lambda weight, gradients, rates, betas, eps: adam_variant(
        weight, gradients, rates, **({"betas": betas, "eps": eps} | switches)
    )


def adam_in_place(weight, gradients, rates, betas, eps):
    weight.copy_(adam_with()(weight, gradients, rates, betas, eps))
    return weight


def adam_of_the_library(weight, gradients, rates, betas, eps):
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.Adam([parameter], betas=betas, eps=eps)
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


def named(rates: list[float], d_model: int, warmup: int) -> str:
    """Read the log as the solution does, by ratios."""
    ratios = [rate / noam_rate(step, d_model, warmup) for step, rate in enumerate(rates, start=1)]
    same = [math.isclose(ratio, ratios[0]) for ratio in ratios]
    if all(same):
        return "right" if math.isclose(ratios[0], 1) else "factor"
    if not rates[0]:
        return "from 0"
    if math.isclose(rates[0], 1e-3):
        return "late"
    return "restarted" if math.isclose(ratios[0], 1) else "per part"


def naming(change: Callable[[str, list[float]], str]) -> Callable[..., str]:
    """Name the faults, with some names changed."""
    return lambda rates, d_model, warmup: change(named(rates, d_model, warmup), rates)


def by_comparison(rates: list[float], d_model: int, warmup: int) -> str:
    """Make the logs of all faults that have no number of their own, and leave the others to the ends of the log."""
    for fault in ("right", "late", "from 0"):
        if rates == logged_rates(fault, d_model, warmup, len(rates)):
            return fault
    first, last = (rates[i - 1] / noam_rate(i, d_model, warmup) for i in (1, len(rates)))
    return "factor" if math.isclose(first, last) else "restarted" if math.isclose(first, 1) else "per part"


def one_backward(model, parts, optimizer, step, warmup):
    """All parts forward, then backward once through the sum of their losses."""
    model.train()
    optimizer.param_groups[0]["lr"] = noam_rate(step, model.config.d_model, warmup)
    losses = [label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], reduction="sum") for src, tgt in parts]
    loss = sum(losses) / sum(int((tgt[:, 1:] > 0).sum()) for _, tgt in parts)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def loop_with(*faults: str) -> Callable[..., float]:
    """A training loop with these faults."""
    return lambda *arguments: faulty_train_once(*arguments, *faults)


def loop_returning(finish: Callable[[float], object]) -> Callable[..., object]:
    """A right loop that returns something else than the loss."""
    return lambda *arguments: finish(faulty_train_once(*arguments))


WRONG = [
    ("07.1", [25, 400, 32000, 0.354], "half the way"),
    ("07.1", [100, 400, 32000, 0.354], "the peak itself"),
    ("07.1", [50, 200, 32000, 0.354], "four times as many"),
    ("07.1", [50, 150, 32000, 0.354], "number 1: .* square root"),
    ("07.1", [50, 400, 500, 0.354], "product"),
    ("07.1", [50, 400, 4000, 0.354], "product"),
    ("07.1", [50, 400, 11314, 0.354], "product"),
    ("07.1", [50, 400, 32000, 0.5], "number 3: update 10 is on the way up"),
    ("07.1", [50, 400, 32000, 0.71], "the peak is multiplied"),
    ("07.1", [50, 400, 32000, 1], "only behind both peaks"),
    ("07.1", [50, 400, 32000, 2.83], "wrong way round"),
    ("07.1", [400, 50, 32000, 0.354], "earlier update comes first"),
    ("07.1", [50, 400, 31000, 0.354], r"number 2 is not 3\.1e\+04\."),
    ("07.1", [50, 400], r"shape \(4,\)"),
    ("07.2", smoothed(lambda sharp, real, e, v: sharp), "without smoothing"),
    ("07.2", label_smoothed_loss, "section 3's convention"),
    ("07.2", smoothed(lambda sharp, real, e, v: (1 - e) * sharp + e / v), "PyTorch's convention"),
    ("07.2", smoothed(lambda sharp, real, e, v: (1 - e) * sharp + e * (1 - sharp) / (v - 1)), "not one of the others"),
    (
        "07.2",
        smoothed(lambda sharp, real, e, v: (1 - e) * sharp + e * real * (1 - sharp) / (v - 1)),
        "sums to less than 1",
    ),
    ("07.2", smoothed(lambda sharp, real, e, v: (1 - e) * sharp + e * real * (1 - sharp) / v), "divided ε by V"),
    ("07.2", smoothed(lambda sharp, real, e, v: sharp + e * real * (1 - sharp) / (v - 2)), "whole 1"),
    ("07.2", smoothed(lambda sharp, real, e, v: right_target(sharp, real, 1 - e, v)), "swapped"),
    ("07.2", scaled(lambda n: (n - 1) / n), "wrong way round"),
    ("07.2", smoothed(right_target, lambda losses, counts: losses.mean()), "still count"),
    ("07.2", smoothed(right_target, lambda losses, counts: losses[counts].sum() / counts.numel()), "all positions"),
    ("07.2", smoothed(right_target, lambda losses, counts: losses[counts].sum()), "this is the sum"),
    (
        "07.2",
        smoothed(right_target, lambda losses, counts: ((losses * counts).sum(1) / counts.sum(1)).mean()),
        "every token counts the same",
    ),
    ("07.2", smoothed(right_target, lambda losses, counts: -losses[counts].mean()), "sign"),
    ("07.2", lambda logits, target, e, pad_id: label_smoothed_loss(logits, target, e * 6 / 5, 0), "is pad_id"),
    ("07.2", naive_softmax, "NaN or infinity"),
    ("07.2", loss_without_return, "return"),
    ("07.3", merges_with(weighted=False), "as often as its word occurs"),
    ("07.3", merges_with(across=True), "across the end of a word"),
    ("07.3", merges_with(recount=False), "counted anew"),
    ("07.3", merges_with(last=True), "first alphabetically"),
    ("07.3", merges_with(overlap=True), "merged only once"),
    ("07.3", merges_by_text, r"merge \d should be"),
    ("07.3", lambda counts, merges: learn_merges(counts, merges)[:-1], r"expected \d merges, got \d"),
    ("07.3", lambda counts, merges: ["".join(pair) for pair in learn_merges(counts, merges)], "a pair of two strings"),
    ("07.3", lambda counts, merges: dict(learn_merges(counts, merges)), "expected a list of pairs, got dict"),
    ("07.3", lambda counts, merges: learn_merges(counts, merges)[::-1], r"merge 1 should be \('a', 'u'\)"),
    ("07.3", lambda counts, merges: learn_merges(counts, merges) + [("", "")] * (merges < 5), "no pair"),
    ("07.4", budget_with(by_length=False), "similar length"),
    ("07.4", budget_with(padding=False), "without the padding"),
    ("07.4", budget_with(below=True), "exactly the budget"),
    ("07.4", budget_with(last=False), "last batch counts"),
    ("07.4", budget_with(start=1), "longest sentence must fit"),
    ("07.4", lambda lengths, limit: max(max(lengths), math.ceil(sum(lengths) / limit)), "no place for padding"),
    ("07.4", lambda lengths, limit: max(lengths) * math.ceil(len(lengths) / limit), "equally many rows"),
    ("07.4", lambda lengths, limit: smallest_budget(lengths, limit) - 1, r"does not fit|\d+ are allowed"),
    ("07.4", budget_by_one_too_many, "more than needed"),
    ("07.4", lambda lengths, limit: smallest_budget(lengths, limit) / 1, "got float"),
    ("07.4", lambda lengths, limit: print(end=""), "does it end in a return"),
    ("07.5", adam_with(correct=(False, False)), "m and v is missing"),
    ("07.5", adam_with(correct=(False, True)), "m is not corrected"),
    ("07.5", adam_with(correct=(True, False)), "v is not corrected"),
    ("07.5", adam_with(eps_inside=True), "outside the root"),
    ("07.5", adam_with(root=False), "not by v̂"),
    ("07.5", adam_with(square=False), "squared gradients"),
    (
        "07.5",
        lambda weight, gradients, rates, betas, eps: adam_with(betas=betas[::-1])(weight, gradients, rates, betas, eps),
        "swapped",
    ),
    ("07.5", adam_with(betas=(0.9, 0.98)), "betas are fixed"),
    ("07.5", adam_with(eps=1e-9), "ε is fixed"),
    ("07.5", adam_with(t_from=2), "t counts from 1"),
    ("07.5", adam_with(fixed_rate=True), "first rate throughout"),
    ("07.5", lambda weight, *rest: 2 * weight - adam_with()(weight, *rest), "sign"),
    ("07.5", adam_in_place, "changed the weight"),
    ("07.6", lambda rates, d_model, warmup: print(end=""), "does it end in a return"),
    ("07.6", lambda rates, d_model, warmup: "right", "every log 'right'"),
    ("07.6", naming(lambda name, rates: name.upper()), "the names are"),
    ("07.6", naming(lambda name, rates: "late" if name == "from 0" else name), "very first rate"),
    ("07.6", naming(lambda name, rates: "factor" if name == "per part" else name), "far behind the peak"),
    ("07.6", naming(lambda name, rates: "right" if name == "restarted" else name), "the whole log"),
    ("07.6", naming(lambda name, rates: "right" if name in ("late", "from 0") else name), "look at the first rates"),
    ("07.6", naming(lambda name, rates: "restarted" if name == "late" else name), "the ratio of each logged rate"),
    ("07.7", loop_with("rate"), "steps count from 1"),
    ("07.7", loop_with("late"), "after the update"),
    ("07.7", loop_with("zero"), "before the first backward"),
    ("07.7", loop_with("wiped"), "forgets the parts before"),
    ("07.7", loop_with("shift"), "not shifted"),
    ("07.7", loop_with("padding"), "padding counts"),
    ("07.7", loop_with("share"), "padding no longer counts"),
    ("07.7", loop_with("softmax"), "softmax is applied twice"),
    ("07.7", loop_with("means"), "its own number of target tokens"),
    ("07.7", loop_with("sum"), "that of the sum"),
    ("07.7", loop_with("eval"), "training mode"),
    ("07.7", loop_with("smoothing"), "not smoothed"),
    ("07.7", loop_with("eval", "shift", "softmax", "padding", "means", "wiped", "late"), "more than one fault"),
    ("07.7", loop_returning(lambda loss: None), "return the loss"),
    ("07.7", loop_returning(torch.tensor), r"loss\.item\(\)"),
    ("07.7", loop_returning(lambda loss: 2 * loss), "losses returned"),
]

RIGHT = [
    ("07.1", torch.tensor([50, 400, 32000, 0.35])),
    ("07.1", (50, 400, 32_000, 8**-0.5)),
    ("07.2", smoothed(right_target)),
    ("07.2", scaled(lambda n: n / (n - 1))),
    ("07.3", merges_with()),
    ("07.3", lambda counts, merges: [list(pair) for pair in learn_merges(counts, merges)]),
    ("07.4", smallest_budget),
    ("07.4", budget_by_halving),
    ("07.5", adam_of_the_library),
    ("07.6", named),
    ("07.6", by_comparison),
    ("07.7", loop_with()),
    ("07.7", one_backward),
]
