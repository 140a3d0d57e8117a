"""Export a trained translator to other engines: CTranslate2, Hugging Face transformers and ONNX Runtime."""

import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn

from annotated.config import BOS, EOS, PAD
from annotated.masking import padding_mask
from annotated.transformer import Transformer
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import SPECIALS, TOKENIZER, SubwordTokenizer, Tokenizer

CARDS = Path(__file__).parent / "cards"
MARIAN_NAMES = {  # what a part is called here, and there
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    **{"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj"},
    "feed_forward.W_": "fc",
    "norm.gain": "norm.weight",
}
MARIAN_HAS = {"positions": "sinusoidal", "norm_first": False, "tie_embeddings": True, "d_k": None, "d_v": None}
NEVER = -1e4  # added to the logits of <pad> and <bos>, which no search may choose; float16 holds it, too


def export(model: nn.Module, tokenizer: Tokenizer, engine: str, out: str | Path) -> None:
    """Write a model, its tokenizer, a program that translates and a card into a new folder, whole or not at all.

    Greedy search in float32 writes the same tokens there as here. An error says which library is missing, that the
    folder exists, or why the engine (of `EXPORTS`) has no form for this model or tokenizer.
    """
    out = Path(out)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} exists: choose another folder.")
    check_exportable(model, tokenizer, engine)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as temporary:
        folder = Path(temporary) / out.name
        folder.mkdir()
        write(model, tokenizer, engine, folder)
        longest: Any = model.config.max_length
        card = (CARDS / f"{engine}.md").read_text(encoding="utf-8").replace("LONGEST = 512", f"LONGEST = {longest}")
        (folder / "README.md").write_text(card, encoding="utf-8")
        program = card.split("```python\n")[1].split("```")[0]
        (folder / "translate.py").write_text(program, encoding="utf-8")
        folder.rename(out)


def check_exportable(model: Any, tokenizer: Tokenizer, engine: str) -> None:
    """Raise a ValueError unless a model is what its configuration makes, and the engine has a form for that."""
    if type(model) is not Transformer:
        raise ValueError(f"{engine} has no form for a {type(model).__name__}: only a Transformer can be exported.")
    with torch.device("meta"):
        expected = Transformer(model.config)
    if [*map(type, model.modules())] != [*map(type, expected.modules())]:
        raise ValueError("the model has parts that its configuration does not make: only the paper's can be exported.")
    given = {name: getattr(model.config, name) for name in MARIAN_HAS}
    refused = [f"{name}={value}" for name, value in given.items() if value != MARIAN_HAS[name]]
    if engine != "onnx" and refused:
        raise ValueError(f"{engine} has no form for a model with {', '.join(refused)}: export it to onnx.")
    if not isinstance(tokenizer, SubwordTokenizer):
        raise ValueError(f"{engine} cannot read a {type(tokenizer).__name__}: only models of subwords are exported.")


def write(model: nn.Module, tokenizer: Tokenizer, engine: str, folder: Path) -> Any:
    """Write a model that `check_exportable` let pass into a folder, and its tokenizer, which is returned."""
    library = tokenizers.Tokenizer.from_str(tokenizer.content().decode())
    library.post_processor = tokenizers.processors.TemplateProcessing("$A <eos>", special_tokens=[("<eos>", EOS)])
    with torch.no_grad(), _quiet():
        EXPORTS[engine](model.eval(), library, folder)
    library.save(str(folder / TOKENIZER))
    return library


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' remarks on themselves from the user; errors come through."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def to_marian(model: Transformer) -> Any:
    """Copy a model into Hugging Face's `MarianMTModel`.

    Marian's positions hold all sines, then all cosines, where the paper interleaves them. The order of the features
    means nothing to a model, so every weight that reads or writes features is copied with them in Marian's order.
    """
    transformers, config = load("transformers"), model.config
    sides = {"layers": config.layers, "attention_heads": config.heads, "ffn_dim": config.d_ff}
    marian_config = transformers.MarianConfig(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        dropout=config.dropout,
        activation_function={"silu": "swish"}.get(config.activation, config.activation),
        max_position_embeddings=config.max_length,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
    )
    order = torch.arange(config.d_model).view(-1, 2).T.flatten()  # 0, 2, 4, …, 1, 3, 5, …
    marian = transformers.MarianMTModel(marian_config).eval()
    weights = marian.state_dict()  # whose biases are 0; they stay so where the paper has none
    weights["model.shared.weight"] = model.src_embedding.weight[:, order]
    for name, weight in model.state_dict().items():
        if ".layers." in name:
            if re.search("W_o|W_2|norm", name):  # writes features: (d_model, …)
                weight = weight[order]
            elif weight.ndim == 2:  # reads features: (…, d_model)
                weight = weight[:, order]
            weights[f"model.{_marian_name(name)}"] = weight
    marian.load_state_dict(weights)
    marian.generation_config.suppress_tokens = [PAD, BOS]  # as in our search: their probability goes to no other token
    return marian


def _marian_name(name: str) -> str:
    """Translate the name of a layer's weight, such as "decoder.layers.0.residuals.1.norm.gain"."""
    for ours, theirs in MARIAN_NAMES.items():
        name = name.replace(ours, theirs)
    sublayers = ("self_attn", "encoder_attn", "final") if name.startswith("decoder") else ("self_attn", "final")
    return re.sub(r"residuals\.(\d)\.norm", lambda match: f"{sublayers[int(match[1])]}_layer_norm", name)


def _marian_tokenizer(library: Any, longest: int) -> Any:
    return load("transformers").PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=longest,
        split_special_tokens=True,  # "<eos>" written in a text is text
        clean_up_tokenization_spaces=False,
        **dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True)),
    )


def write_hugging_face(model: Transformer, library: Any, folder: Path) -> None:
    """Write a `MarianMTModel` and a fast tokenizer."""
    load("transformers").utils.logging.disable_progress_bar()
    to_marian(model).save_pretrained(folder)
    _marian_tokenizer(library, model.config.max_length).save_pretrained(folder)


def write_ctranslate2(model: Transformer, library: Any, folder: Path) -> None:
    """Write what CTranslate2's own converter makes of a `MarianMTModel`.

    By the converter for BART, which has the same layers: that for Marian starts the decoder from no token, not <bos>.
    """
    marian, tokenizer = to_marian(model), _marian_tokenizer(library, model.config.max_length)
    marian.config.normalize_before = marian.config.normalize_embedding = False
    marian.final_logits_bias[0, [PAD, BOS]] = NEVER
    spec = load("ctranslate2.converters.transformers").BartLoader()(marian, tokenizer)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


class OnnxEncoder(nn.Module):
    """The part that runs once for a source: what every decoder layer's attention to it needs."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Turn (batch, source) into keys and values, each (layers, batch, heads, source, d_k or d_v)."""
        memory = self.model.encode(source)
        pairs = [layer.cross_attention.project(memory, memory) for layer in self.model.decoder.layers]
        return torch.stack([keys for keys, _ in pairs]), torch.stack([values for _, values in pairs])


class OnnxStep(nn.Module):
    """The part that runs once for each new token, with the keys and values of those before."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(
        self, source: Tensor, token: Tensor, source_keys: Tensor, source_values: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn a token, (batch, 1), into the logits of the next, and into keys and values that are longer by one."""
        cache = self.model.new_cache()
        for i, layer in enumerate(cache):
            layer.tokens, layer.memory = (keys[i], values[i]), (source_keys[i], source_values[i])
        no_memory = source_keys.new_empty(0)  # the cache holds all that is read of it
        logits = self.model.logits(self.model.decode(token, no_memory, padding_mask(source), cache=cache)[:, -1])
        logits[:, [PAD, BOS]] = NEVER
        keys, values = (torch.stack([layer.tokens[part] for layer in cache]) for part in range(2))
        return logits, keys, values


def write_onnx(model: Transformer, library: Any, folder: Path) -> None:
    """Write two graphs: encoder.onnx, and step.onnx with a cache."""
    load("onnxscript")
    dimension: Any = torch.export.Dim
    if not hasattr(dimension, "DYNAMIC"):
        raise ValueError(f"torch {torch.__version__} cannot export this to ONNX: install 2.6 or newer.")
    source, token = torch.full((2, 3), EOS), torch.full((2, 1), BOS)  # the sizes of an example; others do, too
    cached = OnnxEncoder(model)(source)
    free = dimension.DYNAMIC
    ids, batch, batch_and_length = {0: free, 1: free}, {0: free}, {1: free, 3: free}
    step = [source, token, *cached, *(part[:, :, :, :2] for part in cached)]
    graphs = {
        "encoder": (OnnxEncoder(model), [source], [ids], ["source_keys", "source_values"]),
        "step": (OnnxStep(model), step, [ids, batch, *[batch_and_length] * 4], ["logits", "new_keys", "new_values"]),
    }
    for name, (part, given, sizes, returned) in graphs.items():
        names = list(signature(part.forward).parameters)
        dynamic = dict(zip(names, sizes, strict=True))
        options: dict[str, Any] = dict(input_names=names, output_names=returned, dynamic_shapes=dynamic)
        program: Any = torch.onnx.export(part.eval(), tuple(given), dynamo=True, verbose=False, **options)
        program.save(folder / f"{name}.onnx")


Writer = Callable[[Any, Any, Path], None]
EXPORTS: dict[str, Writer] = {"ctranslate2": write_ctranslate2, "huggingface": write_hugging_face, "onnx": write_onnx}
