"""What every fast form is: the function of one of our models, computed sooner; a model that was changed is refused."""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

IGNORED = {"training", "recorders"}  # attributes that may differ: a mode of each part, and who listens


class FastModel(nn.Module):
    """What the fast updates and searches ask of a model.

    `states` computes what `logits` projects onto the vocabulary. A model that translates also has `encode`, `decode`
    and `new_cache`, whose memory has a row for each sentence, however many hypotheses (consecutive rows) it has.
    """

    config: Any
    states: Callable[..., Float[Tensor, "batch target width"]]
    logits: Callable[[Tensor], Float[Tensor, "*batch vocab"]]

    def forward(self, *ids: Int[Tensor, "batch _"]) -> Float[Tensor, "*batch vocab"]:
        """Compute what the plain model computes of the same ids."""
        return self.logits(self.states(*ids))


def require_unchanged(model: Any, kind: type[nn.Module]) -> None:
    """Refuse a model that is not what its kind makes of its configuration.

    Mode, dtype, device and which weights learn may differ, and the bias of `output` that `in_bfloat16` adds.

    Raises:
        TypeError: it is another; says where.
    """
    if torch.compiler.is_compiling():  # it was looked at before
        return
    if problem := difference(model, outline(kind, model.config), but=("output.bias",)):
        raise TypeError(f"no fast form computes a model that was changed ({problem}): use the model itself (--plain).")


@lru_cache(maxsize=16)
def outline(make: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    """Make a model of parts and shapes without numbers, to compare with."""
    with torch.device("meta"):
        return make(config)


def difference(model: nn.Module, reference: nn.Module, *, but: Collection[str] = ()) -> str | None:
    """Name the first thing that could make a model another function of its weights than a reference is.

    Args:
        model: what may have been changed: a part or a setting exchanged, a hook, a method or a weight of its own.
        reference: what was not. A buffer that it holds on "meta" may have any numbers.
        but: full names of weights that may be there or not.
    """
    of_all = [hooks for name, hooks in vars(nn.modules.module).items() if "hooks" in name and isinstance(hooks, dict)]
    if any(
        not hook.__module__.startswith("torch.") for hooks in of_all for hook in hooks.values()
    ):  # its own only count
        return "every module has a hook"
    parts, expected = (list(each.named_modules(remove_duplicate=False)) for each in (model, reference))
    for (name, part), (due_name, due) in zip(parts, expected, strict=False):
        if name != due_name or type(part) is not type(due):
            return (
                f"{name or 'the model'} is a {type(part).__name__}, where {due_name or 'it'} is a {type(due).__name__}"
            )
        own, settings = vars(part), vars(due)
        for key in sorted((own.keys() | settings.keys()) - IGNORED):
            if isinstance(settings.get(key), dict | list) and settings[key]:
                continue  # its tensors and its parts, which are compared by their names
            if key not in own or key not in settings or own[key] != settings[key]:
                return f"{name or 'the model'} has its own {key}"
    if len(parts) != len(expected):
        return f"it has {len(parts)} parts, not {len(expected)}"
    weights, due_weights = (
        {n: _kind(t) for n, t in each.named_parameters() if n not in but} for each in (model, reference)
    )
    buffers, due_buffers = (dict(each.named_buffers()) for each in (model, reference))
    if wrong := sorted({n for n, _ in weights.items() ^ due_weights.items()} | buffers.keys() ^ due_buffers.keys()):
        return f"{wrong[0]} is missing, new, of another kind or shape, or tied otherwise"
    for name, buffer in due_buffers.items():
        if not buffer.is_meta and not torch.equal(buffers[name].cpu(), buffer.to("cpu", buffers[name].dtype)):
            return f"{name} holds other numbers"
    return None


def _kind(weight: Tensor) -> tuple[type, torch.Size, bool, torch.layout]:
    return type(weight), weight.shape, weight.is_floating_point(), weight.layout
