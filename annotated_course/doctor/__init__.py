"""The doctor: examine a model that you built yourself.

    python -m annotated doctor my_model.py:MyTransformer

or, in Python, `examine(MyTransformer)`. The checks are those of chapter 19, the bug clinic.
"""

import argparse
import html
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from annotated_course.doctor import checks as measures
from annotated_course.doctor.checks import NotExamined, in_64_bits
from annotated_course.doctor.parity import parity
from annotated_course.doctor.recipe import Recipe, load, make_recipe, said

__all__ = ["CHECKS", "Check", "Finding", "Recipe", "Report", "examine"]
INFINITE = float("inf")


class Check(NamedTuple):
    """A check with its limits, and what it means to lie outside them."""

    measure: Callable[[Recipe], Any]
    unit: str  # what is measured
    meaning: str  # what is wrong, and what to do
    taught: str  # the lesson
    section: str  # and the section
    needs: tuple[str, ...] = ()  # parts of a recipe
    low: float = 0
    high: float = 0

    @property
    def name(self) -> str:
        """The name of the function that measures."""
        return self.measure.__name__


CHECKS = (
    Check(
        measures.finite,
        "positions with a logit that is NaN or infinite",
        "Mostly a query whose keys are all hidden, and −∞ in the softmax: is a mask upside down?",
        "06_masking",
        "4. A query with nobody to look at",
    ),
    Check(
        measures.steady,
        "positions that differ between two calls",
        "Something random is on in evaluation mode, such as F.dropout without training=self.training.",
        "04_encoder",
        "5. Dropout (§5.4)",
    ),
    Check(
        measures.forgets,
        "positions that differ after a checkpoint is loaded",
        "The state_dict lacks something: layers in a plain list, or a random table that is no parameter or buffer.",
        "03_positional_encoding",
        "The buffer, and the end of the table",
    ),
    Check(
        measures.probabilities,
        "positions with probabilities in place of logits",
        "cross_entropy has a softmax of its own, and the loss could not fall far: return logits.",
        "07_training",
        "3. The loss, with a softened target (§5.4)",
    ),
    Check(
        measures.no_twins,
        "pairs of equal matrices",
        "Layers that are copies of one start alike; build each by itself, or draw the weights again.",
        "04_encoder",
        "Where PyTorch's encoder differs",
    ),
    Check(
        measures.first_loss,
        "nats from ln V to the first loss",
        "Untrained, a model should know nothing. Above: its logits are too large, look at how embedding and output are "
        "drawn. Below: it sees its answers.",
        "07_training",
        "3. The loss, with a softened target (§5.4)",
        low=-0.7,
        high=2.0,
    ),
    Check(
        measures.rows_sum_to_one,
        "from 1, the sum of a query's weights",
        "The softmax of attention runs over another axis than the keys: softmax(dim=-1).",
        "01_attention",
        "2. All words at once (Equation 1)",
        high=measures.NEAR,
    ),
    Check(
        measures.spread,
        "of ln(keys), the entropy of untrained attention",
        "An untrained query should look at all keys; here the scores are too large: √d_k is missing, or the embeddings "
        "are too large.",
        "01_attention",
        "6. Why divide by √d_k? (§3.2.1)",
        low=0.67,
        high=1.0 + measures.NEAR,
    ),
    Check(
        measures.future,
        "places of the future are read",
        "An output reads the token that it is to predict: the causal mask is missing, or turned, or axes are mixed up.",
        "06_masking",
        "6. The leak, found",
    ),
    Check(
        measures.past,
        "places of the past are not read",
        "The mask hides too much, or is upside down.",
        "05_decoder",
        "3. Masked self-attention (§3.2.3)",
    ),
    Check(
        measures.source,
        "places of the source are not read",
        "The decoder does not hear the encoder: look at cross-attention, and at the mask of the source.",
        "05_decoder",
        "4. Attention to the source (§3.2.3)",
        ("source",),
    ),
    Check(
        measures.order,
        "outputs that move when two tokens change places",
        "The order makes no difference: positions are missing.",
        "03_positional_encoding",
        "1. How do you write down a position?",
        low=1,
        high=INFINITE,
    ),
    Check(
        measures.company,
        "positions that change with the rows beside them",
        "What a row gives depends on the rest of its batch: batch and length are exchanged (batch_first?), or "
        "something is averaged over the batch.",
        "04_encoder",
        "LayerNorm or BatchNorm?",
    ),
    Check(
        measures.padding,
        "positions that change when padding follows",
        "Padding is read: the mask of the source does not reach encoder and cross-attention, is upside down, or pad is "
        "another id.",
        "06_masking",
        "The child who smiles in company",
        ("pad",),
    ),
    Check(
        measures.quiet_dropout,
        "parts for dropout that drop nothing in training mode",
        "The model has dropout, but it never acts.",
        "04_encoder",
        "5. Dropout (§5.4)",
    ),
    Check(
        measures.cross_entropy,
        "nats from the mean cross-entropy of the real tokens",
        "The loss is another than −ln p of the token that comes next, averaged over the real tokens.",
        "07_training",
        "3. The loss, with a softened target (§5.4)",
        ("loss",),
    ),
    Check(
        measures.reached,
        "parameters without a gradient",
        "The loss does not reach them: a detach or no_grad on the way, or nothing uses them.",
        "07_training",
        "6. One update",
    ),
    Check(
        measures.empty,
        "gradients not finite with a row of padding",
        "A query with nothing to look at: −∞ everywhere makes NaN. Fill with a finite number, then with zeros.",
        "06_masking",
        "4. A query with nobody to look at",
        ("pad",),
    ),
    Check(
        measures.moves,
        "parameters that three updates leave alone",
        "The optimizer does not hold them, or the loss does not reach them.",
        "07_training",
        "6. One update",
        ("optimizer",),
    ),
    Check(
        measures.gradient,
        "from 1, the cosine of the gradient that is used and that of the loss",
        "Gradients of earlier updates are still in it: zero_grad in each update.",
        "07_training",
        "6. One update",
        ("update",),
        high=0.001,
    ),
    Check(
        measures.rates,
        "of the planned learning rate, the error in five updates",
        "The schedule is another than the plan; count updates from 1.",
        "07_training",
        "4. The learning rate (§5.3)",
        ("plan",),
        high=0.001,
    ),
    Check(
        measures.learns,
        "tokens wrong of words learned by heart",
        "It cannot even learn one batch by heart: if nothing above is wrong, try another learning rate.",
        "07_training",
        "7. First check: eight sentences by heart",
    ),
    Check(
        measures.writes,
        "words written wrong, of those learned by heart",
        "In writing the model does not do what it did in training: future, shift, positions, cache, mode.",
        "05_decoder",
        "1. A loss of zero, and not one word",
        ("write",),
    ),
    Check(
        measures.reads_back,
        "positions that differ when it reads what it wrote",
        "Writing computes another function: dropout is on, the cache or its positions are off, the reference is shown.",
        "05_decoder",
        "6. A cache of keys and values",
        ("write",),
    ),
    Check(
        measures.strangers,
        "examples are both for training and for the test",
        "Split first; then build anything.",
        "07_training",
        "1. From text to pieces (§5.1)",
        ("words",),
    ),
    Check(
        parity,
        "tensors differ from ours, with the same weights",
        "Up to there both models compute the same; look at this part.",
        "09_whole_transformer",
        "Second rung: the same weights, the same logits",
        ("like",),
    ),
)


class Finding(NamedTuple):
    """What a check found: mark is ✓, ✗ or, where nothing was examined, –."""

    check: Check
    mark: str
    found: str

    def __str__(self) -> str:
        line = f"{self.mark} {self.check.name:16}{self.found}"
        if self.mark != "✗" or self.found.startswith("raised"):
            return line
        return f"{line}\n    {self.check.meaning}\n    Taught in {self.check.taught}, “{self.check.section}”."


class Report(tuple[Finding, ...]):
    """All findings, in order; printed, or shown by a notebook, it is a page to read."""

    @property
    def failed(self) -> list[str]:
        """Names of the checks that found something."""
        return [finding.check.name for finding in self if finding.mark == "✗"]

    @property
    def summary(self) -> str:
        """What was not examined, by the reason, and how many checks found something."""
        reasons: dict[str, list[str]] = defaultdict(list)
        for finding in self:
            if finding.mark == "–":
                reasons[finding.found].append(finding.check.name)
        lines = [f"– {', '.join(names)}: {reason}" for reason, names in reasons.items()]
        made = sum(finding.mark != "–" for finding in self)
        return "\n".join([*lines, "", f"{len(self.failed)} of {made} checks found something."])

    def __str__(self) -> str:
        return "\n".join([*(str(finding) for finding in self if finding.mark != "–"), self.summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self), quote=False)}</pre>"


def examine(
    model: Any,
    *,
    checks: Sequence[Check] = CHECKS,
    told: Callable[[Finding], object] = lambda finding: None,
    **parts: Any,
) -> Report:
    """Examine a model, an encoder–decoder or a language model, with every check that its recipe allows.

    Args:
        model: an `nn.Module` class or a function that makes one, with random weights; or a `Recipe`.
        checks: those to make; your own may be among them.
        told: is told each finding as soon as it is there.
        parts: what else the recipe has: logits, pad, bos, eos, loss, optimizer, update, plan, write, words, like, …

    Raises:
        ValueError: it makes no model, a part is none, or the model cannot be called; says what is missing.
    """
    findings: list[Finding] = []
    with in_64_bits(), torch.random.fork_rng(devices=[]):
        recipe = make_recipe(model, **parts)
        for check in checks:
            if {finding.check.name for finding in findings if finding.mark == "✗"} & {"finite", "steady"}:
                findings.append(Finding(check, "–", "nothing else can be believed yet"))
            else:
                findings.append(_find(recipe, check))
            told(findings[-1])
    return Report(findings)


def _find(recipe: Recipe, check: Check) -> Finding:
    """Make one check; what a model raises on the way is a finding."""
    for part in check.needs:
        if part == "source" and recipe.kind == "language model":
            return Finding(check, "–", "a language model has no source")
        if part != "source" and getattr(recipe, part) is None:
            return Finding(check, "–", f"not examined, give {part}=…" if part != "pad" else "there is no padding")
    try:
        measured: Any = check.measure(recipe)
    except NotExamined as reason:
        return Finding(check, "–", str(reason))
    except Exception as error:  # whatever a stranger's code raises
        return Finding(check, "✗", f"raised {said(error)}")
    if isinstance(measured, list):
        measured = len(measured), ", ".join(measured[:2]) + (", …" if len(measured) > 2 else "")
    number, words = measured if isinstance(measured, tuple) else (measured, "")
    sound = check.low <= number <= check.high
    return Finding(
        check, "✓" if sound else "✗", f"{number:.3g} {check.unit}{_limits(check, sound)}{words and f': {words}'}"
    )


def _limits(check: Check, sound: bool) -> str:
    if sound:
        return ""
    if check.high == INFINITE:
        return f" (should be {check.low:g} at least)"
    return f" (should be {check.low:g}{f' to {check.high:.3g}' if check.high > check.low else ''})"


def command(args: argparse.Namespace) -> int:
    """Examine what the command line names, and print each finding as soon as it is there; return 1 if one is bad."""
    if not args.texts:
        raise ValueError("the model is missing: give FILE.py:NAME, of a class or a function that makes a model.")
    report = examine(load(args.texts[0]), told=lambda finding: finding.mark != "–" and print(finding, flush=True))
    print(report.summary)
    return 1 if report.failed else 0
