"""The exercises of chapter 07, training."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.course.exercises.diagnosis import Exercise, compare
from annotated.training import label_smoothed_loss, make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated.workbench.data import pad


def rates_by_hand(answer: Any) -> str | None:
    """d_model = 64, warm-up 100: the rates at steps 1, 25, 100 and 400."""
    steps = torch.tensor([1.0, 25.0, 100.0, 400.0])
    rising, falling = steps / 1000, steps**-0.5
    smaller = torch.minimum(rising, falling)
    return compare(
        torch.as_tensor(answer, dtype=torch.float32) * 1000,
        smaller / 8 * 1000,
        {
            "the factor in front is missing: d_model^−0.5 = 1/8.": smaller * 1000,
            "you divided by d_model; it enters as d_model^−0.5 = 1/8.": smaller / 64 * 1000,
            "you took the larger of the two parts; Eq. 3 takes the smaller.": torch.maximum(rising, falling) / 8 * 1000,
            "the warm-up enters as warmup^−1.5 = 1/1000, not as 1/100.": torch.minimum(steps / 100, falling) / 8 * 1000,
            "after the warm-up the rate falls with the square root: at step 400 it is half the peak.": torch.tensor(
                [0.125, 3.125, 12.5, 3.125]
            ),
            "that is a straight line without end: from step 100 on, step^−0.5 is smaller.": rising / 8 * 1000,
            "that is the falling part alone: before step 100, step · warmup^−1.5 is smaller.": falling / 8 * 1000,
            "steps count from 1: you are one step early.": torch.minimum((steps - 1) / 1000, falling) / 8 * 1000,
        },
        tolerance=0.005,
    )


def other_smoothed_loss(answer: Callable[..., Tensor]) -> str | None:
    """The other convention: the right token keeps 1 − ε, the others but padding share ε; large logits."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 7, generator=generator)
    target = torch.tensor([[1, 6, 2, 5, 5], [3, 1, 4, 5, 5], [6, 2, 5, 5, 5]])
    smoothing, pad_id = 0.3, 5
    counts = target != pad_id
    log_p = logits.log_softmax(-1)
    real = (torch.arange(7) != pad_id).float()
    sharp = F.one_hot(target, 7).float()
    wrong = real * (1 - sharp)

    def loss(q: Tensor, mask: Tensor = counts) -> Tensor:
        return -(q * log_p).sum(-1)[mask].mean()

    q = (1 - smoothing) * sharp + smoothing / 5 * wrong
    expected = loss(q)
    per_position = -(q * log_p).sum(-1)
    mistakes = {
        "this is the loss without smoothing.": loss(sharp),
        "this is section 3's convention: here the right token gets nothing of ε, it keeps exactly 1 − ε.": loss(
            (1 - smoothing) * sharp + smoothing * real / 6
        ),
        "this is PyTorch's convention: ε goes to all V tokens; here to all but padding and the right one.": loss(
            (1 - smoothing) * sharp + smoothing / 7
        ),
        "padding still gets its share of ε: it is not one of the others.": loss(
            (1 - smoothing) * sharp + smoothing / 6 * (1 - sharp)
        ),
        "your target sums to less than 1: V − 2 tokens share ε, all but padding and the right one.": loss(
            (1 - smoothing) * sharp + smoothing / 6 * wrong
        ),
        "you divided ε by V; V − 2 tokens share it, all but padding and the right one.": loss(
            (1 - smoothing) * sharp + smoothing / 7 * wrong
        ),
        "ε is spread, but the right token still keeps a whole 1: it keeps 1 − ε.": loss(sharp + smoothing / 5 * wrong),
        "1 − ε and ε are swapped.": loss(smoothing * sharp + (1 - smoothing) / 5 * wrong),
        "you scaled ε the wrong way round: our right token gets 1 − ε + ε/n, which must become 1 − ε.": loss(
            (1 - smoothing * 5 / 6) * sharp + smoothing * 5 / 6 * real / 6
        ),
        "the positions whose answer is padding still count.": per_position.mean(),
        "padding adds nothing to the sum, but you divide by all positions: divide by those that count.": (
            per_position[counts].sum() / counts.numel()
        ),
        "this is the sum: divide by the number of positions that count.": per_position[counts].sum(),
        "this is the mean of each sentence's mean; every token counts the same.": (
            (per_position * counts).sum(1) / counts.sum(1)
        ).mean(),
        "the sign is reversed: a loss is minus the logarithm.": -expected,
        "you hid the id 0; the id of padding is pad_id.": label_smoothed_loss(logits, target, smoothing * 6 / 5, 0),
    }
    diagnosis = compare(answer(logits, target, smoothing, pad_id), expected, mistakes)
    if diagnosis:
        return diagnosis
    large = 300 * logits
    expected = label_smoothed_loss(large, target, smoothing * 6 / 5, pad_id)
    return compare(answer(large, target, smoothing, pad_id), expected, {})


def learn_merges(
    counts: Mapping[str, int],
    merges: int,
    *,
    weighted: bool = True,
    across: bool = False,
    overlap: bool = False,
    recount: bool = True,
    last: bool = False,
) -> list[tuple[str, str]]:
    """Learn byte-pair merges; the switches make the usual mistakes."""
    words = [(list(word), count if weighted else 1) for word, count in counts.items()]
    if across:
        words = [([piece for parts, count in words for _ in range(count) for piece in parts], 1)]
    learned: list[tuple[str, str]] = []
    pairs: Counter[tuple[str, str]] = Counter()
    for _ in range(merges):
        if recount or not learned:
            pairs = Counter()
            for parts, count in words:
                for pair in pairwise(parts):
                    pairs[pair] += count
        else:
            del pairs[learned[-1]]
        if not pairs:
            break
        highest = max(pairs.values())
        best = (max if last else min)(pair for pair in pairs if pairs[pair] == highest)
        learned.append(best)
        words = [(_merged(parts, best, overlap), count) for parts, count in words]
    return learned


def _merged(parts: Sequence[str], pair: tuple[str, str], overlap: bool) -> list[str]:
    result, i = [], 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            result.append("".join(pair))
            i += 1 if overlap and tuple(parts[i + 1 : i + 3]) == pair else 2
        else:
            result.append(parts[i])
            i += 1
    return result


def byte_pairs(answer: Callable[..., list[tuple[str, str]]]) -> str | None:
    """Learn BPE merges from word counts; ties go to the pair that comes first in alphabetical order."""
    texts = (
        {"Haus": 6, "Bau": 5, "Maus": 4, "Hausmaus": 2, "Fledermaus": 1},
        {"aaaa": 3, "aaab": 2, "ba": 4},
        {"das": 3, "dass": 5, "nass": 2, "dann": 1, "wann": 1, "kann": 1},
    )
    mistakes = {
        "each word is counted once; a pair counts as often as its word occurs.": {"weighted": False},
        "pairs are counted across the end of a word; a merge stays inside a word.": {"across": True},
        "after a merge the pairs must be counted anew: their neighbours have changed.": {"recount": False},
        "a draw must go to the pair that comes first alphabetically; yours goes to the last.": {"last": True},
        "in 'aaa' the pair (a, a) can be merged only once: go on behind the merged piece.": {"overlap": True},
    }
    given = [answer(dict(counts), 5) for counts in texts]
    if any(merges is None for merges in given):
        return "your function returned None: does it end in a return?"
    if not all(isinstance(merges, list) for merges in given):
        return f"expected a list of pairs, got {type(given[0]).__name__}."
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for merges in given for pair in merges):
        return "each merge is a pair of two strings, such as ('a', 'u')."
    given = [[(left, right) for left, right in merges] for merges in given]
    expected = [learn_merges(counts, 5) for counts in texts]
    if given != expected:
        for diagnosis, switch in mistakes.items():
            if given == [learn_merges(counts, 5, **switch) for counts in texts]:
                return diagnosis
        counts, found, right = next(case for case in zip(texts, given, expected, strict=True) if case[1] != case[2])
        if len(found) != len(right):
            return f"for the counts {counts}, 5 merges asked: expected {len(right)} merges, got {len(found)}."
        place = next(i for i, pair in enumerate(right) if found[i] != pair)
        return f"for the counts {counts}, merge {place + 1} should be {right[place]}, got {found[place]}."
    if [tuple(pair) for pair in answer({"ab": 1}, 3)] != [("a", "b")]:
        return "stop when no pair is left: {'ab': 1} allows one merge, however many are asked."
    return None


def token_batches(answer: Callable[..., list[list[int]]]) -> str | None:
    """Group sentences by length into batches of at most `budget` places."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 21, (211,), generator=generator).tolist()
    budget = 120
    batches = answer(list(lengths), budget)
    if batches is None:
        return "your function returned None: does it end in a return?"
    if not isinstance(batches, list) or not all(isinstance(batch, list) for batch in batches):
        return "return a list of batches, each a list of sentence numbers."
    if not all(batches):
        return "a batch is empty."
    used = [i for batch in batches for i in batch]
    if not all(isinstance(i, int) and 0 <= i < len(lengths) for i in used):
        return "a batch holds sentence numbers 0 … n − 1, not lengths."
    missing = set(range(len(lengths))) - set(used)
    if missing:
        return f"{len(missing)} of {len(lengths)} sentences are in no batch; is the last batch lost?"
    if len(used) > len(lengths):
        return "some sentences are in more than one batch."
    places = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    if max(places) > budget:
        tokens = max(sum(lengths[i] for i in batch) for batch in batches)
        hint = (
            " You counted tokens without the padding: rows × longest row is what a batch takes."
            if tokens <= budget
            else ""
        )
        return f"a batch takes {max(places)} places, the budget is {budget}.{hint}"
    waste = 1 - sum(lengths) / sum(places)
    if waste > 0.05:
        return f"{waste:.0%} of the places are padding; sorted by length it is under 5 %."
    order = sorted(lengths)
    needed, rows = 1, 0
    for length in order:
        rows += 1
        if rows * length > budget:
            needed, rows = needed + 1, 1
    if len(batches) > needed:
        return f"{len(batches)} batches, where {needed} do: fill each up to the budget before you begin the next."
    if answer([7], 7) != [[0]]:
        return "a sentence exactly as long as the budget fits: lengths [7] with budget 7 is one batch, [[0]]."
    return None


def adam_variant(
    weight: Tensor,
    gradients: Sequence[Tensor],
    rates: Sequence[float],
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-3,
    correct: tuple[bool, bool] = (True, True),
    eps_inside: bool = False,
    root: bool = True,
    square: bool = True,
    t_from: int = 1,
    fixed_rate: bool = False,
) -> Tensor:
    """Adam, with switches for what is usually got wrong."""
    m = v = torch.zeros_like(weight)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=t_from):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * (g**2 if square else g.abs())
        m_hat = m / (1 - betas[0] ** t) if correct[0] else m
        v_hat = v / (1 - betas[1] ** t) if correct[1] else v
        below = (v_hat + eps).sqrt() if eps_inside else (v_hat.sqrt() if root else v_hat) + eps
        weight = weight - (rates[0] if fixed_rate else rate) * m_hat / below
    return weight


def adam_from_scratch(answer: Callable[..., Tensor]) -> str | None:
    """Adam over a few updates with a changing rate, against the library's formula."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 5, generator=generator)
    gradients = [scale * torch.randn(3, 5, generator=generator) for scale in (1.0, 0.2, 3.0, 0.02, 0.5, 0.1)]
    rates = [0.1, 0.2, 0.3, 0.2, 0.15, 0.1]
    betas, eps = (0.8, 0.95), 0.05
    before = weight.clone()

    def variant(**switches: Any) -> Tensor:
        return adam_variant(weight, gradients, rates, **{"betas": betas, "eps": eps, **switches})

    mistakes = {
        "the correction of m and v is missing: divide them by 1 − β^t.": variant(correct=(False, False)),
        "m is not corrected: divide it by 1 − β₁^t.": variant(correct=(False, True)),
        "v is not corrected: divide it by 1 − β₂^t.": variant(correct=(True, False)),
        "ε stands outside the root: √v̂ + ε.": variant(eps_inside=True),
        "divide by the root of v̂, not by v̂.": variant(root=False),
        "v is the mean of the squared gradients.": variant(square=False),
        "β₁ and β₂ are swapped.": variant(betas=betas[::-1]),
        "the betas are fixed in your code; take them from the arguments.": variant(betas=(0.9, 0.98)),
        "ε is fixed in your code or missing; take it from the arguments.": variant(eps=1e-9),
        "t counts from 1: the first update divides by 1 − β, not by 1 − β².": variant(t_from=2),
        "you used the first rate throughout; each update has its own.": variant(fixed_rate=True),
        "the sign is reversed: a step goes against the gradient.": 2 * weight - variant(),
    }
    result = answer(weight, [gradient.clone() for gradient in gradients], list(rates), betas, eps)
    if not torch.equal(weight, before):
        return "your function changed the weight it was given: make a new tensor."
    return compare(result, variant(), mistakes)


RATE_FAULTS = ("right", "late", "from 0", "per part", "restarted", "factor")


def logged_rates(
    fault: str,
    d_model: int,
    warmup: int,
    updates: int,
    *,
    parts: int = 2,
    restart: int | None = None,
    factor: float = 0.7,
) -> list[float]:
    """Log the rate of each update of a run with one fault of its schedule, or none.

    Args:
        fault: one of `RATE_FAULTS`.
        d_model: width of the model.
        warmup: updates until the highest rate.
        updates: length of the log.
        parts: parts of an update, where the step is counted at each.
        restart: the first update after the run was resumed, from 1; by default a little past the middle.
        factor: on all rates.
    """
    restart = restart or updates * 7 // 12

    def rate(step: int) -> float:
        return noam_rate(step, d_model, warmup)

    first = {"late": 1e-3, "from 0": 0.0}
    logs: dict[str, Callable[[int], float]] = {
        "right": rate,
        "late": lambda step: rate(step - 1),
        "from 0": lambda step: rate(step - 1),
        "per part": lambda step: rate(parts * step),
        "restarted": lambda step: rate(step if step < restart else step - restart + 1),
        "factor": lambda step: factor * rate(step),
    }
    return [first[fault] if step == 1 and fault in first else logs[fault](step) for step in range(1, updates + 1)]


def rate_faults(answer: Callable[..., str]) -> str | None:
    """Name what went wrong with a schedule from its log: two dozen logs of various sizes."""
    logs: list[tuple[str, dict[str, Any]]] = [(fault, {}) for fault in RATE_FAULTS]
    logs += [("per part", {"parts": parts}) for parts in (3, 8)]
    logs += [("restarted", {"restart": restart}) for restart in (2, 5, 40, 120)]
    logs += [("factor", {"factor": factor}) for factor in (0.5, 2.0, 2**-0.5, 1.01)]
    found: list[tuple[str, Any, dict[str, Any]]] = []
    for d_model, warmup, updates in ((64, 20, 120), (512, 30, 150)):
        for fault, how in logs:
            rates = logged_rates(fault, d_model, warmup, updates, **how)
            found.append((fault, answer(rates, d_model, warmup), how))
    names = [name for _, name, _ in found]
    if all(name is None for name in names):
        return "your function returned None: does it end in a return?"
    for fault, name, _ in found:
        if name not in RATE_FAULTS:
            return f"for a log of the kind {fault!r} you return {name!r}; the names are {', '.join(RATE_FAULTS)}."
    if len(set(names)) == 1:
        return f"you call every log {names[0]!r}."
    for fault, name, how in found:
        if name == fault:
            continue
        hints = {
            frozenset(("late", "from 0")): "both are one step behind; they differ in the very first rate.",
            frozenset(("per part", "factor")): (
                "on the way up both are the right rate times a number; look far behind the peak, too."
            ),
            frozenset(("right", "restarted")): "before the interruption all is right; look at the whole log.",
            frozenset(("right", "late")): "from the peak on one step hardly matters; look at the first rates.",
            frozenset(("right", "from 0")): "from the peak on one step hardly matters; look at the first rates.",
            frozenset(("right", "factor")): "a factor near 1 is a factor; and a float is compared with math.isclose.",
        }
        hint = hints.get(frozenset((fault, name)), "look at the ratio of each logged rate to the right one.")
        said = "".join(f" ({key} = {value:.3g})" for key, value in how.items())
        return f"a log of the kind {fault!r}{said} is taken for {name!r}: {hint}"
    return None


TRAINING_FAULTS = {
    "rate": "the rate belongs to the step before: steps count from 1, and the rate must be set before the update.",
    "late": "the rate is set after the update, so each update takes the rate of the one before; set it first.",
    "zero": "the gradients of the step before are still there: zero_grad() before the first backward().",
    "wiped": "zero_grad() in the loop forgets the parts before: call it once, before the first part.",
    "shift": "the target is not shifted: read tgt[:, :-1], and compare with tgt[:, 1:].",
    "padding": "padding counts in the loss: the mean goes over the positions whose answer is not <pad>.",
    "share": "padding no longer counts, but the smoothing still gives it a share of ε: take label_smoothed_loss.",
    "softmax": "cross-entropy takes logits; you gave it probabilities, so softmax is applied twice.",
    "means": "each part is divided by its own number of target tokens: divide by that of all parts.",
    "sum": "the gradient is that of the sum: divide by the number of target tokens of all parts.",
    "eval": "the model is not in training mode: dropout is off.",
    "smoothing": "the loss is not smoothed: ε = 0.1, over all tokens but padding.",
}


def faulty_train_once(
    model: Transformer, parts: Sequence[tuple[Tensor, Tensor]], optimizer: Any, step: int, warmup: int, *faults: str
) -> float:
    """One update on several parts, with the faults that are named."""
    rate = noam_rate(max(1, step - 1) if "rate" in faults else step, model.config.d_model, warmup)
    if "late" not in faults:
        set_rate(optimizer, rate)
    if "eval" not in faults:
        model.train()
    if "zero" not in faults:
        optimizer.zero_grad()
    targets = [tgt if "shift" in faults else tgt[:, 1:] for _, tgt in parts]
    tokens = [target.numel() if "padding" in faults else int((target != PAD).sum()) for target in targets]
    mean = 0.0
    for (src, tgt), target, own in zip(parts, targets, tokens, strict=True):
        if "wiped" in faults:
            optimizer.zero_grad()
        logits = model(src, tgt if "shift" in faults else tgt[:, :-1])
        if "softmax" in faults:
            logits = logits.softmax(-1)
        if "share" in faults:
            flat = logits.flatten(0, 1), target.flatten()
            loss = F.cross_entropy(*flat, ignore_index=PAD, label_smoothing=0.1, reduction="sum")
        else:
            pad_id, smoothing = (None if "padding" in faults else PAD), (0.0 if "smoothing" in faults else 0.1)
            loss = label_smoothed_loss(logits, target, smoothing, pad_id, reduction="sum")
        mean += loss.item() / sum(tokens)
        if "sum" not in faults:
            loss = loss / (own * len(parts) if "means" in faults else sum(tokens))
        loss.backward()
    optimizer.step()
    set_rate(optimizer, rate)
    return mean


def repaired_loop(answer: Callable[..., float]) -> str | None:
    """Three updates of a small model: the weights and losses must be those of a loop without faults."""
    generator = torch.Generator().manual_seed(0)
    updates = []
    for lengths_of_parts in (((3, 7, 5), (2,)), ((6, 2), (3, 4), (1, 8)), ((4, 8), (2, 2, 3))):
        parts = []
        for lengths in lengths_of_parts:
            rows = [torch.randint(4, 13, (length,), generator=generator).tolist() for length in lengths]
            parts.append((pad([[*row, EOS] for row in rows]), pad([[BOS, *reversed(row), EOS] for row in rows])))
        updates.append(parts)

    def three_updates(train_once: Callable[..., float], dropout: float = 0.0) -> tuple[Tensor, list[Any]]:
        torch.manual_seed(1)
        config = TransformerConfig(13, d_model=16, d_ff=24, heads=2, layers=1, dropout=dropout)
        model = Transformer(config).eval()
        optimizer = make_optimizer(model)
        losses = [train_once(model, list(parts), optimizer, step, 4) for step, parts in enumerate(updates, start=1)]
        return torch.cat([p.detach().flatten() for p in model.parameters()]), losses

    def faulty(*faults: str) -> Callable[..., float]:
        return lambda *arguments: faulty_train_once(*arguments, *faults)

    expected, losses = three_updates(faulty_train_once)
    weights, given = three_updates(answer)
    # Adam's first step has the size of the rate whatever the gradient, so rounding may turn it around where the
    # gradient is nearly 0; hence a share of the weights, and not each one.
    if not _mostly_equal(weights, expected):
        for fault, diagnosis in TRAINING_FAULTS.items():
            if fault != "eval" and _mostly_equal(weights, three_updates(faulty(fault))[0]):
                return "one fault is left: " + diagnosis
        return "the weights after three updates are not the right ones; more than one fault is left, or another one."
    if any(loss is None for loss in given):
        return "your function returned None: return the loss, as a number."
    if not all(isinstance(loss, float) for loss in given):
        return f"return the loss as a Python number: loss.item(); got {type(given[0]).__name__}."
    wrong = compare(torch.tensor(given), torch.tensor(losses), {}, tolerance=1e-3)
    if wrong:
        return "the weights are right, but the losses returned, means over the tokens of all parts, are not: " + wrong
    if not _mostly_equal(three_updates(answer, dropout=0.5)[0], three_updates(faulty_train_once, dropout=0.5)[0]):
        return "one fault is left: " + TRAINING_FAULTS["eval"]
    return None


def _mostly_equal(weights: Tensor, expected: Tensor) -> bool:
    return bool(torch.isclose(weights, expected, rtol=1e-3, atol=1e-4).float().mean() > 0.99)


EXERCISES = {
    "07.1": Exercise("Four rates by hand", rates_by_hand),
    "07.2": Exercise("The other convention", other_smoothed_loss),
    "07.3": Exercise("Learn the merges", byte_pairs),
    "07.4": Exercise("Batches by budget", token_batches),
    "07.5": Exercise("Adam from scratch", adam_from_scratch, copies=False),
    "07.6": Exercise("Six curves of the rate", rate_faults),
    "07.7": Exercise("A loop with seven faults", repaired_loop),
}
