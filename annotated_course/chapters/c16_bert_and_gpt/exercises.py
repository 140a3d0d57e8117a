"""The exercises of chapter 16, BERT and GPT."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD
from annotated.models.bert import NO_TARGET, Bert, BertConfig
from annotated_course.exercises.exercise import AnyOf, Exercise, calls, draw, in_32_bits, is_same, on_paper, parts

EXERCISES: dict[str, Exercise] = {}
EXERCISES["16.1"] = on_paper(
    "A small GPT-2 on paper",
    [800.0, 4_800_000.0, math.log(10), 190.0],
    {
        "the biases are missing: 4·d in attention, d_ff + d in the feed-forward network.": (0, 692.0),
        "operations are 6 for each parameter and token: 2 forward, 4 backward.": AnyOf((1, 1.6e6), (1, 8e5)),
        "the loss is in nats: the natural logarithm.": (2, math.log2(10)),
        "half of 800 is not it: the parameters grow along with the vocabulary.": (3, 100.0),
        "the embedding of 10 words is replaced: 760 of the 800 parameters are left.": (3, 200.0),
    },
    tolerance=1e-3,  # 2.3 is near enough, 801 is not
)


def texts_of_words() -> tuple[Tensor, ...]:
    """Draw texts with words of one to three pieces, every fate, and numbers right at the borders."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 30, (6, 50), generator=generator)
    word = (torch.rand(6, 50, generator=generator) < 0.6).long().cumsum(dim=1)
    word[:, 0], ids[:, 0] = -1, BOS
    for row, length in enumerate((50, 50, 50, 50, 41, 40)):
        ids[row, length - 1], ids[row, length:] = EOS, PAD
        word[row, length - 1 :] = -1
    luck, fate = (torch.rand(6, 50, generator=generator) for _ in range(2))
    luck[:4] *= 0.3
    luck[:, 49] = 0.1  # of no word: what an index of −1 finds
    luck[0, word[0, 1:5]] = 0.15
    luck[1, word[1, 1:5]], fate[1, 1:5] = 0.0, torch.tensor([0.8, 0.9, 0.85, 0.95])
    return ids, word, luck, fate, torch.randint(4, 30, (6, 50), generator=generator)


def hide(ids: Tensor, word: Tensor, luck: Tensor, fate: Tensor, others: Tensor, mask_id: int) -> Any:
    """Hide whole words."""
    row, words = torch.arange(len(ids))[:, None], word >= 0
    chosen = words & (luck[row, word] < 0.15)
    masked, random = fate < 0.8, fate >= 0.9
    read = torch.where(chosen & random, others, torch.where(chosen & masked, mask_id, ids))
    targets = torch.where(chosen, ids, NO_TARGET)
    return read, targets


EXERCISES["16.2"] = Exercise(
    "Hide whole words",
    right=hide,
    cases=parts(calls(*texts_of_words(), 30), "what is read", "the targets"),
    mistakes={
        "where `word` is −1 nothing is chosen; as an index, −1 finds the last column.": "= words & → =",
        "luck is drawn for words: look it up by `word`, not by place.": "luck[row, word] → luck",
        "all pieces of a chosen word are chosen, not its first alone.": "words & → words & (word != word.roll(1, 1)) &",
        "fate decides: below 0.8 the mask, from 0.9 on the random token.": "< 0.8 → < 2; >= 0.9 → > 2",
        "those that stay, or become a random token, are predicted, too.": "where(chosen, → where(chosen & masked,",
    },
)


def unpack(weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Cut a weight and a bias into three each."""
    return *weight.T.chunk(3), *bias.chunk(3)


EXERCISES["16.3"] = Exercise(
    "Three matrices out of one",
    right=unpack,
    cases=parts(calls(draw(6, 18), draw(18)), *(kind + name for kind in ("W_", "the bias of ") for name in "qkv")),
    mistakes={
        "a Linear holds (out, in), the file (in, out): transpose.": "weight.T.chunk(3) → weight.chunk(3, dim=1)",
        "cut the columns, not the rows, before you transpose.": "weight.T.chunk(3) → weight.reshape(3, 6, 6)",
        "the three stand one after the other; you took every third number.": "bias.chunk(3) → bias.view(6, 3).T",
    },
)


IDS = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 4, 2, PAD, PAD], [1, 10, 2, PAD, PAD, PAD], [1, 7, 9, 10, 2, PAD]])
TO_PROBE = (IDS, torch.tensor([3, 2, 1, 1]), torch.tensor([2, 0, 1, 0]), 7, 0.3)


def small_bert(dropout: float) -> Bert:
    """Make a BERT of few and large random weights."""
    torch.manual_seed(0)
    model = Bert(BertConfig(12, d_model=8, d_ff=10, heads=2, layers=1, dropout=dropout, max_length=9)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@torch.no_grad()
def score(model: Bert, ids: Tensor, mask_id: int) -> Tensor:
    """Score a text token by token."""
    total, places = torch.zeros(len(ids), dtype=torch.double), torch.arange(ids.size(1))
    for i in range(ids.size(1)):
        hidden = (places == i) & (ids != PAD)
        log_p = model(ids.masked_fill(hidden, mask_id))[:, i].log_softmax(-1)
        total += log_p.gather(1, ids[:, i, None])[:, 0] * (ids[:, i] > EOS)
    return total


EXERCISES["16.4"] = Exercise(
    "How likely is a sentence to BERT?",
    right=score,
    cases={"": lambda answer: in_32_bits(answer(small_bert(dropout=0.0).eval(), IDS[:3], 11))},
    mistakes={
        "the token that is scored was visible: hide it behind the mask.": "places == i → places < 0",
        "all tokens were hidden at once; one after the other, the rest visible.": "places == i → places >= 0",
        "padding was scored, too.": "> EOS → >= PAD",
        "these are logits; take the log_softmax before you pick the token's.": ".log_softmax(-1) →",
        "<bos> and <eos> were scored, too; the model was never asked for them.": "> EOS → > PAD",
    },
)


def probe(model: Bert, ids: Tensor, at: Tensor, kinds: Tensor, updates: int, rate: float) -> Any:
    """Train W and b by hand."""
    before = model.training
    model.eval()
    with torch.no_grad():
        states = model.states(ids)[torch.arange(len(ids)), at]
    model.train(before)
    one_hot = F.one_hot(kinds).double()
    W, b = torch.zeros(one_hot.size(1), states.size(1)).double(), torch.zeros(one_hot.size(1)).double()
    for _ in range(updates):
        error = ((states @ W.T + b).softmax(-1) - one_hot) / len(ids)
        W, b = W - rate * error.T @ states, b - rate * error.sum(0)
    return W, b


def examine_model(answer: Callable[..., Any]) -> str | None:
    """Look at what has become of a model in training mode that holds a gradient."""
    model = small_bert(dropout=0.5)
    before = copy.deepcopy(model)
    model.embedding.weight.grad = torch.ones(12, 8).double()
    answer(model, *TO_PROBE)
    if not is_same(model.state_dict(), before.state_dict(), 0.0):
        return "the model's parameters have moved; only W and b are trained."
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    if not is_same(gradients, {"embedding.weight": torch.ones(12, 8).double()}):
        return "the gradients that the model holds have changed: compute the states under torch.no_grad()."
    if not all(module.training for module in model.modules()) or not all(p.requires_grad for p in model.parameters()):
        return "the model was in training mode before, and its parameters required gradients: leave it as it was."
    return None


EXERCISES["16.5"] = Exercise(
    "Probe, and touch nothing",
    right=probe,
    cases=parts(lambda answer: answer(small_bert(dropout=0.5), *TO_PROBE), "W", "b", place="of a model with dropout, "),
    mistakes={
        "read the states in evaluation mode: training mode has dropout.": "model.eval() → model.train()",
        "take the state at the place `at`, not the first one.": ", at] → , 0 * at]",
    },
    examine=examine_model,
    caught={
        "parameters have moved": "model.train(before) → model.train(before).embedding.weight.data.add_(0.1)",
        "under torch.no_grad()": "model.train(before) → model.train(before).zero_grad()",
        "the model was in training mode before": "model.train(before) →",
    },
)
