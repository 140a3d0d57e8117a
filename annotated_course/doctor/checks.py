"""The checks: each measures one number of a recipe, whose limits are known beforehand.

A check returns a number, or a list of what is wrong, or a number and a few words on it; the first paragraph of its
docstring says what it means when the number lies outside the limits. Outputs are compared in 64 bits, where rounding is
far below `NEAR` and what a model reads is far above it.
"""

import copy
import inspect
import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from annotated_course.doctor.recipe import EIGHT, LONGEST, Recipe, arguments, tensor_of

NEAR = 1e-6  # logits that differ by less are the same
CHAPTERS = Path(__file__).parents[1] / "chapters"
SECONDS = 8.0  # of this thread, for learning by heart
# PyTorch's own, even where a file puts others in their place, which may call them.
MULTI_HEAD, SCALED, RIGHT = F.multi_head_attention_forward, F.scaled_dot_product_attention, F.cross_entropy
SOFTMAXES = (F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax)


class NotExamined(Exception):
    """Why a check cannot be made."""


class Check(NamedTuple):
    """A check with its limits, and what it means to lie outside them."""

    measure: Callable[[Recipe], Any]
    unit: str  # what is measured
    meaning: str  # what is wrong, and what to do
    taught: str  # the lesson
    section: str  # the heading within the lesson
    needs: tuple[str, ...] = ()  # parts of a recipe
    low: float = 0.0
    high: float = 0.0

    @property
    def name(self) -> str:
        """The name of the function that measures."""
        return self.measure.__name__


CHECKS: list[Check] = []  # in the order in which they are made


def check(unit: str, chapter: str, section: str, *needs: str, low: float = 0.0, high: float = 0.0) -> Any:
    """Add a function to `CHECKS`, whose docstring's first paragraph is the meaning; for the rest see `Check`."""
    (folder,) = CHAPTERS.glob(f"c{chapter}_*")

    def added(measure: Callable[[Recipe], Any]) -> Callable[[Recipe], Any]:
        meaning = " ".join((inspect.getdoc(measure) or "").split("\n\n")[0].split())
        CHECKS.append(Check(measure, unit, meaning, folder.name[1:], section, needs, low, high))
        return measure

    return added


def fresh(recipe: Recipe, seed: int = 0) -> nn.Module:
    """Make a model, always the same, in evaluation mode."""
    torch.manual_seed(seed)
    return recipe.build().double().eval()


def stirred(recipe: Recipe) -> nn.Module:
    """Make a model without weights of exactly 0, as some are at the start: these would hide what depends on what."""
    model = fresh(recipe)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.02)
    return model


def words_of(recipe: Recipe) -> tuple[str, ...]:
    """Give the words to learn by heart: of one length where there is no padding."""
    return LONGEST if recipe.pad is None else EIGHT


def inputs(recipe: Recipe, words: Sequence[str] = EIGHT) -> tuple[Tensor, ...]:
    """Write words as the model reads them in training: the target without its last id."""
    *src, tgt = recipe.batch(words)
    return (*src, tgt[:, :-1])


def read(recipe: Recipe, model: nn.Module, *ids: Tensor) -> Tensor:
    """Call the model, whatever it wraps its logits in; ids lie in one piece, as `view` wants them."""
    return tensor_of(recipe.logits(model, *(rows.contiguous() for rows in ids)))


def differ(logits: Tensor, others: Tensor) -> int:
    """Count the positions at which logits are not the same; NaN equals nothing."""
    return int((~((logits - others).abs().amax(dim=-1) < NEAR)).sum())


def is_real(recipe: Recipe, ids: Tensor) -> Tensor:
    """Tell where there is a token, not padding."""
    return torch.ones_like(ids).bool() if recipe.pad is None else ids != recipe.pad


# What the model computes


@check("positions with a logit that is NaN or infinite", "06", "4. A query with nobody to look at")
def finite(recipe: Recipe) -> int:
    """Mostly a query whose keys are all hidden, and −∞ in the softmax: is a mask upside down?"""
    logits = read(recipe, fresh(recipe), *inputs(recipe))
    return int((~logits.isfinite()).any(dim=-1).sum())


@check("positions that differ between two calls", "04", "5. Dropout (§5.4)")
def steady(recipe: Recipe) -> int:
    """Something random is on in evaluation mode, such as F.dropout without training=self.training."""
    model, ids = fresh(recipe), inputs(recipe)
    return differ(read(recipe, model, *ids), read(recipe, model, *ids))


@check("positions that differ after a checkpoint is loaded", "03", "The buffer, and the end of the table")
def forgets(recipe: Recipe) -> int:
    """The state_dict lacks something: layers in a plain list, or a random table that is no parameter or buffer."""
    first, second, ids = fresh(recipe), fresh(recipe, seed=1), inputs(recipe)
    second.load_state_dict(first.state_dict())
    return differ(read(recipe, first, *ids), read(recipe, second, *ids))


LOSS = "07", "3. The loss, with a softened target (§5.4)"
UPDATE = "07", "6. One update"


@check("positions with probabilities in place of logits", *LOSS)
def probabilities(recipe: Recipe) -> int:
    """cross_entropy has a softmax of its own, and the loss could not fall far: return logits."""
    logits = read(recipe, fresh(recipe), *inputs(recipe))
    return int(((logits >= 0).all(dim=-1) & ((logits.sum(dim=-1) - 1).abs() < NEAR)).sum())


@check("pairs of equal matrices", "04", "Where PyTorch's encoder differs")
def no_twins(recipe: Recipe) -> list[str]:
    """Layers that are copies of one start alike; build each by itself, or draw the weights again."""
    named = fresh(recipe).named_parameters()
    matrices = [(name, p) for name, p in named if p.dim() > 1 and p.requires_grad and p.std() > 0]
    pairs = itertools.combinations(matrices, 2)
    return [f"{first} = {second}" for (first, a), (second, b) in pairs if torch.equal(a, b)]


@check("nats from ln V to the first loss", *LOSS, low=-0.7, high=2.0)
def first_loss(recipe: Recipe) -> float:
    """Untrained, a model should know nothing. Above: its logits are too large, look at how embedding and output are
    drawn. Below: it sees its answers.
    """
    losses = [mean_loss(recipe, fresh(recipe, seed), *recipe.batch()).item() for seed in range(3)]
    return sum(losses) / 3 - math.log(recipe.vocabulary)


class Softmaxes(TorchFunctionMode):
    """Keeps, while it is open, the attention weights of every call: softmaxes whose last two axes are as long as rows.

    PyTorch's own functions for attention show no softmax: one gives its weights when asked; the other's are what it
    makes of the identity as its values, (query, key) · (key, key).
    """

    def __init__(self, lengths: set[int]):
        super().__init__()
        self.lengths = lengths
        self.weights: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is MULTI_HEAD:
            kwargs |= {"need_weights": True, "average_attn_weights": False}
        weights = result = function(*args, **kwargs)
        if function is MULTI_HEAD:
            weights = result[1]
        elif function is SCALED:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = dict(zip(names, args, strict=False)) | kwargs
            *before, length, _ = given["key"].shape
            weights = function(**given | {"value": torch.eye(length).expand(*before, length, length)})
        elif function not in SOFTMAXES:
            return result
        if weights.dim() > 1 and {*weights.shape[-2:]} <= self.lengths:
            self.weights.append(weights.detach())
        return result


def attention_weights(recipe: Recipe) -> list[Tensor]:
    """Record the attention weights of an untrained model, whatever its parts are called."""
    model, ids = fresh(recipe), inputs(recipe, LONGEST)
    with Softmaxes({rows.size(1) for rows in ids}) as record:
        read(recipe, model, *ids)
    if not record.weights:
        raise NotExamined("no softmax over the positions was seen")
    return record.weights


@check("from 1, the sum of a query's weights", "01", "2. All words at once (Equation 1)", high=NEAR)
def rows_sum_to_one(recipe: Recipe) -> float:
    """The softmax of attention runs over another axis than the keys: softmax(dim=-1)."""
    sums = torch.cat([weights.sum(dim=-1).flatten() for weights in attention_weights(recipe)])
    return torch.where(sums == 0, 0, sums - 1).abs().max().item()  # 0: a query with nothing to look at


@check("of ln(keys), the entropy of untrained attention", "01", "6. Why divide by √d_k? (§3.2.1)", low=0.67, high=1.001)
def spread(recipe: Recipe) -> float:
    """An untrained query should look at all keys; here the scores are too large: √d_k is missing, or the embeddings
    are too large.
    """
    rows = [weights[..., -1, :] for weights in attention_weights(recipe)]  # of the last query
    shares = [torch.special.entr(row).sum(dim=-1).mean() / math.log(row.size(-1)) for row in rows]
    return torch.stack(shares).mean().item()


# What depends on what


def dependence(function: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """Tell, at [i, j], how far output i moves when input j is replaced; ids: one row."""
    before, columns = function(ids).detach(), []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[0, j] = next(i for i in ids[0].flip(0).tolist() if i != ids[0, j])
        columns.append((function(other).detach() - before).abs().amax(dim=-1)[0])
    return torch.stack(columns, dim=1)


def reads_past(recipe: Recipe, training: bool = False) -> Tensor:
    """Tell, at [i, j], whether output i reads input j of the target; dropout always drops the same."""
    model, (*src, tgt) = stirred(recipe).train(training), inputs(recipe, LONGEST[:1])

    def logits(ids: Tensor) -> Tensor:
        torch.manual_seed(0)
        return read(recipe, model, *src, ids)

    return dependence(logits, tgt) > NEAR


@check("places of the future are read", "06", "6. A loss that is too good to be true")
def future(recipe: Recipe) -> tuple[int, str]:
    """An output reads the token that it is to predict: the causal mask is missing, or turned, or axes are mixed up."""
    places = {mode: int(reads_past(recipe, mode == "training").triu(1).sum()) for mode in ("evaluation", "training")}
    modes = " and ".join(mode for mode, count in places.items() if count)
    return max(places.values()), f"in {modes} mode" if modes else ""


@check("places of the past are not read", "05", "3. Masked self-attention (§3.2.3)")
def past(recipe: Recipe) -> int:
    """The mask hides too much, or is upside down."""
    return int((~reads_past(recipe)).tril().sum())


@check("places of the source are not read", "05", "4. Attention to the source (§3.2.3)", "source")
def source(recipe: Recipe) -> int:
    """The decoder does not hear the encoder: look at cross-attention, and at the mask of the source."""
    model, (src, tgt) = stirred(recipe), inputs(recipe, LONGEST[:1])
    return int((dependence(lambda ids: read(recipe, model, ids, tgt), src) <= NEAR).sum())


@check(
    "outputs that move when two tokens change places",
    "03",
    "1. How do you write down a position?",
    low=1,
    high=math.inf,
)
def order(recipe: Recipe) -> int:
    """The order makes no difference: positions are missing."""
    model, (first, *rest) = stirred(recipe), inputs(recipe, LONGEST[:1])
    exchanged = first[:, [0, 2, 1, *range(3, first.size(1))]]
    before, after = (read(recipe, model, ids, *rest) for ids in (first, exchanged))
    return differ(before, after) if rest else differ(before[:, -1:], after[:, -1:])


@check("positions that change with the rows beside them", "04", "LayerNorm or BatchNorm?")
def company(recipe: Recipe) -> int:
    """What a row gives depends on the rest of its batch: batch and length are exchanged (batch_first?), or something
    is averaged over the batch.
    """
    model = stirred(recipe)
    alone = torch.cat([read(recipe, model, *inputs(recipe, [word])) for word in LONGEST])
    return differ(alone, read(recipe, model, *inputs(recipe, LONGEST)))


@check("positions that change when padding follows", "06", "7. The child who smiles in company (§3.2.3)", "pad")
def padding(recipe: Recipe) -> int:
    """Padding is read: the mask of the source does not reach encoder and cross-attention, is upside down, or pad is
    another id.
    """
    model, ids = stirred(recipe), inputs(recipe, EIGHT[-1:])
    padded = (F.pad(rows, (0, 3), value=recipe.pad) for rows in ids)
    return differ(read(recipe, model, *ids), read(recipe, model, *padded)[:, : ids[-1].size(1)])


@check("parts for dropout that drop nothing in training mode", "04", "5. Dropout (§5.4)")
def quiet_dropout(recipe: Recipe) -> list[str]:
    """The model has dropout, but it never acts."""
    model, ids = stirred(recipe).train(), inputs(recipe)
    modules = model.named_modules()
    parts = [name for name, part in modules if "Dropout" in type(part).__name__ and getattr(part, "p", 0) > 0]
    if not parts:
        raise NotExamined("the model has no nn.Dropout, or p = 0")
    return [] if differ(read(recipe, model, *ids), read(recipe, model, *ids)) else parts


# Loss and gradient


def mean_loss(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute what the loss should be: the mean of −ln p over the real tokens that come next."""
    *src, tgt = batch
    logits = read(recipe, model, *src, tgt[:, :-1])
    return RIGHT(logits.mT, tgt[:, 1:], ignore_index=-100 if recipe.pad is None else recipe.pad)


def loss_of(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute the recipe's own loss, or what it should be."""
    return recipe.loss(model, *batch) if recipe.loss else mean_loss(recipe, model, *batch)


@check("nats from the mean cross-entropy of the real tokens", *LOSS, "loss")
def cross_entropy(recipe: Recipe) -> tuple[float, str]:
    """The loss is another than −ln p of the token that comes next, averaged over the real tokens.

    The sum over all tokens and the mean over rows are sound, too, and so is each with a target that `softened` knows.
    """
    model, kept, measured = stirred(recipe), [i for i in range(recipe.vocabulary) if i != recipe.pad], []
    for words in (LONGEST[:2], LONGEST[1:]) if recipe.pad is None else (EIGHT[::2], EIGHT[1::2]):
        *src, tgt = batch = recipe.batch(words)
        logits, answers = read(recipe, model, *src, tgt[:, :-1]), tgt[:, 1:]
        real, given = is_real(recipe, answers), recipe.loss(model, *batch)
        nats, count = -logits.log_softmax(dim=-1)[real], real.sum()
        means = [given / by for by in (count / count, count, count / len(tgt), count / real.numel())]
        numbers = mean_loss(recipe, model, *batch), nats.mean(), nats[:, kept].mean(), *means
        measured.append([number.item() for number in numbers])
    right, even, even_of_kept, *losses = torch.tensor(measured).T  # (half) each
    gap = (torch.stack(losses[:3]) - right).abs().amin(dim=0).max().item()
    ways = "", "", "", ", but divided by all places, padding's too"
    for way, loss in zip(ways, losses, strict=True):
        distance = (loss - right).abs().max().item()
        target = "" if distance < NEAR else softened(recipe.vocabulary, loss, right, (even, even_of_kept))
        if target is not None:
            return (gap, f"it is {target or 'right'}{way}") if way else (0.0, target)
    log_probs, every = logits.log_softmax(dim=-1), torch.ones_like(real)
    mistakes = {
        "padding counts as a token": (log_probs, answers, every),
        "the answers are the inputs, not the tokens after them": (log_probs, tgt[:, :-1], is_real(recipe, tgt[:, :-1])),
        "softmax comes before cross_entropy": (logits.softmax(dim=-1).log_softmax(dim=-1), answers, real),
        "the softmax runs over the positions": (logits.log_softmax(dim=1), answers, real),
    }
    for mistake, (each, targets, counted) in mistakes.items():
        if abs(-each.gather(-1, targets[..., None])[..., 0][counted].mean() - given) < NEAR:
            return gap, f"it is what comes out when {mistake}"
    return gap, ""


def softened(vocabulary: int, loss: Tensor, right: Tensor, evens: Sequence[Tensor]) -> str | None:
    """Name the softened target with which two batches have these losses, None if it is none of those in use.

    With smoothing s a loss is (1 − s) · right + s · even; even is that of a uniform target, with padding or without it.
    Two batches give s, and what is left over is nothing or, of a divergence, the target's entropy.
    """
    for even, missing in zip(evens, ([], ["padding"]), strict=True):
        tokens = vocabulary - len(missing)
        s = ((loss - right).diff() / (even - right).diff()).item()
        constant = (loss - right - s * (even - right))[0].item()
        entropy = torch.special.entr(torch.tensor([1 - s + s / tokens] + [s / tokens] * (tokens - 1))).sum().item()
        if 1e-3 < s < 0.5 and min(abs(constant), abs(constant + entropy)) < 1e-4:
            others = s * (tokens - 1) / tokens  # the same target, said otherwise: choose the rounder number
            if abs(others - round(others, 2)) < abs(s - round(s, 2)):
                s, missing = others, ["the right one", *missing]
            share = f"(V − {len(missing)}) for all but {' and '.join(missing)}" if missing else "V for each token"
            less = f", less the target's entropy, {entropy:.3g}" if constant < -1e-4 else ""
            return f"label smoothing of {s:.2g}: {s:.2g}/{share}{less}"
    return None


@check("parameters without a gradient", *UPDATE)
def reached(recipe: Recipe) -> list[str]:
    """The loss does not reach them: a detach or no_grad on the way, or nothing uses them."""
    model = stirred(recipe)
    loss_of(recipe, model, *recipe.batch()).backward()
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    return [name for name, p in trained if p.grad is None or not p.grad.any()]


@check("gradients not finite with a row of padding", "06", "4. A query with nobody to look at", "pad")
def empty(recipe: Recipe) -> list[str]:
    """A query with nothing to look at: −∞ everywhere makes NaN. Fill with a finite number, then with zeros."""
    model = stirred(recipe)
    loss_of(recipe, model, *(F.pad(ids, (0, 0, 0, 1), value=recipe.pad) for ids in recipe.batch())).backward()
    return [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]


# Updates


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Make the recipe's optimizer, or Adam."""
    return recipe.optimizer(model) if recipe.optimizer else torch.optim.Adam(model.parameters(), lr=3e-3)


def update(recipe: Recipe, model: nn.Module, optimizer: Any, batch: tuple[Tensor, ...], step: int) -> None:
    """Do one of the recipe's updates, or a plain one."""
    if recipe.update:
        recipe.update(model, optimizer, batch, step)
        return
    optimizer.zero_grad()
    loss_of(recipe, model, *batch).backward()
    optimizer.step()


@check("parameters that three updates leave alone", *UPDATE, "optimizer")
def moves(recipe: Recipe) -> list[str]:
    """The optimizer does not hold them, or the loss does not reach them."""
    model = stirred(recipe)
    before, optimizer = copy.deepcopy(model.state_dict()), make_optimizer(recipe, model)
    for step in (1, 2, 3):  # the first may have a rate of 0
        update(recipe, model, optimizer, recipe.batch(), step)
    return [name for name, p in model.named_parameters() if p.requires_grad and torch.equal(p, before[name])]


@check("from 1, the cosine of the gradient that is used and that of the loss", *UPDATE, "update", high=0.001)
def gradient(recipe: Recipe) -> float:
    """Gradients of earlier updates are still in it: zero_grad in each update.

    Measured at the second update; the cosine is the same whatever the gradient is clipped to.
    """
    model, seen = stirred(recipe), []
    optimizer = make_optimizer(recipe, model)
    update(recipe, model, optimizer, recipe.batch(LONGEST[:1]), 1)
    other, batch = copy.deepcopy(model), recipe.batch(LONGEST[1:])
    other.zero_grad()
    optimizer.register_step_pre_hook(lambda *_: seen.append(_gradient(model)))
    torch.manual_seed(0)
    update(recipe, model, optimizer, batch, 2)
    other.train(model.training)
    torch.manual_seed(0)
    loss_of(recipe, other, *batch).backward()
    return max(0.0, 1 - F.cosine_similarity(seen[0], _gradient(other), dim=0).item()) if seen else 1.0


def _gradient(model: nn.Module) -> Tensor:
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


@check("of the planned rate, the error in five updates", "07", "4. The learning rate (§5.3)", "plan", high=0.001)
def rates(recipe: Recipe) -> float:
    """The schedule is another than the plan; count updates from 1."""
    model, seen = stirred(recipe), []
    optimizer = make_optimizer(recipe, model)
    optimizer.register_step_pre_hook(lambda *_: seen.append(optimizer.param_groups[0]["lr"]))
    for step in range(1, 6):
        update(recipe, model, optimizer, recipe.batch(LONGEST), step)
    return max(abs(rate / recipe.plan(step) - 1) for step, rate in enumerate(seen, 1)) if seen else 1.0


# Learning and writing


def without_dropout(model: nn.Module) -> nn.Module:
    """Set every dropout to 0, that of attention weights too, since an update may switch training mode on."""
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, float) and ("drop" in name or ("Dropout" in type(part).__name__ and name == "p")):
                setattr(part, name, 0.0)
    return model


@lru_cache(maxsize=1)  # for `learns` and `writes`
def by_heart(recipe: Recipe) -> tuple[nn.Module, int, str]:
    """Train on a few words; return the model, how many tokens it still gets wrong, and after how many updates."""
    model, begun = without_dropout(fresh(recipe)), time.thread_time()
    optimizer, batch, step = make_optimizer(recipe, model), recipe.batch(words_of(recipe)), 0
    for step in range(1, 301):
        if not recipe.optimizer and not recipe.update:
            optimizer.param_groups[0]["lr"] = 3e-3 * min(1, step / 60)
        update(recipe, model, optimizer, batch, step)
        if step % 10 == 0 and (not _wrong(recipe, model.eval(), batch) or time.thread_time() - begun > SECONDS):
            break
    return model.eval(), _wrong(recipe, model, batch), f"after {step} updates"


def _wrong(recipe: Recipe, model: nn.Module, batch: tuple[Tensor, ...]) -> int:
    """Count the tokens that are not the likeliest. Nobody can know the first one of a text."""
    *src, tgt = batch
    guesses, answers = read(recipe, model, *src, tgt[:, :-1]).argmax(dim=-1), tgt[:, 1:]
    wrong = (guesses != answers) & is_real(recipe, answers)
    return int(wrong[:, 0 if src else 1 :].sum())


@check("tokens wrong of words learned by heart", "07", "7. First check: eight sentences by heart")
def learns(recipe: Recipe) -> tuple[int, str]:
    """It cannot even learn one batch by heart: if nothing above is wrong, try another learning rate."""
    _, wrong, when = by_heart(recipe)
    if wrong and when != "after 300 updates":
        raise NotExamined(f"{wrong} tokens were still wrong {when}, when {SECONDS:g} seconds were over")
    return wrong, when


def write(recipe: Recipe, model: nn.Module, words: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """Let a model write: each word backwards, or each on from its first letter; ids, and logits if there are any."""
    *src, tgt = recipe.batch(words)
    given = [model.eval(), *(src or [tgt[:, :2].contiguous()]), tgt]
    written = recipe.write(*given[: arguments(recipe.write)])  # a third one is the reference, as for a score
    return written if isinstance(written, tuple) else (written, None)


@check("words written wrong, of those learned by heart", "05", "1. A loss of zero, and not one word", "write")
def writes(recipe: Recipe) -> tuple[int, str]:
    """In writing the model does not do what it did in training: future, shift, positions, cache, mode."""
    model, wrong, _ = by_heart(recipe)
    if wrong:
        raise NotExamined("it has not learned the words by heart")
    words = words_of(recipe)
    rows = [_letters(recipe, rows) for rows in (write(recipe, model, words)[0], recipe.batch(words)[-1])]
    missed = [(word, is_, due) for word, is_, due in zip(words, *rows, strict=True) if is_ != due]
    return len(missed), "for {!r} it writes {}, not {}".format(*missed[0]) if missed else ""


def _letters(recipe: Recipe, rows: Any) -> list[list[int]]:
    """Keep what stands between the beginning and the end of each row."""
    lists = [[int(i) for i in row if i != recipe.bos] for row in rows]
    return [list(itertools.takewhile(lambda i: i not in (recipe.eos, recipe.pad), row)) for row in lists]


@check("positions that differ when it reads what it wrote", "05", "6. A cache of keys and values", "write")
def reads_back(recipe: Recipe) -> int:
    """Writing computes another function: dropout is on, the cache or its positions are off, the reference is shown."""
    model, (*src, _) = stirred(recipe), recipe.batch()
    ids, logits = write(recipe, model, EIGHT)
    before, new = (ids[:, :-1], ids[:, 1:]) if src else (ids[:, 1:-1], ids[:, 2:])  # a text's first letter was given
    again = read(recipe, model.eval(), *src, ids[:, :-1])[:, -new.size(1) :]
    alive = ((before != recipe.eos) & is_real(recipe, before)).cumprod(dim=1).bool()
    if logits is not None:
        return differ(again[alive], logits[alive])
    ordinary = [i for i in range(recipe.vocabulary) if i not in (recipe.pad, recipe.bos)]
    chosen = again.gather(-1, new[..., None])[..., 0]
    return int(((chosen < again[..., ordinary].amax(dim=-1) - NEAR) & alive & is_real(recipe, new)).sum())


@check("examples are both for training and for the test", "07", "1. From text to pieces (§5.1)", "words")
def strangers(recipe: Recipe) -> int:
    """Split first; then build anything."""
    return len({*map(tuple, recipe.words("test"))} & {*map(tuple, recipe.words("train"))})
