"""The exercises of chapter 04, encoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_course.exercises.diagnosis import Exercise, compare, is_close

PARTS = ("W_q", "W_k", "W_v", "W_o", "W_1", "W_2", "norm_1", "norm_2")


def sublayer_by_hand(answer: Any) -> str | None:
    """LayerNorm(x + Sublayer(x)): the sum is (4, 12, 6, 6), with mean 7 and variance 9."""
    x, written = torch.tensor([1.0, 5.0, 4.0, 6.0]), torch.tensor([3.0, 7.0, 2.0, 0.0])
    gain, bias = torch.tensor([1.0, 3.0, 6.0, 9.0]), torch.tensor([0.0, -1.0, 4.0, 1.0])
    centred = x + written - 7

    def finish(row: Tensor) -> Tensor:
        deviations = row - row.mean()
        return gain * deviations / deviations.square().mean().sqrt() + bias

    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        gain * centred / 3 + bias,
        {
            "this is the sum x + Sublayer(x). Now normalise it.": x + written,
            "you divided by the variance, 9; divide by its root, 3.": gain * centred / 9 + bias,
            "you divided by d − 1 = 3 for the variance; LayerNorm divides by d = 4.": (
                gain * centred / math.sqrt(36 / 3) + bias
            ),
            "this is right before gain and bias: multiply by the gain, then add the bias.": centred / 3,
            "first times the gain, then plus the bias; you added the bias first.": gain * (centred / 3 + bias),
            "the gain is right; now add the bias.": gain * centred / 3,
            "you never divided by the standard deviation, 3.": gain * centred + bias,
            "the residual is missing: add x to what the sub-layer puts out, then normalise.": finish(written),
            "this normalises x alone: add what the sub-layer puts out first.": finish(x),
            "you normalised before the sum; the paper's layer adds first and normalises the sum.": x + finish(written),
            "you normalised x before the sum; the paper's layer adds first and normalises the sum.": finish(x)
            + written,
        },
        tolerance=0.006,
        by_hand=True,
    )


def sorting_network(answer: Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]]) -> str | None:
    """Weights of a feed-forward network that sorts a pair of numbers, the larger one first."""
    weights = answer()
    if not isinstance(weights, tuple | list) or len(weights) != 4 or not all(isinstance(w, Tensor) for w in weights):
        return "return four tensors: W_1, b_1, W_2, b_2."
    w_1, b_1, w_2, b_2 = (w.float() for w in weights)
    d_ff = b_1.numel()
    for name, tensor, shape in (
        ("W_1", w_1, (2, d_ff)),
        ("b_1", b_1, (d_ff,)),
        ("W_2", w_2, (d_ff, 2)),
        ("b_2", b_2, (2,)),
    ):
        if tensor.shape != shape:
            return f"{name} must have the shape {shape} for {d_ff} hidden units; got {tuple(tensor.shape)}."
    pairs = 6 * torch.rand(60, 2, generator=torch.Generator().manual_seed(0)) - 3
    pairs = torch.cat([pairs, 40 * pairs])
    largest, smallest = pairs.amax(1), pairs.amin(1)
    expected = torch.stack([largest, smallest], dim=1)
    output = (pairs @ w_1 + b_1).clamp(min=0) @ w_2 + b_2
    if (pairs @ w_1 + b_1 >= 0).all():
        return "no hidden unit is ever cut at 0: so far the network is linear, and no linear map can sort."
    sums = torch.stack([pairs.sum(1), (largest - smallest)], dim=1)
    diagnosis = compare(
        output,
        expected,
        {
            "it sorts, but the smaller number comes first.": expected.flip(1),
            "these are the sum and the distance of the two; the larger one is half of (sum + distance).": sums,
            "this returns the pair as it was.": pairs,
            "this always swaps the two.": pairs.flip(1),
            "both results are the larger number.": torch.stack([largest, largest], dim=1),
        },
    )
    positive = (pairs > 0).all(1)
    if diagnosis and is_close(output[positive], expected[positive], 1e-4):
        return (
            "right where both numbers are positive: a ReLU cuts a negative sum away. A number s gets through whole as "
            "max(0, s) − max(0, −s)."
        )
    far = 1e6 * pairs
    if not diagnosis and not is_close(((far @ w_1 + b_1).clamp(min=0) @ w_2 + b_2) / 1e6, expected, 1e-3):
        return (
            "right for small numbers, wrong for a million times as large ones: a bias keeps a number from being cut "
            "only so far. A number s gets through whole, however large, as max(0, s) − max(0, −s)."
        )
    return diagnosis


def rms_norm(answer: Callable[..., Tensor]) -> str | None:
    """Rows divided by their root mean square, times the gain."""
    x, gain = rows(3, 5, 8, shift=1.0), rows(8)
    eps = 0.5
    square = x.square()
    root = (square.mean(-1, keepdim=True) + eps).sqrt()
    centred = x - x.mean(-1, keepdim=True)
    mistakes = {
        "this is LayerNorm: RMSNorm does not subtract the mean.": (
            gain * centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        ),
        "you divide by the standard deviation, in which the mean is subtracted: take the mean of x² itself.": (
            gain * x / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        ),
        "the gain is missing.": x / root,
        "ε belongs inside the root.": gain * x / (square.mean(-1, keepdim=True).sqrt() + eps),
        "ε is missing.": gain * x / square.mean(-1, keepdim=True).sqrt(),
        "you divide by the length, √(sum of squares): take the mean of the squares.": (
            gain * x / (square.sum(-1, keepdim=True) + eps).sqrt()
        ),
        "the root is missing: you divided by the mean square.": gain * x / root.square(),
        "first the squares, then their mean; you squared the mean.": (
            gain * x / (x.mean(-1, keepdim=True).square() + eps).sqrt()
        ),
        "you average over all rows: each row has a root mean square of its own, dim=-1, keepdim=True.": (
            gain * x / (square.mean() + eps).sqrt()
        ),
        "you average over the positions: dim=-1 is the axis of the components.": (
            gain * x / (square.mean(-2, keepdim=True) + eps).sqrt()
        ),
    }
    return compare(answer(x, gain, eps), gain * x / root, mistakes)


def encoder_layer(answer: Callable[..., nn.Module]) -> str | None:
    """The paper's encoder layer, against one written out here, in training and in eval mode."""
    d_model, heads, d_ff = 12, 3, 20
    model = answer(d_model, heads, d_ff, 0.5)
    if not isinstance(model, nn.Module):
        return "MyEncoderLayer must be an nn.Module: class MyEncoderLayer(nn.Module)."
    missing = [name for name in PARTS if not isinstance(getattr(model, name, None), nn.Module)]
    if missing:
        return f"no part is called {', '.join(missing)}: set self.{missing[0]} in __init__."
    for name in PARTS[:4]:
        if getattr(getattr(model, name), "bias", None) is not None:
            return f"{name} must have no bias: nn.Linear(…, bias=False)."
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    x = rows(2, 5, d_model)
    mask = torch.rand(2, 1, 5, 5, generator=generator) < 0.6
    mask[..., 0] = True
    model.eval()
    with torch.no_grad():
        by_name: dict[str, dict[str, Any]] = {
            "this is pre-norm: the paper normalises the sum, LayerNorm(x + Sublayer(x)).": {"norm_first": True},
            "the residual around attention is missing: add x before norm_1.": {"residual_1": False},
            "the residual around the feed-forward network is missing: add its input before norm_2.": {
                "residual_2": False
            },
            "both residual connections are missing: add x before each norm.": {
                "residual_1": False,
                "residual_2": False,
            },
            "the mask has no effect.": {"use_mask": None},
            "the polarity of the mask is reversed: True = may attend.": {"use_mask": ~mask},
            "the scores are not divided by √d_k.": {"scale": 1.0},
            "you scaled by √d_model; each head has the width d_k = d_model / heads.": {"scale": math.sqrt(d_model)},
            "W_o is missing: it goes over the concatenated heads.": {"project": False},
            "the ReLU between W_1 and W_2 is missing.": {"relu": False},
            "this is one head: split queries, keys and values into heads.": {
                "heads": 1,
                "scale": math.sqrt(d_model / heads),
            },
            "this is one head of width d_model: split queries, keys and values into heads.": {"heads": 1},
            "norm_1 is used twice: the second sum has norm_2.": {"second_norm": "norm_1"},
            "the softmax runs over the queries; each query's weights over the keys, dim=-1, add up to 1.": {"over": -2},
            "the heads are not put side by side: transpose them back, transpose(1, 2), before you join them.": {
                "transposed": False
            },
        }
        expected = reference(model, x, mask, heads)
        mistakes = {name: reference(model, x, mask, **{"heads": heads} | change) for name, change in by_name.items()}
        for given, result in ((mask, expected), (None, reference(model, x, None, heads))):
            diagnosis = compare(model(x.clone(), given), result, mistakes)
            if diagnosis:
                return diagnosis if given is not None else f"right with a mask, but with mask=None: {diagnosis}"
        return misplaced_dropout(model, x)


def misplaced_dropout(model: nn.Module, x: Tensor) -> str | None:
    """Tell whether, in training mode, anything but a sub-layer's output is dropped; p must be 0.5."""
    model.norm_1, model.norm_2 = nn.Identity(), nn.Identity()
    for silent, name in (("W_2", "attention's output"), ("W_o", "the feed-forward network's output")):
        saved = {key: value.clone() for key, value in model.state_dict().items()}
        for parameter in getattr(model, silent).parameters():
            parameter.zero_()
        written = model.eval()(x.clone()) - x
        factors = (model.train()(x.clone()) - x) / written
        model.load_state_dict(saved)
        if is_close(factors, torch.ones_like(factors), 1e-3):
            return f"in training mode nothing is dropped from {name}."
        dropped, kept = factors.abs() < 1e-2, (factors - 2).abs() < 1e-2
        if not (dropped | kept).all():
            return (
                f"in eval mode it is right, but in training dropout changes more than {name}: with p = 0.5 each number "
                "of it must become 0 or twice as large before it is added, and x, the attention weights and the hidden "
                "units stay whole."
            )
    return None


def reference(
    model: Any,
    x: Tensor,
    mask: Tensor | None,
    heads: int,
    *,
    norm_first: bool = False,
    residual_1: bool = True,
    residual_2: bool = True,
    scale: float | None = None,
    project: bool = True,
    relu: bool = True,
    second_norm: str = "norm_2",
    over: int = -1,
    transposed: bool = True,
    **changes: Tensor | None,
) -> Tensor:
    """Compute an encoder layer with the reader's weights; each option is one way to get it wrong."""
    mask = changes.get("use_mask", mask)
    second = getattr(model, second_norm)

    def attend(y: Tensor) -> Tensor:
        q, k, v = (y @ getattr(model, name).weight.T for name in ("W_q", "W_k", "W_v"))
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (scale or math.sqrt(q.size(-1)))
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(over) @ v  # (batch, heads, length, d_v)
        mixed = (mixed.transpose(1, 2) if transposed else mixed).reshape(y.shape)
        return mixed @ model.W_o.weight.T if project else mixed

    def think(y: Tensor) -> Tensor:
        hidden = y @ model.W_1.weight.T + model.W_1.bias
        return (hidden.clamp(min=0) if relu else hidden) @ model.W_2.weight.T + model.W_2.bias

    if norm_first:
        x = x + attend(model.norm_1(x))
        return x + think(second(x))
    x = model.norm_1(residual_1 * x + attend(x))
    return second(residual_2 * x + think(x))


def gradient_of_layer_norm(answer: Callable[..., Tensor]) -> str | None:
    """The gradient of LayerNorm with respect to its input, against autograd."""
    x, gain, upstream = rows(4, 6, shift=0.5), rows(6), rows(4, 6, seed=1)
    eps = 0.3
    leaf = x.clone().requires_grad_()
    expected, without_eps = (
        torch.autograd.grad(nn.functional.layer_norm(leaf, (6,), gain, None, small), leaf, upstream)[0]
        for small in (eps, 0.0)
    )

    centred = x - x.mean(-1, keepdim=True)
    root = (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    n = centred / root
    mistakes = {"ε is missing: the root is √(σ² + ε).": without_eps}
    for g, forgotten in (
        (upstream * gain, ""),
        (upstream, " And the gain is missing: the gradient at n is γ times it."),
    ):
        mean, along = g.mean(-1, keepdim=True), n * (g * n).mean(-1, keepdim=True)
        if forgotten:
            mistakes["the gain is missing: the gradient at n is the upstream gradient times γ."] = (
                g - mean - along
            ) / root
        mistakes |= {
            f"this is the direct term alone: x also acts through μ and σ².{forgotten}": g / root,
            f"the term through the variance is missing.{forgotten}": (g - mean) / root,
            f"the term through the mean is missing.{forgotten}": (g - along) / root,
            f"divide by √(σ² + ε): the scale of the row divides its gradient.{forgotten}": g - mean - along,
            f"you divided by σ² + ε; divide by its root.{forgotten}": (g - mean - along) / root.square(),
            f"the term through the variance holds n twice, and the mean of g · n, not the sum.{forgotten}": (
                (g - mean - 6 * along) / root
            ),
            f"the sign of the term through the variance is reversed.{forgotten}": (g - mean + along) / root,
            f"the term through the variance needs the normalised row n, not x − μ.{forgotten}": (
                (g - mean - centred * (g * centred).mean(-1, keepdim=True)) / root
            ),
        }
    return compare(answer(x, gain, eps, upstream), expected, mistakes)


def rows(*shape: int, seed: int = 0, shift: float = 0.0) -> Tensor:
    """Draw random numbers of the given shape, the same ones every time."""
    return shift + torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


EXERCISES = {
    "04.1": Exercise("A sub-layer by hand", sublayer_by_hand),
    "04.2": Exercise("A network that sorts", sorting_network),
    "04.3": Exercise("RMSNorm", rms_norm),
    "04.4": Exercise("An encoder layer from scratch", encoder_layer),
    "04.5": Exercise("The gradient of LayerNorm by hand", gradient_of_layer_norm),
}
