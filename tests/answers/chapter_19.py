"""Wrong answers to the exercises of chapter 19, each with a pattern of its diagnosis; and other right answers."""

import copy
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import PAD
from annotated.encoder import Dropout
from annotated.training import set_rate
from annotated_course.exercises.chapter_19 import fit_and_keep

LOSSES = [math.log(12), 0.8 * math.log(8), math.log(math.e + 11) - 1, 0.75, math.log(2) / 5]
WARD = {"A": "frozen", "B": "healthy", "C": "future", "D": "dropout in writing", "E": "padding counted"}
WARD |= {"F": "healthy", "G": "order", "H": "gradients kept", "I": "padding read"}


def losses(place: int, value: float) -> list[float]:
    """The five losses, one of them wrong."""
    return [value if i == place else one for i, one in enumerate(LOSSES)]


def outputs(one: nn.Module, other: nn.Module, *inputs: Tensor) -> bool:
    """Whether two models differ."""
    with torch.no_grad():
        return not torch.allclose(one(*inputs), other(*inputs), atol=1e-5)


def forgets(build: Callable[[], nn.Module], *inputs: Tensor) -> bool:
    first, second = build(), build()
    second.load_state_dict(first.state_dict())
    return outputs(first.eval(), second.eval(), *inputs)


def forgets_in_training_mode(build, *inputs):
    first, second = build(), build()
    second.load_state_dict(first.state_dict())
    return outputs(first, second, *inputs)


def forgets_with_one_seed(build, *inputs):
    """Dropout draws the same, but a batch still counts with its own deviation."""
    first, second = build().train(), build().train()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        found = []
        for model in (first, second):
            torch.manual_seed(1)
            model(*inputs)
            found.append(model.eval()(*inputs) if model is first else model(*inputs))
        return not torch.allclose(*found, atol=1e-5)


def forgets_by(differ: Callable[[Tensor], Tensor]) -> Callable:
    """Right, but for what counts as a difference."""

    def forgets(build, *inputs):
        first, second = build().eval(), build().eval()
        second.load_state_dict(first.state_dict())
        return bool(differ((first(*inputs) - second(*inputs)).abs()))

    return forgets


forgets_by_much = forgets_by(lambda gap: (gap > 0.05).any())
forgets_in_the_first_row = forgets_by(lambda gap: (gap[0] > 1e-5).any())
forgets_everywhere = forgets_by(lambda gap: (gap > 1e-5).all())


def forgets_in_training_with_one_seed(build, *inputs):
    """Both models in training mode, where they draw the same dropout, and running means are not looked at."""
    first, second = build().train(), build().train()
    second.load_state_dict(first.state_dict())
    found = []
    for model in (first, second):
        torch.manual_seed(1)
        found.append(model(*inputs))
    return not torch.allclose(*found, atol=1e-5)


def forgets_a_copy(build, *inputs):
    first = build().eval()
    return outputs(first, copy.deepcopy(first), *inputs)


def forgets_itself(build, *inputs):
    first = build().eval()
    with torch.no_grad():
        before = first(*inputs)
        first.load_state_dict(first.state_dict())
        return not torch.allclose(before, first(*inputs))


def forgets_what_is_no_parameter(build, *inputs):
    """Buffers count as forgotten."""
    first, second = build().eval(), build().eval()
    second.load_state_dict({**second.state_dict(), **dict(first.named_parameters())})
    return outputs(first, second, *inputs)


def forgets_by_reloading(build, *inputs):
    """Another right way: the first model's outputs, before and after it has been overwritten and restored."""
    first, second = build().eval(), build().eval()
    with torch.no_grad():
        before = first(*inputs)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        return torch.tensor((second(*inputs) - before).abs().max().item() > 1e-4)


def left(*faults: str) -> Callable[..., float]:
    """The script of exercise 19.4 with some of its faults left."""
    return lambda *given: fit_and_keep(*given, *faults)


def loss_of(model: nn.Module, src: Tensor, tgt: Tensor, reduction: str = "mean") -> Tensor:
    """Map ids (batch, length) each to the mean loss of the target tokens, or its sum."""
    logits = model(src, tgt[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, tgt[:, 1:], ignore_index=PAD, reduction=reduction)


def validate(model: nn.Module, validation: list[tuple[Tensor, Tensor]]) -> float:
    """The loss per token, joined from means and counts."""
    model.eval()
    counts = [int((tgt[:, 1:] != PAD).sum()) for _, tgt in validation]
    with torch.no_grad():
        means = [loss_of(model, *batch).item() for batch in validation]
    return sum(mean * count for mean, count in zip(means, counts, strict=True)) / sum(counts)


def fit_by_hand(model, training, validation, rates, *, clip=1.0, optimizer=torch.optim.SGD, reduction="mean"):
    """Another right way: every epoch's weights are kept, and the best chosen in the end."""
    optimizer, epochs = optimizer(model.parameters(), lr=0.0), []
    for rate in rates:
        set_rate(optimizer, rate)
        for batch in training:
            model.train().zero_grad()
            loss_of(model, *batch, reduction).backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        epochs.append((validate(model, validation), [p.detach().clone() for p in model.parameters()]))
    value, weights = min(epochs, key=lambda epoch: epoch[0])
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return value


def fit_and_stop(model, training, validation, rates):
    """At the first epoch that is no better, it stops."""
    best = math.inf
    for rate in rates:
        before = copy.deepcopy(model.state_dict())
        value = fit_and_keep(model, training, validation, [rate])
        if value >= best:
            model.load_state_dict(before)
            break
        best = value
    return best


def fit_without_a_copy(model, training, validation, rates):
    """What is kept goes on moving."""
    best = math.inf
    for rate in rates:
        value = fit_and_keep(model, training, validation, [rate])
        if value < best:
            best, kept = value, model.state_dict()
    model.load_state_dict(kept)
    return best


def fit_without_dropout(model, *given):
    for module in model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    return fit_and_keep(model, *given)


def fit_without_weights(model, *given):
    """The loss is right, the weights are those of the beginning."""
    before = copy.deepcopy(model.state_dict())
    value = fit_and_keep(model, *given)
    model.load_state_dict(before)
    return value


WRONG = [
    ("19.1", LOSSES[:4], "five numbers, from 0 to 4"),
    ("19.1", 2.48, "five numbers"),
    ("19.1", losses(0, math.log(8)), "number 0: .*all 12 tokens"),
    ("19.1", losses(0, math.log2(12)), "number 0: in nats"),
    ("19.1", losses(0, 1 / 12), "number 0: this is the probability"),
    ("19.1", losses(0, 2.0), "number 0: it is not 2.$"),
    ("19.1", losses(1, math.log(8)), "number 1: a row has five answers"),
    ("19.1", losses(1, math.log(12)), "number 1: .*only letters come"),
    ("19.1", losses(1, (4 * math.log(8) + math.log(12)) / 5), "number 1: .*same place"),
    ("19.1", losses(1, 4 * math.log(8)), "number 1: per answer"),
    ("19.1", losses(1, 0.8 * math.log(12)), "number 1: .*8 letters"),
    ("19.1", losses(2, 0.0), "number 2: .*cannot be certain"),
    ("19.1", losses(2, math.log(12)), "number 2: the first softmax may be certain"),
    ("19.1", losses(2, math.log(math.e + 12) - 1), "number 2: .*eleven zeros"),
    ("19.1", losses(2, math.log(math.e + 11)), "number 2: .*is missing"),
    ("19.1", losses(2, math.log(math.e + 7) - 1), "number 2: .*not over the 8 letters"),
    ("19.1", losses(3, 1.5), "number 3: .*pull the mean down"),
    ("19.1", losses(3, 3.0), "number 3: .*smaller"),
    ("19.1", losses(3, 7.5), "number 3: this is the sum"),
    ("19.1", losses(4, 0.0), "number 4: .*cannot be known"),
    ("19.1", losses(4, math.log(2)), "number 4: only the first letter"),
    ("19.1", losses(4, 0.8 * math.log(2)), "number 4: once it has read"),
    ("19.1", losses(4, math.log(2) / 4), "number 4: a row has five answers"),
    ("19.2", forgets_by_much, "it misses this one: a table whose absence shows by less"),
    ("19.2", forgets_in_the_first_row, "it misses this one: a table that touches the last"),
    ("19.2", forgets_everywhere, "it misses this one: a table"),
    ("19.2", forgets_in_training_with_one_seed, "it misses this one: running means"),
    ("19.2", forgets_in_training_mode, "cries wolf at this one: dropout. There, in training mode two calls differ"),
    ("19.2", forgets_with_one_seed, "cries wolf"),
    ("19.2", forgets_a_copy, "you return False for every model"),
    ("19.2", forgets_itself, "you return False for every model"),
    ("19.2", lambda build, *inputs: True, "you return True for every model"),
    ("19.2", forgets_what_is_no_parameter, "cries wolf at this one: a random table in a buffer that is saved"),
    ("19.2", lambda build, *inputs: bool(list(build().buffers())) or forgets(build, *inputs), "cries wolf"),
    (
        "19.2",
        lambda build, *inputs: forgets(build, *inputs) and not list(build().buffers()),
        "misses this one: a random table in a buffer that is not saved",
    ),
    (
        "19.2",
        lambda build, *inputs: any(isinstance(part, list) for part in vars(build()).values()),
        "misses this one: layers in a dictionary",
    ),
    ("19.2", lambda build, *inputs: not list(build().children()), "you return False"),
    ("19.2", lambda build, *inputs: print(end=""), "does it end in a return"),
    ("19.2", lambda build, *inputs: 0.5, "return True or False; got float"),
    ("19.3", list(WARD), "expected a dictionary, patient to diagnosis; got list"),
    ("19.3", {name: WARD[name] for name in "ABCDE"}, "no diagnosis for F, G, H, I"),
    ("19.3", WARD | {"J": "healthy"}, "no patient 'J'"),
    ("19.3", WARD | {"C": "leaky"}, "C: 'leaky' is no diagnosis"),
    ("19.3", WARD | {"B": "twins"}, "8 of 9 are right. B is healthy: your check cries wolf"),
    ("19.3", WARD | {"C": "healthy"}, "8 of 9 are right. C is not healthy"),
    ("19.3", WARD | {"A": "twins", "I": "padding counted"}, "7 of 9 are right. A is sick, but not of 'twins'"),
    ("19.3", dict.fromkeys(WARD, "healthy"), "2 of 9 are right. A is not healthy"),
    ("19.3", WARD | {"E": "padding read"}, "E is sick, but not of 'padding read'"),
    ("19.4", left("other"), "one fault is left: the optimizer holds the weights of another model"),
    ("19.4", left("clip"), "one fault is left: the gradient is not clipped to norm 1"),
    ("19.4", left("eval"), "one fault is left: after the first validation"),
    ("19.4", left("means"), "one fault is left: the validation loss is a mean of the batches' means"),
    ("19.4", fit_without_a_copy, "one fault is left: the weights of the last epoch"),
    ("19.4", left("last"), "one fault is left: the weights of the last epoch"),
    ("19.4", left("returned"), "one fault is left: the loss that you return"),
    ("19.4", left("noise"), "one fault is left: the validation is measured with dropout"),
    ("19.4", left("last", "returned"), "more than one fault is left"),
    ("19.4", left("other", "clip", "eval", "means", "last", "returned"), "neither .* more than one fault"),
    ("19.4", fit_and_stop, "more than one fault is left, or another one"),
    ("19.4", lambda *given: fit_and_keep(*given[:3], given[3][:2]), "more than one fault is left, or another one"),
    ("19.4", functools.partial(fit_by_hand, reduction="sum"), "more than one fault is left, or another one"),
    ("19.4", fit_without_dropout, "without dropout all is right, with dropout not"),
    ("19.4", fit_without_weights, "the loss returned is right, the weights left in the model are not"),
    ("19.4", lambda *given: fit_and_keep(*given) + 1, "the weights left in the model are right, the loss"),
    ("19.4", functools.partial(fit_by_hand, clip=2.0), "neither"),
    ("19.4", functools.partial(fit_by_hand, optimizer=torch.optim.Adam), "neither"),
    ("19.4", lambda *given: torch.tensor(fit_and_keep(*given)), "as a Python number: loss.item"),
    ("19.4", lambda *given: print(end=""), "your function returned None"),
]

RIGHT = [
    ("19.1", LOSSES),
    ("19.1", (2.48, 1.66, 1.62, 0.75, 0.14)),
    ("19.1", torch.tensor(LOSSES)),
    ("19.2", forgets),
    ("19.2", forgets_by_reloading),
    ("19.3", WARD),
    ("19.3", dict(reversed(WARD.items()))),
    ("19.4", left()),
    ("19.4", fit_by_hand),
]
