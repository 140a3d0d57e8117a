"""Wrong answers to the exercises of chapter 04, each with a pattern of its diagnosis; and other right answers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def network(w_1: list, w_2: list, b_1: list | None = None) -> Callable[[], tuple[Tensor, ...]]:
    """A feed-forward network with these weights, and biases of 0 unless given."""
    first, second = torch.tensor(w_1), torch.tensor(w_2)
    bias = torch.zeros(first.size(1)) if b_1 is None else torch.tensor(b_1)
    return lambda: (first, bias, second, torch.zeros(2))


def carried_by_a_bias():
    """A sorting network in which a bias of 1,000 carries the sum over the ReLU's 0."""
    w_1, w_2 = torch.tensor([[1.0, 1, -1], [1.0, -1, 1]]), torch.tensor([[0.5, 0.5], [0.5, -0.5], [0.5, -0.5]])
    return w_1, torch.tensor([1000.0, 0, 0]), w_2, torch.tensor([-500.0, -500])


SUM_AND_DISTANCE = [[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]]


def rms(root: Callable[[Tensor, float], Tensor], centre: bool = False, use_gain: bool = True):
    """RMSNorm with a given divisor."""

    def answer(x, gain, eps):
        divisor = root(x, eps)
        x = x - x.mean(-1, keepdim=True) if centre else x
        return (gain if use_gain else 1) * x / divisor

    return answer


def right_root(x, eps):
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def deviation(x, eps):
    return (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt()


class Layer(nn.Module):
    """An encoder layer; a subclass gets one thing wrong."""

    bias, flip, scaled, relu, heads_used, over = False, False, True, True, None, -1
    drop_weights = drop_hidden = drop_input = drop_sum = False
    drop_output = True

    def __init__(self, d_model, heads, d_ff, dropout):
        super().__init__()
        self.heads = self.heads_used or heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=self.bias))
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def drop(self, x, here):
        return self.dropout(x) if here else x

    def attend(self, x, mask):
        q, k, v = (W(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W in (self.W_q, self.W_k, self.W_v))
        scores = q @ k.transpose(-2, -1) / (q.size(-1) ** 0.5 if self.scaled else 1)
        if mask is not None:
            scores = scores.masked_fill(mask if self.flip else ~mask, torch.finfo(scores.dtype).min)
        weights = self.drop(scores.softmax(self.over), self.drop_weights)
        return self.drop(self.W_o(self.join(weights @ v)), self.drop_output)

    def join(self, mixed):
        return mixed.transpose(1, 2).flatten(2)

    def think(self, x):
        hidden = self.W_1(x).relu() if self.relu else self.W_1(x)
        return self.drop(self.W_2(self.drop(hidden, self.drop_hidden)), self.drop_output)

    def forward(self, x, mask=None):
        x = self.norm_1(self.drop(self.drop(x, self.drop_input) + self.attend(x, mask), self.drop_sum))
        return self.norm_2(x + self.think(x))


def layer(**changes: object) -> type[Layer]:
    """A layer with one thing changed."""
    return type("Changed", (Layer,), {"forward": Layer.forward} | changes)


def pre_norm(self, x, mask=None):
    x = x + self.attend(self.norm_1(x), mask)
    return x + self.think(self.norm_2(x))


def without_first_residual(self, x, mask=None):
    x = self.norm_1(self.attend(x, mask))
    return self.norm_2(x + self.think(x))


def without_second_residual(self, x, mask=None):
    return self.norm_2(self.think(self.norm_1(x + self.attend(x, mask))))


def without_residuals(self, x, mask=None):
    return self.norm_2(self.think(self.norm_1(self.attend(x, mask))))


def one_norm(self, x, mask=None):
    x = self.norm_1(x + self.attend(x, mask))
    return self.norm_1(x + self.think(x))


def heads_as_they_lie(self, mixed):
    return mixed.reshape(mixed.size(0), mixed.size(2), -1)


def mask_lost(self, x, mask=None):
    return Layer.forward(self, x)


def mask_required(self, x, mask=None):
    causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
    return Layer.forward(self, x, causal if mask is None else mask)


class NoModule:
    """A class with the right methods that is no module."""

    def __init__(self, d_model, heads, d_ff, dropout):
        self.width = d_model

    def forward(self, x, mask=None):
        return x


class OtherNames(nn.Module):
    """A module whose parts have other names."""

    def __init__(self, d_model, heads, d_ff, dropout):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, heads)


def backward(combine: Callable[..., Tensor], use_gain: bool = True, power: int = 1, use_eps: bool = True):
    """LayerNorm's gradient with a given way to combine the three terms."""

    def answer(x, gain, eps, upstream):
        centred = x - x.mean(-1, keepdim=True)
        root = (centred.square().mean(-1, keepdim=True) + eps * use_eps).sqrt()
        g = upstream * gain if use_gain else upstream
        n = centred / root
        return combine(g, g.mean(-1, keepdim=True), n * (g * n).mean(-1, keepdim=True)) / root**power

    return answer


def all_terms(g, mean, along):
    return g - mean - along


WRONG = [
    ("04.1", [4, 12, 6, 6], "Now normalise"),
    ("04.1", [-1, 1.6667, -0.3333, -0.3333], "before gain and bias"),
    ("04.1", [-1, 5, -2, -3], "add the bias"),
    ("04.1", [-1, 2, 22, 6], "bias first"),
    ("04.1", [-0.3333, 0.6667, 3.3333, 0], "root, 3"),
    ("04.1", [-0.866, 3.3301, 2.2679, -1.5981], "d − 1 = 3"),
    ("04.1", [-3, 14, -2, -8], "never divided"),
    (
        "04.1",
        F.layer_norm(torch.tensor([3.0, 7, 2, 0]), (4,)) * torch.tensor([1, 3, 6, 9]) + torch.tensor([0, -1, 4, 1]),
        "residual",
    ),
    (
        "04.1",
        F.layer_norm(torch.tensor([1.0, 5, 4, 6]), (4,)) * torch.tensor([1, 3, 6, 9])
        + torch.tensor([0, -1, 4, 1])
        + torch.tensor([3, 7, 2, 0]),
        "normalised x before the sum",
    ),
    ("04.1", [0, 0, 0, 0], r"number \d, counted from 0, is not 0\."),
    ("04.2", network(SUM_AND_DISTANCE, [[1.0, 0], [-1.0, 0], [0, 1.0], [0, 1.0]]), "sum and the distance"),
    (
        "04.2",
        network(SUM_AND_DISTANCE, [[0.5, 0.5], [-0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]]),
        "smaller number comes first",
    ),
    (
        "04.2",
        network([[1.0, 1, -1], [1.0, -1, 1]], [[0.5, 0.5], [0.5, -0.5], [0.5, -0.5]]),
        "both numbers are positive",
    ),
    ("04.2", network(SUM_AND_DISTANCE, [[1.0, 1], [-1, -1], [1, -1], [1, -1]]), r"constant factor 2\.00"),
    ("04.2", network([[1.0, -1, 0, 0], [0, 0, 1, -1]], [[1.0, 0], [-1, 0], [0, 1], [0, -1]]), "as it was"),
    ("04.2", network([[1.0, 0], [0, 1]], [[1.0, 0], [0, 1]], [1e4, 1e4]), "no linear map"),
    ("04.2", carried_by_a_bias, "a million times as large"),
    ("04.2", lambda: (torch.ones(4, 2), torch.zeros(4), torch.ones(2, 4), torch.zeros(2)), "W_1 must have the shape"),
    ("04.2", lambda: torch.eye(2), "four tensors"),
    ("04.3", rms(deviation, centre=True), "does not subtract the mean"),
    ("04.3", rms(deviation), "standard deviation"),
    ("04.3", rms(right_root, use_gain=False), "gain is missing"),
    ("04.3", rms(lambda x, eps: x.square().mean(-1, keepdim=True).sqrt() + eps), "inside the root"),
    ("04.3", rms(lambda x, eps: x.square().mean(-1, keepdim=True).sqrt()), "ε is missing"),
    ("04.3", rms(lambda x, eps: (x.square().sum(-1, keepdim=True) + eps).sqrt()), "mean of the squares"),
    ("04.3", rms(lambda x, eps: right_root(x, eps) ** 2), "root is missing"),
    ("04.3", rms(lambda x, eps: (x.mean(-1, keepdim=True).square() + eps).sqrt()), "squared the mean"),
    ("04.3", rms(lambda x, eps: (x.square().mean() + eps).sqrt()), "over all rows"),
    ("04.3", rms(lambda x, eps: (x.square().mean(-2, keepdim=True) + eps).sqrt()), "over the positions"),
    ("04.4", layer(forward=pre_norm), "pre-norm"),
    ("04.4", layer(forward=without_first_residual), "residual around attention"),
    ("04.4", layer(forward=without_second_residual), "residual around the feed-forward"),
    ("04.4", layer(forward=without_residuals), "both residual"),
    ("04.4", layer(forward=one_norm), "norm_1 is used twice"),
    ("04.4", layer(forward=mask_lost), "mask has no effect"),
    ("04.4", layer(forward=mask_required), "right with a mask"),
    ("04.4", layer(flip=True), "polarity"),
    ("04.4", layer(scaled=False), "not divided by √d_k"),
    ("04.4", layer(relu=False), "ReLU"),
    ("04.4", layer(heads_used=1), "one head"),
    ("04.4", layer(over=-2), "runs over the queries"),
    ("04.4", layer(join=heads_as_they_lie), "side by side"),
    ("04.4", layer(bias=True), "W_q must have no bias"),
    ("04.4", layer(drop_output=False), "nothing is dropped"),
    ("04.4", layer(drop_weights=True), "attention weights"),
    ("04.4", layer(drop_hidden=True), "hidden units"),
    ("04.4", layer(drop_input=True), "more than attention's output"),
    ("04.4", layer(drop_sum=True, drop_output=False), "more than attention's output"),
    ("04.4", NoModule, "must be an nn.Module"),
    ("04.4", OtherNames, "no part is called W_q"),
    ("04.5", backward(lambda g, mean, along: g), "direct term alone"),
    ("04.5", backward(lambda g, mean, along: g - mean), "through the variance is missing"),
    ("04.5", backward(lambda g, mean, along: g - along), "through the mean is missing"),
    ("04.5", backward(lambda g, mean, along: g - mean + along), "sign"),
    ("04.5", backward(lambda g, mean, along: g - mean - 6 * along), "not the sum"),
    ("04.5", backward(all_terms, use_gain=False), r": the gain is missing"),
    ("04.5", backward(all_terms, use_eps=False), "ε is missing"),
    ("04.5", backward(all_terms, power=0), "scale of the row"),
    ("04.5", backward(all_terms, power=2), "divide by its root"),
]

RIGHT = [
    ("04.1", torch.tensor([-1.0, 4.0, 2.0, -2.0])),
    ("04.2", network([[1.0, 0, 0, 1, -1], [-1.0, 1, -1, 0, 0]], [[1.0, -1], [1, 0], [-1, 0], [0, 1], [0, -1]])),
    ("04.3", rms(right_root)),
    ("04.4", Layer),
    ("04.5", backward(all_terms)),
]
