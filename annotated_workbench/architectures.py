"""The models that can be trained, saved and loaded: one row each.

What is asked of a model that translates is `annotated.decoding.Translator`, and that it is an `nn.Module` that gives
logits for source and target ids; of one that continues text, what `annotated.models.language_model.generate` calls; of
one that sorts texts, `states` and `logits`, as a `Classifier` has them. Each is made from its configuration, a
dataclass with `vocab_size`, `d_model`, `layers`, `dropout` and `max_length`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from annotated.config import TransformerConfig
from annotated.models.classifier import Classifier, ClassifierConfig
from annotated.models.language_model import LanguageModel, LanguageModelConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer


class Architecture(NamedTuple):
    """A kind of model: its class, that of its configuration, and configurations by the name of a `--preset`.

    The task is what it is trained for: "translation", "generation" or "classification".
    """

    model: Callable[[Any], nn.Module]
    config: type
    presets: dict[str, Callable[..., Any]]
    task: str = "translation"


ARCHITECTURES = {
    "transformer": Architecture(
        Transformer,
        TransformerConfig,
        {name: getattr(TransformerConfig, name) for name in ("tiny", "small", "base", "big")},
    ),
    "recurrent": Architecture(RecurrentTranslator, RecurrentConfig, {"recurrent": RecurrentConfig}),
    "language_model": Architecture(
        LanguageModel, LanguageModelConfig, {"characters": LanguageModelConfig}, "generation"
    ),
    "classifier": Architecture(Classifier, ClassifierConfig, {"reviews": ClassifierConfig}, "classification"),
}
PRESETS = {name: make for architecture in ARCHITECTURES.values() for name, make in architecture.presets.items()}
TASKS = sorted({architecture.task for architecture in ARCHITECTURES.values()})
USES = {"translation": "translate", "generation": "generate", "classification": "classify"}  # a task's command


def architecture_of(config: Any) -> str:
    """Name the architecture that a configuration is for.

    Raises:
        TypeError: none has configurations of this type.
    """
    for name, architecture in ARCHITECTURES.items():
        if type(config) is architecture.config:
            return name
    raise TypeError(f"no architecture has a {type(config).__name__}: give it a row in {__name__}.ARCHITECTURES.")


def make_model(config: Any) -> nn.Module:
    """Make a new model of the kind its configuration is for."""
    return ARCHITECTURES[architecture_of(config)].model(config)
