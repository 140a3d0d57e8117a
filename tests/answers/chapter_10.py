"""Wrong answers to the exercises of chapter 10, each with a pattern of its diagnosis; and other right answers."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from annotated_course.exercises.chapter_10 import doubling, gru, looking_back, places_seen, step_by_step

COUNTS = [512, 16, 20, 128]


def counts(place: int, value: float) -> list[float]:
    """The four counts, one of them wrong."""
    return [value if i == place else one for i, one in enumerate(COUNTS)]


def unit(**change) -> Callable[..., Tensor]:
    """A step of a GRU with a mistake in it."""
    return functools.partial(gru, **change)


def unit_of_torch(x, h, W, U, b, c):
    cell = nn.GRUCell(x.size(1), h.size(1))
    with torch.no_grad():
        for parameter, value in zip(cell.parameters(), (W.T, U.T, b, c), strict=True):
            parameter.copy_(value)
    return cell(x, h).detach()


def unit_by_slices(x, h, W, U, b, c):
    d = h.size(1)
    seen, carried = x @ W + b, h @ U + c
    r, z = (seen + carried)[:, : 2 * d].sigmoid().split(d, dim=1)
    g = (seen[:, 2 * d :] + r * carried[:, 2 * d :]).tanh()
    return torch.lerp(g, h, z)


def seen_by_network(windows, dilations):
    """Another right way: ask for gradients, with weights that are all 1."""
    x = torch.zeros(1, 1, 99, requires_grad=True)
    y = x
    for window, dilation in zip(windows, dilations, strict=True):
        y = nn.functional.conv1d(y, torch.ones(1, 1, window), padding="same", dilation=dilation)
    (gradient,) = torch.autograd.grad(y[0, 0, 49], x)
    return int((gradient != 0).sum())


def spanned(windows, dilations):
    return sum((window - 1) * dilation for window, dilation in zip(windows, dilations, strict=True)) + 1


def multiplied(windows, dilations):
    ways = 1
    for window in windows:
        ways *= window
    return ways


def spanned_without_gaps(windows, dilations):
    """Right where the gaps share a divisor or each place is reached once; not in general."""
    gaps = math.gcd(*dilations) or 1
    return min(multiplied(windows, dilations), (spanned(windows, dilations) - 1) // gaps + 1)


def look(**change) -> Callable:
    """A step of attention with a mistake in it."""
    return functools.partial(looking_back, **change)


def look_by_loops(state, states, lengths):
    contexts, rows = torch.zeros_like(state), states.new_zeros(states.shape[:2])
    for i, length in enumerate(lengths.tolist()):
        rows[i, :length] = (states[i, :length] @ state[i]).softmax(dim=0)
        contexts[i] = rows[i, :length] @ states[i, :length]
    return contexts, rows


def look_with_a_large_number(state, states, lengths):
    scores = torch.einsum("bd,bnd->bn", state, states)
    scores[torch.arange(states.size(1)) >= lengths[:, None]] = -1e30
    weights = scores.softmax(-1)
    return torch.einsum("bn,bnd->bd", weights, states), weights


def look_with_a_small_number(state, states, lengths):
    """A penalty that large numbers in the filling overcome."""
    scores = (states @ state[:, :, None])[:, :, 0] - 100.0 * (torch.arange(states.size(1)) >= lengths[:, None])
    weights = scores.softmax(-1)
    return (weights[:, :, None] * states).sum(1), weights


def look_with_a_finite_score(state, states, lengths):
    """A score that real ones can be below."""
    scores = (states @ state[:, :, None])[:, :, 0].masked_fill(torch.arange(states.size(1)) >= lengths[:, None], -1e4)
    weights = scores.softmax(-1)
    return (weights[:, :, None] * states).sum(1), weights


def by_pairs(a, x):
    """A loop over pairs of places: half as many steps wait, still far too many."""
    states, h = [], torch.zeros_like(x[0])
    for i in range(0, len(a), 2):
        both = a[i : i + 2].prod(dim=0) * h + (x[i] if i + 1 == len(a) else a[i + 1] * x[i] + x[i + 1])
        states += [a[i] * h + x[i], both][: len(a) - i]
        h = both
    return torch.stack(states)


def by_halves(a, x):
    """Another right way: odd places after even ones, on half the length."""
    if len(a) == 1:
        return x
    pairs = len(a) // 2
    joined = by_halves(
        a[1 : 2 * pairs : 2] * a[0 : 2 * pairs : 2], x[1 : 2 * pairs : 2] + a[1 : 2 * pairs : 2] * x[0 : 2 * pairs : 2]
    )
    before = torch.cat((torch.zeros_like(x[:1]), joined))[: (len(a) + 1) // 2]
    even = x[0::2] + a[0::2] * before
    both = torch.zeros_like(x)
    both[0::2], both[1::2] = even, joined
    return both


def by_matrix(a, x):
    """Another right way: all products of a at once, and one sum."""
    n = len(a)
    later = torch.arange(n)[:, None] > torch.arange(n)
    factors = torch.where(later[:, :, None], a[:, None], 1.0).cumprod(dim=0)
    causal = torch.ones(n, n).tril()[:, :, None]
    return (factors * causal * x[None]).sum(dim=1)


def by_division(a, x):
    products = a.cumprod(dim=0)
    return products * (x / products).cumsum(dim=0)


WRONG = [
    ("10.1", COUNTS[:3], "four numbers, from 0 to 3"),
    ("10.1", counts(0, 512**2), "number 0: .*divide both sides"),
    ("10.1", counts(0, 256), "number 0: .*factor 2"),
    ("10.1", counts(0, 1), "number 0: for n = 1"),
    ("10.1", counts(0, 7), "number 0: it is not 7.$"),
    ("10.1", counts(1, 1 / 16), "number 1: this is attention's cost over"),
    ("10.1", counts(1, 8), "number 1: .*factor 2"),
    ("10.1", counts(1, 512), "number 1: .*what is left of n"),
    ("10.1", counts(2, 10), "number 2: then an output in the middle"),
    ("10.1", counts(2, 8), "number 2: a layer adds two words on each side"),
    ("10.1", counts(2, 21), "number 2: .*40 steps, not 41"),
    ("10.1", counts(2, 40), "number 2: .*two words back"),
    ("10.1", counts(2, 3), "number 2: .*gaps that grow"),
    ("10.1", counts(3, 1 / 128), "number 3: this is the neighbourhood's"),
    ("10.1", counts(3, 64), "number 3: .*n is left"),
    ("10.1", counts(3, 8192), "number 3: .*r is left"),
    ("10.1", counts(3, 16), "number 3: n over r"),
    ("10.2", unit(kept="1 - z"), "takes z of the old one"),
    ("10.2", unit(kept="sum"), "only 1 − z is taken"),
    ("10.2", unit(kept="candidate"), "this is the candidate"),
    ("10.2", unit(reset="none"), "reset gate is missing"),
    ("10.2", unit(reset="state"), "before the whole bracket"),
    ("10.2", unit(reset="without c"), "the candidate's c, too"),
    ("10.2", unit(order=(1, 0, 2)), "reset and update exchanged"),
    ("10.2", unit(order=(2, 1, 0)), "the order is reset, update, candidate.$"),
    ("10.2", unit(biases=(0.0, 1.0)), "the bias b is missing"),
    ("10.2", unit(biases=(1.0, 0.0)), "the bias c is missing"),
    ("10.2", unit(biases=(0.0, 0.0)), "both biases"),
    ("10.2", unit(squash=torch.sigmoid), "not through σ"),
    ("10.2", unit(squash=lambda y: y), "tanh is missing"),
    ("10.2", lambda *given: gru(*given).tolist(), "expected a tensor, got list"),
    ("10.2", lambda x, h, W, U, b, c: gru(x, h, W.T, U.T, b, c), "raised RuntimeError"),
    ("10.2", lambda *given: print(end=""), "does it end in a return"),
    ("10.3", spanned, r"windows \[3\], dilations \[2\]: .*in the gaps nobody looks"),
    ("10.3", lambda w, g: spanned(w, g) - 1, r"windows \[3\], dilations \[1\]: the place itself counts"),
    ("10.3", lambda w, g: spanned(w, [1] * len(w)), r"windows \[3, 3, 3\], .*left the dilations out"),
    ("10.3", lambda w, g: sum(w), "windows of two layers overlap"),
    ("10.3", multiplied, "the ways that lead"),
    ("10.3", spanned_without_gaps, r"windows \[3, 3, 3\], dilations \[1, 1, 10\]: .*in the gaps nobody looks"),
    ("10.3", lambda w, g: places_seen(w, g) if w else 0, "a stack without layers"),
    ("10.3", lambda w, g: places_seen(w, g) + (len(w) == 3), "expected 27, got 28"),
    ("10.3", lambda w, g: float(places_seen(w, g)), "expected an int, got float"),
    ("10.3", lambda w, g: print(end=""), "does it end in a return"),
    ("10.4", look(hide="none"), "the weights: the filling gets weight"),
    ("10.4", look(hide="zero scores"), "a score of 0 is a score"),
    ("10.4", look(hide="after"), "stands in the denominator"),
    ("10.4", look(more=1), "first token of the filling"),
    ("10.4", look(more=-1), "the last real state"),
    ("10.4", look(dim=0), "not over the batch"),
    ("10.4", look(scale=0.5), "not divided by anything"),
    ("10.4", lambda *given: looking_back(*given)[::-1], "contexts first, then weights"),
    ("10.4", lambda *given: looking_back(*given)[0], "return two tensors"),
    ("10.4", look_with_a_small_number, "with large numbers in the filling: the weights"),
    (
        "10.4",
        look_with_a_finite_score,
        "where all scores are low: the weights",
    ),
    ("10.4", lambda *given: (looking_back(*given)[0] * 2, looking_back(*given)[1]), "the contexts: off by a constant"),
    ("10.4", lambda *given: print(end=""), "does it end in a return"),
    ("10.5", lambda a, x: x.cumsum(dim=0), "a is left out"),
    ("10.5", functools.partial(doubling, rounds=1), "only neighbours are joined"),
    ("10.5", functools.partial(doubling, rounds=-1), "the last round is missing"),
    ("10.5", functools.partial(doubling, joined=False), "multiply these, too"),
    ("10.5", functools.partial(doubling, in_order=False), "needs the old a"),
    ("10.5", functools.partial(step_by_step, late=True), "one step late"),
    ("10.5", functools.partial(step_by_step, start=1.0), "the state is 0, not 1"),
    ("10.5", lambda a, x: x, "x alone"),
    ("10.5", step_by_step, "right, but for 512 places .* one by one"),
    ("10.5", by_pairs, "right, but for 512 places .* one by one"),
    ("10.5", by_division, "with zeros in a: .*NaN"),
    ("10.5", lambda a, x: doubling(a, x).detach(), "autograd cannot follow"),
    ("10.5", lambda a, x: print(end=""), "does it end in a return"),
]

RIGHT = [
    ("10.1", COUNTS),
    ("10.1", torch.tensor(COUNTS)),
    ("10.2", gru),
    ("10.2", unit_of_torch),
    ("10.2", unit_by_slices),
    ("10.3", places_seen),
    ("10.3", seen_by_network),
    ("10.4", looking_back),
    ("10.4", look_by_loops),
    ("10.4", look_with_a_large_number),
    ("10.5", doubling),
    ("10.5", by_halves),
    ("10.5", by_matrix),
]
