"""What tells a changed model from what its configuration makes: it sees every way to change one, and nothing else."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm
from torch.utils.flop_counter import FlopCounterMode

from annotated.config import TransformerConfig
from annotated.encoder import LayerNorm
from annotated.models.alike import differs, outline
from annotated.models.bert import Bert, BertConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RotaryAttention
from annotated.positional_encoding import LearnedEncoding
from annotated.transformer import Transformer
from tests.models import make_model

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # what compiles imports that
SMALL = dict(vocab_size=13, d_model=8, heads=2, d_ff=11, layers=2, max_length=17)
KINDS = [
    (Transformer, TransformerConfig(**SMALL)),
    (Transformer, TransformerConfig(**SMALL, norm_first=True, positions="learned", tie_embeddings=False)),
    (LanguageModel, LanguageModelConfig(**SMALL)),
    (Classifier, ClassifierConfig(**SMALL)),
    (Bert, BertConfig(**SMALL)),
    (Gpt, GptConfig(**SMALL)),
    (RecurrentTranslator, RecurrentConfig(13, d_model=6, layers=2)),
]


class Wide(nn.Linear):
    """A layer of another type that is set and shaped like the one it replaces."""


def twice(module, args, result):
    return 2 * result


def first_layer(model):
    return model.encoder.layers[0]


def swap_attention(model):
    first_layer(model).self_attention = RotaryAttention(model.config.d_model, model.config.heads)


def swap_type(model):
    old = first_layer(model).feed_forward.W_1
    first_layer(model).feed_forward.W_1 = Wide(old.in_features, old.out_features)


def set_method(model):
    first_layer(model).self_attention.attend = lambda *args: args[0]


def set_forward(model):
    model.output.forward = functools.partial(nn.Linear.forward, model.output)


def set_weight(value):
    return lambda model: setattr(first_layer(model).feed_forward.W_1, "weight", value)


def plain_tensor(model):
    layer = first_layer(model).feed_forward.W_1
    weight = layer.weight.detach()
    del layer.weight
    layer._parameters["weight"] = weight


class Special(torch.Tensor):
    """A tensor that may compute anything, as a quantised one does."""


def reorder(model):
    first = model.encoder.layers[0]
    del model.encoder.layers._modules["0"]
    model.encoder.layers._modules["0"] = first


CHANGES = {
    "rotary": (swap_attention, "encoder.layers.0.self_attention is of type RotaryAttention, not MultiHeadAttention"),
    "subclass": (swap_type, "encoder.layers.0.feed_forward.W_1 is of type Wide, not Linear"),
    "class": (lambda m: setattr(m, "__class__", type("Mine", (Transformer,), {})), "the model is of type Mine, not"),
    "compiled": (torch.compile, None),
    "forward": (set_forward, "output has its own forward"),
    "method": (set_method, "encoder.layers.0.self_attention has its own attend"),
    "forward hook": (lambda m: m.output.register_forward_hook(twice), "output has a forward hook"),
    "pre-hook": (lambda m: m.encoder.register_forward_pre_hook(lambda *x: None), "encoder has a forward pre-hook"),
    "backward hook": (lambda m: m.register_full_backward_hook(lambda *x: None), "the model has a backward hook"),
    "backward pre-hook": (
        lambda m: m.output.register_full_backward_pre_hook(lambda *x: None),
        "output has a backward pre-hook",
    ),
    "parametrized": (
        lambda m: parametrizations.weight_norm(m.output),
        "output is of type ParametrizedLinear, not Linear",
    ),
    "pruned": (lambda m: prune.random_unstructured(m.output, "weight", 0.5), "output has a forward pre-hook"),
    "spectral norm": (lambda m: spectral_norm(m.output), "output has a forward pre-hook"),
    "eps": (lambda m: setattr(m.decoder.layers[1].residuals[2].norm, "eps", 1e-6), "decoder.layers.1.residuals.2.norm"),
    "dropout": (lambda m: setattr(m.dropout, "p", 0.5), "dropout has p=0.5, not 0.0"),
    "activation": (
        lambda m: setattr(first_layer(m).feed_forward, "activation", torch.tanh),
        "encoder.layers.0.feed_forward has activation=",
    ),
    "activation as a part": (
        lambda m: setattr(first_layer(m).feed_forward, "activation", nn.Tanh()),
        "encoder.layers.0.feed_forward has activation=None",
    ),
    "norm_first": (lambda m: setattr(first_layer(m).residuals[0], "norm_first", True), "has norm_first=True, not Fal"),
    "heads": (lambda m: setattr(first_layer(m).self_attention, "heads", 1), "self_attention has heads=1, not 2"),
    "longest norm": (lambda m: setattr(m.src_embedding, "max_norm", 1.0), "src_embedding has max_norm=1.0, not None"),
    "config": (lambda m: setattr(m, "config", TransformerConfig(**SMALL)), "the model has config="),
    "table": (lambda m: m.positions.table.zero_(), "positions.table holds other numbers"),
    "longer table": (
        lambda m: setattr(m.positions, "table", torch.zeros(19, 8)),
        "positions.table has shape (19, 8), not (17, 8)",
    ),
    "learned": (lambda m: setattr(m, "positions", LearnedEncoding(8, 17)), "positions is of type LearnedEncoding, not"),
    "new part": (lambda m: m.encoder.add_module("adapter", nn.Linear(8, 8)), "encoder has layers, norm, adapter where"),
    "new layer": (lambda m: m.encoder.layers.append(first_layer(m)), "encoder.layers has 0, 1, 2 where 0, 1 should be"),
    "another order": (reorder, "encoder.layers has its parts in another order: 1, 0"),
    "hidden part": (lambda m: vars(m).update(output=torch.tanh), "the model has its own output"),
    "fewer layers": (lambda m: m.encoder.layers.pop(1), "encoder.layers has 0 where 0, 1 should be"),
    "no part": (lambda m: setattr(m.encoder, "norm", None), "encoder.norm is of type NoneType, not Identity"),
    "last norm": (
        lambda m: setattr(m.encoder, "norm", LayerNorm(8)),
        "encoder.norm is of type LayerNorm, not Identity",
    ),
    "bias": (
        lambda m: setattr(m.output, "bias", nn.Parameter(torch.zeros(13))),
        "output.bias is of type Parameter, not N",
    ),
    "new weight": (lambda m: m.register_parameter("scale", nn.Parameter(torch.ones(1))), "the model has scale where"),
    "new buffer": (lambda m: m.register_buffer("scale", torch.ones(1)), "the model has scale where nothing should be"),
    "wide": (set_weight(nn.Parameter(torch.ones(12, 8))), "W_1.weight has shape (12, 8), not (11, 8)"),
    "tensor": (plain_tensor, "W_1.weight is of type Tensor, not Parameter"),
    "subclass of tensor": (
        set_weight(nn.Parameter(torch.ones(11, 8).as_subclass(Special))),
        "W_1.weight is of type Special, not Parameter",
    ),
    "sparse": (set_weight(nn.Parameter(torch.ones(11, 8).to_sparse())), "W_1.weight holds torch.float32, torch.sparse"),
    "whole numbers": (
        set_weight(nn.Parameter(torch.ones(11, 8, dtype=torch.int8), requires_grad=False)),
        "W_1.weight holds torch.int8",
    ),
    "untied": (
        lambda m: setattr(m.output, "weight", nn.Parameter(m.output.weight.detach().clone())),
        "output.weight is not tied to src_embedding.weight",
    ),
    "in one place": (
        lambda m: setattr(
            m.encoder.layers[1].feed_forward.W_1, "weight", nn.Parameter(first_layer(m).feed_forward.W_1.weight.data)
        ),
        "encoder.layers.1.feed_forward.W_1.weight is tied to encoder.layers.0.feed_forward.W_1.weight",
    ),
    "tied": (
        lambda m: setattr(m.decoder.layers[1].feed_forward, "W_1", m.decoder.layers[0].feed_forward.W_1),
        "decoder.layers.1.feed_forward.W_1.weight is tied to decoder.layers.0.feed_forward.W_1.weight",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_named(name):
    change, message = CHANGES[name]
    model, reference = make_model(), make_model()
    changed = change(model)
    if name == "compiled":
        model, message = changed, "the model is of type OptimizedModule, not Transformer"
    assert (differs(model, reference) or "").find(message) >= 0, differs(model, reference)


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_a_hook_of_all_modules_is_a_change(kind):
    handle = getattr(nn.modules.module, f"register_module_{kind}")(lambda *args: None)
    try:
        assert differs(make_model(), make_model()).startswith("every module has a ")
    finally:
        handle.remove()
    assert differs(make_model(), make_model()) is None


def test_to_count_operations_is_no_change():
    with FlopCounterMode(display=False):
        assert differs(make_model(), make_model()) is None


ALIKE = {
    "mode": lambda m: m.eval(),
    "frozen": lambda m: m.requires_grad_(False),
    "dtype": lambda m: m.bfloat16(),
    "double": lambda m: m.double(),
    "copy": copy.deepcopy,
    "a note": lambda m: setattr(m, "note", "mine"),
    "compiled in place": lambda m: m.compile(),
    "trained": lambda m: nn.init.normal_(m.output.weight),
    "mended": lambda m: prune.remove(
        prune.random_unstructured(first_layer(m).feed_forward.W_1, "weight", 0.5), "weight"
    ),
    "unhooked": lambda m: m.register_forward_hook(twice).remove(),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_leaves_the_function_alone_is_no_change(name):
    model = make_model()
    changed = ALIKE[name](model)
    assert differs(changed if isinstance(changed, Transformer) else model, make_model()) is None


@pytest.mark.parametrize(("kind", "config"), KINDS)
def test_every_model_is_as_its_outline(kind, config):
    model, before = kind(config), torch.get_rng_state()
    assert differs(model, outline(kind, config)) is None
    assert outline(kind, config) is outline(kind, copy.copy(config))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.is_meta for parameter in outline(kind, config).parameters())
    next(module for module in model.modules() if not len(module._modules)).register_forward_hook(twice)
    assert "has a forward hook" in differs(model, outline(kind, config))
