"""Attention to look into: pick layer and head, point at a word, see where it looks; in a notebook and on a page.

What is shown needs no server, no library and no other host. BertViz, the usual tool, loads its scripts from elsewhere.
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode, in_eval_mode
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_course.plotting import token_labels
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import SPECIALS, Tokenizer

TEMPLATE = Path(__file__).with_suffix(".html")
Map = tuple[str, Tensor, Sequence[str], Sequence[str]]  # name, weights (layers, heads, queries, keys), and their words


@torch.inference_mode()
def view_attention(model: Transformer, tokenizer: Tokenizer, sentence: str, language: str = "de") -> Any:
    """Translate a sentence greedily and show all that the model looks at: encoder, decoder, and decoder to source.

    Where the decoder looks, "a → hat" is the position that has read "a" and writes "hat". The model, used in eval mode
    and left in the mode it was in, was trained with the tokenizer, and knows the language that the sentence is in. A
    ValueError says that this has too many tokens.
    """
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]])
    written = greedy_decode(model, src)[0].ids
    tgt = torch.tensor([[BOS, *written]])
    model = in_eval_mode(model)
    with record_attention(model) as recorded:
        model(src, tgt)

    def weights(stack: str, kind: str) -> Tensor:
        return torch.cat([recorded[f"{stack}.layers.{i}.{kind}_attention"][0] for i in range(model.config.layers)])

    source, target = (token_labels(tokenizer, row.tolist()) for row in (src[0], tgt[0]))
    steps = [f"{read} → {write}" for read, write in zip(target, [*target[1:], SPECIALS[EOS]], strict=True)]
    maps = [
        ("encoder, self", weights("encoder", "self"), source, source),
        ("decoder, self", weights("decoder", "self"), steps, target),
        ("decoder to source", weights("decoder", "cross"), steps, source),
    ]
    return load("IPython.display").HTML(attention_html(maps))


def attention_html(maps: Sequence[Map]) -> str:
    """Write a page's part that shows the last of some maps first; of a weight, 65,536 steps are kept."""
    described, encoded = [], b""
    for name, weights, queries, keys in maps:
        sizes = {"layers": weights.size(0), "heads": weights.size(1)}
        described.append({"name": name, **sizes, "from": [*queries], "to": [*keys]})
        encoded += (weights * 65535).round().clamp(0, 65535).numpy().astype("<u2").tobytes()
    filled = {
        "@MAPS@": html.escape(json.dumps(described, ensure_ascii=False)),
        "@WEIGHTS@": base64.b64encode(encoded).decode(),
        "@SENTENCES@": html.escape(" ".join(maps[-1][3])),
    }
    # In one pass: a sentence may hold such a place itself.
    return re.sub("|".join(filled), lambda place: filled[place[0]], TEMPLATE.read_text(encoding="utf-8"))
