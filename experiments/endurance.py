"""Does `translate` take a long input in constant memory? Prints what the process holds after each thousand sentences.

    python -m experiments.endurance [RUN] [--sentences 10000] [--beam 4]

Feeds the captions' training sentences to standard input, as a user would with a file. The exit status is 1 if memory
grows by more than a tenth from the second thousand to the last: until then, libraries fill their caches.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from annotated_workbench.data import DATA_FOLDER

GROWTH = 1.1


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", nargs="?", default=str(DATA_FOLDER / "checkpoints" / "de-en"))
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--beam", default="4")
    args = parser.parse_args()
    lines = (DATA_FOLDER / "captions" / "train.de").read_bytes().splitlines(keepends=True)[: args.sentences]
    command = [sys.executable, "-m", "annotated", "translate", args.run, "--beam", args.beam]
    resident = []
    with tempfile.TemporaryFile() as source:
        source.writelines(lines)
        source.seek(0)
        with subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE) as process:
            for number, _ in enumerate(process.stdout, start=1):
                if number % 1000 == 0:
                    resident.append(megabytes(process.pid))
                    print(f"{number:7,} sentences  {resident[-1]:6,.0f} MB", flush=True)
    if process.returncode or number != len(lines):
        print(f"{number} of {len(lines)} sentences were translated, exit status {process.returncode}")
        return 1
    return int(resident[-1] > GROWTH * resident[1])


def megabytes(pid: int) -> float:
    """Read how much memory a process holds now, from Linux's /proc."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
