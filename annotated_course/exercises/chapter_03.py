"""The exercises of chapter 03, positional encoding."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated.attention import attention_weights
from annotated.positional_encoding import sinusoids
from annotated_course.exercises.diagnosis import Exercise, LargestTensor, compare


def row_from_two(answer: Any) -> str | None:
    """The encoding of position b − a at a width of 4, from those of a = 57 and b = 86."""
    frequency = frequencies(4)
    first, second, right, opposite, total = waves(torch.tensor([57.0, 86, 29, -29, 143]), frequency)
    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        right,
        {
            "this is position a + b; for b − a the hands turn back by the angles of a.": total,
            "this is position a − b: the sines have the wrong sign.": opposite,
            "you subtracted the numbers; subtract the angles, by the addition theorem.": second - first,
            "you added the numbers; it is the angles that you know how to subtract.": second + first,
            "you multiplied the numbers one by one; a sine of a difference mixes sines and cosines.": first * second,
            "each pair is sine, then cosine; you have the cosine first.": right.view(2, 2).flip(1).flatten(),
            "sine and cosine alternate; you have all sines, then all cosines.": halves(right),
            "the cosines are those of a + b: cos(β − α) = cos β cos α + sin β sin α, with a plus.": torch.stack(
                [right[0], total[1], right[2], total[3]]
            ),
            "the sines are those of a + b: sin(β − α) = sin β cos α − cos β sin α, with a minus.": torch.stack(
                [total[0], right[1], total[2], right[3]]
            ),
        },
        tolerance=0.0011,
        by_hand=True,
    )


def positions_in_a_picture(answer: Callable[..., Tensor]) -> str | None:
    """The encodings of rows and columns, half of the width each."""
    for height, width, d_model in ((3, 5, 8), (4, 4, 12), (1, 30, 64)):
        rows, columns = torch.arange(float(height)), torch.arange(float(width))

        def grid(of_rows: Tensor, of_columns: Tensor) -> Tensor:
            """Set the code of the row before that of the column, for each patch."""
            shape = (len(of_rows), len(of_columns), -1)
            return torch.cat([of_rows[:, None].expand(shape), of_columns.expand(shape)], dim=-1)

        own = frequencies(d_model // 2)
        right = grid(waves(rows, own), waves(columns, own))
        whole = sinusoids(height, d_model), sinusoids(width, d_model)
        half = d_model // 2
        mistakes = {
            "the row comes first, then the column; yours are exchanged.": right.roll(half, dims=-1),
            "each half has the rates of its own width, d_model / 2; yours has those of d_model, cut off.": grid(
                whole[0][:, :half], whole[1][:, :half]
            ),
            "each half has the rates of its own width; you cut one encoding of width d_model in two.": grid(
                whole[0][:, :half], whole[1][:, half:]
            ),
            "you added both codes; give each a half of its own: the patches (1, 2) and (2, 1) are now alike.": (
                whole[0][:, None] + whole[1]
            ),
            "this numbers the patches one after the other; the patch below is then `width` positions away.": (
                sinusoids(height * width, d_model).view(height, width, d_model)
            ),
            "the first axis is the row, the second the column; yours are exchanged.": right.transpose(0, 1),
            "the patches stand in one long list; give rows and columns an axis each.": right.flatten(0, 1),
            "rows and columns are counted from 0; yours start at 1.": grid(
                waves(rows + 1, own), waves(columns + 1, own)
            ),
        }
        diagnosis = compare(answer(height, width, d_model), right, mistakes)
        if diagnosis:
            return f"height {height}, width {width}, d_model {d_model}: {diagnosis}"
    for d_model in (10, 9):
        try:
            answer(3, 5, d_model)
        except ValueError:
            continue
        return f"d_model = {d_model} must end in a ValueError: each half needs sines and cosines in pairs."
    return None


def mirror(answer: Callable[..., Tensor]) -> str | None:
    """The matrix that maps the encoding of p to that of length − 1 − p."""

    def blocks(angle: Tensor, signs: tuple[int, int, int, int]) -> Tensor:
        """Set ±cos, ±sin, ±sin, ±cos of each angle in a block of its own."""
        entries = (angle.cos(), angle.sin(), angle.sin(), angle.cos())
        both = torch.stack([sign * entry for sign, entry in zip(signs, entries, strict=True)], dim=-1)
        return torch.block_diag(*both.view(-1, 2, 2).float())

    for length, d_model in ((10, 6), (2, 4), (500, 8)):
        last, reflect = (length - 1) * frequencies(d_model), (-1, 1, 1, 1)
        right = blocks(last, reflect)
        order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
        mistakes = {
            "position 0 must become length − 1, as positions are counted from 0; yours becomes length.": blocks(
                length * frequencies(d_model), reflect
            ),
            "this is T(length − 1): it moves every position on, but their order stays; the hands must turn back.": (
                blocks(last, (1, 1, -1, 1))
            ),
            "this is T(1 − length): it moves every position back, but their order stays.": blocks(last, (1, -1, 1, 1)),
            "this maps p to −p; now move on by length − 1.": blocks(0 * last, reflect),
            "this maps p to −(length − 1) − p: the two sines have the wrong sign, or you move first and mirror then.": (
                blocks(last, (-1, -1, -1, 1))
            ),
            "this exchanges the columns of one encoding; exchange positions, by turning each hand.": (
                torch.eye(d_model).flip(0)
            ),
            "the signs of the two cosines are exchanged: cos(θ − α) = cos θ cos α + sin θ sin α.": blocks(
                last, (1, 1, 1, -1)
            ),
            "sine and cosine alternate in the paper's rows; yours are all sines, then all cosines.": (
                right[order][:, order]
            ),
            "the exponent of the frequency is 2i/d_model; you used i/d_model.": blocks(
                (length - 1) * frequencies(d_model).sqrt(), reflect
            ),
        }
        diagnosis = compare(answer(length, d_model), right, mistakes, tolerance=2e-4)
        if diagnosis:
            return f"length {length}, d_model {d_model}: {diagnosis}"
    return None


def read_clock(answer: Callable[..., Tensor]) -> str | None:
    """Positions from noisy encodings, without a table of all positions."""
    generator = torch.Generator().manual_seed(0)
    expected = torch.randint(2_000, 30_000, (100,), generator=generator)
    clean = waves(expected, frequencies(64))
    encodings = clean + 0.05 * torch.randn(100, 64, generator=generator)
    with LargestTensor() as seen:
        result = answer(encodings)
    if not isinstance(result, Tensor):
        return f"expected a tensor of 100 positions, got {type(result).__name__}."
    if result.shape != expected.shape:
        return f"expected shape (100,), one position for each encoding, got {tuple(result.shape)}."
    off = result.double().round() - expected
    if (off == 0).all():
        if seen.largest >= 100_000:
            return f"the positions are right, but you built a tensor of {seen.largest} numbers: read the hands instead."
        return None
    if not off.isfinite().all():
        return "some positions are NaN or infinite."
    if (off == off[0]).all():
        return f"all positions are off by {int(off[0])}; they are counted from 0, where every sine is 0."
    wavelength = 2 * math.pi / frequencies(64)[-1]  # of the slowest hand
    hour = turned(encodings[:, -2:]).double() / (2 * math.pi) * wavelength
    wrong = f"{int((off != 0).sum())} of 100 positions are wrong"
    if torch.allclose(result.double().remainder(wavelength), hour, atol=2):
        return (
            f"{wrong}: this is the slowest hand alone, up to {int(off.abs().max())} off. Correct it with faster hands."
        )
    if torch.allclose(result.double(), turned(encodings[:, :2]).double(), atol=1):
        return f"{wrong}: this is the fastest hand alone, and it has gone round many times."
    if (expected[off != 0] > 0.49 * wavelength).all():
        return (
            f"{wrong}, all those above {int(wavelength / 2)}, where the slowest hand is past half a turn: torch.atan2 "
            "gives −π … π there; its remainder by 2π gives 0 … 2π."
        )
    if off.abs().max() < 3:
        return f"{wrong}, but by 2 at most: let the fastest hands have the last word, and round."
    many = int((off.abs() > 3).sum())
    return (
        f"{wrong}, and {many} of them by more than 3: with each faster hand, choose the number of full turns that is "
        "nearest to the position so far."
    )


def look_back(answer: Callable[..., tuple[Tensor, Tensor]]) -> str | None:
    """Matrices with which a head of width d_k attends k places back, at any length."""
    for k, d_model, d_k, length in ((1, 64, 32, 20), (3, 64, 32, 600), (7, 512, 64, 300), (40, 512, 128, 1000)):
        case = f"k = {k}, d_model = {d_model}, d_k = {d_k}, length {length}"
        pair = answer(k, d_model, d_k)
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(one, Tensor) for one in pair):
            return "return two tensors: w_query, w_key."
        if any(one.shape != (d_model, d_k) for one in pair):
            return f"{case}: both must have the shape ({d_model}, {d_k}); got {[tuple(one.shape) for one in pair]}."
        table = sinusoids(length, d_model)
        query, key = (table @ one.float() for one in pair)
        weights = attention_weights(query, key)
        rows = torch.arange(k, length)
        found = weights.argmax(dim=1)
        right = torch.equal(found[rows], rows - k)
        sharpest = weights[rows, rows - k].min()
        if not weights.isfinite().all():
            return f"{case}: the weights are not finite; is a score infinite?"
        if right and sharpest >= 0.99:
            continue
        if not pair[1][: d_model // 2].any():
            return f"{case}: your keys use slow hands only, and these hardly move from one position to the next."
        if right:
            return (
                f"{case}: every position finds the right one, but a weight there is {sharpest:.2f}; it must be "
                "at least 0.99. Choose the hands that move most in one step, and multiply a matrix by a number: "
                "the lead over the neighbours is small, and √d_k divides it."
            )
        if torch.equal(found[:-k], torch.arange(k, length)):
            return f"{case}: you look k places ahead. Mind that rows are multiplied from the right: row @ T.T."
        if torch.equal(found, torch.arange(length)):
            return f"{case}: each position attends to itself. The query must be the encoding k places back."
        wrong = rows[found[rows] != rows - k]
        row = int(wrong[0])
        return f"{case}: position {row} attends to {int(found[row])}, not to {row - k}."
    return None


def rotate(answer: Callable[..., Tensor]) -> str | None:
    """Rows turned by T(p), pair by pair."""
    x = torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(0))

    def turn(x: Tensor, position: Tensor, frequency: Tensor | None = None) -> Tensor:
        """Turn each pair of columns of the row at each position."""
        angle = (position[:, None] * (frequencies(x.size(-1)) if frequency is None else frequency)).float()
        first, second = x[..., 0::2], x[..., 1::2]
        pair = angle.cos() * first + angle.sin() * second, angle.cos() * second - angle.sin() * first
        return torch.stack(pair, dim=-1).flatten(-2)

    position = torch.arange(5.0)
    order = torch.tensor([0, 3, 1, 4, 2, 5])  # brings columns i and i + 3 together
    of_halves = turn(x[..., order], position)[..., order.argsort()]
    mistakes = {
        "each row turns the wrong way: T(p) has + sin θ in its upper right corner.": turn(x, -position),
        "you paired column i with column i + d/2; the pairs are the columns 2i and 2i + 1.": of_halves,
        "you paired column i with column i + d/2, and turned the wrong way.": (
            turn(x[..., order], -position)[..., order.argsort()]
        ),
        "this adds the encoding; turn the row instead.": x + sinusoids(5, 6),
        "this multiplies by the encoding, number by number; a turn mixes the two columns of a pair.": x
        * sinusoids(5, 6),
        "the first row is position start = 0 and must not change; yours is turned by T(1).": turn(x, position + 1),
        "a row turns by its position; you turned along another axis.": (
            turn(x.transpose(1, 2), torch.arange(3.0)).transpose(1, 2)
        ),
        "the exponent of the frequency is 2i/d; you used i/d.": turn(x, position, frequencies(6).sqrt()),
        "all pairs turn equally fast; pair i has the frequency 10000^(−2i/d).": turn(x, position, torch.ones(3)),
        "the turned pairs are right, but all first halves stand before all second ones: let them alternate.": (
            halves(turn(x, position))
        ),
        "this is x unchanged.": x,
    }
    diagnosis = compare(answer(x), turn(x, position), mistakes)
    if diagnosis:
        return diagnosis
    shifted = compare(
        answer(x[0, 0], start=7),
        turn(x[0, 0], position + 7),
        {"`start` has no effect: the first row is position `start`.": turn(x[0, 0], position)},
    )
    return shifted and f"with start = 7 and one matrix: {shifted}"


def frequencies(d_model: int) -> Tensor:
    """Return the angle per position of each pair, 10000^(−2i/d_model), in 64 bits."""
    return 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)


def waves(position: Tensor, frequency: Tensor) -> Tensor:
    """Return sine and cosine, alternating, of each position times each frequency."""
    angle = position[:, None] * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def halves(table: Tensor) -> Tensor:
    """Put the even columns first, then the odd ones."""
    return torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)


def turned(pair: Tensor) -> Tensor:
    """Return the angle, 0 … 2π, of hands given by sine and cosine, (n, 2)."""
    return torch.atan2(pair[:, 0], pair[:, 1]).remainder(2 * math.pi)


EXERCISES = {
    "03.1": Exercise("A row from two rows", row_from_two),
    "03.2": Exercise("Positions in a picture", positions_in_a_picture),
    "03.3": Exercise("Backwards by one matrix", mirror),
    "03.4": Exercise("Read the clock", read_clock),
    "03.5": Exercise("A head that looks back", look_back),
    "03.6": Exercise("Turn instead of add", rotate),
}
