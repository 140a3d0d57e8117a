"""Our weights in another model: which tensor on the way is the first that differs?"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.transformer import Transformer
from annotated_course.doctor.checks import NEAR, fresh, inputs, read
from annotated_course.doctor.recipe import LONGEST, Recipe, tensor_of


def parity(recipe: Recipe) -> tuple[int, str]:
    """Copy weights from a model of ours, call both, and count the parts whose outputs differ; name the first.

    `recipe.like` is our model or its configuration. `recipe.names` maps our parts to theirs, by their full names; {}
    stands for the number of every layer; by default the parts with equal names belong together. Weights go from part
    to part, in order; a bias that we do not have becomes 0. Where that does not fit, `recipe.copy(ours, theirs)` copies
    them, and names serve to compare alone.
    """
    torch.manual_seed(0)
    ours, theirs = made_of(recipe.like).double().eval(), fresh(recipe)
    shared = {name: name for name, _ in theirs.named_modules() if name and name in dict(ours.named_modules())}
    names = expanded(recipe.names or shared, ours)
    with torch.no_grad():
        if recipe.copy:
            recipe.copy(ours, theirs)
        else:
            copy_parts(ours, theirs, names)
    ids = inputs(recipe, LONGEST)
    with outputs(ours, [*names]) as mine, outputs(theirs, [*names.values()]) as yours:
        logits = ours(*ids), read(recipe, theirs, *ids)
    calls = ((f"{name} (yours: {names[name]})", mine[name], yours[names[name]]) for name in mine)
    pairs = [(name, *pair) for name, a, b in calls for pair in zip(a, b, strict=True)]
    gaps = [(name, distance(a, b)) for name, a, b in [*pairs, ("the logits", *logits)]]
    off = [f"the first is {name}, by {gap:.2g}" for name, gap in gaps if not gap < NEAR]
    return len(off), off[0] if off else f"{len(gaps)} tensors compared"


def made_of(like: Any) -> nn.Module:
    """Make the model of a configuration, or copy a model."""
    match like:
        case GptConfig():
            return Gpt(like)
        case LanguageModelConfig():
            return LanguageModel(like)
        case TransformerConfig():
            return Transformer(like)
    return copy.deepcopy(like)


def expanded(names: Mapping[str, str], ours: nn.Module) -> dict[str, str]:
    """Put every layer's number for {}, and look whether our parts exist."""
    parts = dict(ours.named_modules())
    found: dict[str, str] = {}
    for mine, theirs in names.items():
        numbers = range(len(parts)) if "{}" in mine else range(1)
        found |= {mine.format(i): theirs.format(i) for i in numbers if mine.format(i) in parts}
        if mine.format(0) not in parts:
            raise ValueError(f"names={{{mine!r}: …}}: our model has no part {mine.format(0)}.")
    return found


def copy_parts(ours: nn.Module, theirs: nn.Module, names: Mapping[str, str]) -> None:
    """Copy the weights that belong to a part itself into the part of the other model.

    Raises:
        ValueError: shapes differ, or one of their weights comes from nowhere.
    """
    left = {id(p): name for name, p in theirs.named_parameters()}
    for mine, yours in names.items():
        sources = list(ours.get_submodule(mine).parameters(recurse=False))
        targets = list(theirs.get_submodule(yours).parameters(recurse=False))
        if not sources:
            continue
        for place, target in enumerate(targets):
            if place >= len(sources):
                target.zero_()
            elif target.shape != sources[place].shape:
                raise ValueError(f"{mine} holds {tuple(sources[place].shape)}, {yours} {tuple(target.shape)}.")
            else:
                target.copy_(sources[place])
            left.pop(id(target), None)
    if left:
        raise ValueError(f"names= does not say where {next(iter(left.values()))} comes from ({len(left)} are left).")


@contextmanager
def outputs(model: nn.Module, names: list[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Record what parts of a model give, call by call, in the order of the first calls, while the context is open."""
    found: dict[str, list[Tensor]] = defaultdict(list)

    def hook(name: str) -> Any:
        return lambda part, given, output: found[name].append(tensor_of(output))

    hooks = [model.get_submodule(name).register_forward_hook(hook(name)) for name in names]
    try:
        yield found
    finally:
        for handle in hooks:
            handle.remove()


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Measure the largest difference; the other may have its batch second."""
    if ours.shape != theirs.shape:
        theirs = theirs.transpose(0, 1)
    return (ours - theirs).abs().max().item() if ours.shape == theirs.shape else torch.inf
