"""Wrong answers to the exercises of chapter 03, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch

from annotated.positional_encoding import sinusoids

A = [0.4362, 0.8999, 0.5396, 0.8419]  # the rows of a = 57 and b = 86
B = [-0.9235, -0.3837, 0.7578, 0.6524]


def between(sine: int = -1, cosine: int = 1) -> list[float]:
    """The row of b − a, with the signs in the sines and the cosines of a difference."""
    pairs = [(A[i], A[i + 1], B[i], B[i + 1]) for i in (0, 2)]
    return [one for s, c, t, d in pairs for one in (t * c + sine * d * s, d * c + cosine * t * s)]


def grid(
    code: Callable[[int, int], torch.Tensor] = lambda length, d: sinusoids(length, d // 2),
    refuse: bool = True,
) -> Callable[..., torch.Tensor]:
    """Rows and columns, with a choice of what is usually got wrong in the code of either."""

    def answer(height, width, d_model):
        if refuse and d_model % 4:
            raise ValueError("not divisible by 4")
        shape = (height, width, -1)
        return torch.cat([code(height, d_model)[:, None].expand(shape), code(width, d_model).expand(shape)], -1)

    return answer


def without_return(height, width, d_model):
    grid()(height, width, d_model)


def back(k: float, d: int, d_k: int, factor: float = 99.0, columns: slice | None = None) -> tuple[torch.Tensor, ...]:
    """Matrices that look k places back, with the hands in some columns, the fast ones by default."""
    columns = columns or slice(0, d_k)
    return factor * alternating(-k, d).T[:, columns], torch.eye(d)[:, columns]


def reflected(length: int, d_model: int) -> torch.Tensor:
    """The matrix that maps p to length − 1 − p: turn to −p, then move on."""
    return alternating(length - 1, d_model) @ torch.diag(torch.tensor([-1.0, 1.0] * (d_model // 2)))


def slow_reflected(length: int, d_model: int) -> torch.Tensor:
    """The same, with i/d_model in the exponent."""
    angles = [(length - 1) / 10000 ** (i / d_model) for i in range(d_model // 2)]
    blocks = [[[-math.cos(one), math.sin(one)], [math.sin(one), math.cos(one)]] for one in angles]
    return torch.block_diag(*map(torch.tensor, blocks))


def reflected_halves(length: int, d_model: int) -> torch.Tensor:
    """The same for rows that hold all sines, then all cosines."""
    theta = torch.tensor([(length - 1) / 10000 ** (2 * i / d_model) for i in range(d_model // 2)])
    c, s = theta.cos().diag(), theta.sin().diag()
    return torch.cat([torch.cat([-c, s], 1), torch.cat([s, c], 1)])


def alternating(k: float, d_model: int) -> torch.Tensor:
    """T(k) for alternating sines and cosines."""
    blocks = []
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


def hand(encodings: torch.Tensor, i: int, wrap: bool = True) -> torch.Tensor:
    """The positions by one hand alone, in its first turn."""
    angle = torch.atan2(encodings[:, 2 * i], encodings[:, 2 * i + 1])
    return (angle.remainder(2 * math.pi) if wrap else angle) * 10000 ** (i / 32)


def refined(last: int, wrap: bool = True, nearest: Callable = torch.round) -> Callable[..., torch.Tensor]:
    """The clock read from the slowest hand down to hand `last`."""

    def answer(encodings):
        position = hand(encodings, 31, wrap)
        for i in range(30, last - 1, -1):
            wavelength = 2 * math.pi * 10000 ** (i / 32)
            fine = hand(encodings, i)
            position = fine + wavelength * nearest((position - fine) / wavelength)
        return position.round().long()

    return answer


def search(encodings):
    return torch.cdist(encodings, sinusoids(30_001, 64)).argmin(dim=1)


def rotation(
    direction: float = 1.0, first: int = 0, use_start: bool = True, step: float = 2.0, pair: str = "alternate"
) -> Callable[..., torch.Tensor]:
    """Turn by position, with a choice of what is usually got wrong."""

    def answer(x, start=0):
        length, d = x.shape[-2:]
        position = torch.arange(length) + first + (start if use_start else 0)
        angle = direction * position[:, None] * 10000 ** (-step * torch.arange(d // 2) / d)
        one, other = (x[..., 0::2], x[..., 1::2]) if pair != "halves" else x.chunk(2, -1)
        both = angle.cos() * one + angle.sin() * other, angle.cos() * other - angle.sin() * one
        return torch.stack(both, -1).flatten(-2) if pair == "alternate" else torch.cat(both, -1)

    return answer


WRONG = [
    ("03.1", between(1, -1), r"position a \+ b"),
    ("03.1", [one * sign for one, sign in zip(between(), (-1, 1, -1, 1), strict=True)], "position a − b"),
    ("03.1", [b - a for a, b in zip(A, B, strict=True)], "you subtracted the numbers"),
    ("03.1", [b + a for a, b in zip(A, B, strict=True)], "you added the numbers"),
    ("03.1", [b * a for a, b in zip(A, B, strict=True)], "one by one"),
    ("03.1", [between()[i] for i in (1, 0, 3, 2)], "cosine first"),
    ("03.1", [between()[i] for i in (0, 2, 1, 3)], "alternate"),
    ("03.1", between(-1, -1), "with a plus"),
    ("03.1", between(1, 1), "with a minus"),
    ("03.1", between()[:2], "expected shape"),
    ("03.1", [*between()[:3], 0.5], "number 3, counted from 0, is not 0.5"),
    ("03.2", lambda h, w, d: grid()(h, w, d).roll(d // 2, -1), "row comes first"),
    ("03.2", grid(lambda length, d: sinusoids(length, d)[:, : d // 2]), "cut off"),
    (
        "03.2",
        lambda h, w, d: torch.where(torch.arange(d) < d // 2, sinusoids(h, d)[:, None], sinusoids(w, d).roll(0)),
        "cut one encoding",
    ),
    ("03.2", lambda h, w, d: sinusoids(h, d)[:, None] + sinusoids(w, d), "you added"),
    ("03.2", lambda h, w, d: sinusoids(h * w, d).view(h, w, d), "one after the other"),
    ("03.2", lambda h, w, d: grid()(w, h, d).transpose(0, 1).roll(d // 2, -1).transpose(0, 1), "second the column"),
    ("03.2", lambda h, w, d: grid()(h, w, d).flatten(0, 1), "one long list"),
    ("03.2", grid(lambda length, d: sinusoids(length + 1, d // 2)[1:]), "start at 1"),
    ("03.2", lambda h, w, d: grid()(h, w, d).double(), "expected torch.float32"),
    ("03.2", lambda h, w, d: grid()(3, 5, d), r"height 4, width 4, d_model 12: expected shape"),
    ("03.2", grid(lambda length, d: sinusoids(length, d // 4 * 2), refuse=False), "d_model = 10 must end"),
    ("03.2", grid(refuse=False), "d_model = 9 must end"),
    ("03.2", without_return, "return"),
    ("03.3", lambda length, d: reflected(length + 1, d), "becomes length"),
    ("03.3", lambda length, d: alternating(length - 1, d), r"T\(length − 1\)"),
    ("03.3", lambda length, d: alternating(1 - length, d), r"T\(1 − length\)"),
    ("03.3", lambda length, d: reflected(1, d), "maps p to −p"),
    ("03.3", lambda length, d: reflected(2 - length, d), "two sines have the wrong sign"),
    ("03.3", lambda length, d: torch.eye(d).flip(0), "columns of one encoding"),
    ("03.3", lambda length, d: torch.eye(d), "length 10, d_model 6: at index"),
    ("03.3", lambda length, d: torch.eye(length).flip(0), "expected shape"),
    ("03.3", lambda length, d: -reflected(1, d) @ alternating(length - 1, d), "two cosines are exchanged"),
    ("03.3", reflected_halves, "all sines, then all cosines"),
    ("03.3", slow_reflected, "you used i/d_model"),
    ("03.3", lambda length, d: -reflected(length, d), r"constant factor -1\.00"),
    ("03.3", lambda length, d: reflected(10, d), r"length 2, d_model 4"),
    ("03.3", lambda length, d: reflected(length, d).double(), "float32"),
    ("03.4", lambda encodings: hand(encodings, 31), "slowest hand alone"),
    ("03.4", lambda encodings: hand(encodings, 0), "fastest hand alone"),
    ("03.4", refined(0, wrap=False), "past half a turn"),
    ("03.4", lambda encodings: hand(encodings, 31, wrap=False), "slowest hand alone"),
    ("03.4", refined(8), "last word"),
    ("03.4", refined(0, nearest=torch.floor), "full turns"),
    ("03.4", lambda encodings: refined(0)(encodings) + 1, "off by 1; they are counted from 0"),
    ("03.4", search, "read the hands instead"),
    ("03.4", lambda encodings: hand(encodings, 31)[:, None], "expected shape"),
    ("03.4", lambda encodings: hand(encodings, 31).tolist(), "got list"),
    ("03.5", lambda k, d, d_k: back(k, d, d_k, factor=1.0), r"weight there is 0\.\d\d"),
    ("03.5", lambda k, d, d_k: back(-k, d, d_k), "k places ahead"),
    ("03.5", lambda k, d, d_k: (99 * alternating(-k, d)[:, :d_k], torch.eye(d)[:, :d_k]), "k places ahead"),
    ("03.5", lambda k, d, d_k: back(0, d, d_k), "attends to itself"),
    ("03.5", lambda k, d, d_k: back(1, d, d_k), r"k = 3.*position 3 attends to 2, not to 0"),
    ("03.5", lambda k, d, d_k: back(k, d, d_k, columns=slice(d - d_k, d)), "slow hands only"),
    ("03.5", lambda k, d, d_k: back(k, d, d_k)[0], "two tensors"),
    ("03.5", lambda k, d, d_k: (99 * alternating(-k, d).T, torch.eye(d)), r"shape \(64, 32\)"),
    ("03.6", rotation(direction=-1.0), "wrong way"),
    ("03.6", rotation(pair="halves"), r"column i \+ d/2; the pairs"),
    ("03.6", rotation(pair="halves", direction=-1.0), r"column i \+ d/2, and turned"),
    ("03.6", rotation(pair="side by side"), "let them alternate"),
    ("03.6", rotation(first=1), "turned by T"),
    ("03.6", rotation(step=1.0), "you used i/d"),
    ("03.6", rotation(step=0.0), "equally fast"),
    ("03.6", rotation(use_start=False), "with start = 7.*no effect"),
    ("03.6", lambda x, start=0: x + sinusoids(x.size(-2), x.size(-1)), "adds the encoding"),
    ("03.6", lambda x, start=0: x * sinusoids(x.size(-2), x.size(-1)), "number by number"),
    ("03.6", lambda x, start=0: rotation()(x.transpose(1, 2), start).transpose(1, 2), "another axis"),
    ("03.6", lambda x, start=0: x, "unchanged"),
]

RIGHT = [
    ("03.1", between()),
    ("03.1", torch.tensor([-0.664, -0.748, 0.286, 0.958])),
    ("03.2", grid()),
    ("03.3", reflected),
    (
        "03.3",
        lambda length, d: alternating(0.5 * (length - 1), d) @ reflected(1, d) @ alternating(-0.5 * (length - 1), d),
    ),
    ("03.4", refined(0)),
    ("03.5", lambda k, d, d_k: (60 * torch.eye(d)[:, :d_k], alternating(k, d).T[:, :d_k])),
    ("03.5", lambda k, d, d_k: tuple(one.double() for one in back(k, d, d_k))),
    ("03.6", rotation()),
]
