"""Other people's models and engines, in sizes like ours or with the weights of one of our models."""

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from annotated.config import PAD, TransformerConfig
from annotated.positional_encoding import SinusoidalEncoding
from annotated.transformer import Transformer
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.export import to_marian, write
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import load_tokenizer

Rows = list[list[int]]


class LibraryTransformer(nn.Module):
    """`torch.nn.Transformer` as its documentation and tutorials use it: embeddings, positions, masks, projection."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalEncoding(config.d_model, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
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
        padding = {f"{side}_key_padding_mask": ids == PAD for side, ids in dict(src=src, tgt=tgt, memory=src).items()}
        return self.output(self.transformer(x, y, tgt_mask=future, **padding))


def installed(name: str) -> bool:
    """Tell whether a package is there."""
    return importlib.util.find_spec(name) is not None


class Marian(nn.Module):
    """Hugging Face's MarianMTModel in the same sizes, called with source and target."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.model = to_marian(Transformer(config))

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Compute the logits."""
        return self.model(input_ids=src, attention_mask=src != PAD, decoder_input_ids=tgt).logits


def ctranslate2(model: Transformer, precision: str, *, beam: int) -> Callable[[Rows], object]:
    """Copy a model into CTranslate2; return a search of source ids in which no translation is longer than its source.

    Args:
        model: with the vocabulary of the delivered one.
        precision: "float32" or "int8".
        beam: hypotheses kept; 1 is greedy.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = write(model, load_tokenizer(DATA_FOLDER / "checkpoints" / "de-en"), "ctranslate2", Path(folder))
        translator = load("ctranslate2").Translator(folder, compute_type=precision, intra_threads=1)

    def search(rows: Rows) -> object:
        tokens = [[library.id_to_token(token) for token in row] for row in rows]
        return translator.translate_batch(tokens, beam_size=beam, max_decoding_length=len(rows[0]))

    return search
