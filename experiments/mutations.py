"""Which small changes of the module does no test notice? cosmic-ray makes them in a copy, and runs the file's tests.

    python -m experiments.mutations build/mutations [--only attention fast/training] [--sample 10] [--seed 0]

The paper's ten files and the fast form. The folder keeps a copy of the project and a session a file: what has a verdict
is not tried again. The table counts what was killed; `cr-report FOLDER/FILE.sqlite --show-diff` shows a survivor.
"""

import argparse
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

from experiments.planted_bugs import OF_ALL, TESTS, copy_project
from tools.sync import ROOT

FILES = [path.stem for path in sorted(ROOT.glob("annotated/[a-z]*.py"))]
FILES += [f"fast/{path.stem}" for path in sorted(ROOT.glob("annotated/fast/[a-z]*.py"))]
CONFIG = """[cosmic-ray]
module-path = "annotated/{file}.py"
timeout = 120.0
test-command = "{python} -m pytest -q -x -p no:xdist -p no:randomly {tests}"
excluded-modules = []

[cosmic-ray.distributor]
name = "local"
"""


def main() -> int:
    """Try the mutants that have no verdict yet, and print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="of the copy and the verdicts")
    parser.add_argument("--only", nargs="+", choices=FILES, default=FILES, metavar="FILE")
    parser.add_argument("--sample", type=int, help="mutants of each file; all unless given")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    args = parser.parse_args()
    project = args.folder.resolve() / "project"
    if not project.exists():
        copy_project(project)
    survivors = 0
    for file in args.only:
        verdicts = mutate(project, file, args.sample, args.seed)
        survivors += verdicts[TestOutcome.SURVIVED]
        killed, survived = (verdicts[outcome] for outcome in (TestOutcome.KILLED, TestOutcome.SURVIVED))
        print(f"{file:24} {killed:4} killed, {survived:3} survived", flush=True)
    return int(survivors > 0)


def mutate(project: Path, file: str, sample: int | None, seed: int) -> Counter[TestOutcome]:
    """Try a file's mutants in the copy of the project; count the verdicts.

    Raises:
        CalledProcessError: the tests fail without a change.
    """
    session, config = (project.parent / f"{file.replace('/', '_')}.{ending}" for ending in ("sqlite", "toml"))
    names = [*(["fast_*"] if file.startswith("fast/") else [TESTS.get(file, file), "transformer"]), *OF_ALL]
    tests = " ".join(str(path.relative_to(project)) for name in names for path in project.glob(f"tests/test_{name}.py"))
    config.write_text(CONFIG.format(file=file, python=sys.executable, tests=tests), encoding="utf-8")

    def run(command: str, *arguments: Path) -> None:
        subprocess.run([sys.executable, "-m", "cosmic_ray.cli", command, *arguments], cwd=project, check=True)

    if not session.exists():
        run("init", config, session)
        run("baseline", config)
    with use_db(str(session), WorkDB.Mode.open) as database:
        items = sorted(database.work_items, key=lambda item: str(item.mutations))
        random.Random(seed).shuffle(items)  # sorted first: the engine numbers them at random
        left_out = {item.job_id for item in items[sample:]} if sample else set()
        database.set_multiple_results(list(left_out), WorkResult(WorkerOutcome.SKIPPED))
    run("exec", config, session)
    with use_db(str(session), WorkDB.Mode.open) as database:
        return Counter(result.test_outcome for _, result in database.results)


if __name__ == "__main__":
    sys.exit(main())
