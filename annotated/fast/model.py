"""What every fast form is: the function of one of our models, computed sooner; a model that was changed is refused."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

MAY_DIFFER = {"training", "recorders"}  # attributes of a part: its mode, and who records its weights


class FastModel(nn.Module):
    """What the fast updates and searches ask of a model.

    `logits` projects `states` onto the vocabulary. A model that translates also has `encode`, `decode`, `new_cache`;
    its memory has a row for each sentence, its targets one for each hypothesis.
    """

    config: Any
    states: Callable[..., Float[Tensor, "batch target width"]]
    logits: Callable[[Tensor], Float[Tensor, "*batch vocab"]]

    def forward(self, *ids: Int[Tensor, "batch _"]) -> Float[Tensor, "*batch vocab"]:
        """Compute what the plain model computes of the same ids."""
        return self.logits(self.states(*ids))


def _outline(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], set[tuple[Any, ...]]]:
    tensors = (*model.named_parameters(), *model.named_buffers())
    kinds = {(name, type(x), x.shape, x.is_floating_point(), x.layout) for name, x in tensors}
    return list(model.named_modules(remove_duplicate=False)), kinds


@lru_cache(maxsize=16)
def _due_outline(kind: Any, config: Any) -> tuple[list[tuple[str, nn.Module]], set[tuple[Any, ...]]]:
    with torch.device("meta"):  # parts and shapes without numbers
        return _outline(kind(config))


def find_difference(model: nn.Module, kind: Any, config: Any) -> str | None:
    """Name the first part, setting, hook, method or weight that the kind's model of the configuration does not have.

    Mode, dtype, device and which weights learn may differ, and `output` may have the bias that `in_bfloat16` adds.
    """
    (parts, tensors), (expected, due_tensors) = _outline(model), _due_outline(kind, config)
    # Hooks of torch's own, such as a counter of operations, only look on.
    of_all = [hooks for name, hooks in vars(nn.modules.module).items() if "hooks" in name and isinstance(hooks, dict)]
    if any(not hook.__module__.startswith("torch.") for hooks in of_all for hook in hooks.values()):
        return "every module has a hook"
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
    wrong = sorted({name for name, *_ in tensors ^ due_tensors} - {"output.bias"})
    return f"{wrong[0]} is missing, new, of another kind or shape, or tied otherwise" if wrong else None
