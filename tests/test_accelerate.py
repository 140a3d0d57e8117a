"""A fast form takes exactly one of our models, as its configuration made it; any other is refused, never computed."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from parity import randomise
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils.flop_counter import FlopCounterMode

from annotated import training
from annotated.config import EOS, TransformerConfig
from annotated.encoder import EncoderLayer, LayerNorm
from annotated.fast import decoding as fast_decoding
from annotated.fast import training as fast_training
from annotated.fast.accelerate import FORMS, accelerate, has_fast_form
from annotated.fast.decoding import in_bfloat16
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RotaryAttention
from annotated.positional_encoding import LearnedEncoding
from annotated.transformer import Transformer
from annotated_workbench.classification import classify
from annotated_workbench.metrics import text_loss
from annotated_workbench.vocabulary import CharacterTokenizer

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")  # what torch.compile and prune import

SIZES = dict(vocab_size=13, d_model=8, d_ff=11, heads=2, layers=2, max_length=17, dropout=0.0)
SRC = torch.tensor([[4, 5, 6, 7, EOS], [9, 10, EOS, 0, 0], [11, 4, 9, EOS, 0]])
TGT = torch.tensor([[1, 11, 12, EOS, 0], [1, 4, 5, 6, EOS], [1, EOS, 0, 0, 0]])
MAKE = {
    Transformer: lambda: Transformer(TransformerConfig(**SIZES)),
    LanguageModel: lambda: LanguageModel(LanguageModelConfig(**SIZES)),
    Classifier: lambda: Classifier(ClassifierConfig(**SIZES, word_dropout=0.0)),
}
each_kind = pytest.mark.parametrize("kind", MAKE, ids=lambda kind: kind.__name__)


def make(kind: type = Transformer) -> nn.Module:
    return randomise(MAKE[kind]()).eval()


def ids_for(model: nn.Module) -> tuple[torch.Tensor, ...]:
    return (SRC, TGT[:, :-1]) if hasattr(model, "encode") else (SRC,)


def layers(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if hasattr(part, "self_attention")]


def w_1(model: nn.Module) -> nn.Linear:
    return layers(model)[0].feed_forward.W_1


def exchange(path: str, value) -> Callable[[nn.Module], None]:
    """Set an attribute of the model, or of its first layer."""

    def change(model):
        *parts, name = path.removeprefix("layer.").split(".")
        setattr(functools.reduce(getattr, parts, layers(model)[0] if path.startswith("layer.") else model), name, value)

    return change


def halve(module, args, output):
    return output / 2


CHANGES = {
    "a layer of a subclass": lambda m: exchange("layer.feed_forward.W_1", type("Mine", (nn.Linear,), {})(8, 11))(m),
    "a subclass": lambda m: setattr(m, "__class__", type("Mine", (type(m),), {})),
    "a forward of its own": lambda m: setattr(w_1(m), "forward", functools.partial(nn.Linear.forward, w_1(m))),
    "a method of its own": exchange("layer.self_attention.attend", lambda query, keys, values, mask=None: query),
    "a forward hook": lambda m: layers(m)[0].residuals[1].register_forward_hook(halve),
    "pruned": lambda m: prune.l1_unstructured(w_1(m), "weight", 0.5),
    "a parametrisation": lambda m: parametrize.register_parametrization(w_1(m), "weight", nn.ReLU()),
    "PyTorch's LayerNorm": lambda m: setattr(layers(m)[0].residuals[0], "norm", nn.LayerNorm(8)),
    "another ε": lambda m: setattr(layers(m)[1].residuals[0].norm, "eps", 1e-6),
    "another dropout": exchange("dropout.p", 0.5),
    "other heads": exchange("layer.self_attention.heads", 1),
    "rotary positions": lambda m: [setattr(layer, "self_attention", RotaryAttention(8, 2)) for layer in layers(m)],
    "a new part": lambda m: layers(m)[0].add_module("adapter", nn.Linear(8, 8)),
    "a compiled part": lambda m: setattr(layers(m)[0], "feed_forward", torch.compile(layers(m)[0].feed_forward)),
    "a new weight": lambda m: m.register_parameter("scale", nn.Parameter(torch.ones(1))),
    "a bias": lambda m: setattr(
        layers(m)[0].self_attention.W_o, "bias", nn.Parameter(torch.ones(8)) if not m.config.attention_bias else None
    ),
    "one part in two places": lambda m: setattr(layers(m)[1].feed_forward, "W_1", w_1(m)),
    "one weight in two places": lambda m: setattr(layers(m)[1].feed_forward.W_1, "weight", w_1(m).weight),
    "another configuration": lambda m: setattr(m, "config", type(m.config)(**(SIZES | {"layers": 1}))),
}
OF_TRANSFORMER = {
    "a layer more": lambda m: m.encoder.layers.append(EncoderLayer(m.config)),
    "a last norm": lambda m: setattr(m.decoder, "norm", LayerNorm(8)),
    "untied": lambda m: setattr(m.output, "weight", nn.Parameter(m.output.weight.detach().clone())),
    "learned positions": lambda m: setattr(m, "positions", LearnedEncoding(8, 17)),
}
CASES = [(kind, change) for kind in MAKE for change in CHANGES] + [(Transformer, change) for change in OF_TRANSFORMER]


@pytest.mark.parametrize(("kind", "change"), CASES, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_changed_model_is_refused_before_and_after_it_was_wrapped(kind, change):
    model = make(kind)
    fast = accelerate(model)
    (CHANGES | OF_TRANSFORMER)[change](model)
    uses = [lambda: accelerate(model), lambda: fast(*ids_for(model)), lambda: fast.states(*ids_for(model))]
    if kind is Transformer:
        uses += [lambda: fast.encode(SRC, (SRC != 0)[:, None, None]), lambda: fast.new_cache(3)]
        uses += [lambda: fast_decoding.beam_search(fast, SRC), lambda: fast_decoding.greedy_decode(model, SRC)]
        uses += [lambda: fast_training.train_step(model, SRC, TGT, torch.optim.SGD(model.parameters(), lr=0.5))]
    elif kind is LanguageModel:
        uses += [fast.new_cache, lambda: generate(fast, SRC, 1)]
    for use in uses:
        with pytest.raises(TypeError, match=r"use the model itself \(--plain\)"):
            use()


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_a_hook_of_all_modules_is_refused(kind):
    model = make()
    handle = getattr(nn.modules.module, f"register_module_{kind}")(lambda *args: None)
    with handle, pytest.raises(TypeError, match="every module has a hook"):
        accelerate(model)
    with FlopCounterMode(display=False):  # whose hooks only look on
        accelerate(model)


def test_the_message_says_where_and_what_to_do():
    model = make()
    CHANGES["rotary positions"](model)
    with pytest.raises(TypeError, match=r"encoder.layers.0.self_attention is a RotaryAttention, where .* a MultiHead"):
        accelerate(model)


@pytest.mark.parametrize(
    "other",
    [lambda: Gpt(GptConfig(**SIZES)), lambda: RecurrentTranslator(RecurrentConfig(13)), lambda: torch.compile(make())],
    ids=["GPT", "LSTM", "compiled"],
)
def test_a_model_of_another_type_is_refused(other):
    model = other()
    assert not has_fast_form(model)
    for use in (accelerate, lambda m: fast_training.train_step(m, SRC, TGT, torch.optim.SGD(m.parameters(), lr=0.5))):
        with pytest.raises(TypeError, match=rf"a {type(model).__name__} has no fast form.* use the model itself"):
            use(model)


@each_kind
@pytest.mark.parametrize(
    "leave",
    [
        nn.Module.train,
        nn.Module.double,
        copy.deepcopy,
        lambda m: m.requires_grad_(False),
        lambda m: nn.init.normal_(m.output.weight) is None or m,
        lambda m: m.register_forward_hook(halve).remove() or m,
        in_bfloat16,
    ],
)
def test_what_leaves_the_function_alone_leaves_the_fast_form(kind, leave):
    model = leave(make(kind))
    fast = accelerate(model)
    assert type(fast) is FORMS[kind] and accelerate(fast) is fast
    dtype = model.output.weight.dtype
    tolerance = dict(rtol=0.1, atol=0.3) if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(fast(*ids_for(model)), model(*ids_for(model)), **tolerance)
    assert {id(weight) for weight in fast.parameters()} == {id(weight) for weight in model.parameters()}


@pytest.mark.parametrize("learns", ["output", "encoder", "decoder.layers.1", "src_embedding"])
def test_an_update_of_some_weights_is_the_plain_one(learns):
    config = TransformerConfig(**SIZES, norm_first=True, tie_embeddings=False)
    model = randomise(Transformer(config)).requires_grad_(False)
    models = [model, copy.deepcopy(model)]
    for each, step in zip(models, (fast_training.train_step, training.train_step), strict=True):
        each.get_submodule(learns).requires_grad_(True)
        step(each, SRC, TGT, torch.optim.SGD(each.parameters(), lr=0.5))
    torch.testing.assert_close(*(dict(each.named_parameters()) for each in models), rtol=0, atol=1e-5)


USES = {
    "greedy": (Transformer, lambda m: fast_decoding.greedy_decode(m, SRC, max_extra=1)),
    "beam": (Transformer, lambda m: fast_decoding.beam_search(m, SRC, max_extra=1)),
    "generate": (LanguageModel, lambda m: generate(accelerate(m), SRC, 1)),
    "text loss": (LanguageModel, lambda m: text_loss(m, SRC[0])),
    "classify": (Classifier, lambda m: classify(m, CharacterTokenizer.train("abcdefghi"), ["a", "bc"], "en")),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("fails", [False, True], ids=["", "after an error"])
def test_each_part_is_left_in_its_own_mode(use, fails, monkeypatch):
    kind, act = USES[use]
    model = make(kind).train()
    next(layer for layer in model.modules() if isinstance(layer, nn.ModuleList)).eval()
    modes = [part.training for part in model.modules()]
    if fails:
        monkeypatch.setattr(nn.Embedding, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            act(model)
    else:
        act(model)
    assert [part.training for part in model.modules()] == modes and len({*modes}) == 2


@each_kind
def test_a_part_in_eval_mode_drops_nothing_in_a_model_in_training(kind):
    config = make(kind).config
    model = kind(type(config)(**(vars(config) | {"dropout": 0.5}))).eval()
    expected, fast = model(*ids_for(model)), accelerate(model)
    parts = [part for part in model.modules() if hasattr(part, "p")]
    model.train()
    for part in parts:
        part.eval()
    torch.testing.assert_close(fast(*ids_for(model)), expected)
    parts[-1].train()
    assert not torch.allclose(fast(*ids_for(model)), expected)
