"""What the doctor sees of one call of a model: its modules, its matrix products, its softmaxes."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from annotated_course.doctor.checks import NotExamined, inputs, read, untouched
from annotated_course.doctor.recipe import EIGHT, LONGEST, Recipe, tensor_of

# PyTorch's own, even where a file puts others in their place, which may call them.
MULTI_HEAD, SCALED = F.multi_head_attention_forward, F.scaled_dot_product_attention
SOFTMAXES = (F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax)
PRODUCTS = (torch.matmul, torch.bmm, torch.baddbmm, torch.einsum, Tensor.matmul, Tensor.bmm, Tensor.__matmul__)


class Event(NamedTuple):
    """A "linear" (x and matrix), "product", "softmax" (scores, or those of `SCALED` and its scale) or "embedding"."""

    kind: str
    inside: str  # the innermost module
    first: Any
    second: Any
    output: Tensor


class Call(NamedTuple):
    """A call of a module, and which events fall into it."""

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    events: slice
    output: Any = None

    def road(self) -> Any:
        """Find the first input that has the shape of the output."""
        given = (x for x in (*self.args, *self.kwargs.values()) if is_floating(x) and is_floating(self.output))
        return next((x for x in given if x.shape == self.output.shape), None)

    def holds(self, other: "Call") -> bool:
        """Tell whether another call falls into it."""
        return self.events.start <= other.events.start and other.events.stop <= self.events.stop and self is not other

    def again(self, x: Tensor) -> Tensor:
        """Call the module once more, with another road."""
        old, x = self.road(), x.clone()
        args = [x if arg is old else arg for arg in self.args]
        return tensor_of(self.module(*args, **{key: x if arg is old else arg for key, arg in self.kwargs.items()}))


class Record(TorchFunctionMode):
    """Keeps what happens while a model is called.

    A softmax is one of attention if its last two axes are as long as rows. PyTorch's own functions for attention show
    none: one gives its weights when asked; the other's are what it makes of the identity as its values, (query, key) ·
    (key, key).
    """

    def __init__(self, *ids: Tensor):
        super().__init__()
        self.ids, self.lengths = ids, {rows.size(1) for rows in ids}
        self.calls: list[Call] = []  # in the order in which they end: inner ones first
        self.events: list[Event] = []
        self.logits = torch.empty(0)
        self.open = [Call("", nn.Identity(), (), {}, slice(0))]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is MULTI_HEAD:  # with its weights it takes no masks of another dtype
            masks = {key: x.to(args[0].dtype) for key, x in kwargs.items() if "mask" in key and is_floating(x)}
            kwargs |= masks | {"need_weights": True, "average_attn_weights": False}
        output = function(*args, **kwargs)
        if function is MULTI_HEAD:
            self.attended(None, None, output[1])
        elif function is SCALED:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = dict(zip(names, args, strict=False)) | kwargs
            *before, keys, d_k = given["key"].shape
            weights = function(**given | {"value": torch.eye(keys).expand(*before, keys, keys)})
            self.attended([given[name] for name in names[:3]], given.get("scale") or d_k**-0.5, weights)
        elif function in SOFTMAXES:
            self.attended(args[0], None, output)
        elif function is F.linear or function is torch.addmm:
            self.note("linear", args[1:] if function is torch.addmm else args, output)
        elif function in PRODUCTS:
            self.note("product", args[-1] if isinstance(args[-1], list | tuple) else args[-2:], output)
        elif function is F.embedding:
            self.note("embedding", args, output)
        return output

    def attended(self, scores: Any, scale: float | None, weights: Tensor) -> None:
        """Note a softmax, if it is attention's."""
        if weights.dim() > 1 and {*weights.shape[-2:]} <= self.lengths:
            self.note("softmax", (scores, scale), weights.detach())

    def note(self, kind: str, args: Sequence[Any], output: Tensor) -> None:
        """Note a function and its numbers."""
        self.events.append(Event(kind, self.open[-1].name or "the model", kept(args[0]), kept(args[1]), kept(output)))

    def begins(self, name: str) -> Any:
        """Make a hook that notes with what a module is called."""

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            args, kwargs = kept((args, kwargs))
            self.open.append(Call(name, module, args, kwargs, slice(len(self.events), None)))

        return hook

    def ends(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Note what comes of a call."""
        call = self.open.pop()
        events = slice(call.events.start, len(self.events))
        self.calls.append(call._replace(events=events, output=kept(tensor_of(output))))


def is_floating(x: Any) -> bool:
    """Tell whether it is a tensor of such numbers."""
    return isinstance(x, Tensor) and x.is_floating_point()


def kept(value: Any, copies: dict[int, Any] | None = None) -> Any:
    """Copy numbers, which the model may yet change in place, each tensor once; a parameter stays itself."""
    copies = {} if copies is None else copies
    if isinstance(value, tuple | list):
        return tuple(kept(each, copies) for each in value)
    if isinstance(value, dict):
        return {key: kept(each, copies) for key, each in value.items()}
    if not is_floating(value) or isinstance(value, nn.Parameter):
        return value
    return copies.setdefault(id(value), value.clone())


@lru_cache(maxsize=2)
def record_of(recipe: Recipe, word: int, training: bool = False) -> Record:
    """Record a call; another word makes another row of the same length."""
    model, (*src, tgt) = untouched(recipe).train(training), inputs(recipe, LONGEST[word : word + 1])
    ids = (*(inputs(recipe, EIGHT[3 + word : 4 + word])[0] for _ in src), tgt)
    record = Record(*ids)
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(record.begins(name), with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(record.ends, with_kwargs=True).remove)
        with record:
            record.logits = read(recipe, model, *ids)
    model.eval()
    return record


def recorded(recipe: Recipe) -> Record:
    """Lend the record of a call of the untouched model on one row without padding."""
    return record_of(recipe, 0)


@lru_cache(maxsize=2)
def blocks(recipe: Recipe, word: int = 0) -> list[Call]:
    """Find the smallest calls that hold an attention and then a feed-forward network."""
    record, found = record_of(recipe, word), list[Call]()
    for call in record.calls:
        events = record.events[call.events]
        softmaxes = [i for i, event in enumerate(events) if event.kind == "softmax"]
        after = [event for event in events[softmaxes[-1] :] if event.kind == "linear"] if softmaxes else []
        if call.road() is None or not (len(after) > 2 or any(map(is_wide, after))):
            continue
        if not any(map(call.holds, found)):
            found.append(call)
    if not found:
        raise NotExamined("no module was seen that holds an attention and a feed-forward network")
    return found


def is_wide(linear: Event) -> bool:
    """Tell whether a linear layer makes more numbers than it gets, as the first of a feed-forward network."""
    return bool(linear.output.size(-1) > linear.first.size(-1))


def of_matrices(module: nn.Module) -> list[Tensor]:
    """List the parameters of all that multiplies by a matrix; what is left are the norms'."""
    owners = (part for part in module.modules() if any(p.dim() > 1 for p in part.parameters(recurse=False)))
    return [p for owner in owners for p in owner.parameters(recurse=False)]


@contextmanager
def times(factor: float, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Multiply some parameters meanwhile."""
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        try:
            for parameter in parameters:
                parameter.mul_(factor)
            yield
        finally:
            for parameter, numbers in zip(parameters, before, strict=True):
                parameter.copy_(numbers)
