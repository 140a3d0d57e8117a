"""Run the course from end to end, whatever the machine: `make run`, or `python -m tools.run`.

Executes every lesson, as many at once as there are cores, four at most, trains chapter 07's model, and
translates. A cell that fails or prints something else than was saved is shown, and the course goes on. The exit
status is 0 if all was as saved, 1 if something differed, 2 if training or translating failed.
"""

import os
import subprocess
import sys

from annotated_course.own_model import TRAINING
from annotated_workbench.files import emptied
from tools.sync import ROOT

MODEL = "build/grammar"
AT_ONCE = min(os.cpu_count() or 1, 4)  # each takes about a gigabyte
NOTEBOOKS = f"""pytest --nbval -q --tb=short -n {AT_ONCE} --dist loadfile --no-loadscope-reorder
    --nbval-cell-timeout=3600 --ignore notebooks/solutions notebooks""".split()
# A fixed number of updates, so that a slow machine's model is as good as a fast one's.
TRAIN = ["annotated", *TRAINING.split(), "--out", MODEL]
EVALUATE = f"annotated evaluate {MODEL} --corpus grammar --split test --show 5".split()


def main() -> int:
    """Run everything; return the exit status."""
    differs = run(NOTEBOOKS, OMP_NUM_THREADS="1")
    emptied(ROOT / MODEL)
    if run(TRAIN) or run(EVALUATE):
        return 2
    end = "not all is as saved: see above" if differs else "all notebooks printed what they have saved"
    print(f"\nThe course ran to its end, and {end}.")
    return int(bool(differs))


def run(arguments: list[str], **environment: str) -> int:
    """Run a module as a command, which is said before, and return its exit status."""
    print("\npython -m", *arguments, flush=True)
    return subprocess.call([sys.executable, "-m", *arguments], cwd=ROOT, env=os.environ | environment)


if __name__ == "__main__":
    sys.exit(main())
