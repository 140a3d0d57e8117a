"""What the notebooks check, draw and look at with: `from annotated_course import check, claim, show`."""

from importlib import import_module
from typing import Any

# Each name is imported when it is first asked for: a check needs no matplotlib, and no start waits for it.
HOMES = {
    "attention_view": ("view_attention",),
    "bars": ("progress_bar",),
    "claims": ("claim", "more_checks"),
    "drawings": ("Node", "describe_tree", "plot_dials", "plot_plane", "plot_tree"),
    "exercises": ("check", "progress"),
    "chapters.c07_training.exercises": ("RATE_FAULTS", "logged_rates"),
    "chapters.c08_decoding.exercises": ("random_table",),
    "chapters.c09_whole_transformer.exercises": ("suspects",),
    "chapters.c19_debugging.exercises": ("patients",),
    "exercises.exercise": ("LargestTensor",),
    "grids": ("Grid", "describe", "plot_matrices"),
    "play": ("play_with",),
    "plotting": ("Arrow", "Box", "glossed", "plot_attention", "plot_dataflow", "plot_lines", "show"),
    "tracing": ("plot_trace", "trace"),
}
HOME = {name: module for module, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name from its file."""
    if name not in HOME:
        raise AttributeError(f"annotated_course has no {name!r}; it has {', '.join(sorted(HOME))}.")
    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)
