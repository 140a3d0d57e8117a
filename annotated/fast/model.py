"""What every fast form is: the function of one of our models, computed sooner; a model that was changed is refused."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

MAY_DIFFER = {"training", "recorders"}  # attributes of a part: its mode, and who listens


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


def require_unchanged(model: nn.Module, kind: Any, config: Any) -> None:
    """Refuse a model that is not what its kind makes of a configuration.

    Mode, dtype, device and which weights learn may differ, and the bias of `output` that `in_bfloat16` adds.

    Raises:
        TypeError: it is another; says where.
    """
    if not torch.compiler.is_compiling() and (problem := _difference(model, _outline(kind, config))):
        raise TypeError(f"no fast form computes a model that was changed ({problem}): use the model itself (--plain).")


@lru_cache(maxsize=16)
def _outline(kind: Any, config: Any) -> nn.Module:
    with torch.device("meta"):  # parts and shapes without numbers
        return kind(config)


def _difference(model: nn.Module, reference: nn.Module) -> str | None:
    """Name the first part, setting, hook, method or weight that the reference does not have."""
    of_all = [hooks for name, hooks in vars(nn.modules.module).items() if "hooks" in name and isinstance(hooks, dict)]
    if any(
        not hook.__module__.startswith("torch.") for hooks in of_all for hook in hooks.values()
    ):  # its own only count
        return "every module has a hook"
    parts, expected = (list(each.named_modules(remove_duplicate=False)) for each in (model, reference))
    for (name, part), (due_name, due) in zip(parts, expected, strict=False):
        if name != due_name or type(part) is not type(due):
            return f"{name or 'it'} is a {type(part).__name__}, where {due_name or 'it'} is a {type(due).__name__}"
        own, settings = vars(part), vars(due)
        for key in sorted((own.keys() | settings.keys()) - MAY_DIFFER):
            holds_others = isinstance(settings.get(key), dict) and settings[key]  # its tensors and parts: see below
            if not holds_others and (key not in own or key not in settings or own[key] != settings[key]):
                return f"{name or 'it'} has its own {key}"
    if len(parts) != len(expected):
        return f"it has {len(parts)} parts, not {len(expected)}"
    tensors, due_tensors = (
        {
            name: (type(x), x.shape, x.is_floating_point(), x.layout)
            for name, x in (*m.named_parameters(), *m.named_buffers())
        }
        for m in (model, reference)
    )
    if "output.bias" not in due_tensors:
        tensors.pop("output.bias", None)
    if wrong := sorted(name for name, _ in tensors.items() ^ due_tensors.items()):
        return f"{wrong[0]} is missing, new, of another kind or shape, or tied otherwise"
    return None
