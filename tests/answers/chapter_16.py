"""Wrong answers to the exercises of chapter 16, each with a pattern of its diagnosis; and other right answers."""

import copy
import math
from collections.abc import Callable

import torch

from annotated_course.exercises.chapter_16 import _hidden, _probe, _scores


def hidden(**change) -> Callable:
    """What is read, and the targets, with a mistake."""
    return lambda *given: _hidden(*given, **change)


def hidden_in_place(ids, word, luck, fate, others, mask_id):
    chosen = (luck.gather(1, word.clamp(min=0)) < 0.15) & (word >= 0)
    targets = ids.clone()
    targets[~chosen] = -100
    ids[chosen & (fate < 0.8)] = mask_id
    ids[chosen & (fate >= 0.9)] = others[chosen & (fate >= 0.9)]
    return ids, targets


def hidden_targets_too_late(ids, word, luck, fate, others, mask_id):
    chosen = (luck.gather(1, word.clamp(min=0)) < 0.15) & (word >= 0)
    ids[chosen & (fate < 0.8)] = mask_id
    ids[chosen & (fate >= 0.9)] = others[chosen & (fate >= 0.9)]
    return ids, ids.masked_fill(~chosen, -100)


def hidden_one_by_one(ids, word, luck, fate, others, mask_id):
    read, targets = ids.clone(), torch.full_like(ids, -100)
    for row, column in (word >= 0).nonzero().tolist():
        if luck[row, word[row, column]] >= 0.15:
            continue
        targets[row, column] = ids[row, column]
        if fate[row, column] < 0.8:
            read[row, column] = mask_id
        elif fate[row, column] >= 0.9:
            read[row, column] = others[row, column]
    return read, targets


def thirds(weight, bias):
    return (*(part.T for part in weight.chunk(3, dim=1)), *bias.chunk(3))


def thirds_by_slices(weight, bias):
    d = len(weight)
    return [weight.T[i * d : (i + 1) * d] for i in range(3)] + [bias[i * d : (i + 1) * d] for i in range(3)]


def as_it_is(weight, bias):
    return (*weight.chunk(3, dim=1), *bias.chunk(3))


def by_rows(weight, bias):
    return (*weight.reshape(3, 6, 6), *bias.chunk(3))


def by_rows_transposed(weight, bias):
    return (*(part.T for part in weight.reshape(3, 6, 6)), *bias.chunk(3))


def every_third(weight, bias):
    return (*(weight[:, i::3].T for i in range(3)), *(bias[i::3] for i in range(3)))


def every_third_bias(weight, bias):
    return (*thirds(weight, bias)[:3], *(bias[i::3] for i in range(3)))


def by_head(weight, bias):
    parts = weight.reshape(6, 2, 3, 3).permute(2, 0, 1, 3).flatten(2)
    return (*(part.T for part in parts), *bias.chunk(3))


def in_order(*order) -> Callable:
    """The right six, in another order."""
    return lambda weight, bias: [thirds(weight, bias)[i] for i in order]


def scored(**change) -> Callable:
    """The score with a mistake."""
    return lambda model, ids, mask_id: _scores(model, ids, mask_id, **change)


def scored_text_by_text(model, ids, mask_id):
    """Right, one text after the other and without its padding."""
    found = []
    for row in ids:
        row = row[row != 0]
        gaps = row.repeat(len(row), 1)
        gaps.fill_diagonal_(mask_id)
        log_p = model(gaps).log_softmax(dim=-1)
        words = range(1, len(row) - 1)
        found.append(log_p[words, words, row[1:-1]].sum())
    return torch.stack(found)


def scored_in_place(model, ids, mask_id):
    read, total = ids.clone(), 0
    for place in range(ids.size(1)):
        real, token = ids[:, place] > 2, ids[:, place, None]
        read[real, place] = mask_id
        total = total + real * model(read)[:, place].log_softmax(dim=-1).gather(1, token)[:, 0]
        read[:, place] = ids[:, place]
    return total


def probed(**change) -> Callable:
    """The probe with a mistake."""
    return lambda *given: _probe(*given, **change)


def probed_by_autograd(model, ids, at, kinds, updates, rate, module=None, grad=False, back=True, evaluate=True):
    """Right by default: an output layer of zeros and the library's optimizer."""
    was = model.training
    if evaluate:
        model.eval()
    with torch.set_grad_enabled(grad):
        states = model.states(ids)[torch.arange(len(ids)), at]
    if back:
        model.train(was)
    output = module or torch.nn.Linear(states.size(1), int(kinds.max()) + 1).double()
    if module is None:
        torch.nn.init.zeros_(output.weight)
        torch.nn.init.zeros_(output.bias)
    optimizer = torch.optim.SGD(output.parameters(), lr=rate)
    for _ in range(updates):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(output(states), kinds).backward(retain_graph=grad)
        optimizer.step()
    return output.weight.detach(), output.bias.detach()


def probed_with_gradients(*given):
    return probed_by_autograd(*given, grad=True)


def probed_and_cleared(model, *given):
    found = _probe(model, *given)
    model.zero_grad()
    return found


def probed_and_left_in_evaluation(*given):
    return probed_by_autograd(*given, back=False)


def probed_with_dropout(*given):
    return probed_by_autograd(*given, evaluate=False)


def probed_from_random(model, ids, at, kinds, updates, rate):
    return probed_by_autograd(model, ids, at, kinds, updates, rate, module=torch.nn.Linear(8, 3).double())


def probed_frozen(model, *given):
    """What stays behind: a model that no longer learns."""
    model.requires_grad_(False)
    return _probe(model, *given)


def probed_on_a_copy(model, *given):
    return probed_by_autograd(copy.deepcopy(model), *given, grad=True, back=False)


def probed_and_tuned(model, ids, at, kinds, updates, rate):
    found = _probe(model, ids, at, kinds, updates, rate)
    with torch.no_grad():
        model.head.bias += 0.1
    return found


WRONG = [
    ("16.1", [576, 3_456_000, math.log(10)], "12·N·d² alone"),
    ("16.1", [792, 4_752_000, math.log(10)], "last LayerNorm is missing"),
    ("16.1", [780, 4_680_000, math.log(10)], "positions are missing"),
    ("16.1", [760, 4_560_000, math.log(10)], "embedding is missing"),
    ("16.1", [840, 5_040_000, math.log(10)], "counts once"),
    ("16.1", [752, 4_512_000, math.log(10)], "LayerNorms are missing"),
    ("16.1", [692, 4_152_000, math.log(10)], "biases are missing"),
    ("16.1", [836, 5_016_000, math.log(10)], "that is BERT's"),
    ("16.1", [800, 1_600_000, math.log(10)], "2 forward, 4 backward"),
    ("16.1", [800, 800_000, math.log(10)], "you have one for each"),
    ("16.1", [800, 4800, math.log(10)], "for all 1,000 tokens"),
    ("16.1", [800, 3_456_000, math.log(10)], r"not 12·N·d²"),
    ("16.1", [800, 4_800_000, math.log2(10)], "natural logarithm"),
    ("16.1", [800, 4_800_000, 0.1], "is a probability"),
    ("16.1", [800, 4_800_000, -math.log(10)], "above 0"),
    ("16.1", [800, 4_800_000, 10], "perplexity"),
    ("16.1", [801, 4_800_000, math.log(10)], "parameters are not 801"),
    ("16.1", [800, 4_800_000, 2.5], "number 2, counted from 0, is not 2.5"),
    ("16.1", [800, 4_800_000], "give three numbers"),
    ("16.1", [800, 4_806_000, math.log(10)], "operations are not 4,806,000"),
    ("16.2", hidden(marks=True), "`word` is −1 nothing is chosen"),
    ("16.2", hidden(by_place=True), "by `word`, not by place"),
    ("16.2", hidden(first=True), "not its first alone"),
    ("16.2", hidden(lucky="above"), "below 0.15"),
    ("16.2", hidden(lucky="up to"), "at luck 0.15 itself"),
    ("16.2", hidden(fates="up to"), "at fate 0.8 itself"),
    ("16.2", hidden(fates="behind"), "at fate 0.9 itself"),
    ("16.2", hidden(everywhere=True), "only chosen tokens may change"),
    ("16.2", hidden(fates="always"), "you hide all chosen ones"),
    ("16.2", hidden(fates="no words"), "the random token stands in the token's place"),
    ("16.2", hidden(fates="no rest"), "between 0.8 and 0.9 the token stays as it is"),
    ("16.2", hidden(fates="swapped"), "the mask is for fates below 0.8"),
    ("16.2", hidden(fates="tenth"), "the random token comes from 0.9 on"),
    ("16.2", hidden(targets="all"), "the targets: a token that was not chosen"),
    ("16.2", hidden(targets="masked"), "or become a random token, are predicted, too"),
    ("16.2", hidden(targets="changed"), "stays as it is is predicted, too"),
    ("16.2", hidden_targets_too_late, "the ids from before"),
    ("16.2", hidden(empty=0), "not 0"),
    ("16.2", hidden(empty=-1), "not −1"),
    ("16.2", lambda *given: _hidden(*given)[0], "returns two tensors"),
    ("16.2", lambda *given: (_hidden(*given)[0].float(), _hidden(*given)[1]), "expected torch.int64"),
    ("16.2", lambda *given: print(end=""), "[Dd]oes it end in a return"),
    ("16.3", as_it_is, "W_q: a Linear holds"),
    ("16.3", by_rows, "cut the columns"),
    ("16.3", by_rows_transposed, "only counted the numbers off"),
    ("16.3", every_third, "every third column"),
    ("16.3", every_third_bias, "every third number"),
    ("16.3", by_head, "not mixed by head"),
    ("16.3", in_order(2, 1, 0, 3, 4, 5), "W_q: these are those of v"),
    ("16.3", in_order(0, 2, 1, 3, 4, 5), "W_k: these are those of v"),
    ("16.3", in_order(0, 1, 2, 4, 3, 5), "the bias of q: these are those of k"),
    ("16.3", in_order(0, 3, 1, 4, 2, 5), "W_k: expected shape"),
    ("16.3", in_order(0, 1, 2), "six tensors"),
    ("16.3", lambda *given: print(end=""), "[Dd]oes it end in a return"),
    ("16.4", scored(visible=True), "was visible"),
    ("16.4", scored(at_once=True), "all tokens were hidden at once"),
    ("16.4", scored(future=True), "hide one token only"),
    ("16.4", scored(padding=True), "padding was scored, too"),
    ("16.4", scored(padding=True, blind=True), "that the others see"),
    ("16.4", scored(mean=True), "this is the mean"),
    ("16.4", lambda *given: -_scores(*given), "log p is wanted, below 0"),
    ("16.4", lambda *given: _scores(*given).exp(), "these are probabilities"),
    ("16.4", lambda *given: _scores(*given)[:, None], "one number a text"),
    ("16.4", scored(marks=True), "<bos> and <eos> were scored"),
    ("16.4", scored(kept=True), "put each token back"),
    ("16.4", scored(logits=True), "these are logits"),
    ("16.4", lambda *given: _scores(*given).tolist(), "expected a tensor, got list"),
    ("16.4", lambda *given: print(end=""), "[Dd]oes it end in a return"),
    ("16.5", probed(first=True), "W: take the state at the place"),
    ("16.5", probed(sum=True), "not the sum"),
    ("16.5", probed(more=-1), "one step too few"),
    ("16.5", probed(more=1), "one step too many"),
    ("16.5", probed(**{"no bias": True}), "b is trained, too"),
    ("16.5", probed_with_dropout, "Two calls differ"),
    ("16.5", probed_from_random, "Two calls differ"),
    ("16.5", probed_with_gradients, "under torch.no_grad"),
    ("16.5", probed_and_cleared, "under torch.no_grad"),
    ("16.5", probed_and_left_in_evaluation, "in training mode before"),
    ("16.5", probed_frozen, "no longer requires a gradient"),
    ("16.5", probed_and_tuned, "weights have moved"),
    ("16.5", lambda *given: (_probe(*given)[0].T, _probe(*given)[1]), "a row for each kind"),
    ("16.5", lambda *given: _probe(*given)[0], "two tensors"),
    ("16.5", lambda *given: print(end=""), "[Dd]oes it end in a return"),
]

RIGHT = [
    ("16.1", (800, 4.8e6, 2.303)),
    ("16.1", torch.tensor([800, 4_800_000, math.log(10)])),
    ("16.2", hidden()),
    ("16.2", hidden_in_place),
    ("16.2", hidden_one_by_one),
    ("16.3", thirds),
    ("16.3", thirds_by_slices),
    ("16.4", scored()),
    ("16.4", scored_text_by_text),
    ("16.4", scored_in_place),
    ("16.5", probed()),
    ("16.5", probed_by_autograd),
    ("16.5", probed_on_a_copy),
]
