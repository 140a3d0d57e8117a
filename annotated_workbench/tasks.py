"""What a run trains for: where its batches come from, its loss, how it is validated, what it keeps beside weights."""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.fast.accelerate import accelerate, has_fast_form
from annotated.fast.training import summed_loss
from annotated.training import label_smoothed_loss
from annotated_workbench.classification import classify, encode_texts
from annotated_workbench.data import Labelled, Pairs, encode_pairs, make_batches, make_text_batches
from annotated_workbench.files import checksum
from annotated_workbench.metrics import accuracy, bleu, text_loss
from annotated_workbench.training_options import TrainingOptions
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import Tokenizer

Batch = Sequence[Tensor]  # what is given and, last, what is to be predicted
Batches = Sequence[tuple[Tensor, ...]]
PAIRS_AT_ONCE = 20_000  # a tokenizer's own lists of ids take forty times the memory of the kept ones


class Task(ABC):
    """What `annotated_workbench.runs.fit` asks of a task.

    `identity` is what a run is counted in and cannot be resumed without; `info` goes into its config.json.
    """

    identity: dict[str, Any]
    info: dict[str, Any]
    tokenizer: Tokenizer
    report: str  # how to print what `validate` measured
    goal: tuple[str, Callable[..., Any]]  # the score among what `validate` measured, and whether its max or min is best

    @abstractmethod
    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """Make the batches of an epoch, the same for the same seed; None: in a fixed order."""

    def loss(self, model: nn.Module, batch: Batch, options: TrainingOptions) -> Tensor:
        """Compute the loss of a batch, summed over what is to be predicted: here tokens, all but the first."""
        if has_fast_form(model) and not options.plain:
            return summed_loss(model, batch, options.smoothing, bf16=options.bf16)
        *given, tgt = batch
        return label_smoothed_loss(model(*given, tgt[:, :-1]), tgt[:, 1:], options.smoothing, reduction="sum")

    @abstractmethod
    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """Measure the model after an epoch."""


class TranslationTask(Task):
    """Learn to translate from pairs of sentences, validated by greedy translations; too long pairs are left out."""

    report = "validation BLEU {val_bleu:5.2f}"
    goal = "val_bleu", max

    def __init__(self, tokenizer: Tokenizer, pairs: Pairs, val: Pairs, src: str, tgt: str, max_length: int):
        self.tokenizer, self.info = tokenizer, {"src": src, "tgt": tgt}
        short = encode_pairs(val, tokenizer, src, tgt, max_length, drop_long=True).kept
        source, target = pairs
        self.sources: list[array[int]] = []
        self.targets: list[array[int]] = []
        for i in range(0, len(source), PAIRS_AT_ONCE):
            some = Pairs(*(side[i : i + PAIRS_AT_ONCE] for side in pairs))
            encoded = encode_pairs(some, tokenizer, src, tgt, max_length, drop_long=True)
            self.sources += (array("i", row) for row in encoded.sources)
            self.targets += (array("i", row) for row in encoded.targets)
        self.identity = self.info | {"training_pairs": checksum(text.encode() for text in (*source, *target))}
        for kind, kept, total in (("training", self.sources, source), ("validation", short, val.source)):
            if not len(kept):
                few = f"no pair of {len(total)} fits into {max_length} tokens."
                raise ValueError(f"{few} Give shorter texts, one sentence a line.")
            if left_out := len(total) - len(kept):
                print(f"{left_out} of {len(total)} {kind} pairs are longer than {max_length} tokens and left out.")
        self.val = Pairs(*([side[i] for i in short] for side in val))

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: pairs of similar length."""
        return make_batches(self.sources, self.targets, batch_tokens, seed=seed)

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: BLEU of greedy translations."""
        how: Any = {"beam": 0, "bf16": options.bf16, "plain": options.plain}
        translations = translate(model, self.tokenizer, self.val.source, self.info["src"], **how)
        if len(set(translations)) == 1 < len(translations):
            print(f"Careful: it translates every validation sentence alike, as {translations[0]!r}.", flush=True)
        return {"val_bleu": bleu(translations, self.val.target, self.info["tgt"])[0]}


class TextTask(Task):
    """Learn to continue a text, of which a model sees `max_length` tokens at once, validated by the loss on another."""

    report = "validation loss {val_loss:.3f} nats, {val_bits:.3f} bits a token"
    goal = "val_loss", min

    def __init__(self, tokenizer: Tokenizer, text: str, val: str, max_length: int):
        self.tokenizer, self.max_length = tokenizer, max_length
        self.info: dict[str, Any] = {"task": "generation"}
        self.ids, self.val = (torch.tensor(tokenizer.encode(part, ""), dtype=torch.int64) for part in (text, val))
        self.identity = self.info | {"text": checksum([text.encode(), val.encode()])}
        make_text_batches(self.val, max_length, max_length)  # before training, refuses one too short

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: pieces of the text in which each token but the first is predicted once."""
        return make_text_batches(self.ids, self.max_length, batch_tokens, seed=seed)

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: the loss per token."""
        nats = text_loss(model, self.val, plain=options.plain)
        return {"val_loss": nats, "val_bits": nats / math.log(2)}


class ClassificationTask(Task):
    """Learn to sort texts into classes by their first `max_length` tokens, validated by the share sorted correctly."""

    report = "validation accuracy {val_accuracy:.1%}"
    goal = "val_accuracy", max

    def __init__(self, tokenizer: Tokenizer, labelled: Labelled, val: Labelled, language: str, max_length: int):
        self.tokenizer, self.val = tokenizer, val
        self.labels = sorted(set(labelled.labels))
        if unknown := sorted(set(val.labels) - set(self.labels)):
            raise ValueError(f"no training text has the label {unknown[0]!r} of the validation texts.")
        self.info: dict[str, Any] = {"task": "classification", "labels": self.labels, "language": language}
        self.sources = encode_texts(labelled.texts, tokenizer, language, max_length)
        self.classes = [[self.labels.index(label)] for label in labelled.labels]
        self.identity = self.info | {"texts": checksum(text.encode() for side in labelled for text in side)}

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: texts of similar length, at most `batch_tokens` ids, and their classes' numbers."""
        pairs = make_batches(self.sources, self.classes, batch_tokens, seed=seed)
        return [(ids, classes[:, 0]) for ids, classes in pairs]

    def loss(self, model: nn.Module, batch: Batch, options: TrainingOptions) -> Tensor:
        """As `Task.loss`: the cross-entropy of the classes, in nats."""
        ids, classes = batch
        reader: Any = model if options.plain else accelerate(model, bf16=options.bf16)
        return F.cross_entropy(reader(ids).float(), classes, label_smoothing=options.smoothing, reduction="sum")

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: the share of texts that are sorted correctly."""
        probabilities = classify(model, self.tokenizer, self.val.texts, self.info["language"], plain=options.plain)
        return {"val_accuracy": accuracy(probabilities, self.val.labels, self.labels)}
