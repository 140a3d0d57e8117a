"""Attention to look into: pick layer and head, point at a word, see where it looks; in a notebook and on a page.

What is shown needs no server, no library and no other host. BertViz, the usual tool, loads its scripts from elsewhere.
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from annotated.config import BOS, EOS
from annotated.decoding import evaluating, greedy_decode
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_course.plotting import token_labels
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import SPECIALS, Tokenizer

if TYPE_CHECKING:
    from IPython.display import HTML

TEMPLATE = Path(__file__).with_suffix(".html")


class Map(NamedTuple):
    """Attention weights to look into.

    `name` says of what; `weights` has the shape (layers, heads, queries, keys); `queries` and `keys` are the words.
    """

    name: str
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]


@torch.inference_mode()
def view_attention(model: Transformer, tokenizer: Tokenizer, sentence: str, language: str = "de") -> "HTML":
    """Translate a sentence greedily and show all that the model looks at: encoder, decoder, and decoder to source.

    Where the decoder looks, "a → hat" is the position that has read "a" and writes "hat".

    Args:
        model: a trained model; used in eval mode and left in the mode it was in.
        tokenizer: the one it was trained with.
        sentence: what to translate.
        language: the language it is in.

    Raises:
        ValueError: the sentence has no tokens, or too many for the model.
    """
    ids = tokenizer.encode(sentence, language)
    if not ids:
        raise ValueError(f"the sentence {sentence!r} has no tokens: give at least one word.")
    src = torch.tensor([[*ids, EOS]])
    written = greedy_decode(model, src)[0].ids
    tgt = torch.tensor([[BOS, *written]])
    with evaluating(model), record_attention(model) as recorded:
        model(src, tgt)

    def weights(stack: str, kind: str) -> Tensor:
        return torch.cat([recorded[f"{stack}.layers.{i}.{kind}_attention"][0] for i in range(model.config.layers)])

    source, target = (token_labels(tokenizer, row.tolist()) for row in (src[0], tgt[0]))
    steps = [f"{read} → {write}" for read, write in zip(target, [*target[1:], SPECIALS[EOS]], strict=True)]
    maps = [
        Map("encoder, self", weights("encoder", "self"), source, source),
        Map("decoder, self", weights("decoder", "self"), steps, target),
        Map("decoder to source", weights("decoder", "cross"), steps, source),
    ]
    return load("IPython.display").HTML(attention_html(maps))


def attention_html(maps: Sequence[Map]) -> str:
    """Write a page's part that shows attention weights; of a weight, 65,536 steps are kept.

    Args:
        maps: what to choose from; the last one is shown first.

    Raises:
        ValueError: there is nothing to show, or a map's shape does not fit its words.
    """
    if not maps:
        raise ValueError("there is no attention to show: give at least one map.")
    described, encoded = [], b""
    for name, weights, queries, keys in maps:
        if weights.dim() != 4 or tuple(weights.shape[2:]) != (len(queries), len(keys)):
            raise ValueError(
                f"{name}: weights must have the shape (layers, heads, {len(queries)}, {len(keys)}), as there are "
                f"{len(queries)} queries and {len(keys)} keys; got {tuple(weights.shape)}."
            )
        described.append(
            {"name": name, "layers": len(weights), "heads": weights.size(1), "from": [*queries], "to": [*keys]}
        )
        encoded += (weights * 65535).round().clamp(0, 65535).numpy().astype("<u2").tobytes()
    filled = {
        "@MAPS@": html.escape(json.dumps(described, ensure_ascii=False)),
        "@WEIGHTS@": base64.b64encode(encoded).decode(),
        "@SENTENCES@": html.escape(" ".join(maps[-1].keys)),
    }
    # In one pass: a sentence may hold such a place itself.
    return re.sub("|".join(filled), lambda place: filled[place[0]], TEMPLATE.read_text(encoding="utf-8"))
