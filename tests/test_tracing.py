"""One sentence, traced: every tensor is the one that the model computes, and the last is the word that it writes."""

import numpy as np
import pytest
import torch

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.decoding import greedy_decode
from annotated.positional_encoding import sinusoids
from annotated.transformer import Transformer
from annotated_course.tracing import DRAWN, LARGEST, WIDEST, Step, plot_trace, record_calls, thumbnail, trace
from annotated_workbench.checkpoint import load_run
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import SPECIALS, CharacterTokenizer, Vocabulary
from tests.test_figures import no_window, words  # noqa: F401

SENTENCE = "abcab"
SOURCE = torch.tensor([[4, 5, 6, 4, 5, EOS]])
SIZES = dict(d_model=14, d_ff=11, heads=2, d_k=3, d_v=5, layers=3, max_length=17, dropout=0.5)
TOKENIZER = CharacterTokenizer(Vocabulary([*SPECIALS, *"abcdefghi"]))


def make_model(**changes) -> Transformer:
    return Transformer(TransformerConfig(13, **(SIZES | changes)))


@pytest.fixture(scope="module")
def model() -> Transformer:
    """A model that writes at least three tokens, whose gains and biases are not 1 and 0, as after training."""
    for seed in range(99):
        torch.manual_seed(seed)
        model = make_model()
        for parameter in model.parameters():
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, mean=1, std=0.3)
        if len(greedy_decode(model, SOURCE)[0].ids) >= 3:
            return model.eval()
    raise AssertionError("no such model")


def by_name(steps: list[Step]) -> dict[tuple[str, str], torch.Tensor]:
    """The tensors by part and name; of two with the same name, as the sums in a decoder layer, the last."""
    return {(step.part, step.name): step.tensor for step in steps}


@pytest.mark.parametrize("written", [0, 3])
@torch.no_grad()
def test_each_tensor_follows_from_those_before_it_and_the_last_are_the_models_own(model, written: int) -> None:
    steps = trace(model, TOKENIZER, SENTENCE, written=written)
    traced, layer = by_name(steps), model.encoder.layers[0]
    x, memory = traced["source", "encoder input"], traced["encoder", "output of layer 2: memory"]
    read = traced["target", "target ids"]
    queries, keys, values, weights, heads, mixed, normed, hidden, fed, output = (
        step.tensor for step in steps if step.part == "encoder layer 0"
    )
    logits = model(SOURCE, read)[:, -1]
    assert read.tolist() == [[BOS, *greedy_decode(model, SOURCE)[0].ids[:written]]]
    for tensor, expected in [
        (x, model.src_embedding(SOURCE) * 14**0.5 + sinusoids(6, 14)),
        (queries, layer.self_attention.split(x @ layer.self_attention.W_q.weight.T)),
        (weights, (queries @ keys.mT / 3**0.5).softmax(dim=-1)),
        (heads, (weights @ values).transpose(1, 2).flatten(2)),
        (mixed, heads @ layer.self_attention.W_o.weight.T),
        (fed, layer.feed_forward.W_2(hidden)),
        (output, layer.residuals[1].norm(normed + fed)),
        (output, layer(x)),
        (memory, model.encode(SOURCE)),
        (traced["decoder", "output of layer 2: states"], model.decode(read, memory, None)),
        (traced["next token", "logits"], logits),
        (traced["next token", "probabilities"], logits.softmax(dim=-1).index_fill(-1, torch.tensor([PAD, BOS]), 0)),
    ]:
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-5)
    looking = traced["decoder layer 0", "masked self-attention weights"]
    assert torch.equal(looking, looking.tril()) and bool((looking.diagonal(dim1=-2, dim2=-1) > 0).all())
    assert traced["decoder layer 0", "cross-attention weights"].shape == (1, 2, 1 + written, 6)


def test_the_last_row_is_the_word_that_greedy_search_writes_next() -> None:
    sentence = "Ein Hund läuft durch den Schnee."
    model, tokenizer, _ = load_run(DATA_FOLDER / "checkpoints" / "de-en")
    (translation,) = greedy_decode(model, torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]]))
    for written, token in enumerate([*translation.ids, EOS]):
        last = trace(model, tokenizer, sentence, written=written)[-1]
        assert last.tensor.tolist() == [token]
        assert last.tokens == (SPECIALS[EOS] if token == EOS else tokenizer.decode([token]),)


def test_the_model_is_left_as_it_was() -> None:
    model = make_model().train()
    first, second = trace(model, TOKENIZER, SENTENCE), trace(model, TOKENIZER, SENTENCE)
    assert all(torch.equal(*(step.tensor for step in pair)) for pair in zip(first, second, strict=True))  # no dropout
    assert model.training
    with pytest.raises(IndexError), record_calls(model):
        model.encode(torch.tensor([[99]]))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("model", "sentence", "written", "said"),
    [
        (lambda: make_model(norm_first=True), SENTENCE, 0, "norm_first=True"),
        (lambda: make_model(activation="gelu"), SENTENCE, 0, "activation='gelu'"),
        (make_model, "a" * 17, 0, "max_length"),
        (make_model, SENTENCE, -1, "written=-1: the translation has"),
        (make_model, SENTENCE, 99, "written=99: the translation has"),
    ],
)
def test_what_cannot_be_traced_is_named(model, sentence: str, written: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        trace(model(), TOKENIZER, sentence, written=written)


def test_the_figure_shows_ten_stations_with_the_models_numbers_on_one_scale_and_words_beside(model) -> None:
    steps = trace(model, TOKENIZER, SENTENCE, written=3)
    traced, figure = by_name(steps), plot_trace(steps, "abcab, traced", ["first"], framed=(1, 3))
    texts = words(figure.texts)
    assert [text for text in texts if text[0].isdigit()] == [f"{i}  {row.name}" for i, row in enumerate(DRAWN)]
    assert [text.split("     ")[1] for text in texts if "     " in text] == [
        *("6", "6 × 14", "6 × 14", "2 × 6 × 6", "6 × 11", "6 × 14", "4", "2 × 4 × 4", "2 × 4 × 6", "13")
    ]
    assert words(figure.axes[0].texts) == ["a\nfirst", *SENTENCE[1:], "<eos>"]
    maps = [ax for ax in figure.axes if ax.images]
    source, target = ["a · first", "b", "c", "a", "b", "<eos>"], list(steps[16].tokens)
    for i, tensor, rows, columns in [
        (0, traced["source", "embeddings"][0], source, []),
        (2, traced["encoder layer 0", "self-attention weights"][0, 0], source, source),
        (5, traced["encoder", "output of layer 2: memory"][0], source, []),
        (6, traced["decoder layer 0", "masked self-attention weights"][0, 0], target, target),
        (8, traced["decoder layer 0", "cross-attention weights"][0, 0], target, source),
    ]:
        assert torch.equal(torch.from_numpy(np.asarray(maps[i].images[0].get_array())), tensor)
        assert maps[i].images[0].get_clim() == ((0, 1) if columns else (-LARGEST, LARGEST))  # white is zero
        assert words(maps[i].get_yticklabels()) == rows and words(maps[i].get_xticklabels()) == columns
    ((number, frame),) = [(i, patch) for i, ax in enumerate(maps) for patch in ax.patches]
    assert number == 9 and maps[9].get_xlabel() == "head 1" and frame.get_bbox().bounds == (-0.5, 2.5, 6, 1)
    likeliest, bars = traced["next token", "probabilities"][0].topk(5), figure.axes[-1]
    torch.testing.assert_close(torch.tensor([bar.get_width() for bar in bars.patches]), likeliest.values.double())
    assert words(bars.get_yticklabels()) == [[*SPECIALS, *"abcdefghi"][i] for i in likeliest.indices]


def test_a_wide_encoding_is_cropped_and_a_single_layer_gives_the_memory() -> None:
    steps = trace(make_model(d_model=80, layers=1), TOKENIZER, SENTENCE)
    figure = plot_trace(steps, english=["$$"] * 6)  # which is no formula
    figure.draw_without_rendering()
    assert torch.equal(torch.from_numpy(np.asarray(figure.axes[6].images[0].get_array())), steps[13].tensor[0])
    assert figure.axes[2].images[0].get_array().shape == (6, 64)
    assert any(text.endswith("6 × 80, first 64 columns") for text in words(figure.texts))


def test_of_many_columns_a_thumbnail_shows_the_largest_of_each_few() -> None:
    wide = torch.zeros(1, 4 * WIDEST)
    wide[0, 5] = 1
    assert thumbnail(wide).shape == (1, WIDEST) and thumbnail(wide)[0, :3].tolist() == [0, 1, 0]
