"""The exercises of chapter 07, training."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.training import label_smoothed_loss, make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_course.exercises.diagnosis import Exercise, compare, is_close
from annotated_workbench.data import pad


def rates_by_hand(answer: Any) -> str | None:
    """d_model = 64, warm-up 100: two updates at half the peak, base's peak, and a doubled warm-up."""
    expected = torch.tensor([50, 400, 32_000, 2**-1.5])
    given = torch.as_tensor(answer, dtype=torch.float32)
    if given.shape != expected.shape:
        return compare(given, expected, {})
    if is_close(given[[1, 0, 2, 3]], expected, 0.005):
        return "the earlier update comes first."
    straight = "on the way up the rate is proportional to the update: half the peak is half the way."
    root = "behind the peak the rate falls with the square root: half of it takes four times as many updates."
    product = "the peak is (d_model · warmup)^−0.5: the product must be that of the base model, 512 · 4,000."
    rising = "update 10 is on the way up, where the rate is d_model^−0.5 · step · warmup^−1.5."
    mistakes: tuple[dict[float, str], ...] = (
        {25: straight, 100 * 2**-0.5: straight, 10: straight, 100: "that is the peak itself."},
        {200: root, 150: root, 100 * 2**0.5: root, 100: "that is the peak itself."},
        {500: product, 4000: product, 4000 * 8**0.5: product, 4000 / 8**0.5: product, 256_000: product},
        {
            0.5: rising,
            2**-0.5: "by that number the peak is multiplied; " + rising,
            1: "only behind both peaks the two curves agree; " + rising,
            2**1.5: "the wrong way round: the longer the warm-up, the slower the rise.",
            2: rising,
        },
    )
    for place, known in enumerate(mistakes):
        if not is_close(given[place], expected[place], 0.005):
            for wrong, diagnosis in known.items():
                if is_close(given[place], torch.tensor(float(wrong)), 0.005):
                    return f"number {place}: {diagnosis}"
            return f"number {place} is not {float(given[place]):.4g}."
    return None


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
    cases: tuple[tuple[dict[str, int], int], ...] = (
        ({"Haus": 6, "Bau": 5, "Maus": 4, "Hausmaus": 2, "Fledermaus": 1}, 5),
        ({"aaaa": 3, "aaab": 2, "ba": 4}, 5),
        ({"das": 3, "dass": 5, "nass": 2, "dann": 1, "wann": 1, "kann": 1}, 5),
        ({"cababa": 2, "cbcaba": 6, "bcbab": 5, "baaab": 5, "bba": 3}, 8),  # here "a b" is not always the pieces a, b
    )
    mistakes: dict[str, dict[str, Any]] = {
        "each word is counted once; a pair counts as often as its word occurs.": {"weighted": False},
        "pairs are counted across the end of a word; a merge stays inside a word.": {"across": True},
        "after a merge the pairs must be counted anew: their neighbours have changed.": {"recount": False},
        "a draw must go to the pair that comes first alphabetically; yours goes to the last.": {"last": True},
        "in 'aaa' the pair (a, a) can be merged only once: go on behind the merged piece.": {"overlap": True},
    }
    given = [answer(dict(counts), merges) for counts, merges in cases]
    if any(merges is None for merges in given):
        return "your function returned None: does it end in a return?"
    if not all(isinstance(merges, list) for merges in given):
        return f"expected a list of pairs, got {type(given[0]).__name__}."
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for merges in given for pair in merges):
        return "each merge is a pair of two strings, such as ('a', 'u')."
    given = [[(left, right) for left, right in merges] for merges in given]
    expected = [learn_merges(*case) for case in cases]
    if given != expected:
        for diagnosis, switch in mistakes.items():
            if given == [learn_merges(*case, **switch) for case in cases]:
                return diagnosis
        number = next(i for i, right in enumerate(expected) if given[i] != right)
        (counts, asked), found, right = cases[number], given[number], expected[number]
        if len(found) != len(right):
            return f"for the counts {counts}, {asked} merges asked: expected {len(right)} merges, got {len(found)}."
        place = next(i for i, pair in enumerate(right) if found[i] != pair)
        return f"for the counts {counts}, merge {place + 1} should be {right[place]}, got {found[place]}."
    if [tuple(pair) for pair in answer({"ab": 1}, 3)] != [("a", "b")]:
        return "stop when no pair is left: {'ab': 1} allows one merge, however many are asked."
    return None


def batches_needed(
    lengths: Sequence[int],
    budget: int,
    *,
    by_length: bool = True,
    padding: bool = True,
    below: bool = False,
    last: bool = True,
) -> int:
    """Count the batches that a budget needs; the switches make the usual mistakes.

    Sentences sorted by length, each batch filled as long as the next one fits: no other grouping needs fewer batches.
    Neighbours in length may always stand together, and what fits still does after a sentence is left out.
    """
    batches, rows = 0, [0]
    for length in sorted(lengths) if by_length else lengths:
        rows.append(length)
        places = len(rows) * max(rows) if padding else sum(rows)
        if places > budget - below or not batches:
            batches, rows = batches + 1, [length]
    return batches if last else batches - 1


def smallest_budget(lengths: Sequence[int], limit: int, *, start: int | None = None, **switches: bool) -> int:
    """Find the smallest budget with which at most `limit` batches hold all sentences."""
    budget = start or max(lengths) + switches.get("below", False)
    while batches_needed(lengths, budget, **switches) > limit:
        budget += 1
    return budget


def budget_for_batches(answer: Callable[..., int]) -> str | None:
    """Find the smallest budget for a number of batches, for lengths of various sizes."""
    generator = torch.Generator().manual_seed(0)
    many = torch.randint(3, 21, (97,), generator=generator).tolist()
    cases = [([4, 12, 5, 11], 2), (many, 1), (many, 4), (many, 12), (many, 31), (many, 97), (many, 200), ([7], 1)]
    given = [answer(list(lengths), limit) for lengths, limit in cases]
    if any(budget is None for budget in given):
        return "your function returned None: does it end in a return?"
    if not all(isinstance(budget, int) and not isinstance(budget, bool) for budget in given):
        wrong = next(budget for budget in given if not isinstance(budget, int) or isinstance(budget, bool))
        return f"a budget is a whole number of places, an int; got {type(wrong).__name__}."
    mistakes: dict[str, Callable[[list[int], int], int]] = {
        "that is for the sentences as they come; group those of similar length.": lambda lengths, limit: (
            smallest_budget(lengths, limit, by_length=False)
        ),
        "you counted tokens without the padding: rows × longest row is what a batch takes.": lambda lengths, limit: (
            smallest_budget(lengths, limit, padding=False)
        ),
        "a batch may take exactly the budget: one place less will do.": lambda lengths, limit: smallest_budget(
            lengths, limit, below=True
        ),
        "the last batch counts, too: you take one batch more than allowed.": lambda lengths, limit: smallest_budget(
            lengths, limit, last=False
        ),
        "the longest sentence must fit: no budget is below its length.": lambda lengths, limit: smallest_budget(
            lengths, limit, start=1
        ),
        "tokens / limit leaves no place for padding.": lambda lengths, limit: max(
            max(lengths), -(-sum(lengths) // limit)
        ),
        "batches need not have equally many rows: of short sentences more fit.": lambda lengths, limit: (
            max(lengths) * -(-len(lengths) // limit)
        ),
    }
    if given == [smallest_budget(*case) for case in cases]:
        return None
    for diagnosis, mistake in mistakes.items():
        if given == [mistake(*case) for case in cases]:
            return diagnosis
    for (lengths, limit), budget in zip(cases, given, strict=True):
        which = f"for lengths {lengths}" if len(lengths) < 5 else f"for {len(lengths)} sentences of 3 to 20 tokens"
        if budget < max(lengths):
            return f"{which}: the longest has {max(lengths)} tokens and does not fit into {budget} places."
        if (needed := batches_needed(lengths, budget)) > limit:
            return f"{which}: with {budget} places a batch at least {needed} batches are needed, {limit} are allowed."
        if budget > smallest_budget(lengths, limit):
            return f"{which} and at most {limit} batches: {budget} places are more than needed."
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
    "07.1": Exercise("The schedule read backwards", rates_by_hand),
    "07.2": Exercise("The other convention", other_smoothed_loss),
    "07.3": Exercise("Learn the merges", byte_pairs),
    "07.4": Exercise("The smallest budget", budget_for_batches),
    "07.5": Exercise("Adam from scratch", adam_from_scratch, copies=False),
    "07.6": Exercise("Six curves of the rate", rate_faults),
    "07.7": Exercise("A loop with seven faults", repaired_loop),
}
