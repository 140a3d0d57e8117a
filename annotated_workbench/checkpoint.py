"""Checkpoints: safetensors for weights, JSON for everything else, never pickle; averaging (§6.1)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from annotated.decoding import in_eval_mode
from annotated_workbench import architectures
from annotated_workbench.architectures import ARCHITECTURES, Config, TaskName, architecture_of, config_of, make_model
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.files import write_whole
from annotated_workbench.vocabulary import Tokenizer, load_tokenizer

WEIGHTS, CONFIG = "model.safetensors", "config.json"
DAMAGE = (AttributeError, KeyError, TypeError, ValueError)  # what a configuration that is wrong may cause
Model = TypeVar("Model", bound=nn.Module)


def save_checkpoint(folder: str | Path, model: nn.Module, **info: Any) -> None:
    """Write a model's weights and configuration into a folder, with `info` beside it, each file whole or not at all.

    A ValueError or TypeError says why another model, or none, would be read back; then nothing is written.
    """
    require_readable(model, **info)
    save_tensors(Path(folder) / WEIGHTS, dict(model.named_parameters()))
    write_whole(Path(folder) / CONFIG, _config_file(config_of(model), info))


def _config_file(config: Any, info: dict[str, Any]) -> bytes:
    content = {"architecture": architecture_of(config), "model": asdict(config), **info}
    return json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape")  # names in any locale


def _parsed(content: bytes) -> tuple[Config, dict[str, Any]]:
    info = dict(json.loads(content))
    return ARCHITECTURES[info.pop("architecture")].config(**info.pop("model")), info


@torch.no_grad()
def require_readable(model: nn.Module, **info: Any) -> None:
    """Refuse a model whose configuration makes one with other logits, as `save_checkpoint` does."""
    if not hasattr(model, "config"):
        raise TypeError(f"a {type(model).__name__} has no config to be read back by: save the model inside it.")
    parameter = next(model.parameters())
    try:
        config, _ = _parsed(_config_file(model.config, info))
        twin = model_of(lambda: make_model(config), dict(model.named_parameters()), type(model).__name__).to(parameter)
        ids = torch.arange(1, 4, device=parameter.device)[None, : config.max_length] % config.vocab_size
        inputs = [ids] if ARCHITECTURES[architecture_of(config)].task != "translation" else [ids, ids]
        same = torch.equal(in_eval_mode(model)(*inputs), twin(*inputs))
    except DAMAGE as error:
        raise ValueError(f"the model was not saved, because another one would be read back: {error}") from None
    if not same:
        raise ValueError(
            "the model was not saved, because another one would be read back: what its configuration makes of these "
            "weights has other logits. Was a part replaced, or a hook added? Save its state_dict() with torch.save."
        )


def load_checkpoint(folder: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """Read what `save_checkpoint` wrote: the model, in eval mode, with the same logits bit for bit, and the info.

    A FileNotFoundError or ValueError says what is missing or damaged.
    """
    path, weights = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"no model in {folder}: {CONFIG} is missing. Give a folder that `train --out` wrote.")
    try:
        config, info = _parsed(path.read_bytes())
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is damaged ({reason}). Copy the folder again, or train again.") from None
    return model_of(lambda: make_model(config), load_tensors(weights)[0], weights), info


def model_of(make: Callable[[], Model], weights: dict[str, Tensor], path: str | Path) -> Model:
    """Make a model, in eval mode, of the weights in a file; errors as in `load_weights` begin with its path."""
    with torch.random.fork_rng(devices=[]):  # to load is not to draw: the caller's random numbers stay as they are
        model = make()
    try:
        load_weights(model, weights)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return model.eval()


def load_translator(folders: Sequence[str | Path]) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    """Read a trained run, or several as an ensemble: the model in eval mode, the tokenizer, and the first one's info.

    Errors as for `load_run`; or the runs' configurations, languages or tokenizers differ.
    """
    runs = [load_run(folder, "translation") for folder in folders]
    _, tokenizer, first = runs[0]
    for path, (_, own, info) in zip(folders, runs, strict=True):
        if not all(isinstance(info.get(side), str) for side in ("src", "tgt")):
            raise ValueError(f"{Path(path) / CONFIG} does not say which languages: it needs src and tgt.")
        if own.content() != tokenizer.content() or any(info[side] != first[side] for side in ("src", "tgt")):
            raise ValueError(f"{path} has other tokens or languages than {folders[0]}: train both on the same corpus.")
    models = [model for model, _, _ in runs]
    return (Ensemble(models) if len(models) > 1 else models[0]), tokenizer, first


def load_run(folder: str | Path, task: TaskName | None = None) -> tuple[nn.Module, Tokenizer, dict[str, Any]]:
    """Read a trained run: the model, in eval mode, the tokenizer, and the info.

    A FileNotFoundError or ValueError says what is missing, does not fit together or was trained for another task.
    """
    model, info = load_checkpoint(folder)
    tokenizer, config = load_tokenizer(folder), config_of(model)
    if len(tokenizer) != config.vocab_size:
        raise ValueError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens and the model {config.vocab_size}: they are "
            "not of one run. Copy both again."
        )
    own = ARCHITECTURES[architecture_of(config)].task
    if task not in (None, own):
        raise ValueError(f"the model in {folder} is for {own}, not for {task}: use {architectures.USES[own]}.")
    return model, tokenizer, info


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model, by name.

    A ValueError says which is missing, left over, of another shape, or holds NaN or infinity; then nothing is copied.
    """
    parameters = dict(model.named_parameters())
    wrong = sorted(parameters.keys() ^ weights.keys()) or sorted(
        name for name, parameter in parameters.items() if parameter.shape != weights[name].shape
    )
    if wrong:
        raise ValueError(
            f"the weights are not this model's: {wrong[0]} differs, {len(wrong)} in all. Is the config theirs?"
        )
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ValueError(f"the weights are damaged: {name} holds NaN or infinity. Copy them again, or train again.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """Average the weights in several files of one run, in double precision (§6.1: the last 5, or 20)."""
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

    # Other libraries read a file only where its "format" says whose tensors these are.
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(Path(path), save(tensors, {"format": "pt"} | ({} if note is None else {"note": json.dumps(note)})))


def load_tensors(path: str | Path) -> tuple[dict[str, Tensor], Any]:
    """Read what `save_tensors` wrote: the tensors and the note; an error says why they cannot be read."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"there are no weights at {path}.")
    try:
        with open(path, "rb"), safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {}).get("note", "null"))
            return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}). Copy it again.") from None
