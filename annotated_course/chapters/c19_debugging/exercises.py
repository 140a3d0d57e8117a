"""The exercises of chapter 19, debugging."""

import copy
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.masking import Mask, padding_mask
from annotated.training import make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_course.doctor.recipe import Recipe as DoctorRecipe
from annotated_course.exercises.exercise import Exercise, Run, WrongFormError, calls, on_paper, parts, slip
from annotated_workbench.data import pad

EXERCISES: dict[str, Exercise] = {}

ln = math.log
LOSSES = [ln(12), 4 * ln(8) / 5, ln(math.e + 11) - 1, 0.75, ln(2) / 5]
EXERCISES["19.1"] = on_paper(
    "Five losses on paper",
    LOSSES,
    {
        "a row has five answers; the last, <eos>, is certain.": (1, ln(8)),
        "the zeros of the padding pull the mean down.": (3, 1.5),
        "more positions, the same sum: the mean becomes smaller.": (3, 3.0),
        "one source, two answers: the first letter cannot be known.": (4, 0.0),
    },
    tolerance=0.003,
)


class Stack(nn.Module):
    """Two random layers, kept in a `kept`, and perhaps a table: in a buffer, saved or not, or as a plain attribute."""

    def __init__(self, kept: Any = nn.ModuleList, table: Any = 0.0, saved: Any = None, dropout=0.0, norm: Any = None):
        super().__init__()
        self.layers = kept([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.dropout, self.norm = nn.Dropout(dropout), norm or nn.Identity()
        if saved is None:
            self.table = table
        else:
            self.register_buffer("table", table, persistent=saved)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 6) to the same shape."""
        for layer in self.layers:
            x = self.dropout(torch.tanh(layer(x)))
        return self.norm(x + self.table)


def unsaved_mean() -> nn.Module:
    """Make a normalisation whose running means are random, and not saved."""
    norm = nn.BatchNorm1d(6)
    norm.register_buffer("running_mean", torch.randn(6), persistent=False)
    return norm


@torch.no_grad()
def forgets(build: Callable[[], nn.Module], *inputs: Tensor) -> bool:
    """Compare a model with a second one that has loaded its checkpoint."""
    first, second = build(), build()
    second.load_state_dict(first.state_dict())
    gap = first.eval()(*inputs) - second.eval()(*inputs)
    return bool(gap.abs().max() > 1e-5)


ROWS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(4, 9).expand(2, 5)
SMALL = TransformerConfig(11, d_model=8, d_ff=8, heads=2, layers=1, max_length=8)
BUILDS: dict[str, Callable[[], nn.Module]] = {  # the first seven keep all there is, the others forget something
    "layers in an nn.ModuleList": Stack,
    "dropout": lambda: Stack(dropout=0.5),
    "a model with dropout, handed over in evaluation mode": lambda: Stack(dropout=0.5).eval(),
    "a normalisation with running means": lambda: Stack(norm=nn.BatchNorm1d(6)),
    "a table that is always the same, and not saved": lambda: Stack(table=torch.arange(6.0)),
    "a random table in a buffer that is saved": lambda: Stack(table=torch.randn(6), saved=True),
    "a Transformer with tied embeddings": lambda: Transformer(SMALL),
    "layers in a plain list": lambda: Stack(list),
    "a random table in a buffer that is not saved": lambda: Stack(table=torch.randn(6), saved=False),
    "a random table as a plain attribute": lambda: Stack(table=torch.randn(6)),
    "a table whose absence shows by less than a hundredth": lambda: Stack(table=0.01 * torch.rand(5, 6)),
    "a table of which one number is not 0": lambda: Stack(table=F.pad(5 * torch.randn(1, 1), (5, 0, 4, 0))),
    "running means that are not saved": lambda: Stack(norm=unsaved_mean()),
}
EXERCISES["19.2"] = Exercise(
    "What a checkpoint forgets",
    right=forgets,
    cases={
        f"{name}: ": calls(build, *((IDS, IDS) if "Transformer" in name else (ROWS,))) for name, build in BUILDS.items()
    },
    mistakes={
        "in training mode two calls differ; compare in evaluation mode.": "eval() → train()",
        "build the second model by a call of its own.": "first, second = build(), build() → first = second = build()",
        "a difference of a thousandth counts.": "1e-5 → 0.05",
        "all outputs must be the same: take the largest difference.": "gap.abs() → gap.abs()[0]",
    },
)


def total_loss(model: Transformer, src: Tensor, tgt: Tensor) -> tuple[Tensor, int]:
    """Add up the losses of all target tokens, and count these."""
    answers = tgt[:, 1:]
    total = F.cross_entropy(model(src, tgt[:, :-1]).mT, answers, ignore_index=PAD, reduction="sum")
    return total, int((answers != PAD).sum())


class _OpenEyes(Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Any, tgt_mask: Any = None, cache: Any = None) -> Tensor:
        blind = self.training or cache is not None
        return super().decode(tgt, memory, src_mask, tgt_mask if blind else padding_mask(tgt), cache)


class _OpenCross(Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Any, tgt_mask: Any = None, cache: Any = None) -> Tensor:
        return super().decode(tgt, memory, None, tgt_mask, cache)


class _Bag(Transformer):
    def encode(self, src: Tensor, src_mask: Mask | None = None) -> Tensor:
        mask = padding_mask(src) if src_mask is None else src_mask
        return self.encoder(self.dropout(self.src_embedding(src) * math.sqrt(self.config.d_model)), mask)


@torch.no_grad()
def write_greedily(model: Transformer, src: Tensor, steps: int = 7) -> tuple[Tensor, Tensor]:
    """Write seven tokens for each source; give ids and logits."""
    mask = padding_mask(src)
    ids, memory, cache, logits = torch.full((len(src), 1), BOS), model.encode(src, mask), model.new_cache(), []
    for _ in range(steps):
        logits.append(model.logits(model.decode(ids[:, -1:], memory, mask, cache=cache)))
        ids = torch.cat((ids, logits[-1][..., EOS:].argmax(dim=-1) + EOS), dim=1)
    return ids, torch.cat(logits, dim=1)


@cache
def some_words(count: int) -> list[tuple[int, ...]]:
    """Draw words of three to five letters, each one once."""
    generator = torch.Generator().manual_seed(17)
    lengths = torch.randint(3, 6, (count,), generator=generator).tolist()
    return list({tuple(torch.randint(4, 14, (length,), generator=generator).tolist()): None for length in lengths})


class Recipe(DoctorRecipe):
    """How a model for reversing words is made, trained and used, as in the chapter."""

    def words(self, part: str) -> list[tuple[int, ...]]:
        """The words of "train" or "test"."""
        return some_words(500)[50:] if part == "train" else some_words(500)[:50]

    def build(self) -> Transformer:
        """Make a model."""
        sizes = TransformerConfig(14, d_model=32, d_ff=64, heads=2, layers=2, max_length=16)
        return Transformer(sizes).double()

    def loss(self, model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
        """The mean loss of the target's tokens."""
        total, count = total_loss(model, src, tgt)
        return total / count

    def optimizer(self, model: Transformer) -> torch.optim.Optimizer:
        """Make Adam."""
        return make_optimizer(model)

    def plan(self, step: int) -> float:
        """The rate of a step, counted from 1."""
        return 0.5 * noam_rate(step, 32, 60)

    def update(self, model: Transformer, optimizer: torch.optim.Optimizer, batch: Any, step: int) -> float:
        """Do one step, and return its loss."""
        set_rate(optimizer, self.plan(step))
        optimizer.zero_grad()
        value = self.loss(model, *batch)
        value.backward()
        optimizer.step()
        return value.item()

    def write(self, model: Transformer, src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor]:
        """Write greedily for each source; give ids and logits."""
        return write_greedily(model.eval(), src)


def same_layers(model: Transformer) -> Transformer:
    """Let the second layer of a decoder begin as the first."""
    model.decoder.layers[1].load_state_dict(model.decoder.layers[0].state_dict())
    return model


def without_cross_attention(model: Transformer) -> torch.optim.Optimizer:
    """Make Adam for all other weights."""
    moving = [p for name, p in model.named_parameters() if "cross_attention" not in name]
    return torch.optim.Adam(moving, betas=(0.9, 0.98), eps=1e-9)


FAULTS = {
    "future": "Transformer(sizes) → _OpenEyes(sizes)",
    "padding in cross-attention": "Transformer(sizes) → _OpenCross(sizes)",
    "padding counted": "/ count → / tgt[:, 1:].numel()",
    "order": "Transformer(sizes) → _Bag(sizes)",
    "frozen": "make_optimizer( → without_cross_attention(",
    "gradients kept": "optimizer.zero_grad() →",
    "twins": "Transformer(sizes).double() → same_layers(Transformer(sizes).double())",
    "dropout in writing": "model.eval() → model.train()",
    "test words in training": "[50:] → [40:]",
}
NOBODYS = ("padding in the encoder", "start lost", "beside the reference")
DIAGNOSES = ("healthy", *FAULTS, *NOBODYS)
WARD = {name: DIAGNOSES[place] for name, place in zip("ABCDEFGHI", (5, 0, 1, 8, 3, 0, 4, 6, 2), strict=True)}


def patients() -> dict[str, Any]:
    """Nine recipes for reversing words, "A" to "I": some healthy, the others with one fault each."""
    # The healthy ones are made in the same way, so that their class does not tell them.
    return {name: slip(Recipe, FAULTS.get(fault, "Recipe → Recipe"))() for name, fault in WARD.items()}


def examine_ward(answer: Any) -> str | None:
    """Look at the nine diagnoses; say something about the first wrong one."""
    named = isinstance(answer, Mapping) and answer.keys() == WARD.keys()
    if not named or not all(diagnosis in DIAGNOSES for diagnosis in answer.values()):
        return f"give each patient, {', '.join(WARD)}, one of these diagnoses in a dictionary: {', '.join(DIAGNOSES)}."
    wrong = [name for name, fault in WARD.items() if answer[name] != fault]
    if not wrong:
        return None
    remark, name = f"{len(WARD) - len(wrong)} of {len(WARD)} are right.", wrong[0]
    if answer[name] == "healthy":
        return f"{remark} {name} is not healthy: which check have you not tried on it?"
    if WARD[name] == "healthy":
        return f"{remark} {name} is healthy: your check cries wolf."
    return f"{remark} {name} is sick, but not of {answer[name]!r}."


EXERCISES["19.3"] = Exercise(
    "The ward",
    right=WARD,
    examine=examine_ward,
    caught={
        "give each patient, A, B, C, D, E, F, G, H, I, one of these diagnoses": WARD | {"C": "leaky"},
        "8 of 9 are right. C is not healthy: which check have you not tried on it?": WARD | {"C": "healthy"},
        "8 of 9 are right. B is healthy: your check cries wolf.": WARD | {"B": "twins"},
        "7 of 9 are right. A is sick, but not of 'twins'.": WARD | {"A": "twins", "I": "padding counted"},
    },
)


def fit(model: Transformer, training: list[Any], validation: list[Any], rates: list[float]) -> float:
    """The script: keep the weights with the best validation loss, and return it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rates[0])
    best, kept = math.inf, model.state_dict()
    for rate in rates:
        model.train()
        set_rate(optimizer, rate)
        for batch in training:
            model.zero_grad()
            total, count = total_loss(model, *batch)
            (total / count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [total_loss(model, *batch) for batch in validation]
        value = sum(total.item() for total, _ in losses) / sum(count for _, count in losses)
        if value < best:
            best, kept = value, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


def batches(*lengths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Draw batches of words of the given lengths, and the same words reversed."""
    generator = torch.Generator().manual_seed(3)
    words = [[torch.randint(4, 11, (length,), generator=generator).tolist() for length in batch] for batch in lengths]
    return [
        (pad([[*word, EOS] for word in batch]), pad([[BOS, *word[::-1], EOS] for word in batch])) for batch in words
    ]


TRAINING, VALIDATION = batches((3, 4), (5, 2)), batches((2,), (6, 5, 5))


def trained(dropout: float) -> Run:
    """Run a script on four epochs, of which the third is the best and the last too fast; give weights and loss."""

    @cache  # the two parts of a result are compared one by one
    def run(script: Callable[..., Any]) -> tuple[Tensor, Any]:
        torch.manual_seed(1)
        config = TransformerConfig(11, d_model=16, d_ff=24, heads=2, layers=1, dropout=dropout, max_length=16)
        model = Transformer(config).double()
        loss = script(model, TRAINING, VALIDATION, [0.1, 1.0, 0.3, 12.0])
        if isinstance(loss, Tensor):
            raise WrongFormError("return the loss as a Python number: loss.item().")
        return nn.utils.parameters_to_vector(model.parameters()).detach(), loss

    return run


WRITTEN = ("the parameters left in the model", "the loss returned")
EXERCISES["19.4"] = Exercise(
    "A script with six faults",
    right=fit,
    cases=parts(trained(dropout=0.0), *WRITTEN) | parts(trained(dropout=0.5), *WRITTEN, place="with dropout, "),
    mistakes={
        "the optimizer holds another model's parameters; these never move.": "SGD(model. → SGD(copy.deepcopy(model).",
        "the gradient is not clipped: clip_grad_norm_(…, 1.0) after backward(), before step().": "1.0 → math.inf",
        "after validation it stays in eval mode: train() again.": "model.train() → best < math.inf or model.train()",
        "the validation loss is a mean of means: divide the sum by all tokens.": (
            "sum(total.item() for total, _ in → sum(total.item() / count for total, count in; "
            "sum(count for _, count in losses) → len(losses)"
        ),
        "the parameters of the last epoch are left in the model: keep a copy of the best, for state_dict() hands out "
        "the parameters themselves, which go on moving.": "copy.deepcopy( → (",
        "the loss that you return is that of the last epoch; return the best.": "return best → return value",
        "the validation is measured with dropout: eval() before it.": "model.eval() →",
    },
    tolerance=1e-5,
)
