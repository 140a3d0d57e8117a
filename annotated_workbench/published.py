"""Published BERTs, GPT-2s and Llamas: read from a folder with config.json and its weights, never from a network."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.config import PAD
from annotated.models.bert import Bert, BertConfig
from annotated.models.gpt import Gpt, GptConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated_workbench.checkpoint import CONFIG, WEIGHTS, load_tensors, model_of

# What a part is called in published files, and here; replaced from the top, so the longer name stands first.
BERT_NAMES = {
    "embeddings.word_embeddings": "embedding",
    "embeddings.position_embeddings.weight": "positions.table",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
    "encoder.layer.": "encoder.layers.",
    **{f"attention.self.{name}": f"self_attention.W_{name[0]}" for name in ("query", "key", "value")},
    "attention.output.dense": "self_attention.W_o",
    "attention.output.LayerNorm": "residuals.0.norm",
    "intermediate.dense": "feed_forward.W_1",
    "output.dense": "feed_forward.W_2",
    "output.LayerNorm": "residuals.1.norm",
    "pooler.dense": "pooler",
    "cls.predictions.transform.dense": "head.linear",
    "cls.predictions.transform.LayerNorm": "head.norm",
    "cls.predictions.bias": "head.bias",
    "norm.gamma": "norm.gain",  # the first files say gamma and beta
    "norm.beta": "norm.bias",
    "norm.weight": "norm.gain",
}
GPT2_NAMES = {
    "wte": "embedding",
    "wpe.weight": "positions.table",
    "h.": "layers.",
    "ln_1": "residuals.0.norm",
    "ln_2": "residuals.1.norm",
    "ln_f": "norm",
    "attn.c_proj": "self_attention.W_o",
    "mlp.c_fc": "feed_forward.W_1",
    "mlp.c_proj": "feed_forward.W_2",
    "norm.weight": "norm.gain",
}
LLAMA_NAMES = {
    "embed_tokens": "embedding",
    "input_layernorm.weight": "residuals.0.norm.gain",
    "post_attention_layernorm.weight": "residuals.1.norm.gain",
    **{f"self_attn.{letter}_proj": f"self_attention.W_{letter}" for letter in "qkvo"},
    "mlp.gate_proj": "feed_forward.W_gate",
    "mlp.up_proj": "feed_forward.W_1",
    "mlp.down_proj": "feed_forward.W_2",
    "norm.weight": "norm.gain",
    "lm_head": "output",
}
# What is no weight of ours: tables of numbers and masks that some files hold, and BERT's guess at the next sentence.
LEFT_OUT = re.compile(
    r"position_ids$|\.inv_freq$|\.attn\.(masked_)?bias$|^cls\.(seq_relationship\.|predictions\.decoder\.bias$)"
)
TIED = ("cls.predictions.decoder.weight", "lm_head.weight")  # the embedding once more
EMBEDDINGS = ("embeddings.word_embeddings.weight", "wte.weight", "embed_tokens.weight")

REQUIRED: dict[str, tuple[Any, ...]] = {  # settings without a choice; a file that says nothing means the first value
    **dict.fromkeys(("tie_word_embeddings", "scale_attn_weights"), (True,)),
    **dict.fromkeys(("add_cross_attention", "is_decoder", "scale_attn_by_inverse_layer_idx"), (False,)),
    "position_embedding_type": ("absolute",),
    "hidden_act": ("gelu",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
}
OF_KIND: dict[str, dict[str, tuple[Any, ...]]] = {
    "bert": {"pad_token_id": (PAD,)},
    "gpt2": {},
    "llama": {"tie_word_embeddings": (False, True), "hidden_act": ("silu",), "rope_type": ("default",)}
    | dict.fromkeys(("attention_bias", "mlp_bias"), (False,))
    | {"partial_rotary_factor": (1.0,), "quantization_config": (None,)},
}
# Our sizes, and what config.json calls each.
SIZES = ["vocab_size", "d_model", "d_ff", "heads", "layers", "max_length", "dropout", "eps"]
USUAL = ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"]
BERT_SIZES = [*USUAL, "max_position_embeddings", "hidden_dropout_prob", "layer_norm_eps"]
LLAMA_SIZES = [*USUAL, "max_position_embeddings", "no_dropout", "rms_norm_eps"]
GPT_SIZES = ["vocab_size", "n_embd", "n_inner", "n_head", "n_layer", "n_positions", "resid_pdrop", "layer_norm_epsilon"]


def load_bert(folder: str | Path) -> Bert:
    """Read a published BERT: the same states and logits as in Hugging Face's `BertModel` and `BertForMaskedLM`.

    The folder holds config.json and model.safetensors, as `save_pretrained` writes them; the model is in eval mode. The
    pooler or the head is left out where the folder has no weights for it. A ValueError says that another model would be
    read, or which file is damaged, a KeyError which setting config.json lacks.
    """
    names = dict(zip(SIZES, BERT_SIZES, strict=True)) | {"segments": "type_vocab_size"}
    config = BertConfig(**_sizes(folder, "bert", names))
    weights = {_rename(name, BERT_NAMES): weight for name, weight in _weights(folder, "bert.").items()}

    def make() -> Bert:
        model = Bert(config)
        for part in ("pooler", "head"):
            if not any(name.startswith(f"{part}.") for name in weights):
                setattr(model, part, None)
        return model

    return model_of(make, weights, Path(folder) / WEIGHTS)


def load_gpt2(folder: str | Path) -> Gpt:
    """Read a published GPT-2: the same states and logits as in Hugging Face's `GPT2LMHeadModel`.

    The folder and the errors are as for `load_bert`.
    """
    config = GptConfig(**_sizes(folder, "gpt2", dict(zip(SIZES, GPT_SIZES, strict=True))))
    weights = {}
    for name, weight in _weights(folder, "transformer.").items():
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            weight = weight.T  # written (in, out); a Linear holds (out, in)
        new = _rename(name, GPT2_NAMES)
        if "attn.c_attn" in new:  # (3 · d_model, …): the projections of Q, K and V in one
            for part, third in zip(("W_q", "W_k", "W_v"), weight.chunk(3), strict=False):
                weights[new.replace("attn.c_attn", f"self_attention.{part}")] = third
        else:
            weights[new] = weight
    return model_of(lambda: Gpt(config), weights, Path(folder) / WEIGHTS)


def load_llama(folder: str | Path) -> Llama:
    """Read a published Llama: the same logits as in Hugging Face's `LlamaForCausalLM`.

    The folder, whose weights may stand in several files, and the errors are as for `load_bert`. Positions that were
    stretched for longer texts, as in Llama 3.1, are refused.
    """
    names = {"groups": "num_key_value_heads", "d_k": "head_dim", "d_v": "head_dim", "rotary_base": "rope_theta"}
    names |= {"tie_embeddings": "tie_word_embeddings"} | dict(zip(SIZES, LLAMA_SIZES, strict=True))
    config = LlamaConfig(**_sizes(folder, "llama", names))
    weights = {}
    for name, weight in _weights(folder, "model.", tied=config.tie_embeddings).items():
        new = _rename(name, LLAMA_NAMES)
        if ".W_q" in new or ".W_k" in new:  # a pair to be turned is (i, i + d_k / 2) there, and (2i, 2i + 1) here
            weight = weight.unflatten(0, (-1, 2, (config.d_k or config.d_model // config.heads) // 2))
            weight = weight.transpose(1, 2).flatten(0, 2)
        weights[new] = weight
    return model_of(lambda: Llama(config), weights, Path(folder) / WEIGHTS)


def _sizes(folder: str | Path, kind: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Read the arguments of our configuration from config.json, by their names there; refuse another kind of model."""
    path = Path(folder) / CONFIG
    try:
        settings = dict(json.loads(path.read_bytes()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}). Copy it again.") from None
    if (given := settings.get("model_type")) != kind:
        advice = "use the loader of that kind" if given in OF_KIND else f"there are loaders for {', '.join(OF_KIND)}"
        raise ValueError(f"{path} is of a model of type {given!r}, not {kind!r}: {advice}.")
    # Two names of one setting, the older one last; a file may hold both.
    rope = (settings.get("rope_parameters") or {}) | (settings.get("rope_scaling") or {})
    settings |= rope | ({"rope_type": rope["type"]} if "type" in rope else {})
    for name, choices in (REQUIRED | OF_KIND[kind]).items():
        if settings.get(name, choices[0]) not in choices:
            raise ValueError(f"{path} says {name}={settings[name]!r}; this model has only {choices[0]!r}.")
    if kind == "gpt2" and settings.get("n_inner") is None:
        settings["n_inner"] = 4 * settings["n_embd"]
    if kind == "llama":
        settings = {"rope_theta": 10000.0, "head_dim": None, "tie_word_embeddings": False, "no_dropout": 0.0} | settings
        settings["num_key_value_heads"] = settings.get("num_key_value_heads") or settings["num_attention_heads"]
    return {argument: settings[setting] for argument, setting in names.items()}


def _weights(folder: str | Path, prefix: str, *, tied: bool = True) -> dict[str, Tensor]:
    """Read the weights that count, without the prefix that a model with a head has before the names of its body."""
    path, files = Path(folder) / WEIGHTS, {WEIGHTS}
    if not path.is_file() and (index := Path(f"{path}.index.json")).is_file():  # it says which file holds which weight
        try:
            files = {*json.loads(index.read_bytes())["weight_map"].values()}
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{index} is damaged. Copy it again.") from None
    parts = [load_tensors(Path(folder) / file)[0] for file in sorted(files)]
    tensors = {name.removeprefix(prefix): tensor for part in parts for name, tensor in part.items()}
    embedding = next((tensors[name] for name in EMBEDDINGS if name in tensors), None)
    for name in TIED if tied else ():
        if name in tensors and (embedding is None or not torch.equal(tensors.pop(name), embedding)):
            raise ValueError(f"{path}: {name} differs from the embedding; here the two are one.")
    return {name: tensor for name, tensor in tensors.items() if not LEFT_OUT.search(name)}


def _rename(name: str, names: Mapping[str, str]) -> str:
    for published, own in names.items():
        name = name.replace(published, own, 1)
    return name
