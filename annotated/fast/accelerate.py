"""Which fast form belongs to which model."""

import warnings
from collections.abc import Callable

from torch import nn

from annotated.fast.classifier import FastClassifier
from annotated.fast.language_model import FastLanguageModel
from annotated.fast.transformer import FastTransformer
from annotated.fast.translator import FastModel, PlainRows, PlainStates, Rows, Wrapper
from annotated.models.alike import changed, inside
from annotated.models.classifier import Classifier
from annotated.models.language_model import LanguageModel
from annotated.models.recurrence import RecurrentTranslator
from annotated.transformer import Transformer

FORMS: dict[
    type[nn.Module], tuple[Callable[..., FastModel], Callable[..., FastModel]]
] = {  # as it is made, and changed
    Transformer: (FastTransformer, PlainRows),
    LanguageModel: (FastLanguageModel, PlainStates),
    Classifier: (FastClassifier, PlainStates),
    RecurrentTranslator: (Rows, PlainRows),
}
TRANSLATES = ("config", "encode", "decode", "logits", "new_cache")
CONTINUES = ("config", "states", "logits", "new_cache")


def accelerate(model: nn.Module, *, bf16: bool = False) -> FastModel:
    """Wrap a model: those that have a faster form get it, all others keep their own methods.

    The weights are shared. A faster form is taken only where every part of the model is as its configuration makes it;
    a model that was changed (a part replaced, a hook, a parametrisation …) computes by itself, and a warning says so.

    Args:
        model: what translates, continues text or sorts it. One that is wrapped already is returned as it is, unless the
            model inside was changed since, or bfloat16 is new; of one that `torch.compile` wrapped, the model inside
            gets its faster form.
        bf16: compute products in bfloat16 in training.

    Raises:
        TypeError: the model does none of this, or has a wrapped one inside.
    """
    inner = inside(model)
    if isinstance(inner, Wrapper) and (bf16 > inner.bf16 or inner.difference()):
        model, bf16 = inner.model, bf16 or inner.bf16
        inner = inside(model)
    elif isinstance(inner, FastModel):
        return inner
    for kind, (fast, own) in FORMS.items():
        if isinstance(getattr(inner, "_orig_mod", inner), kind):
            difference = changed(inner) if type(inner) is kind else f"the model is of type {type(inner).__name__}"
            if difference is None:
                return fast(inner, bf16=bf16)
            warnings.warn(f"computed by the model's own, slower methods: {difference}.", stacklevel=2)
            return own(model, bf16=bf16)
    if isinstance(model, nn.Module) and not any(isinstance(part, FastModel) for part in model.modules()):
        if all(hasattr(model, name) for name in TRANSLATES):
            return PlainRows(model, bf16=bf16)
        if all(hasattr(model, name) for name in CONTINUES):
            return PlainStates(model, bf16=bf16)
    raise TypeError(
        f"a {type(model).__name__} has no fast form: give a module that translates ({', '.join(TRANSLATES)}) or "
        f"continues text ({', '.join(CONTINUES)}), or a Classifier, and none that wraps a fast form; any other is used "
        "as it is."
    )
