"""The exercises of chapter 16, BERT and GPT."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD
from annotated.models.bert import NO_TARGET, Bert, BertConfig
from annotated_course.exercises.diagnosis import Exercise, compare


def a_small_gpt(answer: Any) -> str | None:
    """The parameters of a small GPT-2, the operations of its training, and the loss before it."""
    found = torch.as_tensor(answer, dtype=torch.float64)
    if found.shape != (3,):
        return "give three numbers: parameters, operations, and the loss in nats."
    right = torch.tensor([800, 4_800_000, math.log(10)], dtype=torch.float64)
    parameters = {
        "that is 12·N·d² alone: biases, LayerNorms, embedding and positions are missing.": 576,
        "the last LayerNorm is missing: 2·d more.": 792,
        "the positions are missing: max_length·d.": 780,
        "the embedding is missing: vocab·d.": 760,
        "the last projection is the embedding; it counts once.": 840,
        "the layers' LayerNorms are missing: two a layer, of 2·d each.": 752,
        "the biases are missing: 4·d in attention, d_ff + d in the feed-forward network.": 692,
        "that is BERT's: GPT-2 has no segments, no LayerNorm behind the embedding, and no pooler.": 836,
    }
    for text, wrong in parameters.items():
        if abs(float(found[0]) - wrong) < 0.5:
            return text
    if abs(float(found[0]) - 800) > 0.5:
        return (
            f"the parameters are not {float(found[0]):g}: count embedding, positions, three layers, a last LayerNorm."
        )
    operations = {
        "operations are 6 for each parameter and token: 2 forward, 4 backward.": (1.6e6, 3.2e6),
        "operations are 6 for each parameter and token; you have one for each.": (8e5,),
        "operations are those for all 1,000 tokens, not for one.": (4800.0,),
        "operations take all parameters, as the rule does, not 12·N·d².": (6 * 576 * 1000.0,),
    }
    for text, several in operations.items():
        if float(found[1]) in several:
            return text
    losses = {
        "the loss is in nats: the natural logarithm.": (math.log2(10), 1.0),
        "that is a probability; the loss is −ln of it.": (0.1,),
        "the loss is −ln p: it is above 0.": (-math.log(10),),
        "that is the perplexity; its logarithm is the loss.": (10.0,),
    }
    for text, several in losses.items():
        if any(abs(float(found[2]) - wrong) < 2e-3 for wrong in several):
            return text
    if abs(float(found[1]) - 4_800_000) > 0.5:
        return f"the operations are not {float(found[1]):,.0f}: 6 for each of 800 parameters and 1,000 tokens."
    return compare(found, right, {}, tolerance=2e-3, by_hand=True)


def _hidden(
    ids: Tensor, word: Tensor, luck: Tensor, fate: Tensor, others: Tensor, mask_id: int, **change: Any
) -> tuple[Tensor, Tensor]:
    """What is read and what is to be predicted, right or with a mistake by name."""
    real = torch.ones_like(ids, dtype=torch.bool) if change.get("marks") else word >= 0
    by_word = torch.arange(len(ids))[:, None], word  # −1 is the last column, and left out by `real`
    of_token = luck[:, : ids.size(1)] if change.get("by_place") else luck[by_word]
    lucky = {"below": of_token < 0.15, "up to": of_token <= 0.15, "above": of_token > 0.15}[
        change.get("lucky", "below")
    ]
    chosen = lucky & real
    if change.get("first"):
        chosen = chosen & (word != F.pad(word[:, :-1], (1, 0), value=-2))
    masked, random = {
        "right": (fate < 0.8, fate >= 0.9),
        "up to": (fate <= 0.8, fate >= 0.9),
        "behind": (fate < 0.8, fate > 0.9),
        "always": (fate < 2, fate > 2),
        "no words": (fate < 0.8, fate > 2),
        "no rest": (fate < 0.8, fate >= 0.8),
        "swapped": (fate >= 0.9, fate < 0.8),
        "tenth": (fate < 0.8, (fate >= 0.8) & (fate < 0.9)),
    }[change.get("fates", "right")]
    where = real if change.get("everywhere") else chosen
    read = torch.where(where & masked, mask_id, ids)
    read = torch.where(where & random, others, read)
    kept = {"chosen": chosen, "all": real, "masked": chosen & masked, "changed": chosen & (masked | random)}
    source = read if change.get("read") else ids
    return read, torch.where(kept[change.get("targets", "chosen")], source, change.get("empty", NO_TARGET))


def hide_words(answer: Callable[..., Any]) -> str | None:
    """Both results, on words of one to three pieces with every fate, and numbers right at the borders."""
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
    others = torch.randint(4, 30, (6, 50), generator=generator)
    given = (ids, word, luck, fate, others, 30)
    found = answer(*given)
    if not (isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)):
        return "your function returns two tensors: what is read, and the targets. Does it end in a return?"
    read, targets = _hidden(*given)
    changes: dict[str, dict[str, Any]] = {
        "where `word` is −1 nothing is chosen; as an index, −1 finds the last column.": {"marks": True},
        "luck is drawn for words: look it up by `word`, not by place.": {"by_place": True},
        "all pieces of a chosen word are chosen, not its first alone.": {"first": True},
        "chosen is where luck is below 0.15.": {"lucky": "above"},
        "at luck 0.15 itself nothing is chosen: below.": {"lucky": "up to"},
        "at fate 0.8 itself the token stays: below.": {"fates": "up to"},
        "at fate 0.9 itself the random token comes: from 0.9 on.": {"fates": "behind"},
        "only chosen tokens may change; you changed others by their fate.": {"everywhere": True},
        "fate decides: below 0.8 the mask, from 0.9 on the random token; you hide all chosen ones.": {
            "fates": "always"
        },
        "from fate 0.9 on, the random token stands in the token's place.": {"fates": "no words"},
        "between 0.8 and 0.9 the token stays as it is.": {"fates": "no rest"},
        "the mask is for fates below 0.8, the random token for those from 0.9 on.": {"fates": "swapped"},
        "between 0.8 and 0.9 the token stays; the random token comes from 0.9 on.": {"fates": "tenth"},
    }
    if diagnosis := compare(found[0], read, {text: _hidden(*given, **change)[0] for text, change in changes.items()}):
        return f"what is read: {diagnosis}"
    wrong = {
        "a token that was not chosen has no target: put −100 there.": _hidden(*given, targets="all")[1],
        "those that stay, or become a random token, are predicted, too.": _hidden(*given, targets="masked")[1],
        "a chosen token that stays as it is is predicted, too.": _hidden(*given, targets="changed")[1],
        "targets are the ids from before, not what is read.": _hidden(*given, read=True)[1],
        "where there is no target, −100 stands, not 0.": _hidden(*given, empty=PAD)[1],
        "where there is no target, −100 stands, not −1.": _hidden(*given, empty=-1)[1],
    }
    if diagnosis := compare(found[1], targets, wrong):
        return f"the targets: {diagnosis}"
    return None


def unpack(answer: Callable[..., Any]) -> str | None:
    """Three weights and three biases out of one, so that a Linear gives the same queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    d = 6
    weight, bias = torch.randn(d, 3 * d, generator=generator), torch.randn(3 * d, generator=generator)
    found = answer(weight, bias)
    if not (isinstance(found, tuple | list) and len(found) == 6 and all(isinstance(one, Tensor) for one in found)):
        return "your function returns six tensors: three weights, then three biases. Does it end in a return?"
    thirds, parts = weight.chunk(3, dim=1), bias.chunk(3)
    by_rows = weight.reshape(3, d, d)
    strided = [weight[:, i::3].T for i in range(3)]
    by_head = weight.reshape(d, 2, 3, 3).permute(2, 0, 1, 3).flatten(2)  # as if each of two heads had its own three
    for i, name in enumerate("qkv"):
        wrong = {
            "a Linear holds (out, in), the file (in, out): transpose.": thirds[i],
            "the three stand side by side: cut the columns, not the rows, before you transpose.": by_rows[i],
            "cut the three apart, side by side; you only counted the numbers off.": by_rows[i].T,
            "the three stand side by side, each d columns wide; you took every third column.": strided[i],
            "the three stand side by side, and are not mixed by head.": by_head[i].T,
        }
        wrong |= {f"these are those of {'qkv'[j]}; the order is q, k, v.": thirds[j].T for j in range(3) if j != i}
        if diagnosis := compare(found[i], thirds[i].T, wrong):
            return f"W_{name}: {diagnosis}"
    for i, name in enumerate("qkv"):
        wrong = {f"these are those of {'qkv'[j]}; the order is q, k, v.": parts[j] for j in range(3) if j != i}
        wrong["the three stand one behind the other; you took every third number."] = bias[i::3]
        if diagnosis := compare(found[3 + i], parts[i], wrong):
            return f"the bias of {name}: {diagnosis}"
    return None


def _scores(model: Bert, ids: Tensor, mask_id: int, **change: Any) -> Tensor:
    """The sum of log p(word | all others), right or with a mistake by name."""
    total = torch.zeros(len(ids), dtype=torch.float64)
    every = ids.masked_fill(ids != PAD, mask_id)
    read = ids.clone()
    for i in range(ids.size(1)):
        read = read if change.get("kept") else ids.clone()
        if not change.get("visible"):
            read[:, i] = mask_id
        if change.get("future"):
            read[:, i:] = mask_id
        if change.get("at_once"):
            read = every
        if not change.get("blind"):
            read = read.masked_fill(ids == PAD, PAD)
        with torch.no_grad():
            logits = model(read)[:, i]
            found = logits if change.get("logits") else logits.log_softmax(dim=-1)
            log_p = found.gather(1, ids[:, i, None])[:, 0]
        spared = ids[:, i] <= (PAD if change.get("marks") else EOS)
        total += log_p if change.get("padding") else log_p.masked_fill(spared, 0.0)
    return total / (ids > EOS).sum(dim=1) if change.get("mean") else total


def score_by_gaps(answer: Callable[..., Any]) -> str | None:
    """A small BERT with random weights, texts of several lengths."""
    torch.manual_seed(0)
    model = Bert(BertConfig(12, d_model=8, d_ff=10, heads=2, layers=1, dropout=0.0, max_length=9)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 4, 2, PAD, PAD], [1, 10, 2, PAD, PAD, PAD]])
    found = answer(model, ids, 11)
    if isinstance(found, Tensor):
        found = found.detach()
        if found.is_floating_point():
            found = found.double()
    expected = _scores(model, ids, 11)
    if isinstance(found, Tensor) and found.shape == (3, 1):
        return "expected shape (3,), got (3, 1): one number a text."
    wrong = {
        "the token that is scored was visible: hide it behind the mask.": _scores(model, ids, 11, visible=True),
        "all tokens were hidden at once; one after the other, the rest visible.": _scores(model, ids, 11, at_once=True),
        "hide one token only; those behind it are visible, too.": _scores(model, ids, 11, future=True),
        "padding was scored, too.": _scores(model, ids, 11, padding=True),
        "padding was scored, too, and its places were hidden behind masks that the others see.": _scores(
            model, ids, 11, padding=True, blind=True
        ),
        "put each token back before you hide the next.": _scores(model, ids, 11, kept=True),
        "these are logits; take the log_softmax before you pick the token's.": _scores(model, ids, 11, logits=True),
        "<bos> and <eos> were scored, too; the model was never asked for them.": _scores(model, ids, 11, marks=True),
        "this is the mean; the sum is wanted.": _scores(model, ids, 11, mean=True),
        "this is −log p; log p is wanted, below 0.": -expected,
        "these are probabilities; their logarithm is wanted.": expected.exp(),
    }
    return compare(found, expected, wrong)


def _probe(
    model: Bert, ids: Tensor, at: Tensor, kinds: Tensor, updates: int, rate: float, **change: Any
) -> tuple[Tensor, Tensor]:
    """W and b of a linear probe, right or with a mistake by name; the model is as before."""
    training = model.training
    model.train(change.get("mode", False))
    with torch.no_grad():
        states = model.states(ids)[torch.arange(len(ids)), torch.zeros_like(at) if change.get("first") else at]
    model.train(training)
    count = int(kinds.max()) + 1
    W, b = torch.zeros(count, states.size(1), dtype=states.dtype), torch.zeros(count, dtype=states.dtype)
    for _ in range(updates + change.get("more", 0)):
        error = (states @ W.T + b).softmax(dim=-1) - torch.eye(count, dtype=states.dtype)[kinds]
        error = error if change.get("sum") else error / len(ids)
        W = W - rate * error.T @ states
        b = b if change.get("no bias") else b - rate * error.sum(dim=0)
    return W, b


def probe(answer: Callable[..., Any]) -> str | None:
    """W and b beside ours, on a model in training mode with dropout; then what has become of the model."""
    torch.manual_seed(0)
    model = Bert(BertConfig(12, d_model=8, d_ff=10, heads=2, layers=1, dropout=0.5, max_length=9)).double().train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    held = torch.ones_like(model.embedding.weight)
    model.embedding.weight.grad = held.clone()
    ids = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 4, 2, PAD, PAD], [1, 10, 2, PAD, PAD, PAD], [1, 7, 9, 10, 2, PAD]])
    given = (ids, torch.tensor([3, 2, 1, 1]), torch.tensor([2, 0, 1, 0]), 7, 0.3)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    found = answer(model, *given)
    if not (isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)):
        return "your function returns two tensors: W and b. Does it end in a return?"
    if any(not torch.equal(weight, before[name]) for name, weight in model.named_parameters()):
        return "the model's weights have moved; only W and b are trained."
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    if gradients.keys() != {"embedding.weight"} or not torch.equal(gradients["embedding.weight"], held):
        return "the gradients that the model holds have changed: compute the states under torch.no_grad()."
    if not all(weight.requires_grad for weight in model.parameters()):
        return "a weight no longer requires a gradient; the model must be as it was."
    if any(module.training is not True for module in model.modules()):
        return "the model was in training mode before, and no longer is: set it back with model.train(...)."
    expected = _probe(model, *given)
    mistakes: dict[str, dict[str, Any]] = {
        "take the state at the place `at`, not the first one.": {"first": True},
        "the loss is the mean over the texts, not the sum.": {"sum": True},
        "that is one step too few.": {"more": -1},
        "that is one step too many.": {"more": 1},
        "b is trained, too.": {"no bias": True},
    }
    for part, name in enumerate(("W", "b")):
        wrong = {text: _probe(model, *given, **change)[part] for text, change in mistakes.items()}
        if name == "W":
            wrong["W has a row for each kind: (kinds, d_model)."] = expected[0].T
        if diagnosis := compare(found[part].detach(), expected[part], wrong):
            unlike = f"{name}: {diagnosis}"
            again = answer(model, *given)  # dropout draws anew at each call
            if not torch.equal(found[part], again[part]):
                return f"{unlike} Two calls differ: read the states in evaluation mode, and begin with zeros."
            return unlike
    return None


EXERCISES = {
    "16.1": Exercise("A small GPT-2 on paper", a_small_gpt),
    "16.2": Exercise("Hide whole words", hide_words),
    "16.3": Exercise("Three matrices out of one", unpack),
    "16.4": Exercise("How likely is a sentence to BERT?", score_by_gaps),
    "16.5": Exercise("Probe, and touch nothing", probe),
}
