"""Where in a reader's own code an error comes from."""

import os
import sysconfig
import traceback
from pathlib import Path

# Where the code is that readers did not write: Python's, the packages', the course's own.
NOT_THE_READERS = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(Path(__file__).parents[1] / name for name in ("annotated", "annotated_course", "annotated_workbench")),
    )
)


def own_line(error: BaseException) -> traceback.FrameSummary | None:
    """Find the innermost of the reader's own lines on the way to an error, if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not frame.filename.startswith(NOT_THE_READERS):
            return frame
    return None
