"""The exercises of chapter 03, positional encoding."""

import math
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from annotated.attention import attention_weights
from annotated.positional_encoding import sinusoids
from annotated_course.exercises.exercise import Exercise, Run, WrongFormError, by_hand, called, calls, draw, no_larger

EXERCISES: dict[str, Exercise] = {}


A, B, RIGHT, SUM = sinusoids(144, 4)[[57, 86, 29, 143]]  # the rows of a, b, b − a and a + b
EXERCISES["03.1"] = by_hand(
    "A row from two rows",
    [-0.664, -0.748, 0.286, 0.958],
    {
        "this is position a + b; for b − a the hands turn back by the angles of a.": SUM,
        "this is position a − b: the sines have the wrong sign.": RIGHT * torch.tensor([-1, 1, -1, 1]),
        "you subtracted the numbers; subtract the angles, by the addition theorem.": B - A,
    },
    tolerance=0.0011,
)


def picture(height: int, width: int, d_model: int) -> Tensor:
    """Encode rows in the first half of the columns, columns in the second."""
    if d_model % 4:
        raise ValueError(f"d_model = {d_model} must be divisible by 4")
    rows, columns = sinusoids(height, d_model // 2)[:, None], sinusoids(width, d_model // 2)
    return torch.cat([rows.expand(-1, width, -1), columns.expand(height, -1, -1)], dim=-1)


def examine_widths(answer: Any) -> str | None:
    """Look whether a width that cannot be cut into two halves of pairs is refused."""
    for d_model in (10, 9):
        with suppress(ValueError):
            answer(3, 5, d_model)
            return f"d_model = {d_model} must end in a ValueError: each half needs sines and cosines in pairs."
    return None


PICTURES = {
    "the row comes first, then the column; yours are exchanged.": "dim=-1) → dim=-1).roll(d_model // 2, -1)",
    "each half has the rates of its own width, d_model / 2.": "d_model // 2) → d_model)[:, : d_model // 2]",
    "you added both codes: (1, 2) and (2, 1) are alike.": lambda h, w, d: sinusoids(h, d)[:, None] + sinusoids(w, d),
    "the first axis is the row, the second the column; yours are exchanged.": "dim=-1) → dim=-1).transpose(0, 1)",
}
EXERCISES["03.2"] = Exercise(
    "Positions in a picture",
    right=picture,
    cases=called("height {}, width {}, d_model {}: ", (3, 5, 8), (4, 4, 12), (1, 30, 64)),
    mistakes=PICTURES,
    forbids="loop: let two tables expand, one over the columns and one over the rows.",
    examine=examine_widths,
    caught={"d_model = 10 must end": "d_model % 4 → False; d_model // 2 → d_model // 4 * 2"},
)


def rates(d_model: int, step: float = 2.0) -> Tensor:
    """Give the angle per position of each pair, 10000^(−step·i/d_model)."""
    return 10000.0 ** (-step * torch.arange(d_model // 2).double() / d_model)


def turn(angles: Tensor, signs: str = "++-+") -> Tensor:
    """Set ±cos, ±sin, ±sin, ±cos of each angle in a block of its own; with these signs, they turn the hands on."""
    entries = [float(f"{sign}1") * (angles.sin() if 0 < i < 3 else angles.cos()) for i, sign in enumerate(signs)]
    return torch.block_diag(*torch.stack(entries, dim=-1).view(-1, 2, 2).float())


def mirror(length: int, d_model: int) -> Tensor:
    """Turn all hands back and then on, to where position 0 must come."""
    return turn((length - 1) * rates(d_model), "-+++")


MIRRORS = {
    "position 0 must become length − 1, as positions are counted from 0; yours becomes length.": "length - 1 → length",
    "this moves every position on, and their order stays: the hands must turn back.": "-+++ → ++-+",
    "this maps p to −p; now move on by length − 1.": "(length - 1) → 0",
    "the exponent of the frequency is 2i/d_model; you used i/d_model.": "rates(d_model) → rates(d_model, 1.0)",
}
EXERCISES["03.3"] = Exercise(
    "Backwards by one matrix",
    right=mirror,
    cases=called("length {}, d_model {}: ", (10, 6), (2, 4), (500, 8)),
    mistakes=MIRRORS,
    tolerance=2e-4,
)


def read_clock(encodings: Tensor) -> Tensor:
    """Read the clock from the slowest hand down to the fastest."""
    turns = 2 * math.pi / rates(64)  # positions until a hand has gone round
    hands = torch.atan2(encodings[:, 0::2], encodings[:, 1::2]) / (2 * math.pi) * turns
    position = hands[:, -1].remainder(turns[-1])
    for i in range(30, -1, -1):
        full_turns = torch.round((position - hands[:, i]) / turns[i])
        position = hands[:, i] + turns[i] * full_turns
    return position.round().long()


POSITIONS = torch.randint(2_000, 30_000, (100,), generator=torch.Generator().manual_seed(0))
ANGLES = POSITIONS[:, None] * rates(64)
NOISY = torch.stack([ANGLES.sin(), ANGLES.cos()], dim=-1).flatten(1).float()
NOISY += 0.05 * draw(100, 64, seed=1)
EXERCISES["03.4"] = Exercise(
    "Read the clock",
    right=read_clock,
    cases={"": lambda answer: answer(NOISY).round().long()},
    mistakes={
        "this is the slowest hand alone: correct it with faster hands.": "range(30, -1, -1) → []",
        "this is wrong beyond half a turn of the slowest hand: atan2 gives −π … π.": ".remainder(turns[-1]) →",
        "let the fastest hands have the last word, and round.": "range(30, -1, -1) → range(30, 7, -1)",
        "choose the number of full turns that is nearest to the position so far.": "torch.round( → torch.floor(",
    },
    examine=no_larger(99_999, "right, but you built a tensor of {} numbers: read the hands instead.", NOISY),
    caught={"read the hands instead": lambda encodings: torch.cdist(encodings, sinusoids(30_001, 64)).argmin(dim=1)},
)


def look_back(k: int, d_model: int, d_k: int) -> tuple[Tensor, Tensor]:
    """Turn the query back k places, and read the fast hands."""
    fast = slice(d_k)
    return 99.0 * turn(-k * rates(d_model)).T[:, fast], torch.eye(d_model)[:, fast]


def looks(k: int, d_model: int, d_k: int, length: int) -> Run:
    """Make a case of where each position looks, if its largest weight is at least 0.99; the first k are free."""

    def run(answer: Any) -> Tensor:
        pair = answer(k, d_model, d_k)
        if not isinstance(pair, tuple) or [tuple(one.shape) for one in pair] != [(d_model, d_k)] * 2:
            raise WrongFormError(f"return two tensors: w_query and w_key, both ({d_model}, {d_k})", pair)
        weights = attention_weights(*(sinusoids(length, d_model) @ one.float() for one in pair))
        largest, place = weights.nan_to_num().max(-1)
        return torch.where(largest < 0.99, -1, place)[k:]

    return run


SIZES = ((1, 64, 32, 20), (3, 64, 32, 600), (7, 512, 64, 300), (40, 512, 128, 1000))
EXERCISES["03.5"] = Exercise(
    "A head that looks back",
    right=look_back,
    cases={
        f"(k, d_model, d_k, length) = {size}, where positions k, … look with at least 0.99 (else −1): ": looks(*size)
        for size in SIZES
    },
    mistakes={
        "each position attends to itself: the query must be the encoding k places back.": "(-k → (0",
        "you look k places ahead: rows are multiplied from the right, row @ T.T.": "(-k → (k",
        "choose the hands that move most in one step, and multiply a matrix by a number.": "99.0 → 1.0",
    },
    caught={"return two tensors: w_query and w_key": lambda k, d_model, d_k: turn(-k * rates(d_model))},
)


def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Turn each row by its position."""
    position = torch.arange(x.size(-2)) + start
    angle = (position[:, None] * rates(x.size(-1))).float()
    one, other = x[..., 0::2], x[..., 1::2]
    both = angle.cos() * one + angle.sin() * other, angle.cos() * other - angle.sin() * one
    return torch.stack(both, -1).flatten(-2)


ROWS = draw(2, 3, 5, 6)
APART = "x[..., 0::2], x[..., 1::2] → x.chunk(2, -1); torch.stack(both, -1).flatten(-2) → torch.cat(both, -1)"
EXERCISES["03.6"] = Exercise(
    "Turn instead of add",
    right=rotate,
    cases={"": calls(ROWS), "with start = 7 and one matrix: ": calls(ROWS[0, 0], start=7)},
    mistakes={
        "each row turns the wrong way: T(p) has + sin θ in its upper right corner.": "angle = → angle = -1 *",
        "you paired column i with column i + d/2; the pairs are the columns 2i and 2i + 1.": APART,
        "the first row is position start = 0 and must not change; yours is turned by T(1).": "+ start → + start + 1",
        "the exponent of the frequency is 2i/d; you used i/d.": "rates(x.size(-1)) → rates(x.size(-1), 1.0)",
        "`start` has no effect: the first row is position `start`.": "+ start →",
    },
    examine=no_larger(4095, "right, but of 2 × 64 numbers you built {}: no matrix is needed.", torch.ones(2, 64)),
    caught={"you built 4096": "x[..., 0::2], → x[..., 0::2] + torch.zeros(64, 64)[0, 0],"},
)
