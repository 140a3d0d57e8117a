"""A progress bar for a cell that trains: it is gone when the cell is done, so that saved outputs keep nothing of it."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from annotated_workbench.extras import load

Item = TypeVar("Item")


def progress_bar(items: Iterable[Item], total: int, label: str = "update") -> Iterator[Item]:
    """Pass the items on; in a notebook, show meanwhile how many of the total have been asked for, and the time left."""
    if load("IPython").get_ipython() is None:
        yield from items
        return
    nothing = {"text/plain": ""}
    began = shown = time.monotonic()
    handle = load("IPython.display").display(nothing, raw=True, display_id=True)
    try:
        for count, item in enumerate(items):
            now = time.monotonic()
            if count and now - shown > 0.5:
                shown, left = now, (now - began) / count * (total - count)
                text = f"{label} {count:,} of {total:,}, about {left:.0f} s left"
                bar = f'<progress max="{total}" value="{count}" aria-label="{text}"></progress> {text}'
                handle.update(nothing | {"text/html": bar}, raw=True)
            yield item
    finally:
        handle.update(nothing, raw=True)
