"""Where do the minutes of `make test` go? Run each file of it alone, and list its core-seconds: `make timing`.

    python -m tools.timing [FILE …] [--figures data/results/bench.json]

A file is one of the tests, a lesson or a solution; all of them unless some are named. Core-seconds are those of the
processor, over all processes that a file starts; they include some five seconds in which pytest and torch load.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from annotated_workbench.files import write_whole
from tools.sync import ROOT, notebook_paths


def main() -> int:
    """Print a line for each file as it ends, then the table, the slowest first; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="tests and notebooks; all unless given")
    parser.add_argument("--figures", type=Path, help="a file of figures of machines, which is to keep these seconds")
    given = parser.parse_args()
    everything = [*sorted((ROOT / "tests").glob("test_*.py")), *notebook_paths()]
    figures = json.loads(given.figures.read_text(encoding="utf-8")) if given.figures else {}
    rows, seconds = [], {}
    for path in given.files or everything:
        verdict, core, wall = run(path)
        seconds[path.stem] = round(core, 1)
        rows.append((core, f"{path.stem:32}{core:8.1f}{wall:8.1f}  {verdict}"))
        print(rows[-1][1], file=sys.stderr, flush=True)
    print(f"{'':32}{'core-s':>8}{'s':>8}")
    print("\n".join(line for _, line in sorted(rows, reverse=True)))
    print(f"{'all':32}{sum(core for core, _ in rows):8.1f}")
    if given.figures:
        figures["lessons"] = dict(sorted((figures.get("lessons", {}) | seconds).items()))
        write_whole(given.figures, (json.dumps(figures, indent=1) + "\n").encode())
    return int(any(not line.endswith("passed") for _, line in rows))


def run(path: Path) -> tuple[str, float, float]:
    """Run one file as `make test` does; return its verdict, its core-seconds and the seconds by the clock."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--nbval", str(path)]
    one_thread = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | one_thread, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    verdict = "passed" if status == 0 else "FAILED"
    return verdict, used.ru_utime + used.ru_stime, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
