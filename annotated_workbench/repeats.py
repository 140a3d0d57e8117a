"""Runs of one setting with several seeds, and whether another setting's differ by more than chance."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from annotated_workbench.checkpoint import CONFIG
from annotated_workbench.run_folder import METRICS


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Read what a run has noted of each epoch: nothing, where there is none."""
    content = (run / METRICS).read_text(encoding="utf-8") if (run / METRICS).exists() else ""
    return [json.loads(line) for line in content.splitlines()]


def has_ended(metrics: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> bool:
    """Tell whether a run has had its minutes, or its epochs."""
    minutes, epochs = settings["max_minutes"] or math.inf, settings["epochs"] or 0
    return bool(metrics and (metrics[-1]["minutes"] >= minutes or metrics[-1]["epoch"] >= epochs))


def read_repeats(home: str | Path, run: Path, score: str) -> dict[str, list[float]]:
    """Read the last `score` of each run in a folder that has ended, by its setting: all but the seed.

    The setting of `run` comes first and is called "now", any other by what it had instead. Runs that were validated on
    other texts (by the sum `held_out` in their settings) tell nothing about it, and are left out.
    """

    def setting(folder: Path) -> dict[str, Any]:
        note = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return {name: value for name, value in (note["model"] | note["settings"]).items() if name != "seed"}

    now = setting(run)
    found: dict[str, list[float]] = {"now": []}
    for folder in sorted(path.parent for path in Path(home).glob(f"run-*/{CONFIG}")):
        other, metrics = setting(folder), read_metrics(folder)
        if other["held_out"] == now["held_out"] and has_ended(metrics, other):
            instead = [f"{name} {str(value)[:8]}" for name, value in other.items() if value != now.get(name)]
            found.setdefault(", ".join(instead) or "now", []).append(metrics[-1][score])
    return found


def compare(repeats: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Say by how much the first setting's mean exceeds each other's, and how far chance may take such a change.

    By the law of chapter 12: s is pooled over the runs of all settings, a change has a standard error of
    s √(1/m + 1/n), and is significant beyond Student's limit for the spare runs, at 5 % in all comparisons together
    (Bonferroni). A setting of a single run is left out; of fewer than two settings nothing can be said.
    """
    several = {name: torch.tensor(runs, dtype=torch.float64) for name, runs in repeats.items() if len(runs) > 1}
    first = next(iter(repeats))
    if first not in several or len(several) < 2:
        return {}
    spare = sum(len(runs) - 1 for runs in several.values())
    s = math.sqrt(sum(float((runs - runs.mean()).square().sum()) for runs in several.values()) / spare)
    ours = several.pop(first)
    limit = students_limit(spare, len(several)) * s
    return {
        name: (float(ours.mean() - runs.mean()), limit * math.sqrt(1 / len(ours) + 1 / len(runs)))
        for name, runs in several.items()
    }


def verdicts(repeats: Mapping[str, Sequence[float]], *, lower_is_better: bool = False) -> str:
    """Say by `compare` whether the first setting's runs are better than each other's, or what is missing to tell."""
    said = [
        f"now is {'better' if (change < 0) == lower_is_better else 'worse'} than {name}"
        if abs(change) > limit
        else f"now and {name}: can't tell"
        for name, (change, limit) in compare(repeats).items()
    ]
    have = "; ".join(f"{name}: {len(runs)}" for name, runs in repeats.items())
    missing = "nothing to compare yet: it takes two runs of each of two settings, better three. Runs so far:"
    return "; ".join(said) or f"○ {missing} {have}"


@cache
def students_limit(spare: int, looks: int = 1) -> float:
    """Compute how many standard errors chance exceeds in 5 of 100 studies with so many looks and spare runs."""
    x = torch.linspace(0, 1000, 200_001, dtype=torch.float64)
    density = (1 + x**2 / spare) ** (-(spare + 1) / 2)
    return float(x[torch.searchsorted(density.cumsum(0) / density.sum(), 1 - 0.05 / looks)])


def middle_95(values: Iterable[float]) -> tuple[float, float]:
    """Give the ends of the middle 95 of 100 values."""
    ordered = sorted(values)
    cut = len(ordered) // 40
    return ordered[cut], ordered[-1 - cut]
