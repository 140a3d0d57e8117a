"""The LSTM encoder-decoder against a loop over the positions, and its dropout; `test_architectures` trains one."""

import torch
from parity import assert_near, assert_same_gradients, maker
from torch import nn

from annotated.encoder import Dropout
from annotated.masking import padding_mask
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator

make_model = maker(RecurrentTranslator, RecurrentConfig, vocab_size=19, d_model=7, layers=3, dropout=0.0, max_length=17)
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 2, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 0], [3, 13, 14, 15]])


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
    states = model.decode(TARGET, model.encode(SOURCE), padding_mask(SOURCE))
    assert [tuple(x.shape) for x in seen] == [(2, 5, 7), (2, 4, 7), (2, 4, 7)]
    assert seen[-1] is states
    assert all((x == 0).any() for x in seen)
    assert sum(isinstance(module, Dropout | nn.Dropout) for module in model.modules()) == 1
    assert model.encoder.dropout == model.decoder.dropout == 0
