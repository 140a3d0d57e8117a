"""Write `docs/transformer.py`, the whole model in one file that needs torch alone: `python -m tools.transformer_file`.

It holds the module's own definitions, as `tools.plain` writes them, and chapter 09 offers it for download. Tests hold
it equal to what this writes, and what it computes to what the module computes.
"""

from tools.plain import formatted, plain
from tools.sync import ROOT, definition

TARGET = ROOT / "docs" / "transformer.py"
HEADER = '''\
"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) in one file. Python ≥ 3.10, PyTorch ≥ 2.3.

Copyright (c) 2026 The annotated authors, MIT licence. Made by `python -m tools.transformer_file`; explained in 09.

    model = Transformer(TransformerConfig(vocab_size=37_000))  # the paper's base model
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, (src, tgt) in enumerate(batches, start=1):  # ids: src … EOS, tgt BOS … EOS, both padded with PAD
        optimizer.param_groups[0]["lr"] = noam_rate(step, d_model=512, warmup=4000)
        loss = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    translations = beam_search(model, src)  # for each row of src a Hypothesis(ids, log_prob, score)

To load the course's weights, whose file holds the matrix that three layers share once, import json, pathlib and
safetensors.torch, and give the folder, "data/checkpoints/de-en":

    sizes = json.loads(pathlib.Path(folder, "config.json").read_text())["model"]
    weights = safetensors.torch.load_file(pathlib.Path(folder, "model.safetensors"))
    shared = dict.fromkeys(("tgt_embedding.weight", "output.weight"), weights["src_embedding.weight"])
    model = Transformer(TransformerConfig(**sizes)).eval()
    model.load_state_dict(weights | shared)
"""

import copy
import math
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

# A mask is boolean, True = may attend, and broadcast to (batch, heads, query, key); None hides nothing.
'''
PARTS = {  # in the order in which data flows
    "config": ["PAD", "POSITIONS", "ACTIVATIONS", "TransformerConfig"],
    "masking": ["padding_mask", "causal_mask", "combine", "check_boolean", "check_mask"],
    "attention": ["masked_softmax", "attention_weights", "attention"],
    "multi_head": ["MultiHeadAttention"],
    "positional_encoding": ["sinusoids", "_Encoding", "SinusoidalEncoding", "LearnedEncoding"],
    "encoder": ["Dropout", "LayerNorm", "FeedForward", "Residual", "EncoderLayer", "Encoder"],
    "decoder": ["LayerCache", "Cache", "DecoderLayer", "Decoder"],
    "transformer": ["Transformer", "check_source_mask"],
    "training": ["noam_rate", "label_smoothed_loss", "check_smoothing"],
    "decoding": [
        *("BEAM", "ALPHA", "MAX_EXTRA", "Hypothesis", "length_penalty", "greedy_decode", "beam_search", "search"),
        *("next_log_probs", "longest_translations", "check_search", "in_eval_mode"),
    ],
}
WITHOUT = ["recorders", "extra_repr", "base", "big", "small", "tiny"]


def transformer_file() -> str:
    """Give the text of the file."""
    text = HEADER
    for file, names in PARTS.items():
        source = (ROOT / "annotated" / f"{file}.py").read_text(encoding="utf-8")
        for name in names:
            text += plain(definition(source, name) or "", WITHOUT, checks=True) + "\n"
    return formatted(text)


if __name__ == "__main__":
    TARGET.write_text(transformer_file(), encoding="utf-8")
