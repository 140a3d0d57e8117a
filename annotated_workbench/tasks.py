"""What a run trains for: where its batches come from, how it is validated, what it keeps beside the weights."""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from annotated import training as plain
from annotated.fast.accelerate import accelerate
from annotated.fast.training import update
from annotated.training import check_loss, label_smoothed_loss
from annotated_workbench.classification import classify, encode_texts
from annotated_workbench.data import Labelled, Lines, Pairs, encode_pairs, make_batches, make_text_batches, require_some
from annotated_workbench.distributed import divided, in_turn
from annotated_workbench.files import checksum
from annotated_workbench.mapped import encode_files, file_checksum
from annotated_workbench.metrics import accuracy, bleu, text_loss
from annotated_workbench.training_options import TrainingOptions
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import Tokenizer

Batches = Sequence[tuple[Tensor, ...]]  # what is given and, last, what is to be predicted


@runtime_checkable
class Task(Protocol):
    """What `annotated_workbench.runs.fit` asks of a task.

    `identity` is what a run is counted in and cannot be resumed without; `info` goes into its config.json.
    """

    identity: dict[str, Any]
    info: dict[str, Any]
    tokenizer: Tokenizer

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """Make the batches of an epoch, the same for the same seed; None: in a fixed order."""

    def update(self, model: nn.Module, batches: Batches, optimizer: Optimizer, options: TrainingOptions) -> float:
        """Update the model once on several batches as if they were one (plain: on one); return the loss.

        Raises:
            ValueError: the loss is not finite; then no weight has changed.
        """

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """Measure the model after an epoch."""

    def report(self, line: dict[str, Any]) -> str:
        """Say in a few words what `validate` measured."""


class TranslationTask(Task):
    """Learn to translate from pairs of sentences.

    Args:
        tokenizer: turns the pairs into ids.
        pairs: training pairs; too long ones are left out.
        val: validation pairs, decoded greedily; too long ones are left out.
        src, tgt: the languages of the pairs.
        max_length: the longest source or target, in tokens.
        mapped: a folder for the ids of pairs that do not fit into memory; the pairs are then `Lines`.

    Raises:
        ValueError: no pair is short enough; or as `encode_files` does.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        pairs: Pairs,
        val: Pairs,
        src: str,
        tgt: str,
        max_length: int,
        *,
        mapped: str | None = None,
    ):
        self.tokenizer, self.info = tokenizer, {"src": src, "tgt": tgt}
        short = encode_pairs(val, tokenizer, src, tgt, max_length, drop_long=True).kept
        source, target = pairs
        self.sources: Sequence[Sequence[int]]
        self.targets: Sequence[Sequence[int]]
        if mapped and isinstance(source, Lines) and isinstance(target, Lines):
            with in_turn():
                files = mapped, source.path, target.path
                self.sources, self.targets = encode_files(*files, tokenizer, src, tgt, max_length)
            self.identity = self.info | {"training_pairs": file_checksum(source.path) + file_checksum(target.path)}
        else:
            self.sources, self.targets, _ = encode_pairs(pairs, tokenizer, src, tgt, max_length, drop_long=True)
            self.identity = self.info | {
                "training_pairs": checksum(text.encode() for text in (*source, *target)),
                "tokens": checksum(array("q", row).tobytes() for row in (*self.sources, *self.targets)),
            }
        for kind, kept, total in (("training", self.sources, source), ("validation", short, val.source)):
            require_some(len(kept), len(total), max_length)
            if left_out := len(total) - len(kept):
                print(f"{left_out} of {len(total)} {kind} pairs are longer than {max_length} tokens and left out.")
        self.val = Pairs(*([side[i] for i in short] for side in val))

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: pairs of similar length, at most `batch_tokens` ids a side."""
        return make_batches(self.sources, self.targets, batch_tokens, seed=seed)

    def update(self, model: nn.Module, batches: Batches, optimizer: Optimizer, options: TrainingOptions) -> float:
        """As `Task.update`."""
        if not options.plain:
            return update(model, batches, optimizer, options.smoothing, bf16=options.bf16)
        [(src, tgt)] = batches
        return plain.train_step(model, src, tgt, optimizer, options.smoothing)

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: BLEU of greedy translations."""

        def greedy(texts: Sequence[str]) -> list[str]:
            src = self.info["src"]
            return translate(model, self.tokenizer, texts, src, beam=0, bf16=options.bf16, plain=options.plain)

        translations = divided(greedy, self.val.source)
        if len(set(translations)) == 1 < len(translations):
            print(f"Careful: it translates every validation sentence alike, as {translations[0]!r}.", flush=True)
        return {"val_bleu": bleu(translations, self.val.target, self.info["tgt"])[0]}

    def report(self, line: dict[str, Any]) -> str:
        """As `Task.report`."""
        return f"validation BLEU {line['val_bleu']:5.2f}"


class TextTask(Task):
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

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: pieces of the text in which each token but the first is predicted once."""
        return make_text_batches(self.ids, self.max_length, batch_tokens, seed=seed)

    def update(self, model: nn.Module, batches: Batches, optimizer: Optimizer, options: TrainingOptions) -> float:
        """As `Task.update`."""
        if not options.plain:
            return update(model, batches, optimizer, options.smoothing, bf16=options.bf16)
        [(ids,)] = batches
        optimizer.zero_grad()
        return _step([label_smoothed_loss(model(ids[:, :-1]), ids[:, 1:], options.smoothing)], optimizer)

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: the loss in nats a token."""
        return {"val_loss": text_loss(model, self.val, plain=options.plain)}

    def report(self, line: dict[str, Any]) -> str:
        """As `Task.report`."""
        return f"validation loss {line['val_loss']:.3f} nats, {line['val_loss'] / math.log(2):.3f} bits a token"


class ClassificationTask(Task):
    """Learn to sort texts into classes.

    Args:
        tokenizer: turns the texts into ids.
        labelled: training texts; of one that is too long the beginning.
        val: texts to measure the accuracy on.
        language: of the texts.
        max_length: how many tokens the model sees.

    Raises:
        ValueError: a validation text has a label that no training text has.
    """

    def __init__(self, tokenizer: Tokenizer, labelled: Labelled, val: Labelled, language: str, max_length: int):
        self.tokenizer, self.val = tokenizer, val
        self.labels = sorted(set(labelled.labels))
        if unknown := sorted(set(val.labels) - set(self.labels)):
            raise ValueError(f"no training text has the label {unknown[0]!r} of the validation texts.")
        self.info: dict[str, Any] = {"task": "classification", "labels": self.labels, "language": language}
        self.sources = encode_texts(labelled.texts, tokenizer, language, max_length)
        self.classes = [[self.labels.index(label)] for label in labelled.labels]
        self.identity = self.info | {
            "texts": checksum(text.encode() for side in labelled for text in side),
            "tokens": checksum(array("q", row).tobytes() for row in self.sources),
        }

    def batches(self, batch_tokens: int, seed: int | None = None) -> Batches:
        """As `Task.batches`: texts of similar length, at most `batch_tokens` ids, and their classes' numbers."""
        pairs = make_batches(self.sources, self.classes, batch_tokens, seed=seed)
        return [(ids, classes[:, 0]) for ids, classes in pairs]

    def update(self, model: nn.Module, batches: Batches, optimizer: Optimizer, options: TrainingOptions) -> float:
        """As `Task.update`: the cross-entropy of the classes, in nats a text."""
        texts = sum(len(classes) for _, classes in batches)
        optimizer.zero_grad()
        reader: Any = model if options.plain else accelerate(model, bf16=options.bf16)
        losses = (
            F.cross_entropy(reader(ids).float(), classes, label_smoothing=options.smoothing, reduction="sum") / texts
            for ids, classes in batches
        )
        return _step(losses, optimizer)

    def validate(self, model: nn.Module, options: TrainingOptions) -> dict[str, float]:
        """As `Task.validate`: the share of texts that are sorted rightly."""
        language = self.info["language"]
        probabilities = divided(
            lambda texts: classify(model, self.tokenizer, texts, language, plain=options.plain), self.val.texts
        )
        return {"val_accuracy": accuracy(torch.stack(probabilities), self.val.labels, self.labels)}

    def report(self, line: dict[str, Any]) -> str:
        """As `Task.report`."""
        return f"validation accuracy {line['val_accuracy']:.1%}"


def _step(losses: Iterable[Tensor], optimizer: Optimizer) -> float:
    """Add up losses and, one after the other, their gradients; then update, unless the sum is no number."""
    parts = []
    for loss in losses:
        loss.backward()
        parts.append(loss.detach())
    total = float(sum(parts))  # a GPU is waited for here alone
    check_loss(total)
    optimizer.step()
    return total
