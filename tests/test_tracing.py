"""One sentence, traced: every tensor is the one that the model computes, and the last is the word that it writes."""

import pkgutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from annotated.attention import attention
from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.decoding import greedy_decode
from annotated.masking import causal_mask
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.positional_encoding import sinusoids
from annotated.transformer import Transformer
from annotated_course.tracing import DRAWN, LARGEST, WIDEST, Step, plot_trace, record_calls, thumbnail, trace
from annotated_workbench.checkpoint import load_run
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import SPECIALS, CharacterTokenizer, Vocabulary

SENTENCE = "abcab"
SOURCE = torch.tensor([[4, 5, 6, 4, 5, EOS]])
SIZES = dict(d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=3, max_length=17)


@pytest.fixture(autouse=True)
def no_window():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture
def tokenizer() -> CharacterTokenizer:
    return CharacterTokenizer(Vocabulary([*SPECIALS, *"abcdefghi"]))


def make_model(**changes) -> Transformer:
    return Transformer(TransformerConfig(13, **(SIZES | dict(dropout=0.5) | changes)))


def writing() -> Transformer:
    """A model with random weights that writes at least three tokens."""
    for seed in range(99):
        torch.manual_seed(seed)
        model = make_model()
        if len(greedy_decode(model, SOURCE)[0].ids) >= 3:
            return model
    raise AssertionError("no such model")


def by_name(steps: list[Step]) -> dict[tuple[str, str], torch.Tensor]:
    """The tensors by part and name; of two with the same name, as the sums in a decoder layer, the last."""
    return {(step.part, step.name): step.tensor for step in steps}


@pytest.mark.parametrize("written", [0, 3])
def test_names_and_shapes_in_order(tokenizer: CharacterTokenizer, written: int) -> None:
    states, read = (1, 6, 14), written + 1
    asked = (1, read, 14)
    encoder = "encoder layer 0"
    assert [(step.part, step.name, step.shape) for step in trace(writing(), tokenizer, SENTENCE, written=written)] == [
        ("source", "source ids", (1, 6)),
        ("source", "embeddings", states),
        ("source", "positional encoding", (6, 14)),
        ("source", "encoder input", states),
        (encoder, "queries", (1, 2, 6, 3)),
        (encoder, "keys", (1, 2, 6, 3)),
        (encoder, "values", (1, 2, 6, 5)),
        (encoder, "self-attention weights", (1, 2, 6, 6)),
        (encoder, "heads", (1, 6, 10)),
        (encoder, "multi-head attention", states),
        (encoder, "add & norm", states),
        (encoder, "hidden layer", (1, 6, 11)),
        (encoder, "feed-forward", states),
        (encoder, "add & norm: output of layer 0", states),
        ("encoder", "output of layer 1", states),
        ("encoder", "output of layer 2: memory", states),
        ("target", "target ids", (1, read)),
        ("target", "decoder input", asked),
        ("decoder layer 0", "masked self-attention weights", (1, 2, read, read)),
        ("decoder layer 0", "add & norm", asked),
        ("decoder layer 0", "cross-attention weights", (1, 2, read, 6)),
        ("decoder layer 0", "add & norm", asked),
        ("decoder layer 0", "add & norm: output of layer 0", asked),
        ("decoder", "output of layer 1", asked),
        ("decoder", "output of layer 2: states", asked),
        ("next token", "logits", (1, 13)),
        ("next token", "probabilities", (1, 13)),
        ("next token", "chosen id", (1,)),
    ]


@pytest.fixture
def trained() -> Transformer:
    """A model whose gains and biases are not 1 and 0, as after training."""
    model = make_model().eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1, std=0.3)
    return model


@pytest.mark.parametrize("written", [0, 2])
@torch.no_grad()
def test_every_tensor_is_what_its_formula_says(
    tokenizer: CharacterTokenizer, trained: Transformer, written: int
) -> None:
    model = trained
    found = by_name(trace(model, tokenizer, SENTENCE, written=written))
    embedded = model.src_embedding(SOURCE) * 14**0.5
    encoding = sinusoids(6, 14)
    layer = model.encoder.layers[0]
    x = embedded + encoding
    query, key, value = (layer.self_attention.split(getattr(layer.self_attention, f"W_{w}")(x)) for w in "qkv")
    weights = (query @ key.transpose(-2, -1) / 3**0.5).softmax(dim=-1)
    heads = attention(query, key, value).transpose(1, 2).flatten(2)
    mixed = heads @ layer.self_attention.W_o.weight.T
    normed = layer.residuals[0].norm(x + mixed)
    hidden = layer.feed_forward.W_1(normed).relu()
    memory = model.encode(SOURCE)
    read = torch.tensor([[BOS, *greedy_decode(model, SOURCE)[0].ids[:written]]])
    assert read.size(1) == 1 + written
    states = model.decode(read, memory, None)
    logits = model(SOURCE, read)[:, -1]
    probabilities = logits.softmax(dim=-1).index_fill(-1, torch.tensor([PAD, BOS]), 0.0)
    expected = {
        ("source", "source ids"): SOURCE,
        ("source", "embeddings"): embedded,
        ("source", "positional encoding"): encoding,
        ("source", "encoder input"): x,
        ("encoder layer 0", "queries"): query,
        ("encoder layer 0", "keys"): key,
        ("encoder layer 0", "values"): value,
        ("encoder layer 0", "self-attention weights"): weights,
        ("encoder layer 0", "heads"): heads,
        ("encoder layer 0", "multi-head attention"): mixed,
        ("encoder layer 0", "add & norm"): normed,
        ("encoder layer 0", "hidden layer"): hidden,
        ("encoder layer 0", "feed-forward"): layer.feed_forward(normed),
        ("encoder layer 0", "add & norm: output of layer 0"): layer(x),
        ("encoder", "output of layer 1"): model.encoder.layers[1](layer(x)),
        ("encoder", "output of layer 2: memory"): memory,
        ("target", "target ids"): read,
        ("target", "decoder input"): model.tgt_embedding(read) * 14**0.5 + encoding[: 1 + written],
        ("decoder", "output of layer 2: states"): states,
        ("next token", "logits"): logits,
        ("next token", "probabilities"): probabilities,
    }
    for place, tensor in expected.items():
        torch.testing.assert_close(
            found[place], tensor, rtol=0, atol=1e-5, msg=lambda text, place=place: f"{place}: {text}"
        )
    decoder = model.decoder.layers[0]
    first = decoder(found["target", "decoder input"], memory, causal_mask(1 + written))
    torch.testing.assert_close(found["decoder layer 0", "add & norm: output of layer 0"], first, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        found["decoder layer 0", "cross-attention weights"].sum(dim=-1),
        torch.ones(1, 2, 1 + written),
        rtol=0,
        atol=1e-5,
    )
    looking = found["decoder layer 0", "masked self-attention weights"]
    torch.testing.assert_close(looking.sum(dim=-1), torch.ones(1, 2, 1 + written), rtol=0, atol=1e-5)
    assert torch.equal(looking, looking.tril()) and bool((looking.diagonal(dim1=-2, dim2=-1) > 0).all())


@pytest.mark.parametrize("sentence", ["Ein Hund läuft durch den Schnee.", "Zwei Kinder spielen.", "Der Mann mit Hut"])
def test_the_last_row_is_the_word_that_greedy_search_writes_next(sentence: str) -> None:
    model, tokenizer, _ = load_run(DATA_FOLDER / "checkpoints" / "de-en")
    (translation,) = greedy_decode(model, torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]]))
    for written, token in enumerate([*translation.ids, EOS]):
        last = trace(model, tokenizer, sentence, written=written)[-1]
        assert last.tensor.tolist() == [token]
        assert last.tokens == (SPECIALS[EOS] if token == EOS else tokenizer.decode([token]),)


def test_the_words_of_ids_are_shown_specials_too(tokenizer: CharacterTokenizer) -> None:
    steps = trace(make_model(), tokenizer, "ab?")
    assert [step.tokens for step in steps if step.name.endswith("ids")] == [("a", "b", "<unk>", "<eos>"), ("<bos>",)]


def test_where_each_tensor_is_computed_exists(tokenizer: CharacterTokenizer) -> None:
    learned = trace(make_model(positions="learned"), tokenizer, SENTENCE)
    for step in [*learned, *trace(make_model(), tokenizer, SENTENCE)]:
        assert callable(pkgutil.resolve_name(step.where)), step.where
    assert "LearnedEncoding" in learned[2].where


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(tokenizer: CharacterTokenizer, training: bool) -> None:
    model = make_model().train(training)
    one, other = trace(model, tokenizer, SENTENCE), trace(model, tokenizer, SENTENCE)
    assert all(torch.equal(step.tensor, again.tensor) for step, again in zip(one, other, strict=True))  # no dropout
    assert model.training is training
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_are_removed_after_an_error() -> None:
    model = make_model()
    with pytest.raises(IndexError), record_calls(model) as calls:
        model.encode(torch.tensor([[99]]))
    assert not calls and not any(module._forward_hooks for module in model.modules())


def test_what_cannot_be_traced_is_named(tokenizer: CharacterTokenizer) -> None:
    with pytest.raises(TypeError, match="RecurrentTranslator"):
        trace(RecurrentTranslator(RecurrentConfig(13)), tokenizer, SENTENCE)
    with pytest.raises(ValueError, match="norm_first=True"):
        trace(make_model(norm_first=True), tokenizer, SENTENCE)
    with pytest.raises(ValueError, match="activation='gelu'"):
        trace(make_model(activation="gelu"), tokenizer, SENTENCE)
    with pytest.raises(ValueError, match="'' has no tokens"):
        trace(make_model(), tokenizer, "")
    with pytest.raises(ValueError, match="max_length"):
        trace(make_model(), tokenizer, "a" * 17)
    for written in (-1, 99):
        with pytest.raises(ValueError, match=f"written={written}: the translation has"):
            trace(make_model(), tokenizer, SENTENCE, written=written)


def test_the_figure_shows_ten_stations_downwards(tokenizer: CharacterTokenizer) -> None:
    steps = trace(writing(), tokenizer, SENTENCE, written=3)
    figure = plot_trace(steps, "abcab, traced", ["first"])
    words = [text.get_text() for text in figure.texts]
    assert words[0] == "abcab, traced"
    assert [word for word in words if word[0].isdigit()] == [f"{i}  {row.name}" for i, row in enumerate(DRAWN)]
    assert [word.split("     ")[1] for word in words if "     " in word] == [
        *("6", "6 × 14", "6 × 14", "2 × 6 × 6", "6 × 11", "6 × 14", "4", "2 × 4 × 4", "2 × 4 × 6", "13")
    ]
    heights = [ax.get_position().y0 for ax in figure.axes]
    assert heights == sorted(heights, reverse=True) and heights[-1] > 0
    assert figure.axes[0].texts[0].get_text() == "a\nfirst"
    assert [text.get_text() for text in figure.axes[0].texts[1:]] == [*SENTENCE[1:], "<eos>"]


def test_the_figure_shows_the_models_numbers_on_one_scale_and_words_at_the_weights(
    tokenizer: CharacterTokenizer,
) -> None:
    model = writing()
    steps = trace(model, tokenizer, SENTENCE, written=3)
    found = by_name(steps)
    axes = plot_trace(steps, english=["first"]).axes
    source, target = ["a · first", "b", "c", "a", "b", "<eos>"], list(steps[16].tokens)
    drawn = [(ax, ax.images[0].get_array()) for ax in axes if ax.images]
    shown = {
        0: found["source", "embeddings"][0],
        1: found["source", "positional encoding"],
        2: found["encoder layer 0", "self-attention weights"][0, 0],
        4: found["encoder layer 0", "hidden layer"][0],
        5: found["encoder", "output of layer 2: memory"][0],
        7: found["decoder layer 0", "masked self-attention weights"][0, 1],
        9: found["decoder layer 0", "cross-attention weights"][0, 1],
    }
    for i, tensor in shown.items():
        assert torch.equal(torch.from_numpy(np.asarray(drawn[i][1])), tensor)
    for i, (ax, _) in enumerate(drawn):
        assert ax.images[0].get_clim() == ((-LARGEST, LARGEST) if i in (0, 1, 4, 5) else (0, 1))  # white is zero
    for i, rows, columns in [(2, source, source), (6, target, target), (8, target, source)]:
        assert [label.get_text() for label in drawn[i][0].get_yticklabels()] == rows
        assert [label.get_text() for label in drawn[i][0].get_xticklabels()] == columns
    bars = axes[-1].patches
    likeliest = found["next token", "probabilities"][0].topk(len(bars))
    torch.testing.assert_close(torch.tensor([bar.get_width() for bar in bars]), likeliest.values.double())
    labels = [label.get_text() for label in axes[-1].get_yticklabels()]
    assert labels == [([*SPECIALS, *"abcdefghi"])[i] for i in likeliest.indices]
    assert len(labels) == 5


def test_of_a_wide_positional_encoding_the_figure_shows_the_first_columns_and_says_so(
    tokenizer: CharacterTokenizer,
) -> None:
    steps = trace(make_model(d_model=80), tokenizer, SENTENCE)
    figure = plot_trace(steps)
    embeddings, encoding = (ax.images[0].get_array() for ax in figure.axes[1:3])
    assert embeddings.shape == (6, 80)
    assert torch.equal(torch.from_numpy(np.asarray(encoding)), by_name(steps)["source", "positional encoding"][:, :64])
    sizes = [text.get_text().split("     ")[1] for text in figure.texts if "     " in text.get_text()]
    assert sizes[1:3] == ["6 × 80", "6 × 80, first 64 columns"]


def test_the_figure_frames_a_row_of_the_cross_attention_when_asked(tokenizer: CharacterTokenizer) -> None:
    steps = trace(writing(), tokenizer, SENTENCE, written=3)
    assert not [patch for ax in plot_trace(steps).axes[:-1] for patch in ax.patches]
    axes = plot_trace(steps, framed=(1, 3)).axes[:-1]
    ((number, frame),) = [(i, patch) for i, ax in enumerate(axes) for patch in ax.patches]
    assert axes[number].get_xlabel() == "head 1" and axes[number].images[0].get_array().shape == (4, 6)
    assert frame.get_bbox().bounds == (-0.5, 2.5, 6, 1)


def test_each_bar_says_its_probability(tokenizer: CharacterTokenizer) -> None:
    steps = trace(writing(), tokenizer, SENTENCE, written=3)
    bars = plot_trace(steps).axes[-1]
    likeliest = by_name(steps)["next token", "probabilities"][0].topk(5).values
    assert [text.get_text() for text in bars.texts] == [f"{probability:.0%}" for probability in likeliest.tolist()]


def test_a_model_of_one_layer_has_a_memory_too(tokenizer: CharacterTokenizer) -> None:
    steps = trace(make_model(layers=1), tokenizer, SENTENCE)
    memory = plot_trace(steps).axes[6].images[0].get_array()
    assert torch.equal(torch.from_numpy(np.asarray(memory)), steps[13].tensor[0])


def test_a_thumbnail_has_positions_below_each_other_and_heads_side_by_side() -> None:
    heads = torch.arange(12.0).reshape(1, 2, 3, 2)
    assert thumbnail(heads).tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    wide = torch.zeros(1, 4 * WIDEST)
    wide[0, 5] = 1
    assert thumbnail(wide).shape == (1, WIDEST) and thumbnail(wide)[0].nonzero()[0].tolist() == [1]
