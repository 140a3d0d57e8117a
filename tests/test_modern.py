"""Today's parts: each by hand, each equal to what it is a case of, and all in the paper's Transformer."""

import math

import pytest
import torch
from parity import randomise
from torch.testing import assert_close

from annotated.config import TransformerConfig
from annotated.models import modern
from annotated.models.modern import GatedFeedForward, GroupedQueryAttention, MixtureOfExperts, RMSNorm
from annotated.models.relative_positions import rotate
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer

D_MODEL, HEADS, GROUPS, D_K, D_V = 14, 6, 2, 4, 5
SIZES = dict(d_k=D_K, d_v=D_V)


def inputs(length: int = 7) -> torch.Tensor:
    return torch.randn(2, length, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def grouped(groups: int = GROUPS, **switches) -> GroupedQueryAttention:
    return randomise(GroupedQueryAttention(D_MODEL, HEADS, groups, **switches, **SIZES)).double()


def test_rms_norm_by_hand() -> None:
    """The mean square of (1, 7) is 25; LayerNorm would give (−1, 1)."""
    norm = RMSNorm(2, eps=0.0)
    assert_close(norm(torch.tensor([1.0, 7.0])), torch.tensor([0.2, 1.4]))
    norm.eps = 11.0  # √(25 + 11) = 6
    with torch.no_grad():
        norm.gain.copy_(torch.tensor([3.0, 12.0]))
    assert_close(norm(torch.tensor([[1.0, 7.0]])), torch.tensor([[0.5, 14.0]]))


def test_gated_by_hand() -> None:
    """silu(2 ln 3) = 2 ln 3 · 9/10, gated with 5 and doubled."""
    layer = GatedFeedForward(1, 1)
    with torch.no_grad():
        layer.W_gate.weight.fill_(2 * math.log(3))
        layer.W_1.weight.fill_(5.0)
        layer.W_2.weight.fill_(2.0)
        assert_close(layer(torch.ones(1, 1)), torch.tensor([[18 * math.log(3)]]))


@pytest.mark.parametrize(("groups", "bias"), [(1, False), (2, True), (HEADS, False)])
def test_groups_are_heads_with_repeated_weights(groups: int, bias: bool) -> None:
    ours, plain = grouped(groups, bias=bias), MultiHeadAttention(D_MODEL, HEADS, bias=bias, **SIZES).double()
    weights = ours.state_dict()
    for name, width in (("W_k.weight", D_K), ("W_v.weight", D_V), ("W_k.bias", D_K), ("W_v.bias", D_V)):
        if name in weights:
            heads = weights[name].unflatten(0, (groups, width)).repeat_interleave(HEADS // groups, dim=0)
            weights[name] = heads.flatten(0, 1)
    plain.load_state_dict(weights)
    x, memory = inputs(), inputs(5).flip(2)
    assert_close(ours(x, memory, memory), plain(x, memory, memory))
    assert [x.shape for x in ours.project(memory, memory)] == [(2, groups, 5, D_K), (2, groups, 5, D_V)]


def test_the_norm_comes_before_the_turn() -> None:
    """Where the gains of a pair differ, the order shows."""
    ours, x = grouped(HEADS, qk_norm=True, rotary=True, base=7.0), inputs()
    keys, values = ours.project(x, x)
    queries = ours.query_norm(ours.split(ours.W_q(x)))
    mixed = (rotate(queries, base=7.0) @ rotate(keys, base=7.0).mT / math.sqrt(D_K)).softmax(dim=-1) @ values
    assert_close(ours(x, x, x), ours.W_o(mixed.transpose(1, 2).flatten(2)))


def test_a_mixture_by_hand() -> None:
    """Scores ln 6, 0, ln 2, −1: ¾ of expert 0 and ¼ of expert 2; expert e makes (e + 1) x of a positive x."""
    mixture = MixtureOfExperts(1, 1, experts=4, chosen=2)
    with torch.no_grad():
        mixture.router.weight.copy_(torch.tensor([[math.log(6)], [0.0], [math.log(2)], [-1.0]]))
        for number, expert in enumerate(mixture.experts):
            expert.W_gate.weight.fill_(50.0)  # silu(50) = 50
            expert.W_1.weight.fill_((number + 1) / 50)
            expert.W_2.weight.fill_(1.0)
    assert_close(mixture(torch.ones(3, 1)), torch.full((3, 1), 3 / 4 * 1 + 1 / 4 * 3))
    with pytest.raises(ValueError, match="of 4 experts a position cannot choose 5: choose 1 … 4"):
        MixtureOfExperts(1, 1, experts=4, chosen=5)


def test_each_position_uses_its_own_experts_and_gives_them_gradients() -> None:
    mixture = randomise(MixtureOfExperts(D_MODEL, 9, experts=5, chosen=2)).double()
    x = inputs()
    for row in x.flatten(0, 1):
        scores = mixture.router(row)
        best = scores.argsort(descending=True)[:2]
        shares = scores[best].softmax(dim=0)
        expected = sum(share * mixture.experts[e](row) for share, e in zip(shares, best.tolist(), strict=True))
        assert_close(mixture(row[None])[0], expected)
    assert_close(mixture(x)[1, 3], mixture(x[1, 3][None])[0])
    assert torch.autograd.gradcheck(mixture, inputs(3).requires_grad_())
    mixture(x[:1, :1]).sum().backward()
    used = [bool(expert.W_2.weight.grad.any()) for expert in mixture.experts]
    assert sum(used) == 2 and mixture.router.weight.grad.any()
    rows: list[int] = []  # that the experts compute
    for expert in mixture.experts:
        expert.register_forward_hook(lambda _, given, output: rows.append(len(given[0].flatten(0, -2))))
    mixture(x)
    assert sum(rows) == 2 * len(x.flatten(0, 1))


def test_imbalance_by_hand() -> None:
    """Half of the choices on each of experts 0 and 1, p = 0.4, 0.4, 0.1, 0.1: 4 · (0.2 + 0.2)."""
    scores = torch.tensor([[0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]]).log().requires_grad_()
    assert_close(modern.imbalance(scores[:1], 2), torch.tensor(1.6))
    assert_close(modern.imbalance(scores[None], 2), torch.tensor(1.0))
    (gradient,) = torch.autograd.grad(modern.imbalance(scores[:1], 2), scores)
    assert (gradient[0, :2] > 0).all() and (gradient[0, 2:] < 0).all()  # a step down takes from the busy experts


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_part_is_replaced(norm_first: bool) -> None:
    model = Transformer(TransformerConfig(13, D_MODEL, 9, HEADS, 2, **SIZES, norm_first=norm_first))
    model = modern.modernise(model, groups=2, qk_norm=True, rotary=True, gated=True, rms_norm=True)
    kinds = [type(part).__name__ for part in model.modules()]
    old = {"MultiHeadAttention", "FeedForward", "LayerNorm", "SinusoidalEncoding"}
    assert not old & {*kinds}
    found = {kind: kinds.count(kind) for kind in ("GroupedQueryAttention", "GatedFeedForward", "NoPositions")}
    assert found == {"GroupedQueryAttention": 2 + 2 * 2, "GatedFeedForward": 4, "NoPositions": 1}
    assert kinds.count("RMSNorm") == 2 * 2 + 3 * 2 + 2 * norm_first + 2 * 6  # residuals, last norms, queries and keys
    turned = {name for name, part in model.named_modules() if getattr(part, "rotary", False)}
    assert turned == {f"{side}.layers.{i}.self_attention" for side in ("encoder", "decoder") for i in range(2)}
    assert isinstance(model.positions, modern.NoPositions)
    assert model.src_embedding.weight is model.output.weight
    assert {part.W_1.out_features for part in model.modules() if isinstance(part, GatedFeedForward)} == {2 * 9 // 3}
