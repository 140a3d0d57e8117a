"""Is the course the same on every machine? Notebooks and tests on imitated processors, on both torch versions.

    python -m experiments.machines build/machines.jsonl [--only 03 tests] [--machines plain AVX2]

Each notebook is compared with its saved outputs, strictly, and the unit tests run. Every run adds a line to the file,
and a run that has its line of this commit and processor is not repeated. At the end the table is printed that stands
in docs/RESULTS.md; the exit status is 0 if nothing failed. Three hours for everything on two cores.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from annotated_course.bench import processor
from tools.sync import ROOT, notebook_paths

STACKS = {"2.3.1": ".venv", "2.13.0": ".venv-torch-2.13.0"}
ROUNDING = Path(__file__).parent / "rounding"
# What to set for torch (ATEN), the products of MKL and those of oneDNN, so that they compute as they would elsewhere.
# MKL heeds MKL_ENABLE_INSTRUCTIONS on Intel's processors only (others never get more than AVX2), MKL_CBWR on all.
MACHINES = {
    "native": {},
    "no AMX": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "plain": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "two threads": {"OMP_NUM_THREADS": "2"},
} | {f"noise {seed}": {"ANNOTATED_ROUNDING": str(seed), "PYTHONPATH": str(ROUNDING)} for seed in range(1, 5)}
TRAINS = re.compile(r"\.step\(|(?<!\.)\btrain\(|train_step\(|\bupdate\(")  # only there noise changes anything


def main() -> int:
    """Do the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="a line of JSON for each run")
    parser.add_argument("--only", nargs="+", default=[""], help="what to run: parts of notebooks' paths, or tests")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES), metavar="MACHINE")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side, one thread each")
    args = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    here = {"commit": commit, "processor": processor()}
    lines = [json.loads(line) for line in args.results.read_text("utf-8").splitlines()] if args.results.exists() else []
    lines = [line for line in lines if here.items() <= line.items()]
    done = {(line["torch"], line["machine"], line["what"]) for line in lines}
    wanted = [
        run
        for run in product(STACKS, args.machines, what_to_run())
        if run not in done and any(part in run[2] for part in args.only)
        if not run[1].startswith("noise") or (run[2] != "tests" and TRAINS.search((ROOT / run[2]).read_text("utf-8")))
    ]
    print(f"{len(done)} runs are done, {len(wanted)} are missing.", file=sys.stderr, flush=True)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.processes) as pool, args.results.open("a", encoding="utf-8") as file:
        runs = {pool.submit(failures, *run): run for run in wanted}
        for future in as_completed(runs):
            torch, machine, what = runs[future]
            line = here | {"torch": torch, "machine": machine, "what": what, "failed": future.result()}
            print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
            print(f"torch {torch}, {machine}: {what}: {', '.join(line['failed']) or 'green'}", file=sys.stderr)
            lines.append(line)
    print("\n".join(table(lines)))
    return int(any(line["failed"] for line in lines))


def what_to_run() -> list[str]:
    """List the tests and all notebooks, as paths in the project."""
    return ["tests", *(path.relative_to(ROOT).as_posix() for path in notebook_paths())]


def failures(torch: str, machine: str, what: str) -> list[str]:
    """Run a notebook or the tests; name what failed: a notebook's cells by their numbers."""
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"} | MACHINES[machine]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [ROOT / STACKS[torch] / "bin" / "python", "-m", "pytest", "-q", f"--junitxml={report}", what]
        command += ["-p", "no:xdist"] + ["--nbval"] * (what != "tests")
        status = subprocess.run(command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.DEVNULL).returncode
        if status not in (0, 1):
            return [f"exit status {status}"]
        cases = ElementTree.parse(report).iter("testcase")
        names = [case.get("name", "") for case in cases if {"failure", "error"} & {child.tag for child in case}]
        return [name.removeprefix("Cell ") for name in names]


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Lay the runs out, a table for each torch: "·" is green, "–" a run that is not there, else what failed."""
    text = []
    for torch in sorted({line["torch"] for line in lines}):
        verdicts = {(x["what"], x["machine"]): " ".join(x["failed"]) or "·" for x in lines if x["torch"] == torch}
        machines = [machine for machine in MACHINES if machine in {machine for _, machine in verdicts}]
        text += [f"torch {torch}", f"{'':44}" + "".join(f"{machine:>13}" for machine in machines)]
        for what in sorted({what for what, _ in verdicts}):
            text.append(f"{what:44}" + "".join(f"{verdicts.get((what, machine), '–'):>13}" for machine in machines))
    return text


if __name__ == "__main__":
    sys.exit(main())
