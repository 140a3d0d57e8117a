"""The models that can be trained, saved and loaded: one row each.

What is asked of a model that translates is `annotated.decoding.Translator`, and that it is an `nn.Module` that gives
logits for source and target ids; of one that continues text, what `annotated.models.language_model.generate` calls; of
one that sorts texts, `states` and `logits`, as a `Classifier` has them. Each is made from its configuration, a
dataclass that is a `Config`.
"""

from collections.abc import Callable
from dataclasses import Field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from torch import nn

from annotated.config import TransformerConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer

TaskName = Literal["classification", "generation", "translation"]
USES = {"translation": "translate", "generation": "generate", "classification": "classify"}  # a task's command


@runtime_checkable
class Config(Protocol):
    """What every model's configuration has."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    vocab_size: int
    d_model: int
    layers: int
    dropout: float
    max_length: int


class Architecture(NamedTuple):
    """A kind of model: its class, that of its configuration, configurations by the name of a `--preset`, its task."""

    model: Callable[[Any], nn.Module]
    config: type
    presets: dict[str, Callable[..., Any]]
    task: TaskName = "translation"


SIZES = {name: getattr(TransformerConfig, name) for name in ("tiny", "small", "base", "big")}
ARCHITECTURES = {
    "transformer": Architecture(Transformer, TransformerConfig, SIZES),
    "recurrent": Architecture(RecurrentTranslator, RecurrentConfig, {"recurrent": RecurrentConfig}),
    "language_model": Architecture(
        LanguageModel, LanguageModelConfig, {"characters": LanguageModelConfig}, "generation"
    ),
    "llama": Architecture(Llama, LlamaConfig, {"llama": LlamaConfig}, "generation"),
    "classifier": Architecture(Classifier, ClassifierConfig, {"reviews": ClassifierConfig}, "classification"),
}
PRESETS = {name: make for architecture in ARCHITECTURES.values() for name, make in architecture.presets.items()}


def config_of(model: nn.Module) -> Config:
    """Return the configuration that a model was made from."""
    config: Any = model.config
    return config


def architecture_of(config: object) -> str:
    """Name the architecture that a configuration is for; raise a TypeError if there is none."""
    for name, architecture in ARCHITECTURES.items():
        if type(config) is architecture.config:
            return name
    raise TypeError(f"no architecture has a {type(config).__name__}: give it a row in {__name__}.ARCHITECTURES.")


def make_model(config: object) -> nn.Module:
    """Make a new model of the kind its configuration is for."""
    return ARCHITECTURES[architecture_of(config)].model(config)
