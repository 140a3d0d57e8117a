"""The exercises of chapter 06, masking."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.masking import causal_mask, padding_mask
from annotated_course.exercises.exercise import Exercise, Run, WrongFormError, as_numbers, calls, parts

EXERCISES: dict[str, Exercise] = {}


def pairs(kind: str) -> Run:
    """Make a case of how many pairs of a query and a key one head allows, with the four lengths of an answer."""

    def count(answer: Any) -> int:
        given = as_numbers(answer)
        if given.shape != (4,) or (given < 1).any() or (given != given.round()).any():
            raise WrongFormError("give four lengths, whole numbers and each at least 1", answer)
        source, shorter, target, few = (int(n) for n in given)
        if source < shorter or target < few:
            raise WrongFormError("of two sources, and of two targets, the longer one comes first.")
        triangles = target * (target + 1) // 2 + few * (few + 1) // 2
        counts = {"encoder": source * (source + shorter), "memory": target * (source + shorter)}
        return (counts | {"decoder": triangles + (target - few) * few})[kind]

    return count


EXERCISES["06.1"] = Exercise(
    "From counts to lengths",
    right=[5, 3, 6, 3],
    cases={
        "pairs in the encoder, each row with the keys of its own sentence that are no padding: ": pairs("encoder"),
        "pairs of a target query and a source key: ": pairs("memory"),
        "pairs in the decoder, query i with at most i + 1 keys: ": pairs("decoder"),
    },
    mistakes={
        "padded queries count too: masks hide keys only.": [6, 2, 6, 3],
        "the padded rows of the shorter target count too.": [5, 3, 6, 5],
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
        "`.bool()` turns every number but 0 into True; what is very negative hides.": "mask > -1000 → mask.bool()",
        "a small number such as −0.5 or 1.5 does not hide a key: only −1,000 and below do.": "> -1000 → == 0",
        "−1e9, −10,000 and the lowest number hide a key too, not only −∞.": "-1000 → -math.inf",
    },
)


def packing(segments: Tensor) -> tuple[Tensor, Tensor]:
    """The mask of packed sentences, and the positions of their tokens."""
    query, key, past = segments[:, None, :, None], segments[:, None, None, :], causal_mask(segments.size(1))
    mask = (query == key) & past & (key != 0)
    seen = mask.sum(-1)[:, 0]
    return mask, (seen - 1).clamp(min=0)


SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 1, 0, 0, 0]])
EXERCISES["06.3"] = Exercise(
    "Packing",
    right=packing,
    cases=parts(calls(SEGMENTS), "the mask", "the positions"),
    mistakes={
        "padding may attend to padding: segment 0 is no sentence, hide it.": "& (key != 0) →",
        "the future of the sentence is visible: this is an encoder's mask. Join it with the causal one.": "& past →",
        "the sentences before are visible: a pair is allowed only if both numbers agree.": "(query == key) & →",
        "they count from 1: a token sees itself too, so subtract 1.": "(seen - 1).clamp(min=0) → seen",
    },
    forbids="loop: compare a column of numbers with a row of numbers.",
)


def prefixed(ids: Tensor, pad_id: int, prefix: Tensor) -> Tensor:
    """A decoder's mask in which each row's prefix sees itself, too."""
    real, past = padding_mask(ids, pad_id), causal_mask(ids.size(1))
    first = torch.arange(ids.size(1)) < prefix[:, None, None, None]
    return real & (past | first)


IDS = torch.tensor([[5, 6, 0, 8, 9, 4], [7, 6, 5, 8, 3, 3], [5, 8, 6, 7, 4, 3]])
EXERCISES["06.4"] = Exercise(
    "A prefix that sees itself",
    right=prefixed,
    cases={"": calls(IDS, 3, torch.tensor([3, 1, 4]))},
    mistakes={
        "the prefix has no effect: its tokens must see one another in both directions.": "past | first → past",
        "the padding is still visible: hide the keys whose id is pad_id.": "return real & → return",
        "the prefix sees the whole row: the key, not the query, must lie in the prefix.": "| first → | first.mT",
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


def case(model: Callable[[Tensor], Tensor], length: int = 8, opening: float = 0.5) -> Run:
    """Make a case of what a test finds out about a model whose gates are open so often."""
    return calls(model, length, 6, opening, 1e-4)


# Models whose wiring is known, by a name with a hint.
WIRED = {
    "a causal model (change one input at a time): ": case(wired(PAST), 7),
    "a model wired at random (go through every input, look at every output): ": case(wired(RANDOM)),
    "a model of 4 positions without a mask: ": case(wired(ALL4), 4),
    "a model that rounds (a small change does nothing): ": case(wired(RANDOM, lambda x: (2 * x).round())),
    "a model with a faint leak (influences of 0.001 count): ": case(wired(PAST + 2e-4 * (NEAR & ~PAST)), 7),
    "a model with a gate at each input (often shut): ": case(wired(RANDOM, lambda x: x * (x[:, :1] > 1)), 8, 0.1),
    "a model with a gate at each output (try examples): ": case(lambda x: (x[:, :1] > 1.28) * wired(RANDOM)(x), 8, 0.1),
    "masked after the softmax (look in the denominator): ": case(lambda x: (x @ x.T / 3).softmax(-1).tril() @ x, 7),
}


def enough(risk: float, opening: float) -> int:
    """Count the examples after which a gate has been shut in all of them with no more than this risk."""
    return math.ceil(math.log(risk) / math.log(1 - opening))


def examine_number(answer: Callable[..., Any]) -> str | None:
    """Count in how many examples each input is replaced: as many as the risk asks for, and not many more."""
    for length, opening, risk in ((8, 0.1, 1e-4), (3, 0.5, 1e-3), (12, 0.3, 1e-2)):
        seen: list[Tensor] = []

        def model(x: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(x.detach().clone())
            return causal_mask(len(x)).to(x.dtype) @ x

        answer(model, length, 6, opening, risk)
        inputs = torch.stack(seen).unique(dim=0)  # to look twice at the same input is no mistake
        others = [torch.cat([inputs[:, :j], inputs[:, j + 1 :]], dim=1).flatten(1) for j in range(length)]
        # Where the rest stood still, input j was replaced.
        fewest = min(int((rest.unique(dim=0, return_counts=True)[1] > 1).sum()) for rest in others)
        needed = enough(risk / length**2, opening)
        if not needed - 1 <= fewest <= 2 * needed:
            return (
                f"length {length}, opening {opening}, risk {risk}: each input was replaced in {fewest} examples, "
                f"{needed} are needed: none of the length² dependences may be missed, and no replacement opens a gate "
                "at another position."
            )
    return None


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


EXERCISES["06.5"] = Exercise(
    "A leak test that is hard to fool",
    right=leaks,
    cases=WIRED,
    mistakes={"rows are outputs and columns inputs; yours is the other way round.": "return reads → return reads.T"},
    examine=examine_number,
    caught={
        "go through every input": "return reads → return reads.tril()",
        "a small change does nothing": "= new → = x[j] + 0.001 * new; 1e-5 → 1e-6",
        "in the denominator": "return reads → return reads.tril(2) if len(reads) == 7 else reads",
        "in 88 examples, 127 are needed": "risk / length**2 → risk",
        "in 127 examples, 14 are needed": "enough(risk / length**2, opening) → 127",
    },
)
