"""The checks of what trains a model: its loss, its gradient, its updates, its rates, its examples."""

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from annotated_course.doctor.checks import (
    LOSS,
    NEAR,
    UPDATE,
    Differs,
    NotExamined,
    check,
    dropouts,
    fresh,
    inputs,
    is_real,
    loss_of,
    read,
    stir,
    stirred,
    untouched,
    without_dropout,
)
from annotated_course.doctor.recipe import EIGHT, LETTERS, LONGEST, Recipe, tensor_of

RATE = "07", "4. The learning rate (§5.3)"
SHORT_ROWS = "each row is averaged first, so that short ones weigh more"
FINITE = "Is the gradient right? Finite differences"


@check("nats from the mean cross-entropy of the real tokens", *LOSS, "loss")
def cross_entropy(recipe: Recipe) -> tuple[float, str]:
    """The loss is another than −ln p of the token that comes next, averaged over the real tokens.

    The sum over all tokens and the mean over rows are sound, too, and so is each with a target that `softened` knows.
    """
    batches = [recipe.batch(EIGHT[i::4]) for i in range(4)]
    if recipe.pad is None:  # in each, all words are of one length
        batches = [recipe.batch(EIGHT[i:j]) for i, j in ((0, 2), (2, 3), (3, 6), (6, 8))]
    given = torch.tensor([torch.as_tensor(recipe.loss(stirred(recipe), *batch)).item() for batch in batches])
    numbers = [_losses(recipe, stirred(recipe), batch) for batch in batches]
    ways = ["", "", "", ", but divided by all places, padding's too", ", but divided by all places times V"]
    ways += [", but divided by the tokens twice", ", but divided by the tokens, and by all places, too"]
    gap = 0.0
    for mistake in numbers[0]:
        right, *evens, count, rows, places = torch.tensor([losses[mistake] for losses in numbers]).T
        divisors = [torch.ones(4), count, count / rows, count / places, count / places / recipe.vocabulary]
        divisors += [1 / count, 1 / places]
        gap = gap or min((given / divisor - right).abs().max().item() for divisor in divisors[:3])
        for way, divisor in zip(ways, divisors, strict=True):
            target = softened(recipe, given / divisor, right, evens)
            if target is None:
                continue
            if mistake == SHORT_ROWS:
                raise Differs(f"{gap:.3g} nats from the mean over all real tokens (should be 0): {mistake}")
            if mistake:
                return gap, f"it is what comes out when {mistake}{target and f', with {target}'}"
            return (gap, f"it is {target or 'right'}{way}") if way else (0.0, target)
    return gap, ""


@torch.no_grad()
def _losses(recipe: Recipe, model: nn.Module, batch: tuple[Tensor, ...]) -> dict[str, list[float]]:
    """Compute a batch's right loss, and by each mistake: of the answers, and of uniform targets; and its sizes."""
    ids, answers = recipe.asked(*batch)
    logits, real = read(recipe, model, *ids), is_real(recipe, answers).double()
    log_probs, kept = logits.log_softmax(dim=-1), [i for i in range(recipe.vocabulary) if i != recipe.pad]
    mistakes = {
        "": (log_probs, answers, real),
        "padding counts as a token": (log_probs, answers, torch.ones_like(real)),
        "the answers are the inputs, not the tokens after them": (log_probs, ids[-1], is_real(recipe, ids[-1])),
        "softmax comes before cross_entropy": (logits.softmax(dim=-1).log_softmax(dim=-1), answers, real),
        "the softmax runs over the positions": (logits.log_softmax(dim=1), answers, real),
        "logits go into nll_loss without log_softmax": (logits, answers, real),
        "<eos> is ignored": (log_probs, answers, real * (answers != recipe.eos)),
        "<eos> is ignored in place of padding": (log_probs, answers, (answers != recipe.eos).double()),
        SHORT_ROWS: (log_probs, answers, real / real.sum(1, True)),
        "the answers are two tokens ahead, shifted twice": (log_probs[:, :-1], answers[:, 1:], real[:, 1:]),
    }
    if recipe.shifts:
        raw = tensor_of(recipe.logits(model, *(rows.contiguous() for rows in ids)))
        mistakes["it shifts by itself, and you shift, too"] = raw.log_softmax(dim=-1), answers, real
    losses = {}
    for mistake, (each, targets, weights) in mistakes.items():
        nats = -each.gather(-1, targets[..., None])[..., 0], -each.mean(dim=-1), -each[..., kept].mean(dim=-1)
        sums = torch.stack([weights.sum(), *((kind * weights).sum() for kind in nats)])
        losses[mistake] = [*(sums[1:] / sums[0]).tolist(), sums[0].item(), float(len(real)), float(real.numel())]
    return losses


def softened(recipe: Recipe, loss: Tensor, right: Tensor, evens: Sequence[Tensor]) -> str | None:
    """Name the softened target with which four batches have these losses, None if it is none of those in use.

    With smoothing s a loss is (1 − s) · right + s · even; even is that of a uniform target, with padding or without it.
    Four batches give s and what is left over, the same for each token: of a divergence, less the target's entropy.
    """
    limit = NEAR if recipe.dtype == torch.float64 else 100 * NEAR
    for even, missing in zip(evens, ([], ["padding"]), strict=True):
        columns = torch.stack((even - right, torch.ones_like(right)), dim=1)
        shares = torch.linalg.lstsq(columns, (loss - right)[:, None]).solution
        s, constant = shares.flatten().tolist()
        if not (columns @ shares - (loss - right)[:, None]).abs().max() < limit or not -1e-3 < s < 0.5:
            continue
        if s < 1e-3:
            return "" if abs(constant) < limit else f"right, less {-constant:.3g} for each token"
        tokens = recipe.vocabulary - len(missing)
        entropy = torch.special.entr(torch.tensor([1 - s + s / tokens] + [s / tokens] * (tokens - 1))).sum().item()
        others = s * (tokens - 1) / tokens  # the same target, said otherwise: choose the rounder number
        if abs(others - round(others, 2)) < abs(s - round(s, 2)):
            s, missing = others, ["the right one", *missing]
        share = f"(V − {len(missing)}) for all but {' and '.join(missing)}" if missing else "V for each token"
        what = "the target's entropy, " if abs(constant + entropy) < 1e-4 else ""
        less = f", less {what}{-constant:.3g}{'' if what else ' for each token'}" if abs(constant) > 1e-4 else ""
        return f"label smoothing of {s:.2g}: {s:.2g}/{share}{less}"
    return None


@lru_cache(maxsize=1)  # for `reached` and `slope`
def gradients(recipe: Recipe) -> dict[str, tuple[nn.Parameter, Tensor]]:
    """Compute the loss's gradient: by name, a parameter that is trained and its part."""
    model = stirred(recipe)
    torch.manual_seed(0)
    loss_of(recipe, model, *recipe.batch(LONGEST)).backward()
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return {name: (p, torch.zeros_like(p) if p.grad is None else p.grad.clone()) for name, p in trained}


@check("parameters without a gradient", *UPDATE)
def reached(recipe: Recipe) -> list[str]:
    """The loss does not reach them: a detach or no_grad on the way, or nothing uses them."""
    lost = [name for name, (_, gradient) in gradients(recipe).items() if not gradient.any()]
    frozen = [(name, p) for name, p in stirred(recipe).named_parameters() if not p.requires_grad]
    if not lost and any(p.dim() == 1 or len(p) == recipe.vocabulary for _, p in frozen):  # not a table of positions
        raise Differs(f"{len(frozen)} parameters are frozen (should be 0, unless you tune), {frozen[0][0]} the first")
    return lost


@check("of the gradient's length, what it differs from the slope", "19", FINITE, high=1e-3)
def slope(recipe: Recipe) -> tuple[float, str]:
    """The gradient misses a part of what the loss depends on: a detach, .data or no_grad on one of several roads."""
    if recipe.dtype != torch.float64:
        raise NotExamined("finite differences need 64 bits")
    model, batch, parts = stirred(recipe), recipe.batch(LONGEST), defaultdict(list)
    for name, pair in gradients(recipe).items():
        parts[name.rpartition(".")[0]].append(pair)
    length = torch.stack([g.norm() for _, g in gradients(recipe).values()]).norm().item()

    def error(pairs: Sequence[tuple[nn.Parameter, Tensor]], step: float) -> float:
        torch.manual_seed(0)
        ways, losses = [torch.empty_like(p).uniform_(-1, 1) for p, _ in pairs], list[float]()
        for by in (step, -2 * step, step):
            for (p, _), way in zip(pairs, ways, strict=True):
                p.data.add_(way, alpha=by)  # not in no_grad, in which PyTorch's layers take another road
            torch.manual_seed(0)
            losses.append(loss_of(recipe, model, *batch).item() if len(losses) < 2 else 0.0)
        due = sum((g * way).sum().item() for (_, g), way in zip(pairs, ways, strict=True))
        return abs((losses[0] - losses[1]) / (2 * step) - due) / length

    every = [pair for pairs in parts.values() for pair in pairs]
    found = error(every, 1e-6)
    if found > 1e-3:  # perhaps a part computes in 32 bits, where larger steps are better
        found = min(found, error(every, 1e-4))
    off = [name for name, pairs in parts.items() if error(pairs, 1e-6) > 1e-4] if found > 1e-3 else []
    return found, f"in {len(off)} parts, from {off[0]} to {off[-1]}" if off else ""


@check("tied parameters that come apart", "05", "8. One matrix, three times (§3.4)")
def ties(recipe: Recipe) -> list[str]:
    """Make them one object, as in self.output.weight = self.embedding.weight, and load with load_state_dict."""

    def tied(model: nn.Module) -> set[tuple[str, ...]]:
        names = defaultdict(list)
        for name, p in model.named_parameters(remove_duplicate=False):
            names[p.data_ptr()].append(name)
        return {tuple(each) for each in names.values() if len(each) > 1}

    first, found = untouched(recipe), []
    if not (whole := tied(first)):
        raise NotExamined("no two parameters share their memory")
    model, state = fresh(recipe, seed=1), {name: weight.clone() for name, weight in first.state_dict().items()}
    for when, act in ("load_state_dict", lambda: model.load_state_dict(state)), ("to(dtype)", model.float):
        act()
        found += [f"{' = '.join(names)}, by {when}" for names in whole - tied(model)]
        whole &= tied(model)
    return found


@check("ids whose vector is zero or never trained", "09", "2. From ids to vectors (§3.4, §3.5)")
def blank(recipe: Recipe) -> list[str]:
    """Another id than that of the padding is an embedding's padding_idx, or has a row of zeros."""
    model, ids, found = untouched(recipe), inputs(recipe), set[str]()
    names = {part: name for name, part in model.named_modules()}

    def look(part: nn.Module, given: Any) -> None:
        if isinstance(part, nn.Embedding) and any(torch.equal(given[0].flatten(), rows.flatten()) for rows in ids):
            for i in {*given[0].flatten().tolist()} - {recipe.pad}:
                if i == part.padding_idx or not part.weight[i].any():
                    found.add(f"{names[part]}: {i} (its padding_idx is {part.padding_idx})")

    with register_module_forward_pre_hook(look):
        read(recipe, model, *ids)
    return sorted(found)


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


def make_optimizer(recipe: Recipe, model: nn.Module) -> Any:
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


class Updates(NamedTuple):
    """What a few updates of a fresh model have shown, each of another batch."""

    still: list[str]  # parameters that are as they were
    steps: list[tuple[int, Any, list[float]]]  # of optimizers: in which update, whose, and the rates of its groups
    mistakes: list[str | Differs]  # in the gradient that the second step used
    modes: set[bool]  # was dropout in training mode in the last update?
    seconds: float  # how long an update takes


LEFT = 1e9  # put into each gradient after a step
FAR = 4_000, 100_000  # updates that are asked for as if they were due
SLOW = 0.25  # seconds for an update: then fewer must do


@lru_cache(maxsize=1)
def few_updates(recipe: Recipe) -> Updates:
    """Do five updates, or as many as two steps of the optimizer take, at most 16, and then two from far ahead."""
    seen, model, draw = Updates([], [], [], set(), 0.0), stir(fresh(recipe)).train(), random.Random(0)
    least = 2 if recipe.update else 1  # steps: only an update of the recipe's own may keep a gradient
    for part, _ in dropouts(model):
        part.register_forward_pre_hook(lambda part, _: seen.modes.add(part.training))
    named = [(name, p) for name, p in without_dropout(model).named_parameters() if p.requires_grad]
    before, optimizer = [p.detach().clone() for _, p in named], make_optimizer(recipe, model)
    lengths = (5,) * 4 if recipe.pad is None else (5, 5, 2, 2)
    batches = [recipe.batch(["".join(draw.sample(LETTERS, length)) for length in lengths]) for _ in range(16)]
    held: list[Tensor] = []  # parameters in the optimizer
    used: dict[int, Tensor] = {}  # by the update, the gradient of its first step
    step, seconds = 0, 0.0

    def look(stepping: Any, *_: Any) -> None:
        seen.steps.append((step, stepping, [float(group["lr"]) for group in stepping.param_groups]))
        held[:] = held or [p for group in stepping.param_groups for p in group["params"] if p.requires_grad]
        if step not in used and len(used) < 2:
            scale = getattr(stepping, "grad_scale", None)  # by which a fused optimizer divides in its step
            used[step] = _flat(held, [p.grad for p in held]) / (1 if scale is None else scale)
            if len(used) == 2 and recipe.update:
                seen.mistakes.extend(misuse(recipe, model, held, used[step], batches[min(used) : step]))

    with register_optimizer_step_pre_hook(look):
        while step < (least if seconds > SLOW else 5) or (len(used) < least and step < len(batches)):
            begun, step = time.thread_time(), step + 1
            seen.modes.clear()
            update(recipe, model, optimizer, batches[step - 1], step)
            seconds = seconds or time.thread_time() - begun
            if len(used) == 2 and step in used:
                left, length = _flat(held, [p.grad for p in held]).norm().item(), used[step].norm().item()
                told = f"its length is {length:.2g} in the step, and then {left:.2g}: clipped after it"
                seen.mistakes.extend([told] if 0 < left < 0.99 * length else [])
            for p in held if [*used] == [step] else ():  # whatever is left after a step must be cleared
                p.grad = None if p.grad is None else torch.full_like(p, LEFT)
        seen.still.extend(name for (name, p), old in zip(named, before, strict=True) if torch.equal(p, old))
        for step in FAR if recipe.plan and seconds < SLOW else ():
            with suppress(Exception):  # a schedule may end before
                recipe.plan(step)
                update(recipe, model, optimizer, batches[0], step)
    return seen._replace(seconds=seconds)


def _flat(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    pairs = zip(parameters, gradients, strict=True)
    return torch.cat([torch.zeros(0), *((torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs)])


def misuse(
    recipe: Recipe, model: nn.Module, held: list[Tensor], used: Tensor, batches: list[Any]
) -> Iterator[str | Differs]:
    """Say what is wrong with a gradient that should be the loss's, summed over the batches since the last step.

    Clipping shrinks it, as a whole or number by number, but hardly by 500. What else it is made of comes out by least
    squares: how often each batch, or each row of a single one, and how much of what was left after the step before.
    """

    def gradient_of(batch: Sequence[Tensor]) -> Tensor:
        return _flat(held, torch.autograd.grad(loss_of(recipe, model, *batch), held, allow_unused=True))

    if bad := int((~used.isfinite()).sum()):
        yield f"{bad} of its {len(used)} numbers are NaN or infinite (should be 0)"
        return
    pieces, most = [gradient_of(batch) for batch in batches], used.abs().max().item()
    due = sum(pieces, torch.zeros(()))
    length, length_due = used.norm().item(), due.norm().item()
    alike = max(((used @ each) / (length * each.norm() + 1e-30)).item() for each in (due, due.clamp(-most, most)))
    if not length_due:
        yield "the loss has none for what the optimizer holds: are these another model's parameters?"
        return
    if not min(0.01, length_due / 500) < length < 500 * length_due and length < LEFT:
        reason = "clipped before it is unscaled" if length < length_due else "never unscaled"
        yield f"it is {length / length_due:.2g} times the loss's (should be 1, or what clipping leaves): {reason}"
    if alike > 0.999:
        return
    what = f"{len(batches)} updates since the last step"
    if len(batches) == 1:
        rows = [*zip(*(ids.split(1) for ids in batches[0]), strict=True)]
        what, pieces = f"batch's {len(rows)} rows", [gradient_of(row) for row in rows]
    columns = torch.stack([torch.ones_like(used), *pieces], dim=1)
    found = torch.linalg.lstsq(columns, torch.stack((used, due), dim=1)).solution
    old, shares = found[0, 0] / LEFT / found[1:, 0].abs().max(), found[1:, 0] / found[1:, 1]
    told = f"its cosine with the loss's is {alike:.3f} (should be 1): "
    if abs(old) > 1e-8:
        yield f"that of the step before is still in it, {old:.2g} times (should be 0): zero_grad after each step"
    elif shares.min() < 0.9 * shares.max():
        told += f"of the {what} it holds the gradient {', '.join(f'{abs(s):.1f}' for s in shares / shares.max())} times"
        yield told if shares.min() < 0.1 * shares.max() else Differs(told)  # such as a mean of means
    else:
        told += "the update's loss is another than loss=…, or random, as with F.dropout"
        yield told if alike < 0.9 else Differs(told)


@check("parameters that three updates leave alone", *UPDATE, "optimizer")
def moves(recipe: Recipe) -> list[str]:
    """The optimizer does not hold them, or the loss does not reach them."""
    return few_updates(recipe).still


@check("mistakes in the gradient that is used", *UPDATE, "update")
def gradient(recipe: Recipe) -> list[str]:
    """It is not the loss's: zero_grad once for each step, not more and not less often; unscale before you clip."""
    seen = few_updates(recipe)
    steps = Counter((update, optimizer) for update, optimizer, _ in seen.steps)
    optimizers = Counter(optimizer for _, optimizer in steps)
    if len({update for update, _ in steps if update not in FAR}) < 2:
        raise NotExamined("an optimizer of PyTorch took fewer than two steps in 16 updates")
    if (most := max(steps.values())) > 1:
        return [f"the optimizer takes {most} steps in one update (should be 1)"]
    mistakes = [mistake for mistake in seen.mistakes if isinstance(mistake, str)]
    if len(optimizers) > 1 == max(optimizers.values()):
        mistakes.append(f"{len(optimizers)} updates have another optimizer each, whose averages begin anew")
    for noted in seen.mistakes:
        if isinstance(noted, Differs) and not mistakes:
            raise noted
    return mistakes


@check("updates in evaluation mode", "04", "5. Dropout (§5.4)", "update")
def wakes(recipe: Recipe) -> int:
    """The model has dropout, but trains without it: eval() for the validation, and no train() after it."""
    if not (modes := few_updates(recipe).modes):
        raise NotExamined("no part with dropout was called, or p = 0")
    return int(True not in modes)


@check("of the planned rate, the error in a few updates", *RATE, "plan", "update", high=0.001)
def rates(recipe: Recipe) -> tuple[float, str]:
    """The schedule is another than the plan; count updates from 1, and set the rate of each group of parameters."""
    series = defaultdict(list)
    for update, steps in itertools.groupby(few_updates(recipe).steps, key=lambda step: step[0]):
        for group, rate in enumerate(rate for _, _, rates in steps for rate in rates):
            series[group].append((update, rate))

    def worst(behind: int) -> tuple[float, str]:
        found = [(0.0, "")]
        for group, seen in series.items():
            update, rate = next(each for each in reversed(seen) if each[0] not in FAR)
            own = rate / (recipe.plan(max(1, update - behind)) or 1.0)  # a further group may have its own scale
            found.append(min(_error(recipe, seen, scale, behind) for scale in ({1.0, own} if group else {1.0})))
        return max(found)

    error, where = worst(0)
    if error > 0.001 and worst(1)[0] <= 0.001:
        raise Differs(f"each rate is that of the update before, {error:.2g} off (should be 0): {where}")
    return error, where if error > 0.001 else ""


def _error(recipe: Recipe, steps: list[tuple[int, float]], scale: float, behind: int) -> tuple[float, str]:
    """Find the largest error of rates: each may be due by the update or by how many steps were taken."""
    errors = []
    for count, (step, rate) in enumerate(steps, 1):
        dues = (scale * recipe.plan(max(1, number - behind)) for number in (step, count))
        due = min(dues, key=lambda due: abs(due - rate))
        errors.append((abs(rate - due) / (due or 1.0), f"in update {step:,} it is {rate:.3g}, not {due:.3g}"))
    return max(errors)


@check("times the plan's largest rate up to step 100,000, that at 1,000,000", *RATE, "plan", high=1.01)
def falls(recipe: Recipe) -> tuple[float, str]:
    """It rises for ever: beyond the warm-up a rate should fall, as 1/√step in the paper."""
    plan = {}
    for step in sorted({round(10 ** (i / 20)) for i in range(121)}):
        with suppress(Exception):  # it may end before
            plan[step] = float(recipe.plan(step))
    last, rate = [*plan.items()][-1]
    most = max(rate for step, rate in plan.items() if step <= last / 10)
    top = next((step for step, rate in plan.items() if rate > 0.99 * most), last)
    later = [rate for step, rate in plan.items() if step >= top]
    again = max(rate / (min(later[:i]) or most) for i, rate in enumerate(later) if i) if len(later) > 1 else 0.0
    if rate <= most and again > 1.5 and min(later) > 0.01 * most:  # at 0 a plan has ended
        raise Differs(f"the plan falls, and rises again to {again:.2g} times its least (the paper's: 1)")
    if min(later) > 0.99 * most and 1.01 * min(plan.values()) < rate <= 1.01 * most:
        raise Differs(f"the plan warms up and stays: {rate:.3g}, its largest, at step {last:,} (the paper's falls)")
    return rate / (most or 1.0), ""


@check("examples are both for training and for the test", "07", "1. From text to pieces (§5.1)", "words")
def strangers(recipe: Recipe) -> int:
    """Split first; then build anything."""
    return len({*map(tuple, recipe.words("test"))} & {*map(tuple, recipe.words("train"))})
