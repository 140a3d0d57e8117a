"""The exercises of chapter 10, why attention."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from annotated_course.exercises.diagnosis import Exercise, compare

WAITING = 100  # for 512 places: a scan has some forty operations that wait for each other, a loop more than 512


def four_counts(answer: Any) -> str | None:
    """Where attention and recurrence cost the same, their ratio, layers of windows, a neighbourhood's saving."""
    found = torch.as_tensor(answer, dtype=torch.float64)
    if found.shape != (4,):
        return "give four numbers, from 0 to 3."
    right = (512, 16, 20, 128)
    mistakes: tuple[dict[float, str], ...] = (
        {
            262144: "2n²d = 2nd²: divide both sides by 2nd.",
            256: "both counts have the factor 2; it falls out.",
            1: "for n = 1 attention costs 2d and recurrence 2d².",
        },
        {
            1 / 16: "this is attention's cost over the recurrence's.",
            8: "both counts have the factor 2; it falls out.",
            32: "both counts have the factor 2; it falls out.",
            512: "divide 2nd² by 2n²d: what is left of n?",
            262144: "divide 2nd² by 2n²d: what is left of d?",
        },
        {
            10: "then an output in the middle sees both; the last one reaches back two words with each layer.",
            8: "a layer adds two words on each side, not five.",
            9: "a layer adds two words on each side, not five.",
            21: "from the last of 41 words to the first it is 40 steps, not 41.",
            40: "a window of 5, centred, reaches two words back, not one.",
            3: "this would be enough with gaps that grow.",
        },
        {
            1 / 128: "this is the neighbourhood's cost over attention's.",
            8192: "divide 2n²d by 2rnd: r is left.",
            64: "divide 2n²d by 2rnd: n is left, and r below it.",
            256: "both counts have the factor 2; it falls out.",
            16: "n over r, not over d.",
        },
    )
    for place, (value, expected) in enumerate(zip(found.tolist(), right, strict=True)):
        if abs(value - expected) > 1e-6:
            return f"number {place}: {mistakes[place].get(value, f'it is not {value:g}.')}"
    return None


def gru(
    x: Tensor,
    h: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    order: Sequence[int] = (0, 1, 2),
    reset: str = "product",
    kept: str = "z",
    biases: Sequence[float] = (1.0, 1.0),
    squash: Callable[[Tensor], Tensor] = torch.tanh,
) -> Tensor:
    """A step of a GRU, right or with a mistake."""
    seen, carried = x @ W + biases[0] * b, h @ U + biases[1] * c
    s, t = ([part.chunk(3, dim=-1)[place] for place in order] for part in (seen, carried))
    r, z = (s[0] + t[0]).sigmoid(), (s[1] + t[1]).sigmoid()
    inner = {
        "product": r * t[2],
        "none": t[2],
        "state": (r * h) @ U.chunk(3, dim=-1)[order[2]] + c.chunk(3)[order[2]],
        "without c": r * (t[2] - c.chunk(3)[order[2]]) + c.chunk(3)[order[2]],
    }[reset]
    g = squash(s[2] + inner)
    return {"z": (1 - z) * g + z * h, "1 - z": z * g + (1 - z) * h, "sum": g + z * h, "candidate": g}[kept]


def gated_unit(answer: Callable[..., Any]) -> str | None:
    """Random words and states, all sizes different."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4), (2, 5), (4, 15), (5, 15), (15,), (15,))
    given = [torch.randn(shape, generator=generator) for shape in shapes]
    mistakes = {
        "the new state takes z of the old one, and 1 − z of the candidate.": gru(*given, kept="1 - z"),
        "of the candidate only 1 − z is taken.": gru(*given, kept="sum"),
        "this is the candidate; mix it with the old state.": gru(*given, kept="candidate"),
        "the reset gate is missing in the candidate.": gru(*given, reset="none"),
        "r stands before the whole bracket, h U + c, not before h (Cho et al. write it so; nn.GRUCell does not).": (
            gru(*given, reset="state")
        ),
        "r multiplies the candidate's c, too.": gru(*given, reset="without c"),
        "the order is reset, update, candidate; you have reset and update exchanged.": gru(*given, order=(1, 0, 2)),
        "the order is reset, update, candidate.": gru(*given, order=(2, 1, 0)),
        "the bias b is missing.": gru(*given, biases=(0.0, 1.0)),
        "the bias c is missing.": gru(*given, biases=(1.0, 0.0)),
        "both biases are missing.": gru(*given, biases=(0.0, 0.0)),
        "the candidate goes through tanh, not through σ.": gru(*given, squash=torch.sigmoid),
        "the candidate's tanh is missing.": gru(*given, squash=lambda y: y),
    }
    return compare(answer(*given), gru(*given), mistakes)


def places_seen(windows: Sequence[int], dilations: Sequence[int]) -> int:
    """The right count: how many different places a stack of centred windows reaches."""
    places = {0}
    for window, dilation in zip(windows, dilations, strict=True):
        steps = range(-(window // 2), window // 2 + 1)
        places = {place + dilation * step for place in places for step in steps}
    return len(places)


def stack_of_windows(answer: Callable[..., Any]) -> str | None:
    """Stacks with gaps that are filled, and with gaps that are not."""
    stacks = [([3], [1]), ([3, 5], [1, 1]), ([3, 3, 3], [1, 3, 9]), ([3], [2]), ([3, 3], [2, 2]), ([5, 3], [1, 10])]
    stacks += [([3, 3, 3], [1, 2, 4]), ([1, 3], [1, 1]), ([], []), ([3, 3, 3], [1, 1, 10]), ([3, 3, 3], [2, 3, 4])]
    for windows, dilations in stacks:
        found, expected = answer(list(windows), list(dilations)), places_seen(windows, dilations)
        which = f"windows {list(windows)}, dilations {list(dilations)}: "
        if found is None:
            return "your function returned None: does it end in a return?"
        if isinstance(found, bool) or not isinstance(found, int):
            return f"expected an int, got {type(found).__name__}."
        if found == expected:
            continue
        reached = [(window - 1) * dilation for window, dilation in zip(windows, dilations, strict=True)]
        product = 1
        for window in windows:
            product *= window
        told = {
            sum(reached) + 1: "this counts all places between the outermost; in the gaps nobody looks.",
            sum(reached): "the place itself counts, too.",
            sum(window - 1 for window in windows) + 1: "you left the dilations out.",
            sum(windows): "windows of two layers overlap: each layer adds one place less than its window has.",
            product: "this counts the ways that lead from an input to the output; several lead to the same place.",
            0: "a stack without layers hands its input on: one place.",
        }
        return which + told.get(found, f"expected {expected}, got {found}.")
    return None


def looking_back(
    state: Tensor,
    states: Tensor,
    lengths: Tensor,
    *,
    hide: str = "before",
    more: int = 0,
    dim: int = 1,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Contexts and weights of one step, right or with a mistake."""
    scores = (states @ state[:, :, None])[:, :, 0] * scale
    real = torch.arange(states.size(1)) < lengths[:, None] + more
    if hide == "before":
        scores = scores.masked_fill(~real, -torch.inf)
    elif hide == "zero scores":
        scores = scores.masked_fill(~real, 0.0)
    weights = scores.softmax(dim=dim).nan_to_num()
    if hide == "after":
        weights = weights * real
    return (weights[:, :, None] * states).sum(dim=1), weights


def attention_with_filling(answer: Callable[..., Any]) -> str | None:
    """Three words of different lengths, with ordinary numbers in the filling, and with large ones; all scores low."""
    generator = torch.Generator().manual_seed(0)
    state, lengths = torch.randn(3, 4, generator=generator), torch.tensor([5, 2, 1])
    for name, filling in (("", 1.0), ("with large numbers in the filling: ", 1e4), ("where all scores are low: ", 1.0)):
        states = torch.randn(3, 5, 4, generator=generator)
        states[torch.arange(5) >= lengths[:, None]] *= filling
        given = (-1e4 * states[:, 0] if "low" in name else state, states, lengths)
        found = answer(*given)
        if found is None:
            return "your function returned None: does it end in a return?"
        if not isinstance(found, tuple | list) or len(found) != 2:
            return "return two tensors: contexts and weights."
        ways: dict[str, dict[str, Any]] = {
            "the filling gets weight.": {"hide": "none"},
            "a score of 0 is a score like others: the filling gets weight.": {"hide": "zero scores"},
            "the filling gets no weight, but stands in the denominator: hide it before the softmax.": {"hide": "after"},
            "the first token of the filling gets weight: place i is real if i < length.": {"more": 1},
            "the last real state gets no weight: place i is real if i < length.": {"more": -1},
            "the weights of each word sum to 1: softmax over its states, not over the batch.": {"dim": 0},
            "the dot products are not divided by anything here.": {"scale": 0.5},
        }
        right = looking_back(*given)
        for part, place in (("the weights", 1), ("the contexts", 0)):
            mistakes = {text: looking_back(*given, **way)[place] for text, way in ways.items()}
            if (told := compare(found[place], right[place], mistakes)) is not None:
                if compare(found[place], right[1 - place], {}) is None:
                    return "contexts first, then weights."
                return f"{name}{part}: {told}"
    return None


def step_by_step(a: Tensor, x: Tensor, *, late: bool = False, start: float = 0.0) -> Tensor:
    """The recurrence as a loop, right or with a mistake."""
    h, states = torch.full_like(x[0], start), []
    factors = torch.cat((torch.ones_like(a[:1]), a[:-1])) if late else a
    for factor, new in zip(factors, x, strict=True):
        h = factor * h + new
        states.append(h)
    return torch.stack(states)


def doubling(a: Tensor, x: Tensor, *, rounds: int | None = None, joined: bool = True, in_order: bool = True) -> Tensor:
    """The recurrence by joining steps, right or with a mistake."""
    distances = [2**i for i in range(max(1, len(a) - 1).bit_length())]
    for distance in distances[:rounds]:
        before = torch.cat((torch.zeros_like(x[:distance]), x[:-distance]))[: len(x)]
        factors = torch.cat((torch.ones_like(a[:distance]), a[:-distance]))[: len(a)]
        if joined and not in_order:
            a = a * factors
        x = x + a * before
        if joined and in_order:
            a = a * factors
    return x


def longest_chain(output: Tensor) -> int:
    """The longest chain of operations in autograd's graph, each of which needs the one before."""
    depth: dict[Any, int] = {None: 0}
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        before = [parent for parent, _ in waiting[-1].next_functions]
        if missing := [parent for parent in before if parent not in depth]:
            waiting += missing
        else:
            depth[waiting.pop()] = 1 + max((depth[parent] for parent in before), default=0)
    return max(depth.values())


def scan(answer: Callable[..., Any]) -> str | None:
    """Several lengths, also with zeros in a; then the operations that wait for each other."""
    generator = torch.Generator().manual_seed(0)
    for length, zeros in ((8, False), (1, False), (13, False), (13, True)):
        a, x = torch.rand(length, 3, generator=generator), torch.randn(length, 3, generator=generator)
        if zeros:
            a[4:6] = 0.0
        mistakes = {
            "a is left out: this is a running sum.": x.cumsum(dim=0),
            "only neighbours are joined: go on with 2 places, 4, 8, …": doubling(a, x, rounds=1),
            "the last round is missing: go on while the distance is below n.": doubling(a, x, rounds=-1),
            "two steps joined have the product of their a: multiply these, too.": doubling(a, x, joined=False),
            "join x first: it needs the old a.": doubling(a, x, in_order=False),
            "a_t stands before h_(t−1), in the same step; yours is one step late.": step_by_step(a, x, late=True),
            "before the first word the state is 0, not 1.": step_by_step(a, x, start=1.0),
            "this is x alone: nothing is carried on.": x,
        }
        told = compare(answer(a, x), step_by_step(a, x), mistakes if length > 1 else {})
        if told is not None:
            return f"{length} places{', with zeros in a' if zeros else ''}: {told}"
    a, x = (torch.rand(512, 3, generator=generator, requires_grad=True) for _ in range(2))
    found = answer(a, x)
    if found.grad_fn is None:
        return "autograd cannot follow your result: use torch's operations, without detach() or no_grad()."
    if (chain := longest_chain(found)) > WAITING:
        return f"right, but for 512 places {chain} operations wait for each other: that is one by one. Join steps."
    return None


EXERCISES = {
    "10.1": Exercise("Four counts on paper", four_counts),
    "10.2": Exercise("A GRU from its equations", gated_unit),
    "10.3": Exercise("What a stack sees", stack_of_windows),
    "10.4": Exercise("Look back, but not at the filling", attention_with_filling),
    "10.5": Exercise("A recurrence that need not wait", scan),
}
