"""The doctor: examine a model that you built yourself.

    python -m annotated doctor my_model.py:MyTransformer

or, in Python, `examine(MyTransformer)`. The checks are those of chapter 19, the bug clinic.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import Any, NamedTuple

import torch

from annotated_course.doctor import checks as measures
from annotated_course.doctor import structure, training, writing
from annotated_course.doctor.checks import Check, Differs, NotExamined
from annotated_course.doctor.parity import parity
from annotated_course.doctor.recipe import Recipe, loaded, make_recipe, said

__all__ = ["CHECKS", "Check", "Finding", "Recipe", "Report", "examine", "parity", "structure", "training", "writing"]
CHECKS = tuple(measures.CHECKS)


class Finding(NamedTuple):
    """What came out of a check: `result` says what was measured, and mark is

    ✓ as it should be; ✗ not so; ~ noted: it departs from the paper, or hurts rarely, and may be meant; – not examined.
    """

    check: Check
    mark: str
    result: str

    def __str__(self) -> str:
        line = f"{self.mark} {self.check.name:16}{self.result}"
        if self.mark not in "✗~" or self.result.startswith("raised"):
            return line
        return f"{line}\n    {self.check.meaning}\n    Taught in {self.check.taught}, “{self.check.section}”."


class Report(tuple[Finding, ...]):
    """All findings, in order; printed, or shown by a notebook, it is a page to read."""

    recognised = ""  # what the doctor found out about the model by itself

    @property
    def failed(self) -> list[str]:
        """Names of the checks that found something."""
        return [finding.check.name for finding in self if finding.mark == "✗"]

    @property
    def noted(self) -> list[str]:
        """Names of the checks that noted what may be meant so."""
        return [finding.check.name for finding in self if finding.mark == "~"]

    @property
    def summary(self) -> str:
        """What was not examined, by the reason, and how many checks found something."""
        reasons: dict[str, list[str]] = defaultdict(list)
        made = [finding for finding in self if finding.mark != "–"]
        for finding in (finding for finding in self if finding.mark == "–"):
            reasons[finding.result].append(finding.check.name)
        lines = [f"– {', '.join(names)}: {reason}" for reason, names in reasons.items()]
        lines += [f"– {self.recognised}"] if self.recognised else []
        noted = f" Noted, and perhaps meant so (~): {', '.join(self.noted)}." if self.noted else ""
        inside = [finding.check.name for finding in self if finding.mark == "✗" and finding.check.looks_inside]
        first = f" Look first at {inside[0]}: it looks inside." if 0 < len(inside) < len(self.failed) else ""
        return "\n".join([*lines, "", f"{len(self.failed)} of {len(made)} checks found something.{first}{noted}"])

    def __repr__(self) -> str:
        return "\n".join([*(str(finding) for finding in self if finding.mark != "–"), self.summary])


def examine(
    model: Any,
    *,
    checks: Sequence[Check] = CHECKS,
    told: Callable[[Finding], object] = lambda finding: None,
    **parts: Any,
) -> Report:
    """Examine a model, an encoder–decoder, a language model or an encoder, with every check that its recipe allows.

    New tensors hold numbers of 64 bits meanwhile, those too that a model makes while it is called.

    Args:
        model: an `nn.Module` class or a function that makes one, with random weights; or a `Recipe`.
        checks: those to make; your own may be among them.
        told: is told each finding as soon as it is there.
        parts: what else the recipe has: logits, pad, bos, eos, loss, optimizer, update, plan, write, words, like, …

    Raises:
        ValueError: it makes no model, a part is none, or the model cannot be called; says what is missing.
    """
    findings, raised = list[Finding](), set[str]()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]), ExitStack() as modes:
            recipe = make_recipe(model, **parts)
            torch.set_default_dtype(recipe.dtype)
            measures.recognise(recipe)
            if recipe.views:
                modes.enter_context(measures.Views())
            for check in checks:
                if {"finite", "steady"} & {*Report(findings).failed}:
                    findings.append(Finding(check, "–", "nothing else can be believed yet"))
                else:
                    found = _examined(recipe, check)
                    if found.result.startswith("raised") and found.result in raised:  # one fault, told once
                        found = Finding(check, "–", f"this, too, {found.result}")
                    raised.add(found.result)
                    findings.append(found)
                told(findings[-1])
    finally:
        torch.set_default_dtype(default)
    report = Report(findings)
    report.recognised = recipe.recognised
    return report


def _examined(recipe: Recipe, check: Check) -> Finding:
    """Make one check; what a model raises on the way is a finding."""
    for part in check.needs:
        if part == "source" and recipe.kind != "encoder-decoder":
            return Finding(check, "–", "there is no source beside the text")
        if part != "source" and getattr(recipe, part) is None:
            return Finding(check, "–", f"not examined, give {part}=…" if part != "pad" else "there is no padding")
    try:
        with redirect_stdout(None):  # a model's own words
            measured: Any = check.measure(recipe)
    except NotExamined as reason:
        return Finding(check, "–", str(reason))
    except Differs as difference:
        return Finding(check, "~", str(difference))
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        return Finding(check, "✗", f"raised {said(error)}")
    if isinstance(measured, list):
        measured = len(measured), ", ".join(measured[:2]) + (", …" if len(measured) > 2 else "")
    number, words = measured if isinstance(measured, tuple) else (measured, "")
    line = f"{number:.3g} {check.unit}"
    sound = check.low <= number <= check.high
    if not sound:
        upper = f" to {check.high:.3g}" if check.high > check.low else ""
        line += f" (should be {check.low:g}{' at least' if check.high == math.inf else upper})"
    return Finding(check, "✓" if sound else "✗", f"{line}: {words}" if words else line)


def command(args: argparse.Namespace) -> int:
    """Examine what the command line names, and print each finding as soon as it is there; return 1 if one is bad."""
    with loaded(args.model) as model:
        report = examine(model, told=lambda finding: finding.mark != "–" and print(finding, flush=True))
    print(report.summary)
    return 1 if report.failed else 0
