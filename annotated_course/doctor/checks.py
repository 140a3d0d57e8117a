"""The checks: each measures one number of a recipe, whose limits are known beforehand.

A check returns a number, or a list of what is wrong, or a number and a few words on it; the first paragraph of its
docstring says what it means when the number lies outside the limits. Outputs are compared in 64 bits, where rounding is
far below `NEAR` and what a model reads is far above it.
"""

import inspect
import itertools
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from annotated_course.doctor.recipe import EIGHT, LONGEST, Recipe, arguments, tensor_of

NEAR = 1e-6  # logits that differ by less are the same, in 64 bits
CHAPTERS = Path(__file__).parents[1] / "chapters"
RIGHT = F.cross_entropy  # PyTorch's own, even where a file puts another in its place


class NotExamined(Exception):
    """Why a check cannot be made."""


class Differs(Exception):
    """What departs from the paper, or hurts rarely, and may be meant so: with the number and what it should be."""


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

    @property
    def looks_inside(self) -> bool:
        """Is it one of those that see a cause, where others see what comes of it?"""
        return self.measure.__module__.endswith("structure") or self.name in ("blank", "ties")


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
    return recipe.build().to(recipe.dtype).eval()


def stir(model: nn.Module) -> nn.Module:
    """Leave no weight exactly 0, as some are at the start: these would hide what depends on what."""
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.rand_like(weight) - 0.5, alpha=0.07)  # of a deviation of 0.02
    return model


@lru_cache(maxsize=1)
def _shared(recipe: Recipe) -> tuple[nn.Module, nn.Module]:
    return (recipe.first or fresh(recipe)).to(recipe.dtype), stir(fresh(recipe, seed=1))


def untouched(recipe: Recipe) -> nn.Module:
    """Lend the model that all checks share which only look, in evaluation mode: building one takes its time."""
    return _shared(recipe)[0].eval()


def stirred(recipe: Recipe) -> nn.Module:
    """Lend another, without weights of exactly 0, and without gradients; who trains one stirs a fresh one."""
    model = _shared(recipe)[1].eval()
    model.zero_grad()
    return model


def words_of(recipe: Recipe) -> tuple[str, ...]:
    """Give the words to learn by heart: of one length where there is no padding."""
    return LONGEST if recipe.pad is None else EIGHT


def inputs(recipe: Recipe, words: Sequence[str] = EIGHT) -> tuple[Tensor, ...]:
    """Write words as the model reads them in training: a target or text without its last id."""
    return recipe.asked(*recipe.batch(words))[0]


def read(recipe: Recipe, model: nn.Module, *ids: Tensor) -> Tensor:
    """Call the model, whatever it wraps its logits in; one that shifts its target by itself gets the ids to come."""
    *src, last = ids
    if recipe.shifts:
        last = torch.cat((last[:, 1:], last[:, -1:]), dim=1)
    return tensor_of(recipe.logits(model, *(rows.contiguous() for rows in (*src, last))))


def near(logits: Tensor) -> float:
    """Tell below which difference logits are the same: far above rounding, 32 bits' own where there are no more."""
    return NEAR if logits.dtype == torch.float64 else 3e-6 * max(1e-3, float(logits.detach().abs().max()))


def differ(logits: Tensor, others: Tensor) -> int:
    """Count the positions at which logits are not the same; NaN equals nothing."""
    return int((~((logits - others).abs().amax(dim=-1) < near(logits))).sum())


def is_real(recipe: Recipe, ids: Tensor) -> Tensor:
    """Tell where there is a token, not padding."""
    return torch.ones_like(ids).bool() if recipe.pad is None else ids != recipe.pad


class Views(TorchFunctionMode):
    """Lets `view` take slices of ids, such as the answers `ids[:, 1:]`, which lie in one piece in nobody's training."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.view and not args[0].is_floating_point():
            args = (args[0].contiguous(), *args[1:])
        return function(*args, **(kwargs or {}))


# What the model computes


@check("positions with a logit that is NaN or infinite", "06", "4. A query with nobody to look at")
def finite(recipe: Recipe) -> int:
    """Mostly a query whose keys are all hidden, and −∞ in the softmax: is a mask upside down?"""
    logits = read(recipe, untouched(recipe), *inputs(recipe))
    return int((~logits.isfinite()).any(dim=-1).sum())


@check("positions that differ between two calls", "04", "5. Dropout (§5.4)")
def steady(recipe: Recipe) -> int:
    """Something random is on in evaluation mode, such as F.dropout without training=self.training, or layers in a plain
    list, which eval() doesn't reach.
    """
    model, ids = untouched(recipe), inputs(recipe)
    return differ(read(recipe, model, *ids), read(recipe, model, *ids))


@check("positions that differ after a checkpoint is loaded", "03", "The buffer, and the end of the table")
def forgets(recipe: Recipe) -> int:
    """The state_dict lacks something: layers in a plain list, or a random table that is no parameter or buffer."""
    first, second, ids = untouched(recipe), stirred(recipe), inputs(recipe)
    second.load_state_dict(first.state_dict())
    others = read(recipe, second, *ids)
    stir(second)
    return differ(read(recipe, first, *ids), others)


LOSS = "07", "3. The loss, with a softened target (§5.4)"
UPDATE = "07", "6. One update"


@check("positions whose logits are all positive or 0", *LOSS)
def probabilities(recipe: Recipe) -> tuple[int, str]:
    """They have been through a softmax, though cross_entropy has one of its own and the loss could not fall far, or
    through a ReLU or a sigmoid: return logits.
    """
    logits = read(recipe, untouched(recipe), *inputs(recipe))
    count = int((logits >= 0).all(dim=-1).sum())
    sums = (logits.sum(dim=-1) - 1).abs().max() < near(logits)
    return count, ("probabilities, their sum is 1" if sums else "an activation, their least is 0") if count else ""


@check("pairs of equal matrices", "04", "Where PyTorch's encoder differs")
def no_twins(recipe: Recipe) -> list[str]:
    """Layers that are copies of one start alike; build each by itself, or draw the weights again. What should be one,
    as embedding and output, is two: tie them by the parameter itself, not by a copy or `.data`.
    """
    model = untouched(recipe)
    matrices = [(name, p) for name, p in model.named_parameters() if p.dim() > 1 and p.requires_grad and p.std() > 0]
    twins = [(a, b) for (a, p), (b, other) in itertools.combinations(matrices, 2) if torch.equal(p, other)]
    copying = (nn.TransformerEncoder, nn.TransformerDecoder)
    stacks = tuple(name for name, part in model.named_modules() if isinstance(part, copying))
    if twins and all(name.startswith(stacks) for pair in twins for name in pair):
        raise Differs(
            f"{len(twins)} pairs of equal matrices (should be 0): {stacks[0]} copies its layer, as PyTorch does"
        )
    return [f"{a} = {b}" for a, b in twins]


def mean_loss(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute what the loss should be: the mean of −ln p over the real tokens that come next."""
    ids, answers = recipe.asked(*batch)
    return RIGHT(read(recipe, model, *ids).mT, answers, ignore_index=-100 if recipe.pad is None else recipe.pad)


def loss_of(recipe: Recipe, model: nn.Module, *batch: Tensor) -> Tensor:
    """Compute the recipe's own loss, or what it should be."""
    return recipe.loss(model, *batch) if recipe.loss else mean_loss(recipe, model, *batch)


@check("nats from ln V to the first loss", *LOSS, low=-0.7, high=2.0)
def first_loss(recipe: Recipe) -> float:
    """Untrained, a model should know nothing. Above: its logits are too large, look at how embedding and output are
    drawn, and whether pre-norm has its last norm. Below: it sees its answers.
    """
    return mean_loss(recipe, untouched(recipe), *recipe.batch()).item() - math.log(recipe.vocabulary)


def dependence(function: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """Tell, at [i, j], how far output i moves when input j is replaced; ids: one row."""
    before, columns = function(ids).detach(), []
    for j in range(ids.size(1)):
        other = ids.clone()
        other[0, j] = next(i for i in ids[0].flip(0).tolist() if i != ids[0, j])
        columns.append((function(other).detach() - before).abs().amax(dim=-1)[0])
    return torch.stack(columns, dim=1)


@lru_cache(maxsize=2)
def reads_past(recipe: Recipe, training: bool) -> Tensor:
    """Tell, at [i, j], whether output i reads input j of the target; dropout always drops the same."""
    model, (*src, tgt) = stirred(recipe).train(training), inputs(recipe, LONGEST[:1])

    def logits(ids: Tensor) -> Tensor:
        torch.manual_seed(0)
        return read(recipe, model, *src, ids)

    return dependence(logits, tgt) > near(logits(tgt))


ENCODERS, DECODERS = r"bert|encoder|mlm|masked ?lm", r"decoder|causal|gpt|llama|generat"


def recognise(recipe: Recipe) -> None:
    """Find out by what it reads whether a model shifts its target by itself, and whether it is an encoder.

    An encoder reads both ways, as does a language model that lacks its mask; the names of its parts tell them apart, or
    its loss, which is given the answers, too.
    """
    reads = reads_past(recipe, False)
    if recipe.kind == "language model" and not recipe.write:
        names = " ".join(f"{name} {type(part).__name__}" for name, part in untouched(recipe).named_modules()).lower()
        named = re.search(ENCODERS, names) and not re.search(DECODERS, names)
        if (recipe.loss and arguments(recipe.loss, 3) == 3) or (named and reads.all()):
            recipe.kind = "encoder"
            recipe.recognised = "it is examined as an encoder; if it is none, give kind='language model'"
    due = torch.ones_like(reads).tril()
    due[:, 0] = False
    if recipe.kind != "encoder" and torch.equal(reads, due):
        recipe.skips, recipe.recognised = True, "its target is shifted by one on the way, so <bos> isn't read"
    elif recipe.kind != "encoder" and torch.equal(reads, torch.ones_like(reads).tril(-1)):
        recipe.skips = recipe.shifts = True
        reads_past.cache_clear()
        recipe.recognised = "it shifts its target by one itself, so <bos> isn't read, and it is given the ids to come"


@check("places of the future are read", "06", "6. A loss that is too good to be true")
def future(recipe: Recipe) -> tuple[int, str]:
    """An output reads the token that it is to predict: the causal mask is missing, or turned, or axes are mixed up."""
    if recipe.kind == "encoder":
        raise NotExamined("an encoder reads both ways")
    places = {mode: int(reads_past(recipe, mode == "training").triu(1).sum()) for mode in ("evaluation", "training")}
    modes = " and ".join(mode for mode, count in places.items() if count)
    return max(places.values()), f"in {modes} mode" if modes else ""


@check("places of the past are not read", "05", "3. Masked self-attention (§3.2.3)")
def past(recipe: Recipe) -> int:
    """The mask hides too much, or is upside down; in an encoder, nothing but padding may be hidden."""
    missed = ~reads_past(recipe, False)
    missed[:, : int(recipe.skips)] = False
    return int((missed if recipe.kind == "encoder" else missed.tril()).sum())


@check("places of the source are not read", "05", "4. Attention to the source (§3.2.3)", "source")
def source(recipe: Recipe) -> tuple[int, str]:
    """The decoder does not hear the encoder: look at cross-attention, at the mask of the source, and at whether the
    source is shifted or cut on its way.
    """
    model, (src, tgt) = stirred(recipe), inputs(recipe, LONGEST[:1])
    unread = dependence(lambda ids: read(recipe, model, ids, tgt), src) <= near(read(recipe, model, src, tgt))
    nobody = [str(i + 1) for i in unread.all(dim=0).nonzero().flatten().tolist()]
    return int(unread.sum()), f"no output reads token {', '.join(nobody)} of {src.size(1)}" if nobody else ""


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
def company(recipe: Recipe) -> tuple[int, str]:
    """What a row gives depends on the rest of its batch: batch and length are exchanged (batch_first?), or something
    is averaged over the batch.
    """
    counts, ids, model = [], inputs(recipe, LONGEST), stirred(recipe)
    before = [(part, name, getattr(part, name)) for part, name in dropouts(model)]
    for training in (False, True):
        without_dropout(model).train(training)
        alone = torch.cat([read(recipe, model, *inputs(recipe, [word])) for word in LONGEST])
        together, again = (read(recipe, model, *ids) for _ in range(2))
        counts.append(0 if differ(together, again) else differ(alone, together))
    for part, name, p in before:
        setattr(part, name, p)
    return counts[0] or counts[1], "" if counts[0] or not counts[1] else "in training mode"


def dropouts(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """List every dropout above 0, that of attention weights too, as a part and the name of its probability."""
    numbers = [(part, name) for part in model.modules() for name, p in vars(part).items() if isinstance(p, float) and p]
    return [(part, name) for part, name in numbers if "drop" in (type(part).__name__.lower() if name == "p" else name)]


def without_dropout(model: nn.Module) -> nn.Module:
    """Set every dropout to 0, since an update may switch training mode on."""
    for part, name in dropouts(model):
        setattr(part, name, 0.0)
    return model


@check("positions that change when padding follows", "06", "7. The child who smiles in company (§3.2.3)", "pad")
def padding(recipe: Recipe) -> int:
    """Padding is read: the mask of the source does not reach encoder and cross-attention, is upside down, or pad is
    another id.
    """
    if recipe.pad == recipe.eos:
        raise Differs(
            f"pad and eos are both {recipe.pad}, and should be two: what is masked and ignored is never learned"
        )
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
