"""Checkpoints: safetensors for weights, JSON for everything else, never pickle; averaging (§6.1)."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated.recurrence import RecurrentConfig, RecurrentTranslator
from annotated.transformer import Transformer, TransformerConfig
from annotated.translator import Ensemble, Translator, make_translator
from annotated.vocabulary import TOKENIZER, Tokenizer, load_tokenizer, write_whole

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
ARCHITECTURES = {"transformer": TransformerConfig, "recurrent": RecurrentConfig}


def save_checkpoint(folder: str | Path, model: Transformer | RecurrentTranslator, **info: Any) -> None:
    """Write a model into a folder: its weights and its configuration, each file whole or not at all.

    Args:
        folder: made if it does not exist.
        model: the model; tied weights are written once.
        info: anything to keep beside the configuration that JSON can hold, such as the languages.
    """
    (architecture,) = (name for name, config in ARCHITECTURES.items() if config is type(model.config))
    content = {"architecture": architecture, "model": asdict(model.config), **info}
    write_whole(Path(folder) / CONFIG, json.dumps(content, indent=2, ensure_ascii=False).encode())
    save_tensors(Path(folder) / WEIGHTS, dict(model.named_parameters()))


def load_checkpoint(folder: str | Path) -> tuple[Transformer | RecurrentTranslator, dict[str, Any]]:
    """Read what `save_checkpoint` wrote; the model gives the same logits, bit for bit.

    Returns:
        The model, in eval mode, and the info.

    Raises:
        FileNotFoundError: the folder holds no model.
        ValueError: its files do not fit together.
    """
    config, info = load_config(folder)
    model = make_translator(config)
    load_weights(model, load_tensors(Path(folder) / WEIGHTS)[0])
    return model.eval(), info


def load_translator(folders: Sequence[str | Path]) -> tuple[Translator, Tokenizer, dict[str, Any]]:
    """Read a trained run, or several as an ensemble.

    Args:
        folders: where the runs are; of several, the configurations, languages and tokenizers must agree.

    Returns:
        The model or ensemble, in eval mode, the tokenizer, and the info of the first run.

    Raises:
        FileNotFoundError: a folder holds no model or no tokenizer.
        ValueError: its files do not fit together, or the runs do not.
    """
    first, *others = folders
    model, info = load_checkpoint(first)
    tokenizer = load_tokenizer(first)
    models = [model]
    for folder in others:
        model, other = load_checkpoint(folder)
        same_tokens = (Path(folder) / TOKENIZER).read_bytes() == (Path(first) / TOKENIZER).read_bytes()
        if not same_tokens or any(info[side] != other[side] for side in ("src", "tgt")):
            raise ValueError(f"{folder} has other tokens or languages than {first}: train both on the same corpus.")
        models.append(model)
    return (Ensemble(models) if others else model), tokenizer, info


def load_config(folder: str | Path) -> tuple[TransformerConfig | RecurrentConfig, dict[str, Any]]:
    """Read the configuration and the info that `save_checkpoint` wrote.

    Raises:
        FileNotFoundError: the folder holds no model.
        ValueError: the file is damaged.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"no model in {folder}: {CONFIG} is missing. Give a folder that `train --out` wrote.")
    try:
        info = json.loads(path.read_bytes())
        config = ARCHITECTURES[info.pop("architecture", "transformer")]  # the first checkpoints did not say
        return config(**info.pop("model")), info
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error!r}). Copy the folder again, or train again.") from None


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model, by name.

    Raises:
        ValueError: a weight is missing, left over or of another shape; says which.
    """
    parameters = dict(model.named_parameters())
    wrong = sorted(parameters.keys() ^ weights.keys()) or sorted(
        name for name, parameter in parameters.items() if parameter.shape != weights[name].shape
    )
    if wrong:
        raise ValueError(
            f"the weights are not this model's: {wrong[0]} differs, {len(wrong)} in all. Is the config theirs?"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints of one run, in double precision (§6.1: the last 5, or 20).

    Args:
        paths: files with weights.

    Raises:
        ValueError: no path is given, or the files hold different weights.
    """
    if not paths:
        raise ValueError("average_checkpoints needs at least one path.")
    sums: dict[str, Tensor] = {}
    for path in paths:
        weights, _ = load_tensors(path)
        if sums and {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in sums.items()}:
            raise ValueError(f"{path} holds other weights than {paths[0]}: average checkpoints of one run only.")
        sums = {name: sums.get(name, 0) + weight.double() for name, weight in weights.items()}
    return {name: (total / len(paths)).float() for name, total in sums.items()}


def save_tensors(path: str | Path, tensors: dict[str, Tensor], note: dict[str, Any] | None = None) -> None:
    """Write tensors and a note (anything JSON holds) into one safetensors file, whole or not at all."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(Path(path), save(tensors, {"note": json.dumps(note)}))


def load_tensors(path: str | Path) -> tuple[dict[str, Tensor], Any]:
    """Read what `save_tensors` wrote: the tensors and the note.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a safetensors file, or cut short.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            names, metadata = file.keys(), file.metadata() or {}
            return {name: file.get_tensor(name) for name in names}, json.loads(metadata.get("note", "null"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there are no weights at {path}.") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}). Copy it again.") from None
