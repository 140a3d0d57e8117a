"""Is the course the same on every machine? Notebooks and tests on imitated processors, on both torch versions.

    python -m experiments.machines data/results/machines.jsonl [--only 03 04] [--machines plain AVX2]

On every machine of MACHINES each notebook is compared with its saved outputs, strictly, and the unit tests run. Noise
disturbs the notebooks that train something; where no weight is updated it changes nothing, and the tests compare single
updates with what they should be. A machine that would be this one over again is left out: "no AMX" where there is none,
"AVX2" where there is nothing newer. Every run adds a line to the file. A run whose line is still true (same processor;
the same tests and module, or notebook and modules behind it) is not repeated: stop and start again as you like. A green
line that is no longer true stays until its run is repeated. About three hours for everything on two cores. At the end
the table is printed from what is there, and written beside the file (`machines.txt`). The exit status is 0 only if on
this processor all of it is there, true and green.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from annotated_course import HOME
from annotated_course.bench import processor
from annotated_workbench.files import write_whole
from experiments.planted_bugs import ABOUT_THE_REPOSITORY
from tools.sync import PACKAGES, ROOT, notebook_paths

TESTS = "tests"
STACKS = {"": ".venv", "TORCH=2.13.0": ".venv-torch-2.13.0"}  # what `make env` is told, and where it then sets up
NOTHING_RUNS_ON = b"\n# The site"  # the last part of requirements.txt
LIMIT = 1800  # seconds for one run
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


class Run(NamedTuple):
    """What to run (a notebook's path in the project, or TESTS), on which machine, with which environment's Python."""

    what: str
    machine: str
    python: Path


def main() -> int:
    """Do the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="a line of JSON for each run")
    parser.add_argument("--only", nargs="+", default=[""], help="what to run: parts of notebooks' paths, or tests")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=machines_here(), metavar="MACHINE")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side, one thread each")
    args = parser.parse_args()
    stacks = [environment(argument, folder) for argument, folder in STACKS.items()]
    contents = {what: digest(what) for what in [TESTS, *(p.relative_to(ROOT).as_posix() for p in notebook_paths())]}
    training = {what for what in contents if trains(what)}
    lines = [line for line in read(args.results) if line["what"] in contents]
    lines = [line for line in lines if not line["failed"] or line["digest"] == contents[line["what"]]]
    done = true_here(lines, contents)
    wanted = [
        (Run(what, machine, python), about)
        for python, about in stacks
        for machine in dict.fromkeys([*machines_here(), *args.machines])
        for what in contents
        if what in training or not machine.startswith("noise")
    ]
    missing = [
        (run, about)
        for run, about in wanted
        if any(part in run.what for part in args.only)
        and run.machine in args.machines
        and (run.what, run.machine, about["torch"]) not in done
    ]
    print(f"{len(done)} runs are done, {len(missing)} are missing.", file=sys.stderr, flush=True)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    write_lines(args.results, lines)
    with ThreadPoolExecutor(args.processes) as pool, args.results.open("a", encoding="utf-8") as file:
        futures = {pool.submit(execute, run): (run, about) for run, about in missing}
        for count, future in enumerate(as_completed(futures), 1):
            run, about = futures[future]
            line = {"what": run.what, "machine": run.machine, **about, **future.result(), "digest": contents[run.what]}
            print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
            lines.append(line)
            verdict = ", ".join(line["failed"]) or "green"
            where = f"{run.machine}, torch {about['torch']}: {run.what}"
            print(f"{count} of {len(missing)}, {where}: {verdict}, {line['seconds']} s", file=sys.stderr, flush=True)
    newest = {tuple(line[key] for key in ("processor", "torch", "what", "machine")): line for line in lines}
    lines = [line for _, line in sorted(newest.items(), key=lambda item: item[0][:3])]
    write_lines(args.results, lines)
    text = "\n".join(table(lines, contents, training))
    write_whole(args.results.with_suffix(".txt"), text.encode() + b"\n")
    print(text)
    green = true_here([line for line in lines if not line["failed"]], contents)
    return int(any((run.what, run.machine, about["torch"]) not in green for run, about in wanted))


def true_here(lines: Iterable[dict[str, Any]], contents: Mapping[str, str]) -> set[tuple[str, str, str]]:
    """Give what was run, machine and torch of the lines that are of this processor and of what is there now."""
    return {
        (line["what"], line["machine"], line["torch"])
        for line in lines
        if line["processor"] == processor() and line["digest"] == contents[line["what"]]
    }


def machines_here() -> list[str]:
    """Name the machines that differ from this one, and this one."""
    flags = Path("/proc/cpuinfo").read_text("utf-8").split() if Path("/proc/cpuinfo").exists() else []
    same = {machine for machine, flag in (("no AMX", "amx_bf16"), ("AVX2", "avx512f")) if flag not in flags}
    return [machine for machine in MACHINES if machine not in same]


def environment(argument: str, folder: str) -> tuple[Path, dict[str, str]]:
    """Set up one of the two environments; return its Python, and what a line says of it."""
    subprocess.run(["make", "env", *argument.split()], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    python = ROOT / folder / "bin" / "python"
    code = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('torch'))"
    python_version, torch = subprocess.check_output([python, "-c", code], text=True).split()
    date = time.strftime("%Y-%m-%d")
    return python, {"torch": torch, "python": python_version, "processor": processor(), "date": date}


def digest(what: str) -> str:
    """Digest all that a run's outcome depends on: the tests, or a notebook's code and outputs; modules and pins."""
    content = hashlib.sha256()
    files = {ROOT / "requirements.txt", *ROUNDING.glob("*.py")}
    if what == TESTS:
        files |= {path for folder in (*PACKAGES, TESTS) for path in (ROOT / folder).rglob("*.py")}
    else:
        cells = json.loads((ROOT / what).read_text(encoding="utf-8"))["cells"]
        cells = [cell for cell in cells if cell["cell_type"] == "code"]
        content.update(json.dumps([(cell["source"], cell["outputs"]) for cell in cells]).encode())
        lines = [line for cell in cells for line in [*cell["source"], "\n"] if not line.startswith("%")]
        files |= modules_behind("".join(lines), Path(what).name[:2])
    for path in sorted(files):
        content.update(path.read_bytes().split(NOTHING_RUNS_ON)[0])
    return content.hexdigest()[:16]


def modules_behind(code: str, chapter: str) -> set[Path]:
    """Find the module's files that a notebook's code imports, directly or through others, and its exercises.

    Args:
        code: the notebook's code.
        chapter: its number; of the exercises, which are imported all together, its own count.
    """
    found: set[Path] = set()
    waiting = [f"{code}\nimport annotated_course.exercises.chapter_{chapter}"]
    while waiting:
        names: set[str] = set()
        for node in ast.walk(ast.parse(waiting.pop())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # What is imported from `annotated_course` itself lives in the file that its table names.
                homes = HOME if node.module == "annotated_course" else {}
                parts = (homes.get(alias.name, alias.name) for alias in node.names)
                names |= {f"{node.module}", *(f"{node.module}.{part}" for part in parts)}
        for name in names:
            path = ROOT.joinpath(*name.split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if name.split(".")[0] in PACKAGES and file.is_file() and file not in found:
                    found.add(file)
                    waiting.append(file.read_text(encoding="utf-8"))
    return found


def trains(what: str) -> bool:
    """Tell whether a notebook updates weights by an optimizer: its own, or the course's."""
    return what != TESTS and bool(
        re.search(r"\.step\(|(?<!\.)\btrain\(|train_step\(|\bupdate\(", (ROOT / what).read_text("utf-8"))
    )


def execute(run: Run) -> dict[str, Any]:
    """Run a notebook or the tests; return what failed (numbers of code cells, from 0, or names) and the seconds."""
    began = time.perf_counter()
    settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"} | MACHINES[run.machine]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [run.python, "-m", "pytest", "-p", "no:xdist", f"--junitxml={report}", run.what]
        command += (
            [f"--ignore=tests/test_{name}.py" for name in ABOUT_THE_REPOSITORY] if run.what == TESTS else ["--nbval"]
        )
        try:
            result = subprocess.run(
                command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=LIMIT
            )
            failed = failures(report) if result.returncode in (0, 1) else [f"exit status {result.returncode}"]
            if failed:
                print(result.stdout, file=sys.stderr)
        except subprocess.TimeoutExpired:
            failed = [f"over {LIMIT} s"]
    return {"failed": failed, "seconds": round(time.perf_counter() - began)}


def failures(report: Path) -> list[str]:
    """Name the tests that a JUnit report calls failed: a notebook's cells by their numbers."""
    cases = ElementTree.parse(report).iter("testcase")
    names = [case.get("name", "") for case in cases if {"failure", "error"} & {child.tag for child in case}]
    return [name.removeprefix("Cell ") for name in names]


def read(results: Path) -> list[dict[str, Any]]:
    """Read the lines of the runs done so far."""
    return [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []


def write_lines(results: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write the lines, whole or not at all."""
    write_whole(results, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def table(lines: list[dict[str, Any]], contents: Mapping[str, str], training: Collection[str]) -> list[str]:
    """Lay the runs out, a table for each processor and torch.

    "·" is green, "∘" was green before a later change, a number is a failing cell, "?" a run that is missing, "–" noise
    where nothing is trained.
    """
    text = []
    names = machines_here()
    for stack in sorted({(line["processor"], line["torch"], line["python"]) for line in lines}):
        processor, torch, python = stack
        mine = [line for line in lines if (line["processor"], line["torch"], line["python"]) == stack]
        columns = [m for m in MACHINES if m in names or any(line["machine"] == m for line in mine)]
        cells = {
            (row, m): "–" if m.startswith("noise") and row not in training else "?" for row in contents for m in columns
        }
        for line in mine:
            green = "·" if line["digest"] == contents[line["what"]] else "∘"
            cells[line["what"], line["machine"]] = " ".join(line["failed"]) or green
        days = sorted({line["date"] for line in mine})
        text += ["", f"{processor}, torch {torch}, Python {python}, {' to '.join(sorted({days[0], days[-1]}))}", ""]
        widths = [max(len(machine), *(len(cells[row, machine]) for row in contents)) for machine in columns]
        for name, values in [
            ("", columns),
            *((row, [cells[row, m] for m in columns]) for row in contents),
        ]:
            name = name.removeprefix("notebooks/").removesuffix(".ipynb")
            text.append(f"{name:34}" + "  ".join(f"{v:>{w}}" for v, w in zip(values, widths, strict=True)))
        failing = sum(len(line["failed"]) for line in mine)
        minutes = sum(line["seconds"] for line in mine) / 60
        text += ["", f"{len(mine)} runs, {failing} failing cells and tests, {minutes:.0f} minutes of one core"]
    return text[1:]


if __name__ == "__main__":
    sys.exit(main())
