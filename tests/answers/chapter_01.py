"""Wrong answers to the exercises of chapter 01, each with a pattern of its diagnosis; and other right answers."""

from collections.abc import Callable

import torch

from annotated.attention import attention


def softmax_attention(
    scale: Callable[..., float], axis: int = -1, finish: Callable = torch.matmul
) -> Callable[..., torch.Tensor]:
    """Attention with a choice of what is usually got wrong."""

    def answer(query, key, value):
        return finish((query @ key.transpose(-2, -1) / scale(query, value)).softmax(axis), value)

    return answer


def root(query: torch.Tensor, value: torch.Tensor) -> float:
    """√d_k."""
    return query.size(-1) ** 0.5


def exp_without_maximum(query, key, value):
    exponentials = (query @ key.transpose(-2, -1) / root(query, value)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True) @ value


def without_return(query, key, value):
    query @ key.transpose(-2, -1)


def mask_from(combine: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A decoder mask from the tensors real (batch, length) and near (length, length): the past within the window."""

    def answer(ids, pad_id, window):
        length = ids.size(1)
        return combine(ids != pad_id, torch.ones(length, length, dtype=torch.bool).tril().triu(1 - window))

    return answer


def local(real: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """The right way to join the two: keys that are real and near."""
    return real[:, None] & near


def never_empty(mask: torch.Tensor) -> torch.Tensor:
    """Let a query that sees nothing see itself."""
    return mask | (~mask.any(-1, keepdim=True) & torch.eye(mask.size(-1), dtype=torch.bool))


def query_gradient(backward: Callable[..., torch.Tensor], factor: float = 1.0) -> Callable[..., torch.Tensor]:
    """The query's gradient with a given way back through the softmax."""

    def answer(query, key, value, upstream):
        p = (query @ key.T / root(query, value)).softmax(-1)
        return factor * backward(p, upstream @ value.T) @ key / root(query, value)

    return answer


def right_way_back(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The softmax's Jacobian times g."""
    return p * (g - (p * g).sum(-1, keepdim=True))


def in_chunks(finish: Callable[[list[torch.Tensor]], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Attention for each chunk of keys alone, put together somehow."""

    def answer(query, key, value, chunk):
        parts = zip(key.split(chunk), value.split(chunk), strict=True)
        return finish([attention(query, *part) for part in parts])

    return answer


def online(
    rescale: bool, start: float = -torch.inf, follow: bool = True, root_d: float = 2.0, mixed_too: bool | None = None
):
    """The online softmax; without rescaling (of both sums or one), with a maximum that starts at 0 or never moves."""

    def answer(query, key, value, chunk):
        highest, total, mixed = torch.full((len(query), 1), start), 0, 0
        for keys, values in zip(key.split(chunk), value.split(chunk), strict=True):
            scores = query @ keys.T / root_d
            new = torch.maximum(highest, scores.amax(-1, keepdim=True)) if follow else highest
            factor = (highest - new).exp()
            shares = (scores - new).exp()
            total = (factor if rescale else 1) * total + shares.sum(-1, keepdim=True)
            mixed = (factor if (rescale if mixed_too is None else mixed_too) else 1) * mixed + shares @ values
            highest = new
        return mixed / total

    return answer


def each_from_its_own_maximum(query, key, value, chunk):
    total = mixed = 0
    for keys, values in zip(key.split(chunk), value.split(chunk), strict=True):
        scores = query @ keys.T / 2
        shares = (scores - scores.amax(-1, keepdim=True)).exp()
        total, mixed = total + shares.sum(-1, keepdim=True), mixed + shares @ values
    return mixed / total


def scores_kept(query, key, value, chunk):
    """Two passes over the chunks; all scores are kept between them."""
    scores = [query @ keys.T / 2 for keys in key.split(chunk)]
    highest = torch.stack([s.amax(-1) for s in scores]).amax(0)[:, None]
    shares = [(s - highest).exp() for s in scores]
    mixed = sum(s @ values for s, values in zip(shares, value.split(chunk), strict=True))
    return mixed / sum(s.sum(-1, keepdim=True) for s in shares)


WRONG = [
    ("01.1", [40, 90], "sum to 1"),
    ("01.1", [4.13, 7.83], "√d_k = 2"),
    ("01.1", [0.1, 0.3, 0.6], "these are the weights"),
    ("01.1", [5, 25 / 3], "plain mean"),
    ("01.1", [5, 5], "best key alone"),
    ("01.1", [9, 4], "number 0, counted from 0, is not 9"),
    ("01.1", "four", "raised (ValueError|TypeError)"),
    ("01.2", softmax_attention(lambda query, value: 1.0), "did you scale"),
    ("01.2", softmax_attention(lambda query, value: query.size(-1)), "square root"),
    ("01.2", softmax_attention(lambda query, value: value.size(-1) ** 0.5), "width of the keys"),
    ("01.2", softmax_attention(root, axis=-2), "over the queries"),
    ("01.2", softmax_attention(root, finish=lambda weights, value: weights), "these are the weights"),
    ("01.2", lambda query, key, value: query @ key.transpose(-2, -1) / 2 @ value, "never went through a softmax"),
    ("01.2", exp_without_maximum, "Subtract each row's maximum"),
    ("01.2", without_return, "return"),
    ("01.2", lambda query, key, value: query @ key, "raised RuntimeError"),
    ("01.2", lambda query, key, value: attention(query, key, value)[..., :2], r"shape \(3, 7\), got \(3, 2\)"),
    ("01.2", lambda query, key, value: 3 * attention(query, key, value), r"constant factor 3\.00"),
    ("01.2", torch.ones(3), "raised"),
    ("01.3", mask_from(lambda real, near: ~(real[:, None] & near)), "polarity"),
    ("01.3", mask_from(lambda real, near: real[:, None] & near.T), "look back"),
    ("01.3", mask_from(lambda real, near: real[:, None] & near.tril(-1)), "diagonal"),
    ("01.3", mask_from(lambda real, near: near.expand(len(real), -1, -1)), "padding is still visible"),
    ("01.3", mask_from(lambda real, near: real[:, :, None] & near), "last axis"),
    ("01.3", mask_from(lambda real, near: real[:, None] & torch.ones_like(near).triu(-2)), "future is still visible"),
    ("01.3", mask_from(lambda real, near: real[:, None] | near), "&"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, 0, window), "is pad_id"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, 5), "no effect"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, 3), "one too wide"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, 9, window), "padding is still visible"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, window + 1), "one too wide"),
    ("01.3", lambda ids, pad_id, window: mask_from(local)(ids, pad_id, window - 1), "one too narrow"),
    ("01.3", mask_from(lambda real, near: (real[:, None] & near).float()), r"expected torch\.bool"),
    ("01.3", mask_from(lambda real, near: real[:, None, None] & near), "expected shape"),
    ("01.3", mask_from(lambda real, near: torch.ones_like(real[:, None] & near)), r"\d+ of 75 entries"),
    ("01.3", mask_from(lambda real, near: real[:, None] & near & real[:, :, None]), "rows of padded queries"),
    ("01.3", mask_from(lambda real, near: never_empty(real[:, None] & near)), "all False"),
    (
        "01.3",
        lambda ids, pad_id, window: (
            (ids != pad_id)[:, None] & ((torch.arange(5) - torch.arange(5)[:, None]).abs() <= window // 2)
        ),
        "looks back only",
    ),
    ("01.4", lambda length: (99 * torch.eye(length), torch.eye(length)), "attends to itself"),
    ("01.4", lambda length: (torch.eye(length), torch.eye(length).flip(0)), r"only 0\.\d\d"),
    ("01.4", lambda length: (20 * torch.eye(length), torch.eye(length).flip(0)), r"length 9.*only 0\.98\d\d"),
    ("01.4", lambda length: (30 * torch.eye(length), torch.eye(length).flip(0)), r"length 500.*only 0\."),
    ("01.4", lambda length: (torch.ones(length, 2), torch.ones(length, 2)), "all weights are equal"),
    ("01.4", lambda length: (99 * torch.eye(5), torch.eye(5).flip(0)), r"length 2.*shape \(2, d_k\)"),
    ("01.4", lambda length: 99 * torch.eye(length), "two tensors"),
    (
        "01.4",
        lambda length: (99 * torch.eye(length), torch.eye(length).roll(1, 1)),
        r"length 5.*position \d attends to",
    ),
    ("01.5", query_gradient(right_way_back, 4.0), r"4\.0 = √d_k"),
    ("01.5", query_gradient(right_way_back, 0.25), "twice"),
    ("01.5", query_gradient(lambda p, g: p * g), "p pᵀ"),
    ("01.5", query_gradient(lambda p, g: g), "through the softmax"),
    ("01.5", query_gradient(lambda p, g: p * (g - g.mean(-1, keepdim=True))), "weighted by p"),
    ("01.5", query_gradient(right_way_back, -1.0), "sign"),
    ("01.5", lambda query, key, value, upstream: key, r"shape \(3, 16\), got \(5, 16\)"),
    ("01.6", in_chunks(lambda outputs: torch.stack(outputs).mean(0)), "mean of the chunks"),
    ("01.6", in_chunks(sum), "sum of the chunks"),
    ("01.6", in_chunks(lambda outputs: outputs[-1]), "last chunk alone"),
    ("01.6", online(rescale=False), "not rescaled"),
    ("01.6", online(rescale=True, mixed_too=False), "you rescaled the sum of the exponentials, but not"),
    ("01.6", online(rescale=False, mixed_too=True), "you rescaled the mixed values, but not"),
    ("01.6", each_from_its_own_maximum, "from its own maximum"),
    ("01.6", online(rescale=True, root_d=1.0), "did you scale"),
    ("01.6", online(rescale=True, start=0.0, follow=False), "starts at −∞"),
    ("01.6", online(rescale=True, start=0.0), "around −1,000 the result is not finite"),
    ("01.6", scores_kept, "alive at once"),
    ("01.6", lambda query, key, value, chunk: attention(query, key[:28], value[:28]), "last keys are missing"),
    ("01.6", lambda query, key, value, chunk: attention(query, key, value), "a tensor of 720 numbers"),
]

RIGHT = [
    ("01.1", torch.tensor([4.0, 9.0])),
    ("01.2", attention),
    ("01.3", mask_from(local)),
    ("01.6", online(rescale=True)),
]
