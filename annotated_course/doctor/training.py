"""The checks of what trains and uses a model: its loss, its gradient, its updates, its rates, its writing."""

import copy
import itertools
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated_course.doctor.checks import (
    LOSS,
    NEAR,
    UPDATE,
    Differs,
    NotExamined,
    check,
    differ,
    fresh,
    is_real,
    loss_of,
    mean_loss,
    read,
    stir,
    stirred,
    without_dropout,
    words_of,
)
from annotated_course.doctor.recipe import EIGHT, LONGEST, Recipe, arguments

SECONDS = 8.0  # of this thread, for learning by heart


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
def empty(recipe: Recipe) -> int:
    """A query with nothing to look at: −∞ everywhere makes NaN. Fill with a finite number, then with zeros."""
    model = stirred(recipe)
    loss_of(recipe, model, *(F.pad(ids, (0, 0, 0, 1), value=recipe.pad) for ids in recipe.batch())).backward()
    bad = sum(p.grad is not None and not p.grad.isfinite().all() for p in model.parameters())
    if bad:  # few batches have such a row
        raise Differs(f"{bad} gradients are NaN or infinite with a row of nothing but padding (should be 0)")
    return bad


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
    model = stir(fresh(recipe))
    before, optimizer = copy.deepcopy(model.state_dict()), make_optimizer(recipe, model)
    for step in (1, 2, 3):  # the first may have a rate of 0
        update(recipe, model, optimizer, recipe.batch(), step)
    return [name for name, p in model.named_parameters() if p.requires_grad and torch.equal(p, before[name])]


@check("from 1, the cosine of the gradient that is used and that of the loss", *UPDATE, "update", high=0.001)
def gradient(recipe: Recipe) -> float:
    """Gradients of earlier updates are still in it: zero_grad in each update.

    Measured at the second update; the cosine is the same whatever the gradient is clipped to.
    """
    model, seen = stir(fresh(recipe)), []
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
    model, seen = stir(fresh(recipe)), []
    optimizer = make_optimizer(recipe, model)
    optimizer.register_step_pre_hook(lambda *_: seen.append(optimizer.param_groups[0]["lr"]))
    for step in range(1, 6):
        update(recipe, model, optimizer, recipe.batch(LONGEST), step)
    return max(abs(rate / recipe.plan(step) - 1) for step, rate in enumerate(seen, 1)) if seen else 1.0


# Learning and writing


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
    ids, answers = recipe.asked(*batch)
    guesses = read(recipe, model, *ids).argmax(dim=-1)
    wrong = (guesses != answers) & is_real(recipe, answers)
    return int(wrong[:, 1 if recipe.kind == "language model" else 0 :].sum())


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
