"""BERT: its parts beside PyTorch's and by their formulas, its sizes, and what is hidden."""

import pytest
import torch
from parity import maker, torch_parameters
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close

from annotated.config import BOS, EOS, PAD
from annotated.models.bert import NO_TARGET, Bert, BertConfig, hide_for_prediction

SIZES = dict(vocab_size=19, d_model=6, d_ff=11, heads=2, layers=3, dropout=0.0, max_length=7, segments=3)
make_model = maker(Bert, BertConfig, **SIZES)
IDS = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 11, PAD, PAD]])
SEGMENTS = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 0, 0]])


def test_it_is_the_encoder_behind_one_more_layer_norm() -> None:
    model = make_model()
    x = model.embedding.weight[IDS] + model.positions.table[:5] + model.segments.weight[SEGMENTS]
    x = F.layer_norm(x, (6,), model.norm.gain, model.norm.bias, 1e-12)
    layer = nn.TransformerEncoderLayer(6, 2, 11, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    weights = {n: w for n, w in torch_parameters(model.encoder).items() if not n.startswith("norm")}
    expected = functional_call(theirs, weights, (x,), {"src_key_padding_mask": IDS == PAD})
    real = IDS != PAD
    assert_close(model.states(IDS, SEGMENTS)[real], expected[real])


def test_the_pooler_and_the_head_by_their_formulas() -> None:
    model, states = make_model(), torch.randn(2, 5, 6)
    assert_close(model.pooled(states), (states[:, 0] @ model.pooler.weight.T + model.pooler.bias).tanh())
    head = model.head
    hidden = F.gelu(states @ head.linear.weight.T + head.linear.bias)
    hidden = F.layer_norm(hidden, (6,), head.norm.gain, head.norm.bias, 1e-12)
    assert_close(model.logits(states), hidden @ model.embedding.weight.T + head.bias)


@pytest.mark.parametrize(("size", "body"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes_have_the_published_number_of_parameters(size: str, body: int) -> None:
    with torch.device("meta"):
        model = Bert(BertConfig.published(size))
    d = model.config.d_model  # of the head, which the number leaves out
    assert sum(p.numel() for p in model.parameters()) == body + d * d + d + 2 * d + 30522


def test_the_chosen_are_hidden_in_three_ways() -> None:
    ids = torch.full((400, 100), 7)
    ids[:, 88:] = torch.tensor([BOS, EOS] + [PAD] * 10)
    read, targets = hide_for_prediction(ids, 50, (20, 40), generator=torch.Generator().manual_seed(0))
    chosen = targets != NO_TARGET
    assert (targets[chosen] == 7).all() and not chosen[:, 88:].any()
    assert torch.equal(read[~chosen], ids[~chosen])
    assert chosen[:, :88].double().mean().item() == pytest.approx(0.15, abs=0.01)
    kinds = read[chosen]
    random = (kinds >= 20) & (kinds < 40)
    assert (kinds == 50).double().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (kinds == 7).double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert random.double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert kinds[random].unique().tolist() == list(range(20, 40))
