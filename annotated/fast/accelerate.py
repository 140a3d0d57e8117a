"""Which fast form belongs to which model."""

from collections.abc import Callable
from typing import Any

from torch import nn

from annotated.fast.classifier import FastClassifier
from annotated.fast.language_model import FastLanguageModel
from annotated.fast.model import FastModel
from annotated.fast.transformer import FastTransformer
from annotated.models.classifier import Classifier
from annotated.models.language_model import LanguageModel
from annotated.transformer import Transformer

FORMS: dict[type[nn.Module], Callable[..., FastModel]] = {
    Transformer: FastTransformer,
    LanguageModel: FastLanguageModel,
    Classifier: FastClassifier,
}


def has_fast_form(model: Any) -> bool:
    """Tell whether `accelerate` takes models of this type; all others are used as they are."""
    return type(model) in FORMS or isinstance(model, FastModel)


def accelerate(model: nn.Module, *, bf16: bool = False) -> Any:
    """Give a model its fast form, which shares its weights; one that is a fast form already is returned as it is.

    Args:
        model: exactly one of ours, unchanged since its configuration made it: a fast form knows nothing of subclasses,
            hooks, exchanged parts or parametrisations, and would compute another model without a word.
        bf16: compute products in bfloat16 in training.

    Raises:
        TypeError: the model is of another type, or was changed.
    """
    if isinstance(model, FastModel):
        return model
    if type(model) not in FORMS:
        known = ", ".join(kind.__name__ for kind in FORMS)
        raise TypeError(
            f"a {type(model).__name__} has no fast form, only {known} have one: use the model itself (--plain)."
        )
    return FORMS[type(model)](model, bf16=bf16)
