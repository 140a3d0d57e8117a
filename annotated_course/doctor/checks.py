"""The checks: each measures one number of a recipe, whose limits are known beforehand.

A check returns a number, or a list of what is wrong, or a number and a few words on it. Checks compare outputs in 64
bits, where rounding is far below `NEAR` and what a model reads is far above it.
"""

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_course.doctor.recipe import EIGHT, LONGEST, Recipe, arguments, tensor_of

NEAR = 1e-6  # logits that differ by less are the same
SECONDS = 8.0  # of this thread, for learning by heart


class NotExamined(Exception):
    """Why a check cannot be made."""


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Let new tensors hold numbers of 64 bits, those too that a model makes while it is called."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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


def inputs(recipe: Recipe, words: Sequence[str] = EIGHT) -> tuple[Tensor, ...]:
    """Write words as the model reads them in training: the target without its last id."""
    *src, tgt = recipe.batch(words)
    return (*src, tgt[:, :-1])


def read(recipe: Recipe, model: nn.Module, *ids: Tensor) -> Tensor:
    """Call the model, whatever it wraps its logits in."""
    return tensor_of(recipe.logits(model, *ids))


def differ(logits: Tensor, others: Tensor) -> int:
    """Count the positions at which logits are not the same."""
    return int((~((logits - others).abs().amax(dim=-1) < NEAR)).sum())


def is_real(recipe: Recipe, ids: Tensor) -> Tensor:
    """Tell where there is a token, not padding."""
    return torch.ones_like(ids).bool() if recipe.pad is None else ids != recipe.pad


# What the model computes


def finite(recipe: Recipe) -> int:
    """Count the positions with a logit that is NaN or infinite."""
    logits = read(recipe, fresh(recipe), *inputs(recipe))
    return int((~logits.isfinite()).any(dim=-1).sum())


def probabilities(recipe: Recipe) -> int:
    """Count the positions at which the model gives probabilities, where logits are expected."""
    logits = read(recipe, fresh(recipe), *inputs(recipe))
    return int(((logits >= 0).all(dim=-1) & ((logits.sum(dim=-1) - 1).abs() < NEAR)).sum())


def steady(recipe: Recipe) -> int:
    """Count the positions that differ between two calls in evaluation mode."""
    model, ids = fresh(recipe), inputs(recipe)
    return differ(read(recipe, model, *ids), read(recipe, model, *ids))


def forgets(recipe: Recipe) -> int:
    """Count the positions that differ in a second model that has loaded the first one's checkpoint."""
    first, second, ids = fresh(recipe), fresh(recipe, seed=1), inputs(recipe)
    second.load_state_dict(first.state_dict())
    return differ(read(recipe, first, *ids), read(recipe, second, *ids))


def no_twins(recipe: Recipe) -> list[str]:
    """List pairs of weight matrices that begin equal, though nothing ties them."""
    model = fresh(recipe)
    matrices = [(name, p) for name, p in model.named_parameters() if p.dim() > 1 and p.requires_grad and p.std() > 0]
    return [f"{one} = {other}" for (one, a), (other, b) in itertools.combinations(matrices, 2) if torch.equal(a, b)]


def first_loss(recipe: Recipe) -> float:
    """Measure how far the first loss is above ln V, over three starts."""
    losses = [mean_loss(recipe, fresh(recipe, seed), *recipe.batch()).item() for seed in range(3)]
    return sum(losses) / 3 - math.log(recipe.vocabulary)


class _Softmaxes(TorchDispatchMode):
    """Keeps what every softmax gives whose last two axes are as long as rows are."""

    def __init__(self, lengths: set[int]):
        super().__init__()
        self.lengths = lengths
        self.found: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if (
            function.__name__.partition(".")[0] in ("_softmax", "_safe_softmax")
            and {*result.shape[-2:]} <= self.lengths
        ):
            self.found.append(result.detach())
        return result


def attention_weights(recipe: Recipe) -> list[Tensor]:
    """Record the attention weights of an untrained model, whatever its parts are called."""
    model, ids = fresh(recipe), inputs(recipe, LONGEST)
    with sdpa_kernel(SDPBackend.MATH), _Softmaxes({rows.size(1) for rows in ids}) as record:
        read(recipe, model, *ids)
    if not record.found:
        raise NotExamined("no softmax over the positions was seen")
    return record.found


def rows_sum_to_one(recipe: Recipe) -> float:
    """Measure the largest distance from 1 of a query's weights, summed over the keys."""
    sums = torch.cat([weights.sum(dim=-1).flatten() for weights in attention_weights(recipe)])
    return torch.where(sums == 0, 0, sums - 1).abs().max().item()  # 0: a query with nothing to look at


def spread(recipe: Recipe) -> float:
    """Measure how evenly an untrained last query looks: the entropy of its weights, in parts of ln(number of keys)."""
    rows = [weights[..., -1, :] for weights in attention_weights(recipe)]
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


def future(recipe: Recipe) -> tuple[int, str]:
    """Count the places of the future that are read, in evaluation mode or in training mode."""
    places = {mode: int(reads_past(recipe, mode == "training").triu(1).sum()) for mode in ("evaluation", "training")}
    modes = " and ".join(mode for mode, count in places.items() if count)
    return max(places.values()), f"in {modes} mode" if modes else ""


def past(recipe: Recipe) -> int:
    """Count the places of the past that are not read."""
    return int((~reads_past(recipe)).tril().sum())


def source(recipe: Recipe) -> int:
    """Count the places of the source that are not read."""
    model, (src, tgt) = stirred(recipe), inputs(recipe, LONGEST[:1])
    return int((dependence(lambda ids: read(recipe, model, ids, tgt), src) <= NEAR).sum())


def order(recipe: Recipe) -> int:
    """Count the outputs that move when two letters of the source, or of the text so far, change places."""
    model, (first, *rest) = stirred(recipe), inputs(recipe, LONGEST[:1])
    exchanged = first[:, [0, 2, 1, *range(3, first.size(1))]]
    before, after = (read(recipe, model, ids, *rest) for ids in (first, exchanged))
    return differ(before[:, -1:], after[:, -1:]) if not rest else differ(before, after)


def company(recipe: Recipe) -> int:
    """Count the positions at which a word's logits change with the words beside it, all of one length."""
    model = stirred(recipe)
    alone = torch.cat([read(recipe, model, *inputs(recipe, [word])) for word in LONGEST])
    return differ(alone, read(recipe, model, *inputs(recipe, LONGEST)))


def padding(recipe: Recipe) -> int:
    """Count the positions at which a word's logits change when padding is put after it."""
    model, ids = stirred(recipe), inputs(recipe, EIGHT[-1:])
    padded = (F.pad(rows, (0, 3), value=recipe.pad) for rows in ids)
    return differ(read(recipe, model, *ids), read(recipe, model, *padded)[:, : ids[-1].size(1)])


def quiet_dropout(recipe: Recipe) -> list[str]:
    """List the parts for dropout of a model that drops nothing in training mode."""
    model, ids = stirred(recipe).train(), inputs(recipe)
    parts = [
        name for name, part in model.named_modules() if "Dropout" in type(part).__name__ and getattr(part, "p", 0) > 0
    ]
    if not parts:
        raise NotExamined("the model has no nn.Dropout, or p = 0")
    return [] if differ(read(recipe, model, *ids), read(recipe, model, *ids)) else parts


# Loss and gradient


def mean_loss(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute what the loss should be: the mean of −ln p over the real tokens that come next."""
    *src, tgt = batch
    logits = read(recipe, model, *src, tgt[:, :-1])
    return F.cross_entropy(logits.mT, tgt[:, 1:], ignore_index=-100 if recipe.pad is None else recipe.pad)


def loss_of(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute the recipe's own loss, or what it should be."""
    return recipe.loss(model, *batch) if recipe.loss else mean_loss(recipe, model, *batch)


def cross_entropy(recipe: Recipe) -> tuple[float, str]:
    """Measure how far the loss is from the mean of −ln p over the real tokens, perhaps smoothed; name the mistake."""
    model = stirred(recipe)
    halves = (EIGHT[::2], EIGHT[1::2]) if recipe.pad is not None else (LONGEST[:2], LONGEST[1:])
    gaps, smoothing = [], []
    for words in halves:
        *src, tgt = batch = recipe.batch(words)
        logits, answers = read(recipe, model, *src, tgt[:, :-1]), tgt[:, 1:]
        real = is_real(recipe, answers)
        right, even = mean_loss(recipe, model, *batch), -logits.log_softmax(dim=-1)[real].mean()
        loss = recipe.loss(model, *batch)
        # The sum over all tokens and the mean over rows are sound, too.
        loss = min((loss / by for by in (1, real.sum(), real.sum() / len(tgt))), key=lambda one: abs(one - right))
        gaps.append(loss - right)
        smoothing.append((gaps[-1] / (even - right)).item())
    gap = max(abs(gap).item() for gap in gaps)
    if gap < NEAR or (abs(smoothing[0] - smoothing[1]) < 1e-3 and 0 < smoothing[0] < 0.5):
        return 0.0, f"label smoothing of {smoothing[0]:.2g}" if gap >= NEAR else ""
    mistakes = {
        "padding counts as a token": _mean(logits.log_softmax(dim=-1), answers, answers == answers),
        "the answers are the inputs, not the tokens after them": _mean(
            logits.log_softmax(dim=-1), tgt[:, :-1], is_real(recipe, tgt[:, :-1])
        ),
        "softmax comes before cross_entropy": _mean(logits.softmax(dim=-1).log_softmax(dim=-1), answers, real),
        "the softmax runs over the positions": _mean(logits.log_softmax(dim=1), answers, real),
    }
    named = [name for name, value in mistakes.items() if abs(value - recipe.loss(model, *batch)) < NEAR]
    return gap, f"it is what comes out when {named[0]}" if named else ""


def _mean(log_probs: Tensor, answers: Tensor, counted: Tensor) -> Tensor:
    """Average −ln p of the answers that count."""
    return -log_probs.gather(-1, answers[..., None])[..., 0][counted].mean()


def reached(recipe: Recipe) -> list[str]:
    """List the parameters that the loss has no gradient for."""
    model = stirred(recipe)
    loss_of(recipe, model, *recipe.batch()).backward()
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    return [name for name, p in trained if p.grad is None or not p.grad.any()]


def empty(recipe: Recipe) -> list[str]:
    """List the parameters whose gradients are not finite when a row of padding is in the batch."""
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


def moves(recipe: Recipe) -> list[str]:
    """List the parameters that three updates leave alone."""
    model = stirred(recipe)
    before, optimizer = copy.deepcopy(model.state_dict()), make_optimizer(recipe, model)
    for step in (1, 2, 3):  # the first may have a rate of 0
        update(recipe, model, optimizer, recipe.batch(), step)
    return [name for name, p in model.named_parameters() if p.requires_grad and torch.equal(p, before[name])]


def gradient(recipe: Recipe) -> float:
    """Measure 1 − the cosine between the second update's gradient and that of its loss, whatever it is clipped to."""
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


def rates(recipe: Recipe) -> float:
    """Measure how far the learning rate is from the planned one, as a part of it, in five updates."""
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
    """Train on the eight words; return the model, how many tokens it still gets wrong, and after how many updates."""
    model, begun = without_dropout(fresh(recipe)), time.thread_time()
    optimizer = make_optimizer(recipe, model)
    words = LONGEST if recipe.pad is None else EIGHT
    batch, step = recipe.batch(words), 0
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


def learns(recipe: Recipe) -> tuple[int, str]:
    """Count the tokens that a model gets wrong once it has learned eight words by heart."""
    _, wrong, when = by_heart(recipe)
    if wrong and when != "after 300 updates":
        raise NotExamined(f"{wrong} tokens were still wrong {when}, when {SECONDS:g} seconds were over")
    return wrong, when


def write(recipe: Recipe, model: nn.Module, words: Sequence[str]) -> tuple[Tensor, Tensor | None]:
    """Let a model write: each word backwards, or each on from its first letter; ids, and logits if there are any."""
    *src, tgt = recipe.batch(words)
    given = [model.eval(), *(src or [tgt[:, :2]]), tgt]
    written = recipe.write(*given[: arguments(recipe.write)])  # a third one is the reference, as for a score
    return written if isinstance(written, tuple) else (written, None)


def writes(recipe: Recipe) -> tuple[int, str]:
    """Count the words that are not written to the letter, of those learned by heart."""
    model, wrong, _ = by_heart(recipe)
    if wrong:
        raise NotExamined("it has not learned the words by heart")
    words = LONGEST if recipe.pad is None else EIGHT
    found, due = _letters(recipe, write(recipe, model, words)[0]), _letters(recipe, recipe.batch(words)[-1])
    missed = [place for place, row in enumerate(due) if found[place] != row]
    return len(missed), f"for {words[missed[0]]!r} it writes {found[missed[0]]}, not {due[missed[0]]}" if missed else ""


def _letters(recipe: Recipe, rows: Any) -> list[list[int]]:
    """Keep what stands between the beginning and the end of each row."""
    lists = [[int(i) for i in row if i != recipe.bos] for row in rows]
    return [list(itertools.takewhile(lambda i: i not in (recipe.eos, recipe.pad), row)) for row in lists]


def reads_back(recipe: Recipe) -> int:
    """Count the positions at which an untrained model is not of the same opinion when it reads what it wrote."""
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


def strangers(recipe: Recipe) -> int:
    """Count the examples for the test that are among those for training."""
    return len({*map(tuple, recipe.words("test"))} & {*map(tuple, recipe.words("train"))})
