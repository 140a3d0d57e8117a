"""Other people's engines, with the weights of one of our models or sizes like ours."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence

import torch
from torch import nn

from annotated.config import BOS, EOS, PAD, TransformerConfig
from annotated.encoder import LayerNorm
from annotated.transformer import Transformer
from annotated_workbench.vocabulary import SPECIALS

Rows = list[list[int]]


class LibraryTransformer(nn.Module):
    """`torch.nn.Transformer` as its documentation and tutorials use it: embeddings, positions, masks, projection."""

    def __init__(self, config: TransformerConfig, positions: nn.Module):
        super().__init__()
        self.config = config
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions, self.dropout = positions, nn.Dropout(config.dropout)
        sizes = (config.d_model, config.heads, config.layers, config.layers, config.d_ff, config.dropout)
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.output = nn.Linear(config.d_model, config.vocab_size)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Compute the logits, as `Transformer.forward` does."""
        x, y = (
            self.dropout(self.positions(embedding(ids) * self.config.d_model**0.5))
            for embedding, ids in ((self.src_embedding, src), (self.tgt_embedding, tgt))
        )
        future = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), tgt.device, torch.bool)
        src_padding, tgt_padding = (ids == PAD for ids in (src, tgt))
        padding = dict(
            src_key_padding_mask=src_padding, tgt_key_padding_mask=tgt_padding, memory_key_padding_mask=src_padding
        )
        return self.output(self.transformer(x, y, tgt_mask=future, **padding))


def installed(name: str) -> bool:
    """Tell whether a package is there."""
    return importlib.util.find_spec(name) is not None


class Called(nn.Module):
    """A model of Hugging Face's, called with source and target."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Compute the logits."""
        return self.model(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt).logits


def marian(config: TransformerConfig) -> nn.Module:
    """Make Hugging Face's MarianMTModel in the same sizes, with random weights."""
    import transformers

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", config.layers), ("attention_heads", config.heads), ("ffn_dim", config.d_ff))
    }
    return transformers.MarianMTModel(
        transformers.MarianConfig(
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
            **sides,
        )
    )


def ctranslate2(
    model: Transformer, compute_type: str, *, beam: int, alpha: float, max_extra: int
) -> Callable[[Rows], Rows]:
    """Copy a model into CTranslate2; return a function that translates source ids, each row ending in <eos>.

    Args:
        model: post-norm with ReLU and sinusoids, without biases in the attention.
        compute_type: "float32" or "int8".
        beam: hypotheses kept; 1 is greedy.
        alpha: exponent of its length penalty, |Y|^α.
        max_extra: a translation of a batch ends after (longest source + max_extra) tokens.
    """
    import ctranslate2 as engine

    config = model.config
    spec = engine.specs.TransformerSpec.from_config(
        (config.layers, config.layers), config.heads, pre_norm=False, activation=engine.specs.Activation.RELU
    )

    def values(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().float().contiguous()

    def linear(target, *layers: nn.Linear) -> None:
        target.weight = values(torch.cat([layer.weight for layer in layers]))
        biases = [torch.zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
        target.bias = values(torch.cat(biases))

    def norm(target, layer: LayerNorm) -> None:
        target.gamma, target.beta = values(layer.gain), values(layer.bias)

    for side, stack, embedding, table in (
        (spec.encoder, model.encoder, model.src_embedding, spec.encoder.embeddings[0]),
        (spec.decoder, model.decoder, model.tgt_embedding, spec.decoder.embeddings),
    ):
        table.weight, side.scale_embeddings = values(embedding.weight), True
        side.position_encodings.encodings = values(model.positions.table)
        for target, layer in zip(side.layer, stack.layers, strict=True):
            attention = layer.self_attention
            linear(target.self_attention.linear[0], attention.W_q, attention.W_k, attention.W_v)
            linear(target.self_attention.linear[1], attention.W_o)
            norm(target.self_attention.layer_norm, layer.residuals[0].norm)
            if stack is model.decoder:
                attention = layer.cross_attention
                linear(target.attention.linear[0], attention.W_q)
                linear(target.attention.linear[1], attention.W_k, attention.W_v)
                linear(target.attention.linear[2], attention.W_o)
                norm(target.attention.layer_norm, layer.residuals[1].norm)
            linear(target.ffn.linear_0, layer.feed_forward.W_1)
            linear(target.ffn.linear_1, layer.feed_forward.W_2)
            norm(target.ffn.layer_norm, layer.residuals[-1].norm)
    linear(spec.decoder.projection, model.output)

    words = [*SPECIALS, *map(str, range(len(SPECIALS), config.vocab_size))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token, spec.config.bos_token = SPECIALS[BOS], SPECIALS[BOS]
    spec.config.eos_token, spec.config.unk_token = SPECIALS[EOS], "<unk>"
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = engine.Translator(folder, compute_type=compute_type, intra_threads=1)
    ids = {word: index for index, word in enumerate(words)}

    def translate(rows: Sequence[Sequence[int]]) -> Rows:
        longest = max(len(row) for row in rows) + max_extra
        results = translator.translate_batch(
            [[words[i] for i in row] for row in rows],
            beam_size=beam,
            length_penalty=alpha,
            max_decoding_length=longest,
        )
        return [[ids[word] for word in result.hypotheses[0]] for result in results]

    return translate
