"""The exercises of chapter 06, masking."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.masking import causal_mask, padding_mask
from annotated_course.exercises.diagnosis import Exercise, compare

Batched = Callable[[Tensor, Tensor], Tensor]


PAIRS = (40, 36, 48)  # what one head allows in the encoder, in the decoder, and between them


def pairs_of(sources: tuple[int, int], targets: tuple[int, int]) -> tuple[int, int, int]:
    """Count the pairs that one head allows in each use, in a batch of two sentence pairs of these lengths."""
    rows = max(targets)
    in_decoder = sum(min(i + 1, n) for n in targets for i in range(rows))
    return max(sources) * sum(sources), in_decoder, rows * sum(sources)


def lengths_from_counts(answer: Any) -> str | None:
    """The lengths of two sources and two targets, from the pairs that one head allows in each use."""
    given = torch.as_tensor(answer, dtype=torch.float64)
    if given.shape != (4,):
        return f"expected four lengths, got shape {tuple(given.shape)}."
    if (given < 1).any() or (given != given.round()).any():
        return "a length is a whole number, and at least 1."
    longer, shorter, long_target, short_target = (int(n) for n in given)
    if longer < shorter or long_target < short_target:
        return "of two sources, and of two targets, the longer one comes first."
    found = pairs_of((longer, shorter), (long_target, short_target))
    if found == PAIRS:
        return None
    if longer**2 + shorter**2 == PAIRS[0]:
        return (
            f"{longer}² + {shorter}² = {PAIRS[0]}, but padded queries count too: masks hide keys only, so each key "
            "that is no padding is seen by every row of the padded length."
        )
    if found[0] != PAIRS[0]:
        return (
            f"sources of {longer} and {shorter} tokens allow {found[0]} pairs in the encoder, not {PAIRS[0]}: each of "
            f"the {longer} rows sees all {longer} keys of the one sentence, and {shorter} of the other."
        )
    if found[2] != PAIRS[2]:
        return (
            f"targets of {long_target} and {short_target} tokens allow {found[2]} pairs of a target query and a source "
            f"key, not {PAIRS[2]}: the target's padded length times the source keys that are no padding."
        )
    triangles = long_target * (long_target + 1) // 2 + short_target * (short_target + 1) // 2
    if triangles == PAIRS[1]:
        return (
            f"two triangles, of {long_target} and of {short_target} rows, have {PAIRS[1]} pairs, but the padded rows "
            "of the shorter target count too."
        )
    return (
        f"targets of {long_target} and {short_target} tokens allow {found[1]} pairs in the decoder, not {PAIRS[1]}: "
        "query i sees at most i + 1 keys, and no padding."
    )


def to_ours(answer: Callable[..., Tensor]) -> str | None:
    """Four conventions, with every number that people use to hide a key."""
    generator = torch.Generator().manual_seed(0)
    expected = torch.rand(2, 3, 5, generator=generator) < 0.6
    lowest = torch.finfo(torch.float32).min
    hiding = torch.tensor([-math.inf, -1e9, -1e4, lowest, -1e3]).expand(2, 3, 5)
    allowing = torch.tensor([0.0, -0.5, 1.5, 0.0, -20.0]).expand(2, 3, 5)
    added = torch.where(expected, allowing, hiding)
    half = torch.zeros(2, 3, 5).masked_fill(~expected, -math.inf).to(torch.float16)
    given = [
        ("keep", expected),
        ("drop", ~expected),
        ("zero_one", expected.float()),
        ("zero_one", expected.long()),
        ("added", added),
        ("added", half),
    ]
    for meaning, mask in given:
        mistakes = {
            "the polarity is reversed: True must mean 'may attend'.": ~expected,
            "all is allowed, or all is hidden: does your code reach this case?": torch.ones_like(expected),
            "nothing is allowed: does your code reach this case?": torch.zeros_like(expected),
        }
        if mask is added:
            mistakes |= {
                "`.bool()` turns every number but 0 into True; what is very negative hides.": added.bool(),
                "a small number such as −0.5 or 1.5 does not hide a key: only −1,000 and below do.": added == 0,
                "a small negative number such as −0.5 does not hide a key: only −1,000 and below do.": added >= 0,
                "−1e9, −10,000 and the lowest number hide a key too, not only −∞.": added > -math.inf,
                "−1,000 itself hides too.": added >= -1e3,
                "−10,000 and −1,000 hide a key too.": added > -1e9 / 2,
            }
        diagnosis = compare(answer(mask.clone(), meaning), expected, mistakes)
        if diagnosis:
            return f'"{meaning}": {diagnosis}'
    return None


def packed(answer: Callable[..., tuple[Tensor, Tensor]]) -> str | None:
    """Several sentences in one row: who sees whom in a decoder, and where in its sentence a token stands."""
    segments = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 1, 0, 0, 0]])
    length = segments.size(1)
    past = causal_mask(length)
    same = segments[:, None, :, None] == segments[:, None, None, :]
    keys = padding_mask(segments)
    expected = same & past & keys
    pair = answer(segments.clone())
    if not isinstance(pair, tuple) or len(pair) != 2:
        return "return two tensors: the mask and the positions."
    mask, positions = pair
    mistakes = {
        "the polarity is reversed: True must mean 'may attend'.": ~expected,
        "padding may attend to padding: segment 0 is no sentence, hide it.": same & past,
        "the future of the sentence is visible: this is an encoder's mask. Join it with the causal one.": same & keys,
        "the sentences before are visible: a pair is allowed only if both numbers agree.": keys & past,
        "the sentences before are visible, and padding sees words: compare the numbers with ==, not with ≤.": (
            keys & past & (segments[:, None, :, None] >= segments[:, None, None, :])
        ),
        "no token sees itself: keep the diagonal.": same & past.tril(-1) & keys,
        "the past is hidden and the future is visible: keys are the last axis.": same & past.T & keys,
        "any one condition alone lets a key through; all must hold: use &.": same | past,
        "the mask is right but for its shape, which is (batch, 1, length, length).": expected[:, 0],
    }
    diagnosis = compare(mask, expected, mistakes)
    if diagnosis:
        return f"the mask: {diagnosis}"
    places = (expected.sum(-1) - 1).clamp(min=0)[:, 0]
    plain = torch.arange(length).expand(3, length)
    diagnosis = compare(
        positions,
        places,
        {
            "they count from 1: a token sees itself too, so subtract 1.": expected.sum(-1)[:, 0],
            "padding has the position −1: make it 0.": (expected.sum(-1) - 1)[:, 0],
            "they do not start anew in each sentence.": plain,
            "they do not start anew in each sentence; padding alone is 0.": plain * (segments > 0),
            "their shape is (batch, length), not (batch, 1, length).": places[:, None],
        },
    )
    return diagnosis and f"the positions: {diagnosis}"


def prefix_mask(answer: Callable[..., Tensor]) -> str | None:
    """A prefix that sees itself in both directions, then a causal rest, and padding hidden."""
    ids, pad_id = torch.tensor([[5, 6, 0, 8, 9, 4], [7, 6, 5, 8, 3, 3], [5, 8, 6, 7, 4, 3]]), 3
    prefix = torch.tensor([3, 1, 4])
    length = ids.size(1)
    real, past = padding_mask(ids, pad_id), causal_mask(length)
    position = torch.arange(length)
    key_in_prefix = position < prefix[:, None, None, None]
    query_in_prefix = position[:, None] < prefix[:, None, None, None]
    open_ = past | key_in_prefix
    expected = real & open_
    mistakes = {
        "the polarity is reversed: True must mean 'may attend'.": ~expected,
        "the prefix has no effect: its tokens must see one another in both directions.": real & past,
        "the padding is still visible: hide the keys whose id is pad_id.": open_,
        "the padding of id 0 is hidden; the id to hide is pad_id.": padding_mask(ids) & open_,
        "a token after the prefix no longer sees the past of the target: use | for 'past or prefix'.": (
            real & past & key_in_prefix
        ),
        "only the prefix is visible: later tokens also see what came before them.": real & key_in_prefix,
        "the prefix is one token too long: position < prefix.": (
            real & (past | (position <= prefix[:, None, None, None]))
        ),
        "the prefix sees the whole row: the key, not the query, must lie in the prefix.": (
            real & (past | query_in_prefix)
        ),
        "prefix and target do not see each other: later tokens see the whole prefix.": (
            real & ((query_in_prefix & key_in_prefix) | (past & ~query_in_prefix & ~key_in_prefix))
        ),
        "the same prefix in every sentence: each row has its own.": real & (past | (position < prefix[0])),
        "the padding mask works on the queries; hide the keys: the last axis.": real.transpose(-2, -1) & open_,
        "padded queries must not be emptied: hide keys only, the last axis.": expected & real.transpose(-2, -1),
        "the mask is right but for its shape, which is (batch, 1, length, length).": expected[:, 0],
    }
    return compare(answer(ids.clone(), pad_id, prefix.clone()), expected, mistakes)


def leak_test(answer: Callable[..., Tensor]) -> str | None:
    """A dependence matrix, tried on models whose wiring is known and in which much hides from a careless test."""
    for name, hint, model, expected in wired_models():
        length = expected.size(0)
        found = answer(model, length, 6, 0.1, 1e-4)
        mistakes = {
            "rows are outputs and columns inputs; yours is the other way round.": expected.T,
            "the polarity is reversed: True means that the output depends on the input.": ~expected,
        }
        if isinstance(found, Tensor) and found.shape == expected.shape and found.dtype == torch.bool:
            if torch.equal(found, expected):
                continue
            known = next((text for text, wrong in mistakes.items() if torch.equal(found, wrong)), None)
            missed, invented = int((expected & ~found).sum()), int((found & ~expected).sum())
            counts = f"{missed} dependences missed, {invented} invented"
            return f"{name}: {known or counts + '. ' + hint}"
        return f"{name}: {compare(found, expected, mistakes)}"
    for length, opening, risk in ((8, 0.1, 1e-4), (3, 0.5, 1e-3), (12, 0.3, 1e-2)):
        if diagnosis := number_of_examples(answer, length, opening, risk):
            return f"length {length}, opening {opening}, risk {risk}: {diagnosis}"
    return None


def number_of_examples(answer: Callable[..., Tensor], length: int, opening: float, risk: float) -> str | None:
    """Count in how many examples each input is replaced: as many as the risk asks for, and not many more."""
    seen: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return causal_mask(length).to(x.dtype) @ x

    answer(model, length, 6, opening, risk)
    inputs = torch.stack(seen).unique(dim=0)  # to look twice at the same input is no mistake
    used = []
    for j in range(length):
        others = torch.cat([inputs[:, :j], inputs[:, j + 1 :]], dim=1).flatten(1)
        used.append(int((others.unique(dim=0, return_counts=True)[1] > 1).sum()))  # the rest stood still, j did not

    def enough(share: float) -> int:
        return math.ceil(math.log(share) / math.log(1 - opening))

    needed, fewest = enough(risk / length**2), min(used)
    if fewest >= needed - 1:
        if fewest > 2 * needed:
            return f"{fewest} examples, where {needed} suffice: take the number from opening and risk."
        return None
    reasons = {
        enough(risk): "enough for one dependence, but none of the length² may be missed",
        enough(risk / length): "enough for one row or column, but none of the length² may be missed",
    }
    reason = next((text for number, text in reasons.items() if abs(fewest - number) <= 1), "too few")
    if fewest == needed // 2:
        reason = "a replacement opens no gate at another position: it is no second example"
    return f"each input was replaced in {fewest} examples, {needed} are needed: {reason}."


def wired_models() -> list[tuple[str, str, Callable[[Tensor], Tensor], Tensor]]:
    """List models of (length, 6), each with a name, a hint for those it fools, and its true dependence matrix."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 5, generator=generator)
    mixing = torch.rand(9, 9, generator=generator) + 0.5  # all influences are of size 1

    def mix(mask: Tensor, before: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[[Tensor], Tensor]:
        return lambda x: (mixing[: len(x), : len(x)] * mask) @ (before(x) @ weight)

    def normalised(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-9).sqrt()

    def gated(x: Tensor) -> Tensor:
        return x * (x[:, :1] > 1.0)

    def gated_at_the_output(x: Tensor) -> Tensor:
        return (x[:, :1] > 1.28) * mix(random)(x)  # opens with a chance of 0.1003

    def one_feature(x: Tensor) -> Tensor:
        return x * torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])

    def late_mask(x: Tensor) -> Tensor:
        return (x @ x.T / 6**0.5).softmax(-1).tril() @ x

    past, random = causal_mask(7), torch.rand(8, 8, generator=generator) < 0.5
    small = past | torch.ones(7, 7, dtype=torch.bool).tril(2)
    faint = past.float() + 2e-4 * (small & ~past)
    return [
        ("a causal model", "Change one input at a time, and keep the others.", mix(past), past),
        ("a model wired at random", "Go through every input and look at every output.", mix(random), random),
        (
            "a model of 4 positions without a mask",
            "Go through every input and look at every output.",
            mix(torch.ones(4, 4).bool()),
            torch.ones(4, 4, dtype=torch.bool),
        ),
        (
            "a model that reads one feature only",
            "Change all features of a position, not one.",
            mix(random, one_feature),
            random,
        ),
        (
            "a model that normalises its inputs",
            "Adding the same number to every feature, or scaling them, is taken out again. Change them at random.",
            mix(random, normalised),
            random,
        ),
        (
            "a model that rounds",
            "Its derivative is 0 everywhere, and a small change does nothing: replace the input by something else.",
            mix(random, lambda x: (2 * x).round()),
            random,
        ),
        (
            "a model with a faint leak",
            "Influences of 0.001 count: is your tolerance too wide?",
            mix(faint),
            small,
        ),
        (
            "a model with gates, open for one input in six",
            "One attempt may find the gate shut: try many inputs, many replacements, and collect what moved. A gate "
            "open for one input in ten is shut in all of n attempts with a chance of up to 0.9ⁿ: how large is your n?",
            mix(random, gated),
            random,
        ),
        (
            "a model with a gate at each output, open for one input in ten",
            "Replacing an input elsewhere does not open such a gate: only another example does. How many do you take?",
            gated_at_the_output,
            random | (torch.eye(8, dtype=torch.bool) & random.any(dim=1)),
        ),
        (
            "attention masked after the softmax",
            "Every output reads the future here, through the denominator, if only a little.",
            late_mask,
            torch.ones(7, 7, dtype=torch.bool),
        ),
    ]


def inspector(answer: Callable[[Batched], set[str]]) -> str | None:
    """Name the faults of batched models: each alone, some together, and none at all."""
    for name, hint, model, faults in batched_models():
        found = answer(model)
        if found is None:
            return "your function returned None: does it end in a return?"
        if not isinstance(found, set | frozenset):
            return f"return a set of names; got {type(found).__name__}."
        if unknown := found - {"future", "padding", "neighbours", "empty"}:
            return f"unknown fault {sorted(map(str, unknown))[0]!r}: choose from future, padding, neighbours, empty."
        if found != faults:
            missed, invented = sorted(faults - found), sorted(found - faults)
            parts = [f"missed {', '.join(missed)}"] * bool(missed)
            parts += [f"reported {', '.join(invented)} without cause"] * bool(invented)
            return f"{name}: {' and '.join(parts)}. {hint}"
    return None


def batched_models() -> list[tuple[str, str, Batched, set[str]]]:
    """List models of x and real, each with a name, a hint for those it fools, and its faults."""
    generator = torch.Generator().manual_seed(1)
    w_query, w_key = torch.randn(2, 6, 6, generator=generator) / 3
    w_value = torch.randn(6, 4, generator=generator)

    def allow(real: Tensor, *, future: int = 0, padding: bool = False) -> Tensor:
        length = real.size(1)
        ahead = torch.arange(length) - torch.arange(length)[:, None]
        keys = real[:, None, :]
        seen = (ahead <= future) & keys
        return (seen | ~keys) if padding else seen

    def model(
        *,
        fill: float = torch.finfo(torch.float32).min,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        late: bool = False,
        **visible: Any,
    ) -> Batched:
        def run(x: Tensor, real: Tensor) -> Tensor:
            x = before(x)
            scores = (x @ w_query) @ (x @ w_key).transpose(1, 2) / 6**0.5
            mask = allow(real, **visible)
            if late:
                weights = scores.masked_fill(~real[:, None, :], fill).softmax(-1) * mask
            else:
                weights = scores.masked_fill(~mask, fill).softmax(-1)
                weights = weights if fill == -math.inf else weights.masked_fill(~mask, 0.0)
            return weights @ x @ w_value

        return run

    sound, no_mask = model(), model(future=99, padding=True)

    def normalised(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()

    def by_length(x: Tensor, real: Tensor) -> Tensor:
        return sound(x, real) / x.size(1)

    def by_neighbours(x: Tensor, real: Tensor) -> Tensor:
        first = x[:, :1] * real[:, :1, None]
        return sound(x, real) + 0.1 * (first.sum(0, keepdim=True) - first) @ w_value

    def by_neighbours_and_ahead(x: Tensor, real: Tensor) -> Tensor:
        first = x[:, :1] * real[:, :1, None]
        return model(future=1)(x, real) + 0.1 * (first.sum(0, keepdim=True) - first) @ w_value

    def only_itself(x: Tensor, real: Tensor) -> Tensor:
        return x @ w_value

    def faint(x: Tensor, real: Tensor) -> Tensor:
        return sound(x, real) + 0.01 * model(future=1)(x, real)

    return [
        ("a sound model", "Padded rows may hold anything: look at real positions only.", sound, set()),
        ("a model that looks at itself alone", "It reads too little, and that is no leak.", only_itself, set()),
        ("off by one", "Change one real position and look at the earlier ones.", model(future=1), {"future"}),
        ("no causal mask", "Change one real position and look at the earlier ones.", model(future=99), {"future"}),
        ("masked after the softmax", "The future stands in the denominator.", model(future=0, late=True), {"future"}),
        (
            "off by one, inputs normalised",
            "A shift of all features is taken out again: change them at random.",
            model(future=1, before=normalised),
            {"future"},
        ),
        ("a faint leak", "Is your tolerance too wide? Effects here are of size 0.01.", faint, {"future"}),
        (
            "padding visible",
            "Change what stands in the padding. That is not the future, which is about later real positions.",
            model(padding=True),
            {"padding"},
        ),
        (
            "a model that divides by the padded length",
            "What stands in the padding does not matter to it, but how much there is: add some.",
            by_length,
            {"padding"},
        ),
        (
            "a model that adds what its neighbours begin with",
            "Change one sentence and look at the others. Keep the padded length while you do.",
            by_neighbours,
            {"neighbours"},
        ),
        (
            "filled with −∞",
            "Make one sentence of the batch all padding, and look for numbers that are not finite.",
            model(fill=-math.inf),
            {"empty"},
        ),
        ("no mask at all", "Two faults at once: look for each by itself.", no_mask, {"future", "padding"}),
        (
            "off by one, filled with −∞",
            "Two faults at once: look for each by itself.",
            model(future=1, fill=-math.inf),
            {"future", "empty"},
        ),
        (
            "neighbours, and off by one",
            "Two faults at once: look for each by itself.",
            by_neighbours_and_ahead,
            {"future", "neighbours"},
        ),
    ]


EXERCISES: dict[str, Exercise] = {
    "06.1": Exercise("From counts to lengths", lengths_from_counts),
    "06.2": Exercise("From anybody's mask to ours", to_ours),
    "06.3": Exercise("Packing", packed),
    "06.4": Exercise("A prefix that sees itself", prefix_mask),
    "06.5": Exercise("The leak test that cannot be fooled", leak_test),
    "06.6": Exercise("The inspector", inspector),
}
