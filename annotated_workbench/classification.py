"""From texts to the probabilities of their classes."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from annotated.config import UNK
from annotated.decoding import in_eval_mode
from annotated.fast.accelerate import accelerate, has_fast_form
from annotated_workbench.data import pad
from annotated_workbench.metrics import check_texts
from annotated_workbench.vocabulary import Tokenizer, sentence

BATCH_TOKENS = 8192  # ids classified at a time


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, language: str, max_length: int) -> list[list[int]]:
    """Turn texts into ids: of a long one the first `max_length`, of one without any word a single `UNK`."""
    return [ids[:max_length] or [UNK] for ids in tokenizer.encode_batch([*map(sentence, texts)], language)]


@torch.inference_mode()
def classify(
    model: Any, tokenizer: Tokenizer, texts: Sequence[str], language: str, *, plain: bool = False
) -> Float[Tensor, "texts classes"]:
    """Compute p(class | text), in eval mode; of a text longer than the model's positions only its beginning counts.

    `plain` computes by the paper's own files.
    """
    check_texts(texts=texts)
    rows = encode_texts(texts, tokenizer, language, model.config.max_length)
    probabilities = torch.zeros(len(rows), model.config.classes)
    reader = in_eval_mode(accelerate(model) if has_fast_form(model) and not plain else model)
    device = next(model.parameters()).device
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    while order:
        count = max(1, BATCH_TOKENS // len(rows[order[-1]]))
        batch, order = order[-count:], order[:-count]
        logits = reader(pad([rows[i] for i in batch]).to(device))
        probabilities[batch] = logits.float().softmax(dim=-1).cpu()
    return probabilities
