"""Our weights in another model: which tensor on the way is the first that differs?"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from annotated.config import TransformerConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.transformer import Transformer
from annotated_course.doctor.checks import NEAR, check, fresh, inputs, read
from annotated_course.doctor.recipe import LONGEST, Recipe, tensor_of


@check(
    "tensors differ from ours, with the same weights", "09", "Second rung: the same weights, the same logits", "like"
)
def parity(recipe: Recipe) -> tuple[int, str]:
    """Up to there both models compute the same; look at this part.

    The weights of a model of ours are copied, both are called, and the parts' outputs are compared in the order of the
    calls. `recipe.like` is our model or its configuration. `recipe.names` maps our parts to yours, by their full
    names; {} stands for the number of every layer; by default the parts with equal names belong together. Weights go
    from part to part, in order; a bias that we do not have becomes 0. Where that does not fit,
    `recipe.copy(ours, yours)` copies them, and names serve to compare alone.
    """
    torch.manual_seed(0)
    ours, yours = made_of(recipe.like).double().eval(), fresh(recipe)
    shared = {name: name for name, _ in yours.named_modules() if name and name in dict(ours.named_modules())}
    names = expanded(recipe.names or shared, ours)
    with torch.no_grad():
        if recipe.copy:
            recipe.copy(ours, yours)
        else:
            copy_parts(ours, yours, names)
    ids = inputs(recipe, LONGEST)
    with record_calls(ours) as our_calls, record_calls(yours) as your_calls:
        logits = ours(*ids), read(recipe, yours, *ids)
    gaps = [
        (f"{name} (yours: {names[name]})", distance(a, b))
        for name, calls in our_calls.items()
        if name in names
        for (_, a), (_, b) in zip(calls, your_calls[names[name]], strict=True)
    ]
    gaps.append(("the logits", distance(*logits)))
    off = [f"the first is {name}, by {gap:.2g}" for name, gap in gaps if not gap < NEAR]
    return len(off), off[0] if off else f"{len(gaps)} tensors compared"


@contextmanager
def record_calls(model: nn.Module) -> Iterator[dict[str, list[tuple[Any, Any]]]]:
    """Record each module's inputs and its output, one pair a call, by all its names while the context is open."""
    calls: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    def hook(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: calls[name].append((inputs, output))

    with ExitStack() as hooks:
        for name, module in model.named_modules(remove_duplicate=False):
            hooks.callback(module.register_forward_hook(hook(name)).remove)
        yield calls


def made_of(like: Any) -> nn.Module:
    """Make the model of a configuration, or copy a model."""
    models: dict[type, Any] = {GptConfig: Gpt, LanguageModelConfig: LanguageModel, TransformerConfig: Transformer}
    return models[type(like)](like) if type(like) in models else copy.deepcopy(like)


def expanded(names: Mapping[str, str], ours: nn.Module) -> dict[str, str]:
    """Put every layer's number for {}, and look whether our parts exist."""
    parts = dict(ours.named_modules())
    for name in names:
        if name.format(0) not in parts:
            raise ValueError(f"names={{{name!r}: …}}: our model has no part {name.format(0)}.")
    numbered = ((our.format(i), your.format(i)) for our, your in names.items() for i in range(len(parts)))
    return {our: your for our, your in numbered if our in parts}


def copy_parts(ours: nn.Module, yours: nn.Module, names: Mapping[str, str]) -> None:
    """Copy the weights that belong to a part itself into the part of the other model."""
    left = {id(p): name for name, p in yours.named_parameters()}
    for our_name, your_name in names.items():
        sources = list(ours.get_submodule(our_name).parameters(recurse=False))
        targets = list(yours.get_submodule(your_name).parameters(recurse=False)) if sources else []
        for place, target in enumerate(targets):
            source = sources[place] if place < len(sources) else torch.zeros_like(target)
            if target.shape != source.shape:
                raise ValueError(f"{our_name} holds {tuple(source.shape)}, {your_name} {tuple(target.shape)}.")
            target.copy_(source)
            left.pop(id(target), None)
    if left:
        raise ValueError(f"names= does not say where {next(iter(left.values()))} comes from ({len(left)} are left).")


def distance(our_output: Any, your_output: Any) -> float:
    """Measure the largest difference; the other may have its batch second."""
    ours, yours = tensor_of(our_output), tensor_of(your_output)
    if ours.shape != yours.shape:
        yours = yours.transpose(0, 1)
    return (ours - yours).abs().max().item() if ours.shape == yours.shape else torch.inf
