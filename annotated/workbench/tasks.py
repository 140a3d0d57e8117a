"""What a run trains for: where its batches come from, how it is validated, what it keeps beside the weights."""

import hashlib
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from annotated.workbench.data import Pairs, encode_pairs, make_batches, make_text_batches
from annotated.workbench.metrics import bleu, text_loss
from annotated.workbench.translation import translate
from annotated.workbench.vocabulary import Tokenizer


@runtime_checkable
class Task(Protocol):
    """What `annotated.workbench.runs.fit` asks of a task.

    `identity` is what a run is counted in and cannot be resumed without; `info` goes into its config.json.
    """

    identity: dict[str, Any]
    info: dict[str, Any]
    tokenizer: Tokenizer

    def batches(self, batch_tokens: int, seed: int | None = None) -> Sequence[tuple[Tensor, ...]]:
        """Make the batches of an epoch, each of what `annotated.fast.training.update` takes; None: in a fixed order."""

    def validate(self, model: nn.Module, *, bf16: bool, plain: bool) -> dict[str, float]:
        """Measure the model after an epoch."""

    def report(self, line: dict[str, Any]) -> str:
        """Say in a few words what `validate` found."""


class TranslationTask:
    """Learn to translate from pairs of sentences.

    Args:
        tokenizer: turns the pairs into ids.
        pairs: training pairs; too long ones are left out.
        val: validation pairs, decoded greedily; too long ones are left out.
        src, tgt: the languages of the pairs.
        max_length: the longest source or target, in tokens.

    Raises:
        ValueError: no pair is short enough.
    """

    def __init__(self, tokenizer: Tokenizer, pairs: Pairs, val: Pairs, src: str, tgt: str, max_length: int):
        self.tokenizer, self.info = tokenizer, {"src": src, "tgt": tgt}
        self.sources, self.targets, kept = encode_pairs(pairs, tokenizer, src, tgt, max_length, drop_long=True)
        short = encode_pairs(val, tokenizer, src, tgt, max_length, drop_long=True).kept
        for kind, found, given in (("training", kept, pairs), ("validation", short, val)):
            count, total = len(found), len(given.source)
            if count < total:
                print(f"{total - count} of {total} {kind} pairs are longer than {max_length} tokens and left out.")
        self.val = Pairs(*([side[i] for i in short] for side in val))
        self.identity = self.info | {
            "training_pairs": checksum(text.encode() for text in (*pairs.source, *pairs.target)),
            "tokens": checksum(array("q", row).tobytes() for row in (*self.sources, *self.targets)),
        }

    def batches(self, batch_tokens: int, seed: int | None = None) -> Sequence[tuple[Tensor, ...]]:
        """As `Task.batches`: pairs of similar length, at most `batch_tokens` ids a side."""
        return make_batches(self.sources, self.targets, batch_tokens, seed=seed)

    def validate(self, model: nn.Module, *, bf16: bool, plain: bool) -> dict[str, float]:
        """As `Task.validate`: BLEU of greedy translations."""
        language = self.info["src"]
        found = translate(model, self.tokenizer, self.val.source, language, beam=0, bf16=bf16, plain=plain)
        if len(set(found)) == 1 < len(found):
            print(f"Careful: it translates every validation sentence alike, as {found[0]!r}.", flush=True)
        return {"val_bleu": bleu(found, self.val.target)[0]}

    def report(self, line: dict[str, Any]) -> str:
        """As `Task.report`."""
        return f"validation BLEU {line['val_bleu']:5.2f}"


class TextTask:
    """Learn to continue a text.

    Args:
        tokenizer: turns the text into ids.
        text: what to learn from.
        val: what to measure the loss on.
        max_length: how many tokens the model sees at once.

    Raises:
        ValueError: a text has fewer than two tokens.
    """

    def __init__(self, tokenizer: Tokenizer, text: str, val: str, max_length: int):
        self.tokenizer, self.max_length = tokenizer, max_length
        self.info: dict[str, Any] = {"task": "generation"}
        self.ids, self.val = (torch.tensor(tokenizer.encode(part, "")) for part in (text, val))
        for kind, ids in (("training", self.ids), ("validation", self.val)):
            if len(ids) < 2:
                raise ValueError(f"the {kind} text has {len(ids)} tokens, and nothing can be predicted in it.")
        self.identity = self.info | {"text": checksum([text.encode(), val.encode()])}

    def batches(self, batch_tokens: int, seed: int | None = None) -> Sequence[tuple[Tensor, ...]]:
        """As `Task.batches`: pieces of the text in which each token but the first is predicted once."""
        return make_text_batches(self.ids, self.max_length, batch_tokens, seed=seed)

    def validate(self, model: nn.Module, *, bf16: bool, plain: bool) -> dict[str, float]:
        """As `Task.validate`: the loss in nats a token."""
        return {"val_loss": text_loss(model, self.val)}

    def report(self, line: dict[str, Any]) -> str:
        """As `Task.report`."""
        return f"validation loss {line['val_loss']:.3f} nats, {line['val_loss'] / math.log(2):.3f} bits a token"


def checksum(parts: Iterable[bytes]) -> str:
    """Sum up what the parts are and where one ends."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8) + part)
    return total.hexdigest()[:16]
