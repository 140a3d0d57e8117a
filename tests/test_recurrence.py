"""The LSTM encoder-decoder: by hand, against a loop over the positions, no leaks; training, searches, files."""

import copy

import pytest
import torch
from parity import assert_near, assert_same_gradients, randomise
from torch import nn
from torch.nn import functional as F

from annotated.__main__ import main
from annotated.config import BOS, EOS
from annotated.decoding import beam_search, greedy_decode
from annotated.encoder import Dropout
from annotated.masking import padding_mask
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.training import make_optimizer, set_rate, train_step
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import pad
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SPECIALS, load_tokenizer
from tests.models import assert_same

SIZES = dict(vocab_size=19, d_model=7, layers=3, dropout=0.0, max_length=17)
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 2, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 0], [3, 13, 14, 15]])

modes = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


def make_model(**changes) -> RecurrentTranslator:
    """Make a model in which every weight counts; a new one's are small and their effects hard to see."""
    return randomise(RecurrentTranslator(RecurrentConfig(**(SIZES | changes))))


def states_of(model: RecurrentTranslator, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
    """Compute what `logits` projects onto the vocabulary, all positions at once."""
    return model.decode(tgt, model.encode(src), padding_mask(src))


# By hand


def counting_model() -> RecurrentTranslator:
    """Make both LSTMs count: all gates are open and each step adds 1, so that after n steps the state is tanh n."""
    model = make_model(d_model=1, layers=1)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    for lstm in (model.encoder, model.decoder):
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.constant_(parameter, 50)
    return model


@torch.no_grad()
def test_the_memory_counts_from_both_ends_of_the_sentence():
    one, two, three = torch.tensor([1.0, 2.0, 3.0]).tanh()
    memory = counting_model().encode(torch.tensor([[4, 5, 6], [7, 2, 0]]))
    assert_near(memory[0], torch.stack([one, three, two, two, three, one]).view(3, 2))
    assert_near(memory[1, :2], torch.stack([one, two, two, one]).view(2, 2))


@torch.no_grad()
def test_the_decoder_starts_from_the_mean_of_the_real_memory_and_mixes_it_evenly_where_scores_are_equal():
    model = counting_model()
    memory, mask = torch.tensor([[[2.0, 5.0], [4.0, 1.0], [300.0, 300.0]]]), torch.tensor([[[[True, True, False]]]])
    model.combine.weight.copy_(torch.tensor([[0.1, 0.0, 0.0, 0.0]]))  # the first number of the context: (2 + 4) / 2
    assert_near(model.decode(torch.tensor([[1, 5]]), memory, mask).flatten(), torch.tensor([0.3, 0.3]).tanh())
    model.combine.weight.copy_(torch.tensor([[0.0, 0.0, 1.0, 0.0]]))  # the first number of the LSTM's output
    model.start.weight[2, 1] = 0.5  # its cell starts at tanh(0.5 · (5 + 1) / 2), and each step adds 1
    start = torch.tensor(1.5).tanh()
    expected = torch.stack([start + 1, start + 2]).tanh().tanh()
    assert_near(model.decode(torch.tensor([[1, 5]]), memory, mask).flatten(), expected)


# Against a loop


def run_cell(lstm: nn.LSTM, suffix: str, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> list:
    """Run one layer in one direction as Hochreiter & Schmidhuber (1997) and Gers et al. (2000) wrote it down."""
    W, U, b, c = (getattr(lstm, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    outputs = []
    for x in inputs:
        enter, forget, new, leave = (W @ x + b + U @ hidden + c).chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return outputs


def translate_slowly(model: RecurrentTranslator, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Compute the logits of one sentence without padding, position by position."""
    d_model, layers = model.config.d_model, model.config.layers
    memory = model.src_embedding.weight[source] * d_model**0.5
    zeros = torch.zeros(d_model)
    for layer in range(layers):
        forward = run_cell(model.encoder, f"l{layer}", memory, zeros, zeros)
        backward = run_cell(model.encoder, f"l{layer}_reverse", memory.flip(0), zeros, zeros)[::-1]
        memory = torch.cat((torch.stack(forward), torch.stack(backward)), dim=1)
    starts = model.start(memory.mean(dim=0)).tanh().view(2, layers, 2 * d_model)
    outputs = model.tgt_embedding.weight[target] * d_model**0.5
    for layer in range(layers):
        outputs = torch.stack(run_cell(model.decoder, f"l{layer}", outputs, *starts[:, layer]))
    rows = []
    for s in outputs:
        weights = torch.stack([h @ model.score.weight @ s for h in memory]) / (2 * d_model) ** 0.5
        context = weights.softmax(0) @ memory
        rows.append(model.output.weight @ model.combine(torch.cat((context, s))).tanh())
    return torch.stack(rows)


def test_logits_and_gradients_equal_those_of_a_loop_over_the_positions():
    model = make_model()
    logits = model(SOURCE, TARGET)
    one, other = translate_slowly(model, SOURCE[0], TARGET[0, :3]), translate_slowly(model, SOURCE[1, :3], TARGET[1])
    assert_near(logits[0, :3], one)
    assert_near(logits[1], other)
    assert_same_gradients(torch.cat((logits[0, :3], logits[1])), torch.cat((one, other)), list(model.parameters()))


def test_dropout_on_embeddings_and_attentional_states():
    model, seen = make_model(dropout=0.5).train(), []
    model.dropout.register_forward_hook(lambda module, arguments, output: seen.append(output))
    states = states_of(model, SOURCE, TARGET)
    assert [tuple(x.shape) for x in seen] == [(2, 5, 7), (2, 4, 7), (2, 4, 7)]
    assert seen[-1] is states
    assert all((x == 0).any() for x in seen)
    assert sum(isinstance(module, Dropout | nn.Dropout) for module in model.modules()) == 1
    assert model.encoder.dropout == model.decoder.dropout == 0


# No leak


@modes
def test_states_depend_on_these_tokens_and_no_others(training):
    # Every token stands in one place only, so the rows of the embeddings' gradient say which places a state can see.
    model = make_model().train(training)
    states = states_of(model, SOURCE, TARGET)
    for sentence, length in enumerate((3, 4)):
        for position in range(length):
            (gradient,) = torch.autograd.grad(
                states[sentence, position, 5], model.src_embedding.weight, retain_graph=True
            )
            expected = [*SOURCE[sentence].tolist(), *TARGET[sentence, : position + 1].tolist()]
            assert set(gradient.any(-1).nonzero().flatten().tolist()) == set(expected) - {0}


@torch.no_grad()
@modes
def test_padding_and_the_rest_of_the_batch_change_nothing(training):
    model = make_model().train(training)
    logits = model(SOURCE, TARGET)
    assert_near(model(F.pad(SOURCE, (0, 3)), F.pad(TARGET, (0, 2)))[:, :4], logits)
    assert_near(model(SOURCE[1:, :3], TARGET[1:])[0], logits[1])
    other = SOURCE.flip(1).index_copy(0, torch.tensor([1]), SOURCE[1:])
    assert_near(model(other, TARGET.roll(1, 1).index_copy(0, torch.tensor([1]), TARGET[1:]))[1], logits[1])
    assert not torch.allclose(model(other, TARGET)[0], logits[0])
    model.output.weight[0] = 100
    assert_near(model(SOURCE, TARGET)[TARGET != 0][:, 1:], logits[TARGET != 0][:, 1:])


def test_sentence_of_padding_stays_finite():
    model = make_model()
    logits = model(torch.tensor([[4, 5, 6], [0, 0, 0]]), torch.tensor([[1, 7], [0, 0]]))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# Cached decoding


@torch.no_grad()
def test_cache_changes_nothing():
    model = make_model().eval()
    src_mask, memory, tgt = padding_mask(SOURCE), model.encode(SOURCE), torch.randint(1, 19, (2, 6))
    whole = states_of(model, SOURCE, tgt)
    assert_near(model.decode(tgt, memory, src_mask), whole)
    for steps in ([1, 1, 1, 1, 1, 1], [4, 2], [1, 3, 2], [6]):
        cache = model.new_cache()
        states = [model.decode(new, memory, src_mask, cache=cache) for new in tgt.split(steps, dim=1)]
        assert_near(torch.cat(states, 1), whole)


@torch.no_grad()
def test_cache_follows_its_hypotheses():
    model = make_model().eval()
    cache = model.new_cache()
    tgt, source = torch.empty(2, 0, dtype=torch.long), SOURCE
    for rows in (
        [0, 0, 0, 1, 1, 1],  # one beginning becomes three
        [2, 0, 0, 4, 3, 3],  # another order
        [4, 3],  # the first sentence is finished, the second keeps two
        [1, 0, 1],
    ):
        new = torch.randint(1, 19, (len(tgt), 1))
        tgt = torch.cat((tgt, new), 1)
        states = model.decode(new, model.encode(source), padding_mask(source), cache=cache)
        assert_near(states, states_of(model, source, tgt)[:, -1:])
        cache.select(torch.tensor(rows))
        tgt, source = tgt[rows], source[rows]
    assert {tuple(x.shape) for x in cache.state} == {(3, 3, 14)}


# Training and searching


@pytest.fixture(scope="module")
def reverser() -> RecurrentTranslator:
    """Train a model to write a sentence backwards."""
    torch.manual_seed(3)
    model = RecurrentTranslator(RecurrentConfig(11, d_model=24, dropout=0.1, max_length=23))
    optimizer = make_optimizer(model)
    for step in range(150):
        set_rate(optimizer, 0.02 * min(1, 3 * (1 - step / 150)))
        train_step(model, *pairs(64), optimizer)
    return model.eval()


def pairs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    words = [torch.randint(len(SPECIALS), 11, (int(length),)) for length in torch.randint(1, 7, (count,))]
    src, tgt = [[*row.tolist(), EOS] for row in words], [[BOS, *row.flip(0).tolist(), EOS] for row in words]
    return pad(src), pad(tgt)


def test_it_learns_to_write_a_sentence_backwards(reverser):
    src, tgt = pairs(50)
    expected = [[token for token in row if token >= len(SPECIALS)] for row in tgt.tolist()]
    for found in (greedy_decode(reverser, src), beam_search(reverser, src)):
        assert sum(h.ids == ids for h, ids in zip(found, expected, strict=True)) >= 47


def test_searches_that_must_agree(reverser):
    model = copy.deepcopy(reverser)
    with torch.no_grad():
        model.output.weight *= 0.3  # to give it doubts
    src, _ = pairs(20)
    greedy = greedy_decode(model, src)
    assert_same(greedy_decode(model, src, use_cache=False), greedy)
    assert_same(beam_search(model, src, 1, 0.0), greedy)
    found = beam_search(model, src, 3, 1.0)
    assert_same(beam_search(model, src, 3, 1.0, use_cache=False), found)
    assert_same([beam_search(model, row[None], 3, 1.0)[0] for row in src], found)
    assert [h.ids for h in found] != [h.ids for h in greedy]
    assert len({len(h.ids) for h in found}) > 3, "sentences leave the batch at different times"


def test_from_the_command_line_it_trains_and_translates(corpus, tmp_path, capsys):
    out = str(tmp_path / "run")
    words = f"--source {corpus}/my.de --target {corpus}/my.en --out {out} --preset recurrent --vocab-size 300"
    assert main(["train", *words.split(), "--warmup", "7", "--epochs", "1"]) == 0
    model, _ = load_checkpoint(out)
    assert isinstance(model, RecurrentTranslator)
    capsys.readouterr()
    sentence = (corpus / "my.de").read_text(encoding="utf-8").splitlines()[0]
    assert main(["translate", out, sentence, "--beam", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == translate(model, load_tokenizer(out), [sentence], "de", beam=2)
