"""The exercises of chapter 04, encoder."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated_course.exercises.exercise import Exercise, Run, by_hand, calls, draw

EXERCISES: dict[str, Exercise] = {}


def finish(row: Tensor) -> Tensor:
    """Normalise a row, then apply the gain and the bias of the exercise by hand."""
    return GAIN * nn.functional.layer_norm(row, (4,)) + BIAS


X, WRITTEN = torch.tensor([1.0, 5.0, 4.0, 6.0]), torch.tensor([3.0, 7.0, 2.0, 0.0])  # their sum: mean 7, variance 9
GAIN, BIAS = torch.tensor([1.0, 3.0, 6.0, 9.0]), torch.tensor([0.0, -1.0, 4.0, 1.0])
CENTRED = X + WRITTEN - 7
EXERCISES["04.1"] = by_hand(
    "A sub-layer by hand",
    [-1.0, 4.0, 2.0, -2.0],
    {
        "this is the sum x + Sublayer(x). Now normalise it.": X + WRITTEN,
        "you divided by the variance, 9; divide by its root, 3.": GAIN * CENTRED / 9 + BIAS,
        "you divided by d − 1 = 3 for the variance; LayerNorm divides by d = 4.": GAIN * CENTRED / 12**0.5 + BIAS,
        "this is right before gain and bias: multiply by the gain, then add the bias.": CENTRED / 3,
        "the residual is missing: add x to what the sub-layer puts out, then normalise.": finish(WRITTEN),
    },
)


def network(last: list[list[float]]) -> Any:
    """A feed-forward network whose hidden units are s, −s, t, −t of the sum and the difference."""
    first = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]])
    return lambda: (first, torch.zeros(4), torch.tensor(last), torch.zeros(2))


def running(pairs: Tensor) -> Run:
    """Make a case of the network's output, in 64 bits."""

    def run(answer: Any) -> Tensor:
        w_1, b_1, w_2, b_2 = (one.double() for one in answer())
        return (pairs.double() @ w_1 + b_1).clamp(min=0) @ w_2 + b_2

    return run


PAIRS = torch.cat([2 * draw(60, 2), 60 * draw(60, 2)])
WHOLE = "A number s gets through whole, however large, as max(0, s) − max(0, −s): "
EXERCISES["04.2"] = Exercise(
    "A network that sorts",
    right=network([[0.5, 0.5], [-0.5, -0.5], [0.5, -0.5], [0.5, -0.5]]),
    cases={
        "where both numbers are positive: ": running(PAIRS[(PAIRS > 0).all(1)]),
        f"right where both are positive: a ReLU cuts a negative sum away. {WHOLE}": running(PAIRS),
        f"right for small numbers: a bias keeps a number from being cut only so far. {WHOLE}": running(1e6 * PAIRS),
    },
    mistakes={
        "it sorts, but the smaller number comes first.": network([[0.5, 0.5], [-0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]]),
    },
    caught={
        "(2, 2), expected a list of 4 (each a tensor of torch.float32)": lambda: torch.eye(2),
        "a ReLU cuts a negative sum away.": network([[0.5, 0.5], [0.0, 0.0], [0.5, -0.5], [0.5, -0.5]]),
    },
)


def mean(x: Tensor) -> Tensor:
    """Average each row."""
    return x.mean(-1, keepdim=True)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """Divide each row by its root mean square."""
    square = x.square()
    return gain * x / (mean(square) + eps).sqrt()


EXERCISES["04.3"] = Exercise(
    "RMSNorm",
    right=rms_norm,
    cases={"": calls(1.0 + draw(3, 5, 8), draw(8), 0.5)},
    mistakes={
        "you divide by the standard deviation: take the mean of x² itself.": "x.square() → (x - mean(x)).square()",
        "ε belongs inside the root.": "(mean(square) + eps).sqrt() → (mean(square).sqrt() + eps)",
        "the root is missing: you divided by the mean square.": ".sqrt() →",
        "you average over the positions: dim=-1 is the axis of the components.": "mean(square) → square.mean(-2, True)",
    },
)


class Layer(nn.Module):
    """The paper's encoder layer."""

    def __init__(self, d_model: int, heads: int, d_ff: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Let the positions look at each other."""
        q, k, v = (W(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(-1) @ v
        return self.drop(self.W_o(mixed.transpose(1, 2).reshape(x.shape)))

    def think(self, x: Tensor) -> Tensor:
        """Apply the feed-forward network."""
        return self.drop(self.W_2(self.W_1(x).relu()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x (batch, length, d_model) to the same shape."""
        x = self.norm_1(x + self.attend(x, mask))
        return self.norm_2(x + self.think(x))


PARTS = ("W_q", "W_k", "W_v", "W_o", "W_1", "W_2", "norm_1", "norm_2")
SEQUENCES = draw(2, 5, 12)
MASK = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.6
MASK[..., 0] = True


def built(answer: Any) -> Any:
    """Build a layer of three heads and give its parts, which go by their names, the same weights every time."""
    model, generator = answer(12, 3, 20, 0.5), torch.Generator().manual_seed(0)
    for name in PARTS:
        for parameter in getattr(model, name).parameters():
            parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return model.requires_grad_(False).eval()


def anatomy(answer: Any) -> dict[str, int]:
    """Count the parameters of a layer's parts."""
    return {name: sum(one.numel() for one in getattr(built(answer), name).parameters()) for name in PARTS}


def dropping(silent: str) -> Run:
    """Make a case of the factors by which dropout changes what a sub-layer adds, the other one and the norms silent."""

    def run(answer: Any) -> list[float]:
        model = built(answer)
        model.norm_1 = model.norm_2 = nn.Identity()
        for parameter in getattr(model, silent).parameters():
            parameter.zero_()
        added = model(SEQUENCES.clone()) - SEQUENCES
        torch.manual_seed(0)
        return ((model.train()(SEQUENCES.clone()) - SEQUENCES) / added).abs().round(decimals=1).unique().tolist()

    return run


EXERCISES["04.4"] = Exercise(
    "An encoder layer from scratch",
    right=Layer,
    cases={
        "its parts, and how many parameters each has (the projections have no bias): ": anatomy,
        "": lambda answer: built(answer)(SEQUENCES.clone(), MASK),
        "right with a mask, but with mask=None: ": lambda answer: built(answer)(SEQUENCES.clone(), None),
        "in training, dropout of 0.5 multiplies only what attention adds, by 0 or 2: ": dropping("W_2"),
        "in training, dropout of 0.5 multiplies only what the network adds, by 0 or 2: ": dropping("W_o"),
    },
    mistakes={
        "this is pre-norm: the paper normalises the sum, LayerNorm(x + Sublayer(x)).": (
            "x = self.norm_1(x + self.attend(x, mask)) → x = x + self.attend(self.norm_1(x), mask); "
            "self.norm_2(x + self.think(x)) → x + self.think(self.norm_2(x))"
        ),
        "the residual around attention is missing: add x before norm_1.": "norm_1(x + → norm_1(",
        "the mask has no effect.": "mask is not None → False",
        "you scaled by √d_model; each head has the width d_k = d_model / heads.": "q.size(-1) → x.size(-1)",
        "the ReLU between W_1 and W_2 is missing.": ".relu() →",
    },
    forbids="annotated: build it from nn.Linear, nn.LayerNorm and nn.Dropout.",
    caught={
        "what attention adds, by 0 or 2: ": "norm_1(x + → norm_1(self.drop(x) +",
        "what the network adds, by 0 or 2": "self.W_1(x).relu() → self.drop(self.W_1(x).relu())",
    },
)


def layer_norm_gradient(x: Tensor, gain: Tensor, eps: float, upstream: Tensor) -> Tensor:
    """LayerNorm's gradient: the direct term, and those through μ and σ²."""
    centred = x - mean(x)
    root = (mean(centred**2) + eps).sqrt()
    g, n = upstream * gain, centred / root
    return (g - mean(g) - n * mean(g * n)) / root


EXERCISES["04.5"] = Exercise(
    "The gradient of LayerNorm by hand",
    right=layer_norm_gradient,
    cases={"": calls(0.5 + draw(4, 6), draw(6), 0.3, draw(4, 6, seed=1))},
    mistakes={
        "the gain is missing: the gradient at n is the upstream gradient times γ.": "* gain →",
        "this is the direct term alone: x also acts through μ and σ².": "(g - mean(g) - n * mean(g * n)) → g",
        "the term through the variance is missing.": "- n * mean(g * n) →",
        "the term through the mean is missing.": "- mean(g) →",
        "the term through the variance needs the normalised row n, not x − μ.": "centred / root → centred",
    },
    forbids="backward grad: write down the formula that you find on paper.",
)
