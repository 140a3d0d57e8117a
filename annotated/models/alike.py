"""Whether a model still is what its configuration makes: of any other, only its own forward pass is true."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
IRRELEVANT = {"training", "recorders", "_compiled_call_impl"}  # none of these changes the function
COMPILED = "torch._dynamo.eval_frame", "OptimizedModule"  # by name: to import it would take a second
WATCHES = "torch.utils.module_tracker"  # whose hooks only look on while operations are counted


@lru_cache(maxsize=16)
def outline(make: Any, config: Any) -> nn.Module:
    """Make a model of parts and shapes without numbers, to compare with; the same one for the same arguments.

    Args:
        make: its class, or what makes it from a configuration.
        config: sizes and switches.
    """
    with torch.device("meta"):
        return make(config)


def changed(model: Any) -> str | None:
    """Name the first thing by which a model is no longer what its class makes of its configuration; None if nothing is.

    Hooks on gradients count here, too; a bias of its `output`, as `in_bfloat16` adds, does not.
    """
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            return f"{name} has a hook"
        if hasattr(parameter, "_in_backward_optimizers"):
            return f"{name} is updated in the backward pass"
    try:
        kind: Any = type(model)
        reference = outline(kind, model.config)
    except (TypeError, AttributeError) as error:  # it cannot be hashed, or nothing can be made of it
        return f"its configuration is none to compare with ({error})"
    return differs(model, reference, but=("output.bias",))


def inside(wrapper: Any) -> Any:
    """Return the model inside what `torch.compile` made of it; or the wrapper, if something hangs on that.

    Args:
        wrapper: any model; one that is no such wrapper is returned as it is.
    """
    if (type(wrapper).__module__, type(wrapper).__name__) != COMPILED:
        return wrapper
    model = vars(wrapper)["_modules"]["_orig_mod"]
    called = getattr(vars(wrapper).get("forward"), "_torchdynamo_orig_callable", None)
    if "forward" in vars(wrapper) and called != model.__call__:
        return wrapper
    return model if is_bare(wrapper, model, but=("forward",)) else wrapper


def is_bare(wrapper: nn.Module, model: nn.Module, *, but: Collection[str] = ()) -> bool:
    """Tell whether a wrapper has no hook, nor, but for those in `but`, an attribute over its class's or the model's."""
    own = vars(wrapper)
    hides = [
        key for key in own.keys() - IRRELEVANT - {*but} if hasattr(type(wrapper), key) or hasattr(type(model), key)
    ]
    return not hides and not any(own[hooks] for hooks in HOOKS)


def differs(model: nn.Module, reference: nn.Module, *, but: Collection[str] = ()) -> str | None:
    """Name the first thing that makes a model another function of its weights than a reference is; None if nothing is.

    What counts: the type and the settings of each part, the shapes of its weights and which are tied, its buffers (by
    value, unless the reference's are on "meta"), hooks and methods that were replaced. What does not: mode, dtype,
    device, which weights are trained.

    Args:
        model: what may have been changed.
        reference: what was not.
        but: full names of weights that do not count.
    """
    for hooks, what in HOOKS.items():
        if any(hook.__module__ != WATCHES for hook in getattr(torch_module, f"_global{hooks}").values()):
            return f"every module has a {what}"
    parts: list[tuple[str, Any, Any]] = [("", model, reference)]
    names: dict[int, str] = {}  # under which name came first what is in each place of memory
    due_names: dict[int, str] = {}
    for name, given, expected in parts:
        problem = _type_differs(given, expected)
        if expected is None and not problem:
            continue
        if problem := problem or _settings_differ(given, expected):
            return f"{name.rstrip('.') or 'the model'} {problem}"
        for key, tensor in expected._buffers.items():
            if problem := _tensor_differs(buffer := given._buffers[key], tensor):
                return f"{name}{key} {problem}"
            if (
                tensor is not None
                and not tensor.is_meta
                and not torch.equal(buffer.cpu(), tensor.to("cpu", buffer.dtype))
            ):
                return f"{name}{key} holds other numbers"
        for key, tensor in expected._parameters.items():
            parameter, place = given._parameters[key], f"{name}{key}"
            if place in but:
                continue
            if problem := _tensor_differs(parameter, tensor):
                return f"{place} {problem}"
            if tensor is None:
                continue
            where = parameter.data_ptr() or id(parameter)  # on "meta" all are at 0
            first, due = names.setdefault(where, place), due_names.setdefault(id(tensor), place)
            if first != due:
                return f"{place} is {f'not tied to {due}' if first == place else f'tied to {first}'}"
        parts += [(f"{name}{key}.", given._modules[key], part) for key, part in expected._modules.items()]
    return None


def _type_differs(given: Any, expected: Any) -> str | None:
    found, due = (kind.__name__ for kind in (type(given), type(expected)))
    if found == due and type(given) is not type(expected):
        found = f"{type(given).__module__}.{found}"
    return None if type(given) is type(expected) else f"is of type {found}, not {due}"


def _settings_differ(given: nn.Module, expected: nn.Module) -> str | None:
    """Compare two parts of one type, but for their tensors and for what is inside the parts that they have."""
    own, due = vars(given), vars(expected)
    for hooks, what in HOOKS.items():
        if own[hooks]:
            return f"has a {what}"
    for key, value in due.items():
        if key[0] != "_" and key not in IRRELEVANT and (key not in own or not _equal(own[key], value)):
            return f"has {key}={own.get(key)}, not {value}"
    if own.keys() != due.keys():
        for key in own.keys() - due.keys() - IRRELEVANT:
            if hasattr(type(given), key) or key in own["_parameters"] or key in own["_modules"]:
                return f"has its own {key}"
    for kind in ("_parameters", "_buffers", "_modules"):
        if own[kind].keys() != due[kind].keys():
            return f"has {', '.join(own[kind]) or 'nothing'} where {', '.join(due[kind]) or 'nothing'} should be"
    if [*own["_modules"]] != [*due["_modules"]]:
        return f"has its parts in another order: {', '.join(own['_modules'])}"
    return None


def _tensor_differs(given: Any, expected: Any) -> str | None:
    if type(given) is not type(expected):
        return _type_differs(given, expected)
    if expected is not None and given.shape != expected.shape:
        return f"has shape {tuple(given.shape)}, not {tuple(expected.shape)}"
    if expected is not None and (given.layout, given.is_floating_point()) != (torch.strided, True):
        return f"holds {given.dtype}, {given.layout}"
    return None


def _equal(given: Any, expected: Any) -> bool:
    return given is expected or (not isinstance(given, Tensor) and bool(given == expected))
