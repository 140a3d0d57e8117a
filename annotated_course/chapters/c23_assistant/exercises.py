"""The exercises of chapter 23, an assistant."""

import math

import torch
from torch import Tensor

from annotated.config import EOS, PAD
from annotated.models.tuning import quantise
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, draw, on_paper
from annotated_course.stories import ASSISTANT, USER, encode

EXERCISES: dict[str, Exercise] = {}
USER_ID, ASSISTANT_ID = encode(f"{USER} {ASSISTANT}")  # as in the lesson's first cell of exercises


def targets_of(ids: Tensor) -> Tensor:
    """Keep what the assistant says, its <eos> included, shifted to the places that predict it."""
    answering = (ids == ASSISTANT_ID).cumsum(1) == (ids == USER_ID).cumsum(1)
    counts = answering & (ids != ASSISTANT_ID) & (ids != PAD)
    return torch.where(counts, ids, -100)[:, 1:]


CHATS = torch.tensor(
    [
        [USER_ID, 20, 21, 22, ASSISTANT_ID, 30, EOS, USER_ID, 23, ASSISTANT_ID, 31, 32, EOS],
        [USER_ID, 20, 21, ASSISTANT_ID, 22, 20, 33, EOS, PAD, PAD, PAD, PAD, PAD],
    ]
)
EXERCISES["23.1"] = Exercise(
    "Whose words count?",
    right=targets_of,
    cases={"two chats: ": calls(CHATS), "the second, alone: ": calls(CHATS[1:, :8])},
    mistakes={
        "the place before a token predicts it: the targets are one shorter, from the second token on.": AnyOf(
            "-100)[:, 1:] → -100)[:, :-1]", "-100)[:, 1:] → -100)"
        ),
        "a target counts if *it* is the assistant's, not if the token read before it is.": (
            "(counts, ids, -100)[:, 1:] → (counts[:, :-1], ids[:, 1:], -100)"
        ),
        "<eos> counts, too: it's how the model learns to stop.": "(ids != PAD) → (ids > EOS)",
        "<assistant> itself isn't an answer: the template puts it there.": "& (ids != ASSISTANT_ID) &→&",
        "after an answer the user may speak again: watch whose turn it is.": AnyOf(
            "== (ids == USER_ID).cumsum(1) → > 0",
            "== (ids == USER_ID).cumsum(1) → > (ids == ASSISTANT_ID); & (ids != ASSISTANT_ID) & → &",
            "(ids == USER_ID).cumsum(1) → 1 + 0 * ids",
        ),
        "a chat may have several answers; each of them counts.": (
            "(ids == USER_ID).cumsum(1) → (ids == ASSISTANT_ID).sum(1, keepdim=True)"
        ),
        "the user's words count for nothing: the model needn't learn to ask.": ("= answering & → = (ids != USER_ID) &"),
        "padding isn't an answer.": "& (ids != PAD) →",
    },
)

EXERCISES["23.2"] = on_paper(
    "LoRA on paper",
    [65_536.0, 1 / 256, 2048.0, 2.0, 7.0],
    {
        "A is r × inputs and B outputs × r: together r · (inputs + outputs).": AnyOf((0, 32_768.0), (0, 134_217_728.0)),
        "compare with the matrix's own numbers, 4096 · 4096.": AnyOf((1, 256.0), (1, 1 / 512)),
        "the share itself, not in percent.": AnyOf((1, 0.390625), (1, 0.39)),
        "2 · 4096 · r is to be 4096²: half of 4096.": (2, 4096.0),
        "it's α divided by r.": AnyOf((3, 0.5), (3, 16.0), (3, 128.0)),
        "the correction is added to W.": (4, 6.0),
        "α/r multiplies the product B A before it's added.": AnyOf((4, 4.0), (4, 3.0)),
        "−1 · 1 is −1.": (4, 11.0),
    },
    names=["numbers of A and B", "their share", "the rank", "α/r", "the number in the merged matrix"],
    tolerance=1e-5,
)

EXERCISES["23.3"] = on_paper(
    "One pair, before and after",
    [math.log(2), 4.0, math.log(1 + math.exp(-2)), math.exp(-2)],
    {
        "before the first update the two differences are equal, and σ(0) is ½.": AnyOf((0, 0.0), (0, 0.5)),
        "−ln ½ is positive.": (0, -math.log(2)),
        "subtract what the difference was before: 2 − (−2).": AnyOf((1, 2.0), (1, 0.0), (1, -4.0)),
        "β multiplies what's in the brackets.": (2, math.log(1 + math.exp(-4))),
        "the loss is −ln σ: the larger the difference, the smaller it is.": AnyOf(
            (2, math.log(1 + math.exp(2))), (2, -math.log(1 + math.exp(-2))), (2, 1 / (1 + math.exp(-2)))
        ),
        "log-probabilities went from −10 to −12: a factor is e to the power of the change.": AnyOf(
            (3, math.exp(2)), (3, -2.0), (3, 1.2), (3, math.exp(-12))
        ),
    },
    names=["the loss before", "what's in the brackets", "the loss after", "the factor"],
    tolerance=6e-4,
)


def from_least_to_largest(weight: Tensor, bits: int, share: int) -> Tensor:
    """Round to 2^bits values, evenly spaced from each group's least to its largest."""
    groups = weight.reshape(-1, share)
    least, largest = groups.amin(dim=1, keepdim=True), groups.amax(dim=1, keepdim=True)
    step = (largest - least) / (2**bits - 1)
    step = step.masked_fill(step == 0, 1.0)
    return (least + step * ((groups - least) / step).round()).view_as(weight)


WEIGHT = draw(6, 8) + torch.arange(6.0)[:, None]
FLAT = torch.cat((WEIGHT[:2], torch.full((1, 8), 0.5), torch.zeros(1, 8)))
EXERCISES["23.4"] = Exercise(
    "Waste no value",
    right=from_least_to_largest,
    cases={
        "2 bits, groups of 4: ": calls(WEIGHT, 2, 4),
        "4 bits, whole rows: ": calls(WEIGHT, 4, 8),
        "a group of equal weights: ": calls(FLAT, 3, 8),
    },
    mistakes={
        "each group has its own least and largest weight.": "dim=1 → dim=(0, 1)",
        "2^bits values have 2^bits − 1 steps between them.": "(2**bits - 1) → 2**bits",
        "that's absmax, as many values below 0 as above; here they go from the least to the largest.": AnyOf(
            "= groups.amin(dim=1, keepdim=True), → = -groups.abs().amax(dim=1, keepdim=True),;"
            "groups.amax(dim=1, keepdim=True) → groups.abs().amax(dim=1, keepdim=True)",
            quantise,
        ),
        "round to the nearest, not down.": ".round() → .floor()",
        "where all weights are equal, the step is 0, and you divide by it.": "step.masked_fill(step == 0, 1.0) → step",
        "the values begin at the least weight: subtract it before you round, add it back after.": AnyOf(
            "least + step → step", "least + step * ((groups - least) / step) → step * (groups / step)"
        ),
    },
)


def prompt_of(turns: list[list[int]], room: int) -> list[int]:
    """Join the turns, and leave out the oldest question and its answer until the rest fits."""
    start = 0
    while True:
        ids: list[int] = []
        for i, turn in enumerate(turns[start:]):
            ids += [USER_ID, *turn] if i % 2 == 0 else [ASSISTANT_ID, *turn, EOS]
        ids += [ASSISTANT_ID]
        if len(ids) <= room:
            return ids
        start += 2


TURNS = [[20, 21, 22], [30], [23], [31, 32], [26, 27], [33], [24, 25]]
EXERCISES["23.5"] = Exercise(
    "A chat that fits",
    right=prompt_of,
    cases={
        "one question: ": calls([[20, 21]], 20),
        "room for all: ": calls(TURNS, 30),
        "exactly enough room: ": calls(TURNS, len(prompt_of(TURNS, 99))),
        "one token too many: ": calls(TURNS, len(prompt_of(TURNS, 99)) - 1),
        "room for the last pair and a question: ": calls(TURNS, len(prompt_of(TURNS[4:], 99))),
        "room for the last question alone: ": calls(TURNS, 4),
    },
    mistakes={
        "the prompt ends with <assistant>: it's the model's turn.": "ids += [ASSISTANT_ID] →",
        "each earlier answer ends with <eos>, as in tuning.": "*turn, EOS] → *turn]",
        "a question doesn't end with <eos>: in tuning none did.": "[USER_ID, *turn] → [USER_ID, *turn, EOS]",
        "a question and its answer leave together, or the two change places.": "start += 2 → start += 1",
        "leave out as many pairs as it takes, not just one.": "<= room → <= room or start",
        "cut between turns: half a turn is one that tuning never showed.": "len(ids) <= room → ids := ids[-room:]",
        "all tokens need room, the last <assistant> too, and a prompt of exactly that length fits.": AnyOf(
            "<= room → < room", "<= room → <= room + 1"
        ),
        "leave out the oldest, not the newest.": "turns[start:] → turns[: len(turns) - start]",
    },
)
