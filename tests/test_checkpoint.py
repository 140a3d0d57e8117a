"""Models on disk: whole, the same bit for bit, never pickled; and their average."""

import copy
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoding import beam_search
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import in_bfloat16, in_int8
from annotated.models.relative_positions import RotaryAttention
from annotated.transformer import Transformer
from annotated_workbench.checkpoint import (
    average_checkpoints,
    load_checkpoint,
    load_config,
    load_tensors,
    load_translator,
    load_weights,
    save_checkpoint,
    save_tensors,
)
from annotated_workbench.data import load_corpus, read_lines
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.metrics import bleu
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer, load_tokenizer

DELIVERED = Path(__file__).resolve().parent.parent / "data" / "checkpoints" / "de-en"
VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=2, max_length=17)
SRC, TGT = torch.tensor([[5, 7, 11, 2]]), torch.tensor([[1, 4, 6, 9, 12]])


def make_model(**changes) -> Transformer:
    return Transformer(TransformerConfig(VOCAB, **(SIZES | changes)))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_loaded_model_gives_the_same_logits_bit_for_bit(tmp_path, tied, positions, norm_first):
    model = make_model(tie_embeddings=tied, positions=positions, norm_first=norm_first).eval()
    save_checkpoint(tmp_path / "a" / "b", model)
    torch.manual_seed(123)
    loaded, _ = load_checkpoint(tmp_path / "a" / "b")
    assert torch.equal(loaded(SRC, TGT), model(SRC, TGT))
    assert loaded.config == model.config
    assert (loaded.output.weight is loaded.src_embedding.weight) == tied


def test_a_loaded_model_is_in_eval_mode_and_brings_its_info(tmp_path):
    save_checkpoint(tmp_path, make_model(), src="de", note="größer", settings={"epochs": 3})
    model, info = load_checkpoint(str(tmp_path))
    assert not any(module.training for module in model.modules())
    assert info == {"src": "de", "note": "größer", "settings": {"epochs": 3}}
    assert "größer" in (tmp_path / "config.json").read_text(encoding="utf-8")  # for people, too


@pytest.mark.parametrize(("tied", "count"), [(True, 1), (False, 3)])
def test_tied_weights_are_stored_once(tmp_path, tied, count):
    save_checkpoint(tmp_path, make_model(tie_embeddings=tied))
    shapes = [tuple(weight.shape) for weight in load_file(tmp_path / "model.safetensors").values()]
    assert shapes.count((VOCAB, SIZES["d_model"])) == count


def test_the_files_hold_the_weights_and_the_configuration(tmp_path):
    model = make_model()
    save_checkpoint(tmp_path, model)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    torch.testing.assert_close(
        load_file(tmp_path / "model.safetensors"), dict(model.named_parameters()), rtol=0, atol=0
    )
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["d_k"] == 3
    assert config["model"]["vocab_size"] == VOCAB


# What would be read back as another model


def put(path: str, value: Callable[[Transformer], Any]) -> Callable[[Transformer], None]:
    """Make a change: another part or setting in a place of the model."""
    *place, name = path.split(".")

    def change(model: Transformer) -> None:
        setattr(model.get_submodule(".".join(place)), name, value(model))

    return change


LAYER = "encoder.layers.0"
CHANGES = {
    "rotary": (
        put(f"{LAYER}.self_attention", lambda m: RotaryAttention(8, 2, d_k=4, d_v=5)),
        f"{LAYER}.self_attention",
    ),
    "dropout": (put("dropout.p", lambda m: 0.5), "dropout has p=0.5, not 0.1"),
    "activation": (put(f"{LAYER}.feed_forward.activation", lambda m: torch.tanh), "feed_forward has activation="),
    "forward": (put("output.forward", lambda m: lambda x: m.output(2 * x)), "output has its own forward"),
    "hook": (lambda m: m.output.register_forward_hook(lambda *args: 2 * args[2]), "output has a forward hook"),
    "table": (put("positions.table", lambda m: 2 * m.positions.table), "positions.table holds other numbers"),
    "untied": (put("output.weight", lambda m: nn.Parameter(m.output.weight.clone())), "output.weight is not tied"),
    "in one place": (
        put(
            "encoder.layers.1.feed_forward.W_1.weight",
            lambda m: nn.Parameter(m.encoder.layers[0].feed_forward.W_1.weight.data),
        ),
        "encoder.layers.1.feed_forward.W_1.weight is tied to encoder.layers.0",
    ),
    "biased": (put("output.bias", lambda m: nn.Parameter(torch.zeros(VOCAB))), "output.bias is of type Parameter"),
    "quantised": (put("output", lambda m: nn.Identity()), "output is of type Identity, not Linear"),
    "config": (put("config", lambda m: replace(m.config, activation="silu")), "feed_forward has activation="),
    "longer": (put("config", lambda m: replace(m.config, max_length=10**6)), "max_length is above 100000"),
    "bool": (put("config", lambda m: replace(m.config, layers=True)), "layers is True"),
    "not finite": (
        lambda m: nn.init.constant_(m.output.weight, math.nan),
        "src_embedding.weight holds NaN or infinity",
    ),
    "ensemble": (lambda m: Ensemble([m]), "the model is of type Ensemble, not Transformer"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_would_be_read_back_as_another_model_is_not_written(tmp_path, name):
    change, message = CHANGES[name]
    model = make_model()
    changed = change(model)
    with pytest.raises(ValueError, match=re.escape(message)):
        save_checkpoint(tmp_path / "run", changed if isinstance(changed, Ensemble) else model)
    assert not (tmp_path / "run").exists()


def test_what_has_no_configuration_is_not_written(tmp_path):
    with pytest.raises(TypeError, match="a Linear has no config to be read back by"):
        save_checkpoint(tmp_path, nn.Linear(2, 2))
    with pytest.raises(ValueError, match="configuration cannot be read back"):
        save_checkpoint(tmp_path, make_model(), architecture="mine")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "wrap", [torch.compile, accelerate, lambda model: torch.compile(accelerate(model)), lambda model: model.half()]
)
def test_the_model_inside_is_what_is_written(tmp_path, wrap):
    model = make_model()
    save_checkpoint(tmp_path, wrap(model))
    torch.testing.assert_close(
        dict(load_checkpoint(tmp_path)[0].named_parameters()),
        {name: weight.float() for name, weight in model.named_parameters()},
        rtol=0,
        atol=0,
    )


def test_other_libraries_see_whose_tensors_they_are(tmp_path):
    save_checkpoint(tmp_path, make_model())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


# Averages


def write(path: Path, **tensors: list[float]) -> Path:
    save_file({name: torch.tensor(values) for name, values in tensors.items()}, path)
    return path


def test_the_average_is_the_mean_by_hand(tmp_path):
    paths = [
        write(tmp_path / "1", gain=[1.0, 3.0], bias=[0.0]),
        write(tmp_path / "2", gain=[5.0, 7.0], bias=[-3.0]),
        write(tmp_path / "3", gain=[6.0, -1.0], bias=[9.0]),
    ]
    average = average_checkpoints(paths)
    assert {name: weight.tolist() for name, weight in average.items()} == {"gain": [4.0, 3.0], "bias": [2.0]}
    assert average["gain"].dtype == torch.float32


def test_one_checkpoint_is_its_own_average(tmp_path):
    model = make_model()
    save_tensors(tmp_path / "1", dict(model.named_parameters()))
    torch.testing.assert_close(average_checkpoints([tmp_path / "1"]), dict(model.named_parameters()), rtol=0, atol=0)


def test_the_sum_is_exact(tmp_path):
    # 2²⁴ + 1 is no float32: adding in float32 would give 5592405.5.
    paths = [write(tmp_path / str(i), gain=[value]) for i, value in enumerate((2.0**24, 1.0, 1.0))]
    assert average_checkpoints(paths)["gain"].item() == 5592406.0


@pytest.mark.parametrize("other", [dict(gain=[1.0, 2.0, 3.0]), dict(bias=[1.0, 2.0])], ids=["shape", "name"])
def test_only_checkpoints_of_one_model_are_averaged(tmp_path, other):
    paths = [write(tmp_path / "1", gain=[1.0, 2.0]), write(tmp_path / "2", **other)]
    with pytest.raises(ValueError, match=r"2 holds other weights than .*1"):
        average_checkpoints(paths)


def test_an_average_needs_checkpoints():
    with pytest.raises(ValueError, match="at least one"):
        average_checkpoints([])


# Files that are not there, or not whole


@pytest.fixture
def folder(tmp_path) -> Path:
    save_checkpoint(tmp_path / "run", make_model())
    return tmp_path / "run"


@pytest.mark.parametrize("content", [b"", b"\x00", b"not weights", None], ids=["empty", "a byte", "text", "cut short"])
def test_damaged_weights_are_named(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5] if content is None else content)
    with pytest.raises(ValueError, match=r"model\.safetensors is not a whole safetensors file"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"{}",
        b'"model"',
        b"[]",
        b'{"model": {"depth": 3}}',
        b'{"model": {"vocab_size": "many"}}',
        b"\xff",
        b"[" * 10**5,
    ],
)
def test_a_damaged_configuration_is_named(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        load_checkpoint(folder)


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model in .*elsewhere.*config\.json is missing"):
        load_checkpoint(tmp_path / "elsewhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no weights at .*model\.safetensors"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (dict(d_ff=12), "decoder.layers.0.feed_forward.W_1.bias"),
        (dict(layers=1), "decoder.layers.1"),
        (dict(layers=3), "decoder.layers.2"),
        (dict(tie_embeddings=False), "output.weight"),
    ],
)
def test_weights_of_another_model_are_refused_and_change_nothing(change, name):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    other = dict(make_model(**change).named_parameters())
    with pytest.raises(ValueError, match=rf"not this model's: {name}"):
        load_weights(model, other)
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_refused_and_change_nothing(folder, value):
    model, _ = load_checkpoint(folder)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    weights = {name: weight + 1 for name, weight in before.items()}
    weights["decoder.layers.1.feed_forward.W_2.bias"][3] = value
    with pytest.raises(ValueError, match=r"damaged: decoder\.layers\.1\.feed_forward\.W_2\.bias holds NaN or infinity"):
        load_weights(model, weights)
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)
    save_tensors(folder / "model.safetensors", weights)
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        load_checkpoint(folder)


def test_loading_draws_no_random_numbers(folder):
    before = torch.get_rng_state()
    load_checkpoint(folder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(d_model=10**9), "not this model's"),
        (dict(vocab_size=10**12), "not this model's"),
        (dict(d_ff=10**12), "not this model's"),
        (dict(layers=10**9), "only 61 weights, and the config says 1000000000 layers"),
        (dict(max_length=10**9), r"config\.json is damaged.*max_length is above 100000"),
        (dict(vocab_size="13"), r"config\.json is damaged.*vocab_size is '13'"),
        (dict(layers=True), r"config\.json is damaged.*layers is True"),
        (dict(layers=2.0), r"config\.json is damaged.*layers is 2\.0"),
        (dict(dropout="much"), r"config\.json is damaged.*dropout is 'much'"),
        (dict(norm_first=1), r"config\.json is damaged.*norm_first is 1"),
        (dict(activation=None), r"config\.json is damaged.*activation is None"),
        (dict(positions=["learned"]), r"config\.json is damaged.*positions is "),
    ],
)
def test_sizes_in_a_file_are_compared_before_anything_is_made_of_them(folder, changes, message):
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("change", ["words", "languages"])
def test_an_ensemble_agrees_on_tokens_and_on_languages(tmp_path, change):
    for name in ("a", "b"):
        odd = name == "b"
        languages = dict(src="en", tgt="de") if odd and change == "languages" else dict(src="de", tgt="en")
        save_checkpoint(tmp_path / name, make_model(), **languages)
        words = [*SPECIALS, *("ihgfedcba" if odd and change == "words" else "abcdefghi")]
        WordTokenizer(Vocabulary(words), ["de", "en"]).save(tmp_path / name)
    with pytest.raises(ValueError, match=r"b has other tokens or languages than .*a"):
        load_translator([tmp_path / "a", tmp_path / "b"])
    assert len(load_translator([tmp_path / "a", tmp_path / "a"])[0].models) == 2


def test_whole_numbers_do_for_real_ones(folder):
    config = json.loads((folder / "config.json").read_text())
    config["model"]["dropout"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    assert load_checkpoint(folder)[0].config.dropout == 0


def test_a_run_whose_tokenizer_is_anothers_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    for info in ({}, {"src": "de"}, {"src": "de", "tgt": 3}):
        (folder / "config.json").write_text(json.dumps(config | info))
        WordTokenizer(Vocabulary([*SPECIALS, *"abcdefghi"]), ["de", "en"]).save(folder)
        with pytest.raises(ValueError, match="does not say which languages"):
            load_translator([folder])
    WordTokenizer(Vocabulary([*SPECIALS, *"abcdefghij"]), ["de", "en"]).save(folder)
    with pytest.raises(ValueError, match="has 14 tokens and the model 13"):
        load_translator([folder])


def test_tensors_are_stored_as_they_are(tmp_path):
    tensors = {
        "transposed": torch.arange(6.0).view(2, 3).T,
        "bytes": torch.arange(5, dtype=torch.uint8),
        "scalar": torch.tensor(7.0),
        "bf16": torch.tensor([0.1], dtype=torch.bfloat16),
        "with gradient": torch.ones(3, requires_grad=True),
    }
    save_tensors(tmp_path / "all", tensors, {"step": 3, "name": "zwei"})
    loaded, note = load_tensors(tmp_path / "all")
    assert note == {"step": 3, "name": "zwei"}
    assert loaded.keys() == tensors.keys()
    assert all(
        torch.equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )


@pytest.mark.parametrize("name", ["de-en", "de-en-best"])
def test_a_delivered_model_is_what_its_card_says(name: str) -> None:
    folder = DELIVERED.with_name(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 12_000_000
    model, info = load_checkpoint(folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,}" in (folder.parent / "README.md").read_text(encoding="utf-8")
    (translation,) = translate(model, load_tokenizer(folder), ["Ein Hund läuft durch das Gras."], info["src"])
    assert translation == "A dog runs through the grass."


SENTENCES = [
    "Ein Hund läuft durch das Gras.",
    "Eine Frau liest ein Buch im Park.",
    "Zwei Kinder spielen am Strand.",
    "Ein Mann mit Hut spielt auf der Straße Gitarre.",
    "Drei Männer arbeiten auf einem Dach.",
    "Ein Junge springt ins Wasser.",
    "Eine Gruppe von Menschen steht vor einem Gebäude.",
    "Ein kleines Mädchen in einem roten Kleid lacht.",
]


@torch.inference_mode()
def test_in_bfloat16_the_delivered_models_two_best_tokens_keep_most_of_their_digits():
    model, _ = load_checkpoint(DELIVERED)
    tokenizer = load_tokenizer(DELIVERED)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    errors = {in_bfloat16(model): [], copy.deepcopy(model).bfloat16(): []}
    for sentence in SENTENCES:  # on a single one, the two may be nearly alike
        src = torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]])
        tgt = torch.tensor([[BOS, *beam_search(model, src)[0].ids]])
        exact = model(src, tgt).log_softmax(dim=-1)
        best = exact.topk(2).indices
        for other, found in errors.items():
            difference = other(src, tgt).float().log_softmax(dim=-1) - exact
            found.append(difference.gather(-1, best).abs().flatten())
    low, plain = (torch.cat(found).mean() for found in errors.values())
    assert 0 < low < 0.75 * plain
    assert low < 0.01
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


def test_in_eight_bits_the_delivered_model_translates_nearly_alike() -> None:
    model, _ = load_checkpoint(DELIVERED)
    tokenizer, sources = load_tokenizer(DELIVERED), load_corpus("captions", "val").source[:100]
    exact, low = (translate(form, tokenizer, sources, "de") for form in (model, in_int8(model)))
    same = sum(found == expected for found, expected in zip(low, exact, strict=True))
    assert 80 <= same < 100, same
    assert bleu(low, exact)[0] > 90


def test_the_delivered_model_translates_captions_it_has_never_seen(multi30k: Path) -> None:
    model, info = load_checkpoint(DELIVERED)
    sources, references = (read_lines(multi30k / f"test_2016_flickr.{side}")[:100] for side in ("de", "en"))
    score, _ = bleu(translate(model, load_tokenizer(DELIVERED), sources, info["src"], beam=0), references)
    assert score > 35


def test_old_configurations_name_the_padding() -> None:
    assert json.loads((DELIVERED / "config.json").read_text(encoding="utf-8"))["model"]["pad_id"] == 0
    assert load_config(DELIVERED)[0] == TransformerConfig.small(6000)
