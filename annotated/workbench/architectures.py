"""The models that can be trained, saved and loaded: one row each.

What is asked of a model is `annotated.decoding.Translator`, and that it is an `nn.Module` made from its configuration:
a dataclass with `vocab_size`, `layers`, `dropout` and `max_length`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from annotated.config import TransformerConfig
from annotated.models.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer


class Architecture(NamedTuple):
    """A kind of model: its class, that of its configuration, and configurations by the name of a `--preset`."""

    model: Callable[[Any], nn.Module]
    config: type
    presets: dict[str, Callable[..., Any]]


ARCHITECTURES = {
    "transformer": Architecture(
        Transformer,
        TransformerConfig,
        {name: getattr(TransformerConfig, name) for name in ("tiny", "small", "base", "big")},
    ),
    "recurrent": Architecture(RecurrentTranslator, RecurrentConfig, {"recurrent": RecurrentConfig}),
}
PRESETS = {name: make for architecture in ARCHITECTURES.values() for name, make in architecture.presets.items()}


def architecture_of(config: Any) -> str:
    """Name the architecture that a configuration is for."""
    return next(name for name, architecture in ARCHITECTURES.items() if type(config) is architecture.config)


def make_model(config: Any) -> nn.Module:
    """Make a new model of the kind its configuration is for."""
    return ARCHITECTURES[architecture_of(config)].model(config)
