"""The checks of what a model has learned, and of how it writes."""

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from annotated_course.doctor.checks import (
    Differs,
    NotExamined,
    check,
    differ,
    fresh,
    inputs,
    is_real,
    near,
    read,
    stirred,
    without_dropout,
    words_of,
)
from annotated_course.doctor.recipe import LONGEST, Recipe, arguments, said
from annotated_course.doctor.training import SLOW, few_updates, make_optimizer, update

SECONDS = 5.0  # of this thread, for learning by heart


@lru_cache(maxsize=1)  # for `learns` and `writes`
def by_heart(recipe: Recipe) -> tuple[nn.Module, int, str]:
    """Train on a few words; return the model, how many tokens it still gets wrong, and after how many updates."""
    model, wrong, when = taught(recipe, 1.0)
    if wrong and recipe.optimizer and when.endswith("updates"):
        calmer, left, soon = taught(recipe, 0.1)
        if not left:
            return calmer, 0, f"{wrong} {when} at your rates (should be 0), none {soon} at a tenth of them"
    return model, wrong, when


def taught(recipe: Recipe, factor: float) -> tuple[nn.Module, int, str]:
    """Train with some part of the rates.

    Those of a schedule for days hardly move anything in 300 steps: then they are raised, for the step alone.
    """
    if 60 * (seconds := few_updates(recipe).seconds) > SECONDS:
        raise NotExamined(f"one update takes {seconds:.1f} s: give a smaller model to see it learn")
    model, begun = without_dropout(fresh(recipe)), time.thread_time()
    optimizer, batch = make_optimizer(recipe, model), recipe.batch(words_of(recipe))
    width = Counter(p.size(-1) for p in model.parameters() if p.dim()).most_common(1)[0][0]
    own, steps, kept, raised = recipe.optimizer or recipe.update, 0, list[tuple[Any, float]](), False
    least = (1e-3 if own else 3e-3) * min(1, 64 / width)

    def lift(stepping: Any, *_: Any) -> None:
        nonlocal steps, raised
        steps += 1
        for group in stepping.param_groups:
            kept.append((group, group["lr"]))
            group["lr"] *= factor
            if not own or group["lr"] < least * min(1, steps / 60):
                group["lr"], raised = least * min(1, steps / 60), True

    def lower(*_: Any) -> None:
        while kept:
            group, group["lr"] = kept.pop()

    with register_optimizer_step_pre_hook(lift), register_optimizer_step_post_hook(lower):
        for number in itertools.count(1):
            update(recipe, model, optimizer, batch, number)
            over = time.thread_time() - begun > SECONDS
            if number % 10 == 0 and (over or max(steps, number / 16) >= 300 or not _wrong(recipe, model.eval(), batch)):
                break
    how = f", with rates raised to {least:.2g}, since yours are for longer training" if own and raised else ""
    late = f", when {SECONDS:g} seconds were over" if over else ""
    return model.eval(), _wrong(recipe, model, batch), f"after {number} updates{how}{late}"


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
    if wrong and when.endswith("over"):
        raise NotExamined(f"{wrong} tokens were still wrong {when}")
    if "a tenth" in when:
        raise Differs(f"tokens wrong of words learned by heart: {when}")
    return wrong, when


def write(recipe: Recipe, model: nn.Module, words: Sequence[str]) -> list[tuple[list[int], Tensor | None]]:
    """Let a model write: each word backwards, or each on from its first letter.

    Give the new ids of each row, up to `eos` if it is there, and their logits if there are any. Rows may be lists, with
    or without `bos`, what was given and `eos`; who writes only one row at a time is given one at a time.
    """

    def call(some: Sequence[str]) -> tuple[Any, Any]:
        *src, tgt = recipe.batch(some)
        given = [model.eval(), *(src or [tgt[:, :2].contiguous()]), tgt]
        torch.manual_seed(0)
        written = recipe.write(*given[: arguments(recipe.write)])  # a third one is the reference, as for a score
        ids, *more = written if isinstance(written, tuple) and torch.is_tensor(written[0]) else (written,)
        rows = ids[None] if torch.is_tensor(ids) and ids.dim() == 1 else [ids] if isinstance(ids[0], int) else ids
        if len(rows) != len(some):
            raise ValueError(f"from {len(some)} rows it wrote {len(rows)}")
        return rows, [*more[0]] if more and torch.is_tensor(more[0]) and more[0].dim() == 3 else [None] * len(rows)

    try:
        rows, logits = call(words)
    except Exception:
        rows, logits = (
            [row for part in parts for row in part] for parts in zip(*(call([w]) for w in words), strict=True)
        )
    lists = [[int(i) for i in (row[0] if isinstance(row, tuple) and isinstance(row[0], list) else row)] for row in rows]
    if all(row[:1] == [recipe.eos] and len(row) > 1 for row in lists):
        raise ValueError(f"each row begins with eos, {recipe.eos}, where bos, {recipe.bos}, should be")
    lists = [row[row[:1] == [recipe.bos] :] for row in lists]
    if recipe.kind == "language model":
        firsts = recipe.batch(words)[0][:, 1].tolist()
        again = all(row[:1] == [first] for row, first in zip(lists, firsts, strict=True))
        lists = [row[again:] for row in lists]
    lists = [row[: row.index(recipe.eos) + 1 if recipe.eos in row else None] for row in lists]
    lists = [[*itertools.takewhile(lambda i: i != recipe.pad, row)] for row in lists]
    return [(row, None if each is None else each[: len(row)]) for row, each in zip(lists, logits, strict=True)]


@check("words written wrong, of those learned by heart", "05", "1. A loss of zero, and not one word", "write")
def writes(recipe: Recipe) -> tuple[int, str]:
    """In writing the model does not do what it did in training: future, shift, positions, cache, mode."""
    model, wrong, _ = by_heart(recipe)
    if wrong:
        raise NotExamined("it has not learned the words by heart")
    words = words_of(recipe)
    answers = recipe.asked(*recipe.batch(words))[1][:, recipe.kind == "language model" :].tolist()
    missed = []
    for word, (row, _), answer in zip(words, write(recipe, model, words), answers, strict=True):
        due = answer[: answer.index(recipe.eos)]
        if row[: len(due)] != due or row[len(due) :] not in ([], [recipe.eos]):
            missed.append(f"for {word!r} it writes {row}, not {due}")
    return len(missed), missed[0] if missed else ""


@check("words written otherwise after others were written", "05", "6. A cache of keys and values", "write")
def lives_on(recipe: Recipe) -> tuple[int, str]:
    """Something lives on from one call to the next, mostly a cache: begin each text with an empty one."""
    model, words = learned(recipe), LONGEST[: 1 if few_updates(recipe).seconds > SLOW else 3]
    (new := without_dropout(fresh(recipe))).load_state_dict(model.state_dict())
    before, alone = read(recipe, model.eval(), *inputs(recipe, words)), [row for row, _ in write(recipe, new, words)]
    try:
        write(recipe, model, [word[::-1] for word in words])
        after = [row for row, _ in write(recipe, model, words)]
    except Exception as error:
        return len(words), f"it raises {said(error)}, which a new model doesn't"
    if differ(before, read(recipe, model.eval(), *inputs(recipe, words))):
        return len(words), "what it reads has changed, too"
    return sum(one != other for one, other in zip(after, alone, strict=True)), ""


@check("positions that differ when it reads what it wrote", "05", "6. A cache of keys and values", "write")
def reads_back(recipe: Recipe) -> tuple[int, str]:
    """Writing computes another function: dropout is on, the cache or its positions are off, the reference is shown, or
    a mask is missing.
    """
    words = words_of(recipe)[:: 3 if few_updates(recipe).seconds > SLOW else 1]  # some write one row at a time
    for model in (stirred(recipe), learned(recipe)):
        if count := unlike_read(recipe, model, words):
            alone = len(words) > 1 and not any(unlike_read(recipe, model, [word]) for word in words)
            return count, "beside longer rows alone: in writing, padding is read" if alone else ""
    return 0, ""


def learned(recipe: Recipe) -> nn.Module:
    """Lend the model that has learned some words, if it could; it hears its source."""
    try:
        return by_heart(recipe)[0]
    except Exception:
        return stirred(recipe)


def unlike_read(recipe: Recipe, model: nn.Module, words: Sequence[str]) -> int:
    """Count the positions at which what was written isn't what it predicts when it reads all at once."""
    (*src, tgt), count, written = recipe.batch(words), 0, write(recipe, model, words)
    given = tgt[:, : 1 if src else 2]
    new = pad_sequence([torch.tensor(row).long() for row, _ in written], True, recipe.pad or 0)
    again = read(recipe, model.eval(), *src, torch.cat((given, new), dim=1))[:, given.size(1) - 1 :]
    ordinary = [i for i in range(recipe.vocabulary) if i not in (recipe.pad, recipe.bos) and (i > 3 or i == recipe.eos)]
    for (row, logits), mine in zip(written, again[:, :-1], strict=True):
        if logits is not None:
            count += differ(mine[: len(row)], logits)
        else:
            chosen = mine[: len(row)].gather(1, torch.tensor(row).long()[:, None])[:, 0]
            count += int((chosen < mine[: len(row), ordinary].amax(dim=1) - near(mine)).sum())
    return count
