"""The exercises of chapter 06, masking."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.masking import causal_mask, padding_mask
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, difference, is_same

EXERCISES: dict[str, Exercise] = {}


def examine_lengths(answer: Any) -> str | None:
    """Count the pairs that one head allows: 40 in the encoder, 36 in the decoder and 48 between them are wanted."""
    given = torch.as_tensor(answer, dtype=torch.float64)
    if given.shape != (4,):
        return f"expected four lengths, got shape {tuple(given.shape)}."
    if (given < 1).any() or (given != given.round()).any():
        return "a length is a whole number, and at least 1."
    longer, shorter, rows, few = (int(n) for n in given)
    in_encoder, between = longer * (longer + shorter), rows * (longer + shorter)
    triangles = rows * (rows + 1) // 2 + few * (few + 1) // 2
    in_decoder = triangles + (rows - few) * few
    faults = {
        "of two sources, and of two targets, the longer one comes first.": longer < shorter or rows < few,
        f"{longer}² + {shorter}² = 40, but padded queries count too: masks hide keys only, so each key that is no "
        "padding is seen by every row of the padded length.": longer**2 + shorter**2 == 40,
        f"sources of {longer} and {shorter} tokens allow {in_encoder} pairs in the encoder, not 40: each of the "
        f"{longer} rows sees all {longer} keys of the one sentence, and {shorter} of the other.": in_encoder != 40,
        f"targets of {rows} and {few} tokens allow {between} pairs of a target query and a source key, not 48: the "
        "target's padded length times the source keys that are no padding.": between != 48,
        f"two triangles, of {rows} and of {few} rows, have 36 pairs, but the padded rows of the shorter target count "
        "too.": triangles == 36 != in_decoder,
        f"targets of {rows} and {few} tokens allow {in_decoder} pairs in the decoder, not 36: query i sees at most "
        "i + 1 keys, and no padding.": in_decoder != 36,
    }
    return next((fault for fault, there in faults.items() if there), None)


EXERCISES["06.1"] = Exercise(
    "From counts to lengths",
    right=[5, 3, 6, 3],
    cases={},
    examine=examine_lengths,
    caught={
        "expected four lengths, got shape (3,)": [5, 3, 6],
        "at least 1": AnyOf([5, 3, 6, 0], [5, 3, 6, 2.5]),
        "the longer one comes first": AnyOf([3, 5, 6, 3], [5, 3, 3, 6]),
        "6² + 2² = 40, but padded queries count": [6, 2, 6, 3],
        "104 pairs in the encoder, not 40: each of the 8 rows": [8, 5, 6, 3],
        "64 pairs of a target query and a source key, not 48": [5, 3, 8, 2],
        "two triangles, of 6 and of 5 rows": [5, 3, 6, 5],
        "42 pairs in the decoder, not 36: query i": [5, 3, 6, 6],
    },
)


def converted(mask: Tensor, meaning: str) -> Tensor:
    """Turn a mask of another library into ours."""
    kept = {"keep": mask.bool(), "drop": mask == 0, "zero_one": mask != 0, "added": mask > -1000}
    return kept[meaning]


KEPT = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) < 0.6
HIDING = torch.tensor([-math.inf, -1e9, -1e4, torch.finfo(torch.float32).min, -1e3])
EXERCISES["06.2"] = Exercise(
    "From anybody's mask to ours",
    right=converted,
    cases={
        '"keep": ': calls(KEPT, "keep"),
        '"drop": ': calls(~KEPT, "drop"),
        '"zero_one": ': calls(KEPT.float(), "zero_one"),
        '"zero_one", whole numbers: ': calls(KEPT.long(), "zero_one"),
        '"added": ': calls(torch.where(KEPT, torch.tensor([0.0, -0.5, 1.5, 0.0, -20.0]), HIDING), "added"),
        '"added", half precision: ': calls(torch.where(KEPT, 0.0, -math.inf).half(), "added"),
    },
    mistakes={
        "the polarity is reversed: True must mean 'may attend'.": "kept[meaning] → ~kept[meaning]",
        "all is allowed, or all is hidden: does your code reach this case?": "kept[meaning] → mask == mask",
        "nothing is allowed: does your code reach this case?": "kept[meaning] → mask != mask",
        "`.bool()` turns every number but 0 into True; what is very negative hides.": "mask > -1000 → mask.bool()",
        "a small number such as −0.5 or 1.5 does not hide a key: only −1,000 and below do.": "> -1000 → == 0",
        "a small negative number such as −0.5 does not hide a key: only −1,000 and below do.": "> -1000 → >= 0",
        "−1e9, −10,000 and the lowest number hide a key too, not only −∞.": "-1000 → -math.inf",
        "−1,000 itself hides too.": "mask > → mask >=",
        "−10,000 and −1,000 hide a key too.": "-1000 → -1e9 / 2",
    },
)


def packing(segments: Tensor) -> tuple[Tensor, Tensor]:
    """The mask of packed sentences, and the positions of their tokens."""
    query, key, past = segments[:, None, :, None], segments[:, None, None, :], causal_mask(segments.size(1))
    mask = (query == key) & past & (key != 0)
    seen = mask.sum(-1)[:, 0]
    return mask, (seen - 1).clamp(min=0)


def packed(place: int) -> Callable[[Any], Any]:
    """Make a case of the mask, number 0, or the positions, number 1."""
    segments = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 1, 0, 0, 0]])

    def run(answer: Any) -> Any:
        pair = answer(segments)
        return pair[place] if isinstance(pair, tuple | list) else pair

    return run


COMPARE = "the sentences before are visible, and padding sees words: compare the numbers with ==, not with ≤."
EXERCISES["06.3"] = Exercise(
    "Packing",
    right=packing,
    cases={"the mask: ": packed(0), "the positions: ": packed(1)},
    mistakes={
        "return two tensors: the mask and the positions.": ", (seen - 1).clamp(min=0) →",
        "the polarity is reversed: True must mean 'may attend'.": "return mask → return ~mask",
        "padding may attend to padding: segment 0 is no sentence, hide it.": "& (key != 0) →",
        "the future of the sentence is visible: this is an encoder's mask. Join it with the causal one.": "& past →",
        "the sentences before are visible: a pair is allowed only if both numbers agree.": "(query == key) & →",
        COMPARE: "return mask → return (key <= query) & past & (key != 0)",
        "no token sees itself: keep the diagonal.": "& past → & past.tril(-1)",
        "the past is hidden and the future is visible: keys are the last axis.": "& past → & past.T",
        "any one condition alone lets a key through; all must hold: use &.": "& past & (key != 0) → | past",
        "the mask is right but for its shape, which is (batch, 1, length, length).": "return mask → return mask[:, 0]",
        "they count from 1: a token sees itself too, so subtract 1.": "(seen - 1).clamp(min=0) → seen",
        "padding has the position −1: make it 0.": ".clamp(min=0) →",
        "they do not start anew in each sentence.": "(seen - 1).clamp(min=0) → seen * 0 + torch.arange(8)",
        "they do not start anew in each sentence; padding alone is 0.": (
            "(seen - 1).clamp(min=0) → (seen > 0) * torch.arange(8)"
        ),
        "their shape is (batch, length), not (batch, 1, length).": "clamp(min=0) → clamp(min=0)[:, None]",
    },
)


def prefixed(ids: Tensor, pad_id: int, prefix: Tensor) -> Tensor:
    """A decoder's mask in which each row's prefix sees itself, too."""
    real, past = padding_mask(ids, pad_id), causal_mask(ids.size(1))
    first = torch.arange(ids.size(1)) < prefix[:, None, None, None]
    return real & (past | first)


BOTH_WAYS = "the prefix has no effect: its tokens must see one another in both directions."
IDS = torch.tensor([[5, 6, 0, 8, 9, 4], [7, 6, 5, 8, 3, 3], [5, 8, 6, 7, 4, 3]])
EXERCISES["06.4"] = Exercise(
    "A prefix that sees itself",
    right=prefixed,
    cases={"": calls(IDS, 3, torch.tensor([3, 1, 4]))},
    mistakes={
        "the polarity is reversed: True must mean 'may attend'.": "real & (past | first) → ~(real & (past | first))",
        BOTH_WAYS: "past | first → past",
        "the padding is still visible: hide the keys whose id is pad_id.": "return real & → return",
        "the padding of id 0 is hidden; the id to hide is pad_id.": "ids, pad_id), → ids),",
        "a token after the prefix no longer sees the past of the target: use | for 'past or prefix'.": "| → &",
        "only the prefix is visible: later tokens also see what came before them.": AnyOf(
            "past | first → first", "past | first → first.expand(-1, -1, 6, -1)"
        ),
        "the prefix is one token too long: position < prefix.": "< → <=",
        "the prefix sees the whole row: the key, not the query, must lie in the prefix.": "| first → | first.mT",
        "prefix and target do not see each other: later tokens see the whole prefix.": (
            "(past | first) → (past | first) & (first.mT == first)"
        ),
        "the same prefix in every sentence: each row has its own.": "| first → | first[0]",
        "the padding mask works on the queries; hide the keys: the last axis.": AnyOf(
            "return real → return real.mT", "return real → return real.mT & real"
        ),
        "the mask is right but for its shape, which is (batch, 1, length, length).": (
            "real & (past | first) → (real & (past | first))[:, 0]"
        ),
    },
)


GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(6, 5, generator=GENERATOR)
INFLUENCES = torch.rand(9, 9, generator=GENERATOR) + 0.5  # all of size 1
RANDOM = torch.rand(8, 8, generator=GENERATOR) < 0.5
ALL, PAST = torch.ones(7, 7, dtype=torch.bool), causal_mask(7)
NEAR, ALL4 = ALL.tril(2), ALL[:4, :4]


def wired(reads: Tensor, before: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[[Tensor], Tensor]:
    """Make a model (length, 6) whose outputs read some of its inputs."""
    strengths = INFLUENCES[: len(reads), : len(reads)] * reads
    return lambda x: strengths @ (before(x) @ WEIGHT)


# Each model by its name and a hint for those whom it fools; and what its outputs depend on.
WIRED = {
    "a causal model: Change one input at a time, and keep the others.": (wired(PAST), PAST),
    "a model wired at random: Go through every input and look at every output.": (wired(RANDOM), RANDOM),
    "a model of 4 positions without a mask: Go through every input and look at every output.": (wired(ALL4), ALL4),
    "a model that reads one feature only: Change all features of a position, not one.": (
        wired(RANDOM, lambda x: x * torch.eye(6)[4]),
        RANDOM,
    ),
    "a model that normalises its inputs: Adding the same number to every feature, or scaling them, is taken out again. "
    "Change them at random.": (wired(RANDOM, lambda x: F.layer_norm(x, (6,), eps=1e-9)), RANDOM),
    "a model that rounds: Its derivative is 0 everywhere, and a small change does nothing: replace the input by "
    "something else.": (wired(RANDOM, lambda x: (2 * x).round()), RANDOM),
    "a model with a faint leak: Influences of 0.001 count: is your tolerance too wide?": (
        wired(PAST + 2e-4 * (NEAR & ~PAST)),
        NEAR,
    ),
    "a model with gates, open for one input in six: One attempt may find the gate shut: try many inputs, many "
    "replacements, and collect what moved. A gate open for one input in ten is shut in all of n attempts with a chance "
    "of up to 0.9ⁿ: how large is your n?": (wired(RANDOM, lambda x: x * (x[:, :1] > 1.0)), RANDOM),
    "a model with a gate at each output, open for one input in ten: Replacing an input elsewhere does not open such a "
    "gate: only another example does. How many do you take?": (
        lambda x: (x[:, :1] > 1.28) * wired(RANDOM)(x),  # opens with a chance of 0.1003
        RANDOM | (torch.eye(8, dtype=torch.bool) & RANDOM.any(dim=1)),
    ),
    "attention masked after the softmax: Every output reads the future here, through the denominator, if only a "
    "little.": (lambda x: (x @ x.T / 6**0.5).softmax(-1).tril() @ x, ALL),
}


def enough(risk: float, opening: float) -> int:
    """Count the examples after which a gate has been shut in all of them with no more than this risk."""
    return math.ceil(math.log(risk) / math.log(1 - opening))


def examine_leak_test(answer: Callable[..., Any]) -> str | None:
    """Try a test on models whose wiring is known; then count its examples."""
    for title, (model, reads) in WIRED.items():
        name, hint = title.split(": ", 1)
        found = answer(model, len(reads), 6, 0.1 if "gate" in name else 0.5, 1e-4)
        if is_same(found, reads):
            continue
        if not isinstance(found, Tensor) or found.shape != reads.shape or found.dtype != torch.bool:
            return f"{name}: {difference(found, reads)}"
        if is_same(found, reads.T):
            return f"{name}: rows are outputs and columns inputs; yours is the other way round."
        if is_same(found, ~reads):
            return f"{name}: the polarity is reversed: True means that the output depends on the input."
        missed, invented = int((reads & ~found).sum()), int((found & ~reads).sum())
        return f"{name}: {missed} dependences missed, {invented} invented. {hint}"
    for sizes in ((8, 0.1, 1e-4), (3, 0.5, 1e-3), (12, 0.3, 1e-2)):
        if fault := number_of_examples(answer, *sizes):
            return "length {}, opening {}, risk {}: ".format(*sizes) + fault
    return None


def number_of_examples(answer: Callable[..., Any], length: int, opening: float, risk: float) -> str | None:
    """Count in how many examples each input is replaced: as many as the risk asks for, and not many more."""
    seen: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return causal_mask(length).to(x.dtype) @ x

    answer(model, length, 6, opening, risk)
    inputs = torch.stack(seen).unique(dim=0)  # to look twice at the same input is no mistake
    others = [torch.cat([inputs[:, :j], inputs[:, j + 1 :]], dim=1).flatten(1) for j in range(length)]
    # Where the rest stood still, input j was replaced.
    fewest = min(int((rest.unique(dim=0, return_counts=True)[1] > 1).sum()) for rest in others)
    needed, one, row = (enough(risk / dependences, opening) for dependences in (length**2, 1, length))
    if fewest >= needed - 1:
        too_many = f"{fewest} examples, where {needed} suffice: take the number from opening and risk."
        return too_many if fewest > 2 * needed else None
    reasons = {
        "a replacement opens no gate at another position: it is no second example": fewest == needed // 2,
        "enough for one dependence, but none of the length² may be missed": abs(fewest - one) <= 1,
        "enough for one row or column, but none of the length² may be missed": abs(fewest - row) <= 1,
        "too few": True,
    }
    reason = next(text for text, there in reasons.items() if there)
    return f"each input was replaced in {fewest} examples, {needed} are needed: {reason}."


def leaks(model: Callable[[Tensor], Tensor], length: int, width: int, opening: float, risk: float) -> Tensor:
    """Test what each output of a model depends on, by replacing one input after the other in many examples."""
    generator = torch.Generator().manual_seed(7)
    reads = torch.zeros(length, length, dtype=torch.bool)
    for _ in range(enough(risk / length**2, opening)):
        x = torch.randn(length, width, generator=generator)
        before = model(x)
        for j in range(length):
            changed, new = x.clone(), torch.randn(width, generator=generator)
            changed[j] = new
            reads[:, j] |= (model(changed) - before).abs().amax(-1) > 1e-5
    return reads


NUMBER = "enough(risk / length**2, opening)"
EXERCISES["06.5"] = Exercise(
    "A leak test that is hard to fool",
    right=leaks,
    cases={},
    examine=examine_leak_test,
    caught={
        "yours is the other way round": "return reads → return reads.T",
        "the polarity is reversed": "return reads → return ~reads",
        "invented. Change one input at a time": "in range(length): → in range(4):",
        "missed, 0 invented. Go through every input": "return reads → return reads.tril()",
        "Change all features": "= new → = x[j] + torch.eye(6)[0]",
        "taken out again. Change them at random": AnyOf("= new → = x[j] + 1", "= new → = 2 * x[j]"),
        "a small change does nothing": "= new → = x[j] + 0.001 * new; 1e-5 → 1e-6",
        "is your tolerance too wide?": "1e-5 → 0.1",
        "how large is your n?": f"{NUMBER} → 1",
        "only another example does": f"{NUMBER} → 15",
        "Every output reads the future here": "return reads → return reads.tril(2) if len(reads) == 7 else reads",
        "enough for one dependence": "risk / length**2 → risk",
        "enough for one row or column": "length**2 → length",
        "it is no second example": f"{NUMBER} → {NUMBER} // 2",
        "in 120 examples, 127 are needed: too few": f"{NUMBER} → 120",
        "127 examples, where 14 suffice": f"{NUMBER} → 127",
    },
)


GENERATOR = torch.Generator().manual_seed(1)
W_QUERY, W_KEY = torch.randn(2, 6, 6, generator=GENERATOR) / 3
W_VALUE = torch.randn(6, 4, generator=GENERATOR)


def decoder(
    future: int = 0,
    *,
    padding: bool = False,
    late: bool = False,
    neighbours: bool = False,
    fill: float = -1e30,
    before: Callable[[Tensor], Tensor] = lambda x: x,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Make a model that sees some of the future, the padding, or how its neighbours begin; or is masked late."""

    def run(x: Tensor, real: Tensor) -> Tensor:
        x, keys, place = before(x), real[:, None, :], torch.arange(real.size(1))
        mask = (keys & (place <= place[:, None] + future)) | (~keys & padding)
        scores = (x @ W_QUERY) @ (x @ W_KEY).mT / 6**0.5
        weights = scores.masked_fill(~(keys if late else mask), fill).softmax(-1)
        if fill > -math.inf:
            weights = weights.masked_fill(~mask, 0.0)
        first = neighbours * x[:, :1] * real[:, :1, None]
        return (weights @ x + 0.1 * (first.sum(0, keepdim=True) - first)) @ W_VALUE

    return run


SOUND = decoder()
# Each model by its name and a hint for those whom it fools; and its faults.
BATCHED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], set[str]]] = {
    "a sound model: Padded rows may hold anything: look at real positions only.": (SOUND, set()),
    "a model that looks at itself alone: It reads too little, and that is no leak.": (
        lambda x, real: x @ W_VALUE,
        set(),
    ),
    "off by one: Change one real position and look at the earlier ones.": (decoder(1), {"future"}),
    "no causal mask: Change one real position and look at the earlier ones.": (decoder(99), {"future"}),
    "masked after the softmax: The future stands in the denominator.": (decoder(late=True), {"future"}),
    "off by one, inputs normalised: A shift of all features is taken out again: change them at random.": (
        decoder(1, before=lambda x: F.layer_norm(x, (6,))),
        {"future"},
    ),
    "a faint leak: Is your tolerance too wide? Effects here are of size 0.01.": (
        lambda x, real: SOUND(x, real) + 0.01 * decoder(1)(x, real),
        {"future"},
    ),
    "padding visible: Change what stands in the padding. That is not the future, which is about later real "
    "positions.": (decoder(padding=True), {"padding"}),
    "a model that divides by the padded length: What stands in the padding does not matter to it, but how much there "
    "is: add some.": (lambda x, real: SOUND(x, real) / x.size(1), {"padding"}),
    "a model that adds what its neighbours begin with: Change one sentence and look at the others. Keep the padded "
    "length while you do.": (decoder(neighbours=True), {"neighbours"}),
    "filled with −∞: Make one sentence of the batch all padding, and look for numbers that are not finite.": (
        decoder(fill=-math.inf),
        {"empty"},
    ),
    "no mask at all: Two faults at once: look for each by itself.": (decoder(99, padding=True), {"future", "padding"}),
    "off by one, filled with −∞: Two faults at once: look for each by itself.": (
        decoder(1, fill=-math.inf),
        {"future", "empty"},
    ),
    "neighbours, and off by one: Two faults at once: look for each by itself.": (
        decoder(1, neighbours=True),
        {"future", "neighbours"},
    ),
}


def examine_inspector(answer: Callable[..., Any]) -> str | None:
    """Let an inspector name the faults of models: each alone, some together, and none at all."""
    for title, (model, faults) in BATCHED.items():
        name, hint = title.split(": ", 1)
        found = answer(model)
        if not isinstance(found, set | frozenset):
            return difference(found, faults) if found is None else f"return a set of names; got {type(found).__name__}."
        if unknown := found - {"future", "padding", "neighbours", "empty"}:
            return f"unknown fault {sorted(map(str, unknown))[0]!r}: choose from future, padding, neighbours, empty."
        if found != faults:
            missed, invented = ", ".join(sorted(faults - found)), ", ".join(sorted(found - faults))
            parts = [f"missed {missed}"] * bool(missed) + [f"reported {invented} without cause"] * bool(invented)
            return f"{name}: {' and '.join(parts)}. {hint}"
    return None


def inspector(model: Callable[[Tensor, Tensor], Tensor]) -> set[str]:
    """Look for faults: change something, and see what moves."""
    place, rows = torch.arange(9), torch.eye(3, dtype=torch.bool)[:, :, None]
    real = place < torch.tensor([[6], [3], [9]])

    def look(x: Tensor, other: Tensor) -> dict[str, Any]:
        before = model(x, real)

        def moves(changed: Tensor, seen: Tensor) -> bool:
            after = model(torch.where(changed[..., None], other, x), real)
            return bool(((after - before).abs().amax(-1) > 1e-5)[seen].any())

        longer = model(F.pad(x, (0, 0, 0, 3)), F.pad(real, (0, 3)))[:, :9]
        grows = (longer - before)[real].abs().max() > 1e-5
        before_j = [(row & real & (place == j), row & real & (place < j)) for row in rows for j in range(1, 9)]
        return {
            "future": any(moves(*pair) for pair in before_j),
            "neighbours": any(moves(row & real, real & ~row) for row in rows),
            "padding": moves(~real, real) or grows,
            "empty": not model(x, real & ~rows[0]).isfinite().all(),
        }

    draws = torch.randn(4, 2, 3, 9, 6, generator=torch.Generator().manual_seed(7))
    return {name for draw in draws for name, there in look(*draw).items() if there}


def suspicious(model: Callable[[Tensor, Tensor], Tensor]) -> set[str]:
    """Take a model for faulty that does not read the past."""
    reads = model(F.pad(torch.ones(1, 1, 6), (0, 0, 0, 1)), torch.ones(1, 2, dtype=torch.bool))[0, 1].any()
    return inspector(model) | (set() if reads else {"future"})


EXERCISES["06.6"] = Exercise(
    "The inspector",
    right=inspector,
    cases={},
    examine=examine_inspector,
    caught={
        "return a set of names; got list": lambda model: ["future"],
        "unknown fault 'leak'": lambda model: {"leak"},
        "sound model: reported padding without cause. Padded rows": (
            "(~real, real) → (~real, real | True); [real].abs → [real | True].abs"
        ),
        "It reads too little": suspicious,
        "off by one: missed future. Change one real": lambda model: set(),
        "in the denominator": lambda model: inspector(lambda x, real: F.normalize(model(x, real), dim=-1)),
        "inputs normalised: missed future. A shift": "None], other, → None], x + 1,",
        "Is your tolerance too wide?": "1e-5 → 0.1",
        "padding visible: reported future without cause": "row & real & (place == j) → row & (place == j)",
        "divides by the padded length: missed padding": "or grows →",
        "Change one sentence and look at the others": lambda model: inspector(model) - {"neighbours"},
        "filled with −∞: missed empty. Make one": lambda model: inspector(model) - {"empty"},
        "no mask at all: missed padding. Two": lambda model: set(sorted(inspector(model))[:1]),
    },
)
