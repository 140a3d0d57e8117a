"""A faster form is taken of a model that is as it was made; any other computes by itself, and a warning says so."""

import copy
import itertools
import types
import warnings
from dataclasses import replace

import pytest
import torch
from parity import randomise
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from annotated import decoding, training
from annotated.config import EOS, TransformerConfig
from annotated.encoder import EncoderLayer, LayerNorm
from annotated.fast import decoding as fast_decoding
from annotated.fast import training as fast_training
from annotated.fast.accelerate import FORMS, accelerate
from annotated.fast.translator import Plain
from annotated.models.bert import Bert, BertConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.models.long_attention import BigBirdAttention, BlockedAttention, CompressedAttention, LinformerAttention
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.models.relative_positions import RelativeAttention, RotaryAttention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import save_checkpoint
from annotated_workbench.classification import classify
from annotated_workbench.metrics import text_loss
from annotated_workbench.vocabulary import CharacterTokenizer
from tests.models import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # by torch.compile itself

VOCAB = 13
SIZES = dict(d_model=8, d_ff=11, heads=2, layers=2, max_length=17, dropout=0.0)
SRC = torch.tensor([[4, 5, 6, 7, EOS], [9, 10, EOS, 0, 0], [11, 4, 9, EOS, 0]])
TGT = torch.tensor([[1, 11, 12, EOS, 0], [1, 4, 5, 6, EOS], [1, EOS, 0, 0, 0]])
MAKE = {
    "Transformer": lambda: Transformer(TransformerConfig(VOCAB, **SIZES)),
    "Transformer, norm first, untied": lambda: Transformer(
        TransformerConfig(VOCAB, **SIZES, norm_first=True, tie_embeddings=False)
    ),
    "LanguageModel": lambda: LanguageModel(LanguageModelConfig(VOCAB, **SIZES)),
    "Classifier": lambda: Classifier(ClassifierConfig(VOCAB, **SIZES, word_dropout=0.0)),
    "RecurrentTranslator": lambda: RecurrentTranslator(RecurrentConfig(VOCAB, d_model=6, dropout=0.0, max_length=17)),
    "Gpt": lambda: Gpt(GptConfig(VOCAB, **SIZES)),
}
each_model = pytest.mark.parametrize("name", MAKE)


def make(name: str = "Transformer") -> nn.Module:
    return randomise(MAKE[name]()).eval()


def ids_for(model: nn.Module) -> tuple[torch.Tensor, ...]:
    return (SRC, TGT[:, :-1]) if hasattr(model, "encode") else (SRC,)


def layers(model: nn.Module) -> list[nn.Module]:
    """All layers with self-attention."""
    return [part for part in model.modules() if hasattr(part, "self_attention")]


# What changes a model


def swap(kind: type[nn.Module], **options):
    """Do what the docstrings of `relative_positions` and `long_attention` tell: another attention in each layer."""

    def change(model: nn.Module) -> None:
        for layer in model.encoder.layers:
            layer.self_attention = randomise(kind(8, 2, **options))

    return change


class LowRank(nn.Module):
    """A layer and, beside it, a product of two small matrices (LoRA; Hu et al., 2022)."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base, self.A, self.B = base, nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.B(self.A(x))

    @property
    def weight(self) -> nn.Parameter:
        return self.base.weight

    @property
    def bias(self) -> nn.Parameter | None:
        return self.base.bias


def add_low_rank(model: nn.Module) -> None:
    for layer in layers(model):
        layer.self_attention.W_v = randomise(LowRank(layer.self_attention.W_v))


def halve(module, args, output):
    return output / 2


def own_forward(model: nn.Module) -> None:
    layer = layers(model)[0].feed_forward
    layer.forward = lambda x: -type(layer).forward(layer, x)


def own_method(model: nn.Module) -> None:
    attention = layers(model)[0].self_attention
    attention.attend = types.MethodType(
        lambda self, query, keys, values, mask=None: type(self).attend(self, query, keys, -values, mask), attention
    )


def masked_weight(model: nn.Module) -> None:
    prune.l1_unstructured(layers(model)[0].feed_forward.W_1, "weight", 0.5)


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


class Scaled(Transformer):
    """Another model that is a Transformer to `isinstance`."""

    def forward(self, *args, **options):
        return 3 * super().forward(*args, **options)


class Loud(torch.Tensor):
    """A tensor that may compute anything."""


def other_norm(model: nn.Module) -> None:
    for layer in layers(model):
        layer.residuals[0].norm = nn.LayerNorm(8)


def clamp_gradient(model: nn.Module) -> None:
    layers(model)[0].feed_forward.W_1.weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))


def flip_gradient(module, of_inputs, of_outputs):
    return tuple(None if g is None else -g for g in of_inputs)


EVERY = {  # of any model with layers
    "a low-rank layer": add_low_rank,
    "a forward of its own": own_forward,
    "a method of its own": own_method,
    "a forward hook": lambda m: layers(m)[0].residuals[1].register_forward_hook(halve),
    "a pre-hook": lambda m: layers(m)[1].feed_forward.register_forward_pre_hook(lambda _, x: (x[0] / 2,)),
    "a hook on the output": lambda m: m.register_forward_hook(halve),
    "a backward hook": lambda m: layers(m)[0].feed_forward.W_2.register_full_backward_hook(flip_gradient),
    "a hook on a gradient": clamp_gradient,
    "pruned": masked_weight,
    "weight norm": lambda m: parametrizations.weight_norm(layers(m)[0].feed_forward.W_2),
    "spectral norm": lambda m: spectral_norm(layers(m)[0].feed_forward.W_2),
    "a parametrisation": lambda m: nn.utils.parametrize.register_parametrization(
        layers(m)[0].self_attention.W_q, "weight", Doubled()
    ),
    "another LayerNorm": other_norm,
    "an activation of its own": lambda m: setattr(layers(m)[0].feed_forward, "activation", torch.tanh),
    "no layer": lambda m: setattr(layers(m)[0], "feed_forward", nn.Identity()),
    "a wrapped part": lambda m: setattr(m, "dropout", nn.Sequential(nn.Tanh(), m.dropout)),
    "a tensor of another kind": lambda m: setattr(
        layers(m)[0].feed_forward.W_1, "weight", nn.Parameter(torch.ones(11, 8).as_subclass(Loud))
    ),
}
TRANSFORMER = {
    "relative": swap(RelativeAttention, k=2),
    "rotary": swap(RotaryAttention),
    "blocked": swap(BlockedAttention, block=2),
    "Linformer": swap(LinformerAttention, length=17, k=3),
    "BigBird": swap(BigBirdAttention, block=2),
    "compressed": swap(CompressedAttention, stride=2),
    "a subclass": lambda m: setattr(m, "__class__", Scaled),
    "a stranger's layer": lambda m: m.encoder.layers.append(randomise(EncoderLayer(m.config))),
    "a layer less": lambda m: m.encoder.layers.pop(0),
    "a last norm": lambda m: setattr(m.decoder, "norm", randomise(LayerNorm(8))),
    "norms first": lambda m: [setattr(r, "norm_first", True) for r in m.encoder.layers[0].residuals],
    "its own encode": lambda m: setattr(m, "encode", lambda *x: 0.5 * Transformer.encode(m, *x)),
    "nothing": lambda m: None,
    "frozen": lambda m: m.requires_grad_(False),
    "a projection hooked": lambda m: m.output.register_forward_hook(halve),
}
CASES = [
    *(("Transformer", change) for change in (*TRANSFORMER, *EVERY) if change not in ("nothing", "frozen")),
    *((name, change) for name in ("LanguageModel", "Classifier") for change in EVERY),
    ("RecurrentTranslator", "a hook on the output"),
]


def changed(name: str, change: str) -> nn.Module:
    torch.manual_seed(7)  # the same numbers each time: what hangs on a model may not survive a copy
    model = make(name)
    (EVERY | TRANSFORMER)[change](model)
    return model.eval()


@pytest.mark.filterwarnings("ignore:computed by the model's own")
@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_changed_model_computes_by_itself_and_a_warning_says_so(name, change):
    model = changed(name, change)
    with pytest.warns(UserWarning, match="computed by the model's own, slower methods: "):
        fast = accelerate(model)
    assert isinstance(fast, Plain)
    torch.testing.assert_close(fast(*ids_for(model)), model(*ids_for(model)))
    if name == "Transformer":  # it translates as it does plainly
        for method in ("greedy_decode", "beam_search") if change in TRANSFORMER else ("beam_search",):
            found, expected = (getattr(room, method)(model, SRC, max_extra=2) for room in (fast_decoding, decoding))
            assert_same(found, expected)
    if name == "LanguageModel":  # it writes on
        found, expected = (generate(one, SRC[:, :2], 5, temperature=0.0) for one in (fast, model))
        assert torch.equal(found, expected)
        with torch.no_grad():
            expected = training.label_smoothed_loss(model(SRC[:1, :-1]), SRC[:1, 1:], 0.0).item()
        assert text_loss(model, SRC[0]) == pytest.approx(expected, rel=1e-5)
    if name != "Classifier":  # and it learns
        model, other = changed(name, change), changed(name, change)
        batches = [(SRC[:2], TGT[:2]), (SRC[2:], TGT[2:])] if name != "LanguageModel" else [(TGT[:2],), (TGT[2:],)]
        loss = fast_training.update(model, batches, torch.optim.SGD(model.parameters(), lr=0.5))
        assert loss == pytest.approx(plain_update(other, batches), rel=1e-4)
        torch.testing.assert_close(dict(model.named_parameters()), dict(other.named_parameters()), rtol=0, atol=1e-5)


def plain_update(model: nn.Module, batches: list[tuple[torch.Tensor, ...]]) -> float:
    """Do what `annotated.training.train_step` does, on several batches as if they were one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = sum(int((batch[-1][:, 1:] != 0).sum()) for batch in batches)
    total = 0.0
    for *given, tgt in batches:
        loss = training.label_smoothed_loss(model(*given, tgt[:, :-1]), tgt[:, 1:], reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def test_it_says_so_once():
    models = [changed("Transformer", "rotary") for _ in range(3)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for model in models:
            fast_decoding.greedy_decode(model, SRC, max_extra=1)
            accelerate(model)
    assert len(said) == 1
    message = "layers.0.self_attention is of type RotaryAttention, not MultiHeadAttention"
    assert message in str(said[0].message)


# What does not


@each_model
def test_a_model_as_it_was_made_is_the_same_function(name):
    model = make(name)
    fast = accelerate(model)
    assert isinstance(fast, Plain) == (name == "Gpt")
    torch.testing.assert_close(fast(*ids_for(model)), model(*ids_for(model)))


@pytest.mark.parametrize("name", [name for name in MAKE if name != "Gpt"])
def test_what_leaves_the_function_alone_leaves_the_fast_form(name):
    leaves = [nn.Module.train, nn.Module.double, copy.deepcopy, lambda m: m.requires_grad_(False), torch.compile]
    for leave in leaves:
        model = make(name)
        assert type(accelerate(leave(model))) is FORMS[type(model)][0], leave


def test_a_compiled_model_is_trained_and_searched_by_its_fast_form():
    model = make()
    compiled = torch.compile(model)
    assert accelerate(compiled).model is model
    assert_same(fast_decoding.greedy_decode(compiled, SRC), fast_decoding.greedy_decode(model, SRC))
    loss = fast_training.train_step(compiled, SRC, TGT, torch.optim.SGD(compiled.parameters(), lr=0.0))
    assert loss == pytest.approx(training.label_smoothed_loss(model(SRC, TGT[:, :-1]), TGT[:, 1:]).item(), rel=1e-5)


def test_a_changed_model_stays_compiled():
    compiled = torch.compile(changed("Transformer", "rotary"))
    with pytest.warns(UserWarning, match="RotaryAttention"):
        assert accelerate(compiled).model is compiled


def hook(model: nn.Module) -> None:
    model.register_forward_hook(halve)


def replace_forward(model: nn.Module) -> None:
    model.forward = lambda *ids: 3 * type(model._orig_mod).forward(model._orig_mod, *ids)


def replace_logits(model: nn.Module) -> None:
    vars(model)["logits"] = lambda states: -model._orig_mod.logits(states)


@pytest.mark.filterwarnings("ignore:computed by the model's own")
@pytest.mark.parametrize("change", [hook, replace_forward, replace_logits])
def test_what_hangs_on_the_wrapper_of_compile_counts(change, tmp_path):
    compiled = torch.compile(make(), backend="eager")
    change(compiled)
    assert accelerate(compiled).model is compiled
    with pytest.raises(ValueError, match="another one would be read back: the model is of type OptimizedModule"):
        save_checkpoint(tmp_path / "run", compiled)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", ["a low-rank layer", "a forward hook", "pruned", "rotary"])
def test_a_model_that_is_changed_after_it_was_wrapped_is_not_computed_as_it_was(change):
    model = make()
    fast = accelerate(model)
    (EVERY | TRANSFORMER)[change](model)
    with pytest.raises(RuntimeError, match=r"the model was changed after `accelerate`: .* Call `accelerate` again"):
        fast(SRC, TGT)
    with pytest.warns(UserWarning, match="computed by the model's own"):
        found = fast_decoding.greedy_decode(fast, SRC, max_extra=3)
    assert_same(found, decoding.greedy_decode(model, SRC, max_extra=3))


@pytest.mark.parametrize("name", ["Transformer", "LanguageModel", "Classifier"])
def test_nor_by_any_other_method(name):
    model = make(name)
    fast = accelerate(model)
    layers(model)[0].register_forward_hook(halve)
    mask = (SRC != 0)[:, None, None]
    uses = {
        "Transformer": [lambda: fast.states(SRC, TGT), lambda: fast.encode(SRC, mask)],
        "LanguageModel": [lambda: fast.states(SRC), lambda: fast.new_cache(), lambda: generate(fast, SRC, 1)],
        "Classifier": [lambda: fast.states(SRC)],
    }
    for use in (*uses[name], lambda: fast(*ids_for(model))):
        with pytest.raises(RuntimeError, match=r"layers.0 has a forward hook. Call `accelerate` again"):
            use()


def test_a_fast_form_has_the_configuration_that_the_model_now_has():
    model = make("Classifier").train()
    fast = accelerate(model)
    model.config = replace(model.config, word_dropout=0.99)
    torch.manual_seed(1)
    expected = model(SRC)
    torch.manual_seed(1)
    torch.testing.assert_close(fast(SRC), expected)


def test_a_fast_form_asked_for_bfloat16_is_made_anew():
    fast = accelerate(make())
    narrow = accelerate(fast, bf16=True)
    assert (fast.bf16, narrow.bf16, accelerate(narrow)) == (False, True, narrow)


def test_a_second_derivative_is_refused():
    model = make()
    weight = layers(model)[0].feed_forward.W_1.weight
    (gradient,) = torch.autograd.grad(model(SRC, TGT).pow(2).mean(), weight, create_graph=True)
    assert torch.autograd.grad(gradient.pow(2).sum(), weight)[0].any()
    with pytest.raises(RuntimeError, match="no second derivatives: compute them by the plain model"):
        torch.autograd.grad(accelerate(model)(SRC, TGT).pow(2).mean(), weight, create_graph=True)


class Twice(nn.Module):
    """A module that has the name of what `torch.compile` wraps, and computes something else."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self._orig_mod, self.config = model, model.config

    def forward(self, *ids: torch.Tensor) -> torch.Tensor:
        return 2 * self._orig_mod(*ids)


def test_only_torch_compile_is_looked_through(tmp_path):
    model = Twice(make())
    with pytest.warns(UserWarning, match="the model is of type Twice"):
        torch.testing.assert_close(accelerate(model)(SRC, TGT), model(SRC, TGT))
    with pytest.raises(ValueError, match="the model is of type Twice, not Transformer"):
        save_checkpoint(tmp_path / "run", model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: setattr(m, "config", types.SimpleNamespace(**vars(m.config))),
            "its configuration is none to compare",
        ),
        (lambda m: setattr(m.output.weight, "_in_backward_optimizers", []), "is updated in the backward pass"),
    ],
)
def test_what_cannot_be_compared_or_learns_by_itself_computes_by_itself(change, message):
    model = make()
    change(model)
    with pytest.warns(UserWarning, match=message):
        assert isinstance(accelerate(model), Plain)


@pytest.mark.filterwarnings("ignore:computed by the model's own")
def test_a_hook_of_all_modules_changes_an_update_once():
    model = make()
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 1.1)
    try:
        expected = training.label_smoothed_loss(model(SRC, TGT[:, :-1]), TGT[:, 1:], 0.1).item()
        loss = fast_training.train_step(model, SRC, TGT, torch.optim.SGD(model.parameters(), lr=0.0))
    finally:
        handle.remove()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_hook_on_a_fast_form_is_not_saved_over(tmp_path):
    fast = accelerate(make())
    hook(fast)
    with pytest.raises(ValueError, match="another one would be read back: the model is of type FastTransformer"):
        save_checkpoint(tmp_path / "run", fast)


def test_a_model_with_a_compiled_part_computes_by_itself():
    model = make()
    model.encoder = torch.compile(model.encoder)
    with pytest.warns(UserWarning, match="encoder is of type OptimizedModule, not Encoder"):
        assert isinstance(accelerate(model), Plain)


def test_the_bias_that_bfloat16_wants_is_no_change():
    assert type(accelerate(fast_decoding.in_bfloat16(make()))) is FORMS[Transformer][0]


def test_bfloat16_moves_no_layer_that_is_only_called_output():
    model = changed("Transformer", "rotary")
    for layer in layers(model):
        layer.self_attention.output = nn.Linear(8, 8)
    copied = fast_decoding.in_bfloat16(model)
    assert copied.output.bias is not None
    assert torch.equal(
        layers(copied)[0].self_attention.output.bias, layers(model)[0].self_attention.output.bias.bfloat16()
    )


@pytest.mark.parametrize(
    "model",
    [Bert(BertConfig(VOCAB, **SIZES)), nn.Linear(2, 3), nn.DataParallel(make()), nn.DataParallel(accelerate(make()))],
    ids=lambda m: type(m).__name__,
)
def test_what_has_no_fast_form_is_refused_at_once(model):
    for use in (accelerate, lambda m: fast_training.train_step(m, SRC, TGT, torch.optim.SGD(m.parameters(), lr=0.0))):
        with pytest.raises(
            TypeError, match=f"a {type(model).__name__} has no fast form: give a module that translates"
        ):
            use(model)


def test_what_does_not_translate_is_refused_at_once():
    for name in ("LanguageModel", "Classifier"):
        with pytest.raises(TypeError, match=f"a {name} does not translate"):
            fast_decoding.greedy_decode(make(name), SRC)


# Modes


def partly_frozen(name: str) -> tuple[nn.Module, list[bool]]:
    model = make(name).train()
    next(layer for layer in model.modules() if isinstance(layer, nn.ModuleList)).eval()
    return model, [part.training for part in model.modules()]


USES = {
    "greedy": ("Transformer", lambda m: fast_decoding.greedy_decode(m, SRC, max_extra=1)),
    "beam": ("Transformer", lambda m: fast_decoding.beam_search(m, SRC, max_extra=1)),
    "plain greedy": ("Transformer", lambda m: decoding.greedy_decode(m, SRC, max_extra=1)),
    "generate": ("LanguageModel", lambda m: generate(m, SRC, 1)),
    "text loss": ("LanguageModel", lambda m: text_loss(m, SRC[0])),
    "classify": ("Classifier", lambda m: classify(m, CharacterTokenizer.train("abcdefghi"), ["a", "bc"], "en")),
}


@pytest.mark.parametrize("wrap", [lambda m: m, accelerate], ids=["plain", "fast"])
@pytest.mark.parametrize("use", USES)
def test_each_part_is_left_in_its_own_mode(use, wrap):
    name, act = USES[use]
    if use == "plain greedy":
        wrap = nn.Module.requires_grad_  # the plain search takes no fast form
    model, modes = partly_frozen(name)
    assert len({*modes}) == 2
    act(wrap(model))
    assert [part.training for part in model.modules()] == modes
    fast = wrap(model)
    act(fast)
    assert not model.eval().training
    act(fast)
    assert not any(part.training for part in model.modules()), "a wrapper of a model that was in training has woken it"


@pytest.mark.parametrize("use", USES)
def test_after_an_error_too(use, monkeypatch):
    name, act = USES[use]
    model, modes = partly_frozen(name)
    monkeypatch.setattr(nn.Embedding, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        act(model)
    assert [part.training for part in model.modules()] == modes


@pytest.mark.parametrize(
    "make",
    [
        lambda: Transformer(TransformerConfig(VOCAB, **SIZES | {"dropout": 0.5})),
        lambda: LanguageModel(LanguageModelConfig(VOCAB, **SIZES | {"dropout": 0.5})),
        lambda: Classifier(ClassifierConfig(VOCAB, **SIZES | {"dropout": 0.5}, word_dropout=0.0)),
    ],
)
def test_a_part_in_eval_mode_drops_nothing_in_a_model_in_training(make):
    model = randomise(make()).eval()
    parts = [part for part in model.modules() if hasattr(part, "p")]
    fast = accelerate(model)
    expected = model(*ids_for(model))
    model.train()
    for part in parts:
        part.eval()
    torch.testing.assert_close(fast(*ids_for(model)), expected)
    parts[-1].train()
    assert not torch.allclose(fast(*ids_for(model)), expected)


# What a user of PyTorch expects


def hold_step(models: list[nn.Module], src: torch.Tensor, tgt: torch.Tensor) -> None:
    """Train one model by the fast room and its twin plainly: the same loss, the same weights."""
    losses = [
        step(model, src, tgt, torch.optim.SGD(model.parameters(), lr=0.5))
        for model, step in zip(models, (fast_training.train_step, training.train_step), strict=True)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(*(dict(model.named_parameters()) for model in models), rtol=0, atol=1e-5)


@pytest.mark.parametrize("learns", ["output", "encoder", "decoder.layers.1", "src_embedding"])
def test_an_update_of_some_weights_is_the_plain_one(learns):
    models = [changed("Transformer, norm first, untied", "frozen") for _ in range(2)]
    for model in models:
        model.get_submodule(learns).requires_grad_(True)
    hold_step(models, SRC, TGT)


def test_gradients_that_no_optimizer_takes_add_up_as_they_do_plainly():
    models = [changed("Transformer", "nothing") for _ in range(2)]
    for model, step in zip(models, (fast_training.train_step, training.train_step), strict=True):
        optimizer = torch.optim.SGD(model.decoder.parameters(), lr=0.5)
        for _ in range(2):
            step(model, SRC, TGT, optimizer)
    torch.testing.assert_close(*(model.src_embedding.weight.grad for model in models), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings(r"ignore:var\(\)")
@pytest.mark.parametrize("name", ["Transformer", "Transformer, norm first, untied", "LanguageModel", "Classifier"])
def test_nothing_to_read_is_read_as_plainly(name):
    model = make(name)
    fast = accelerate(model)
    for rows, length, target in itertools.product((0, 3), (0, 4), (0, 4)):
        ids = tuple(x[:rows, :n] for x, n in zip((SRC, TGT), (length, target), strict=True))[: len(ids_for(model))]
        torch.testing.assert_close(fast(*ids), model(*ids))


@pytest.mark.filterwarnings(r"ignore:var\(\)")
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_translate_or_to_learn_from_is_as_plainly(shape):
    models, src = [changed("Transformer", "nothing") for _ in range(2)], torch.zeros(shape, dtype=torch.long)
    for method in ("greedy_decode", "beam_search"):
        found, expected = (getattr(room, method)(models[0], src, max_extra=3) for room in (fast_decoding, decoding))
        assert_same(found, expected)
    hold_step(models, src, TGT[: shape[0]])
