"""The exercises of chapter 10, why attention."""

from collections.abc import Callable

import torch
from torch import Tensor

from annotated_course.exercises.exercise import AnyOf, Exercise, called, calls, on_paper

EXERCISES: dict[str, Exercise] = {}
RANDOM = torch.Generator().manual_seed(0)

# Where attention costs as much as an LSTM, recurrence beside attention, layers of windows, what a neighbourhood saves.
EXERCISES["10.1"] = on_paper(
    "Four counts on paper",
    [1280.0, 256.0, 20.0, 128.0],
    {
        "the projections take 3nd², too: of the 8 only 5 are left.": (0, 2048.0),
        "attention compares and mixes, so n has a factor 2.": (0, 2560.0),
        "both counts have the factor 2; it falls out.": AnyOf((1, 128.0), (3, 256.0)),
        "count from the last output, which reaches back two words with each layer.": (2, 10.0),
        "a window of 5, centred, reaches two words back, not one.": (2, 40.0),
    },
    tolerance=1e-6,
)


def gru(x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """A step of a GRU."""
    W_r, W_z, W_g = W.chunk(3, dim=1)
    U_r, U_z, U_g = U.chunk(3, dim=1)
    b_r, b_z, b_g = b.chunk(3)
    c_r, c_z, c_g = c.chunk(3)
    r = (x @ W_r + b_r + h @ U_r + c_r).sigmoid()
    z = (x @ W_z + b_z + h @ U_z + c_z).sigmoid()
    g = (x @ W_g + b_g + r * (h @ U_g + c_g)).tanh()
    return (1 - z) * g + z * h


SHAPES = ((2, 4), (2, 5), (4, 15), (5, 15), (15,), (15,))  # of x, h, W, U, b, c: all sizes different
EXERCISES["10.2"] = Exercise(
    "A GRU from its equations",
    right=gru,
    cases={"": calls(*(torch.randn(shape, generator=RANDOM) for shape in SHAPES))},
    mistakes={
        "the new state takes z of the old one, and 1 − z of the candidate.": "(1 - z) * g + z → z * g + (1 - z)",
        "the reset gate is missing in the candidate.": "r * (h → (h",
        "r stands before the whole bracket, h U + c, not before h as in Cho et al.": "r * (h → ((r * h)",
        "the order is reset, update, candidate: exchange the first two.": "_r, → _t,; _z, → _r,; _t, → _z,",
    },
    forbids="gru gru_cell: write the three equations.",
)


def places_seen(windows: list[int], dilations: list[int]) -> int:
    """Count the different places that a stack of centred windows reaches."""
    places = {0}
    for window, dilation in zip(windows, dilations, strict=True):
        places = {place + dilation * (step - window // 2) for place in places for step in range(window)}
    return len(places)


STACKS = [([3], [1]), ([3, 5], [1, 1]), ([3, 3, 3], [1, 3, 9]), ([3], [2]), ([3, 3], [2, 2]), ([5, 3], [1, 10])]
STACKS += [([3, 3, 3], [1, 2, 4]), ([1, 3], [1, 1]), ([], []), ([3, 3, 3], [1, 1, 10]), ([3, 3, 3], [2, 3, 4])]
EXERCISES["10.3"] = Exercise(
    "What a stack sees",
    right=places_seen,
    cases=called("windows {}, dilations {}: ", *STACKS),
    mistakes={
        "this counts the gaps, too, where nobody looks.": "len(places) → max(places) - min(places) + 1",
        "you left the dilations out.": "dilation * →",
        "a stack without layers hands its input on: one place.": "len(places) → len(places) if windows else 0",
    },
)


def looking_back(state: Tensor, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """A step of attention over real states."""
    scores = (states @ state[:, :, None])[:, :, 0]
    real = torch.arange(states.size(1)) < lengths[:, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(1)
    return (weights[:, :, None] * states).sum(dim=1), weights


LENGTHS = torch.tensor([5, 3, 2])
STATE, STATES = torch.randn(3, 4, generator=RANDOM), torch.randn(3, 5, 4, generator=RANDOM)
REAL = (torch.arange(5) < LENGTHS[:, None])[:, :, None]
EXERCISES["10.4"] = Exercise(
    "Look back, but not at the padding",
    right=looking_back,
    cases={
        "": calls(STATE, STATES, LENGTHS),
        "with large numbers in the padding: ": calls(STATE, STATES.where(REAL, 1e4 * STATES), LENGTHS),
        "where all scores are low: ": calls(-1e4 * STATE.abs(), STATES.abs(), LENGTHS),
    },
    mistakes={
        "return two tensors: contexts and weights.": "return (weights[:, :, None] * states).sum(dim=1), → return",
        "the padding gets weight.": ".masked_fill(~real, -torch.inf) →",
        "a score of 0 is a score like others, and the padding gets weight.": "-torch.inf → 0",
        "the padding gets no weight, but stands in the denominator: hide it before the softmax.": (
            "scores.masked_fill(~real, -torch.inf).softmax(1) → scores.softmax(1) * real"
        ),
    },
)


def step_by_step(a: Tensor, x: Tensor) -> Tensor:
    """The recurrence as a loop."""
    states = [0 * x[0]]
    for factor, new in zip(a, x, strict=True):
        states.append(factor * states[-1] + new)
    return torch.stack(states[1:])


def doubling(a: Tensor, x: Tensor) -> Tensor:
    """The recurrence by joining steps."""
    for distance in [2**i for i in range((len(a) - 1).bit_length())]:
        x = torch.cat((x[:distance], x[distance:] + a[distance:] * x[:-distance]))
        a = torch.cat((a[:distance], a[distance:] * a[:-distance]))
    return x


def examine_waiting(answer: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """Count the operations that wait for each other: a scan has some forty here, a loop more than 512."""
    states = answer(*torch.rand(2, 512, 3, requires_grad=True))
    if states.grad_fn is None:
        return "autograd cannot follow your result: use torch's operations, without detach() or no_grad()."
    chain, layer = 0, {states.grad_fn}  # layer by layer down autograd's graph, until only the longest chain is left
    while layer:
        chain, layer = chain + 1, {parent for node in layer for parent, _ in node.next_functions if parent}
    if chain > 100:
        return f"right, but for 512 places {chain} operations wait for each other: that is one by one. Join steps."
    return None


A, X = torch.rand(13, 3, generator=RANDOM), torch.randn(13, 3, generator=RANDOM)
EXERCISES["10.5"] = Exercise(
    "A recurrence that need not wait",
    right=doubling,
    cases={f"{length} places: ": calls(A[:length], X[:length]) for length in (8, 1, 13)}
    | {"13 places, with zeros in a: ": calls(A.index_fill(0, torch.tensor([4, 5]), 0.0), X)},
    mistakes={
        "a is left out: this is a running sum.": lambda a, x: x.cumsum(dim=0),
        "the last round is missing: go on while the distance is below n.": "())] → ())][:-1]",
        "two steps joined have the product of their a: multiply these, too.": "a = torch → _ = torch",
        "join x first: it needs the old a.": "+ a[distance:] * x → + a[distance:] * a[:-distance] * x",
    },
    examine=examine_waiting,
    caught={"autograd cannot follow": lambda a, x: doubling(a, x).detach(), "one by one": step_by_step},
)
