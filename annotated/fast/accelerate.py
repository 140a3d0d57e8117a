"""Which fast form belongs to which model."""

from torch import nn

from annotated.fast.classifier import FastClassifier
from annotated.fast.language_model import FastLanguageModel
from annotated.fast.transformer import FastTransformer
from annotated.fast.translator import FastModel, Rows
from annotated.models.classifier import Classifier
from annotated.models.language_model import LanguageModel
from annotated.transformer import Transformer


def accelerate(model: nn.Module, *, bf16: bool = False) -> FastModel:
    """Wrap a model: those that have a faster forward pass get it, any other that translates keeps its own.

    The weights are shared.

    Args:
        model: what translates, continues text or sorts it; one that is wrapped already is returned as it is.
        bf16: compute products in bfloat16 in training.
    """
    if isinstance(model, FastModel):
        return model
    if type(model) is LanguageModel:
        return FastLanguageModel(model, bf16=bf16)
    if type(model) is Classifier:
        return FastClassifier(model, bf16=bf16)
    return FastTransformer(model, bf16=bf16) if type(model) is Transformer else Rows(model, bf16=bf16)
