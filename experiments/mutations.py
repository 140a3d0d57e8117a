"""Which small changes of the module does no test notice? Make them, one at a time, and run the tests they concern.

    python -m experiments.mutations data/results/mutations.jsonl [--only FILE …] [--sample 150] [--seed 0]

A mutant is one place changed in a copy of the module: another comparison, a sign, a number one larger, a condition
negated, a keyword argument dropped, a statement deleted. It is killed if a test fails, or runs far longer than before.
A mutant that lives shows what no test says, unless EXPLAINED tells why nothing can. Every verdict adds a line to the
file; while the mutated file is the same, a kill is not tried again, nor a survivor until its tests change.
"""

import argparse
import ast
import copy
import hashlib
import importlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from experiments.machines import read
from experiments.planted_bugs import copy_project, own_tests
from tools.sync import PACKAGES, ROOT

MORE_TESTS = {  # what runs after a file's own tests, by their name
    "attention": ["multi_head", "transformer"],
    "masking": ["decoder", "transformer"],
    "multi_head": ["decoder", "transformer"],
    "positional_encoding": ["transformer"],
    "encoder": ["transformer"],
    "decoder": ["transformer", "decoding"],
    "transformer": ["training"],
    "decoding": ["fast_decoding", "ensemble"],
    "fast_transformer": ["fast_training", "fast_decoding"],
    "fast_training": ["machines"],
    "fast_decoding": ["ensemble"],
    "metrics": ["reranking"],
    "ensemble": ["recurrence"],
    "recurrence": ["ensemble"],
    "runs": ["runs_numbers", "command_line"],
    "checkpoint": ["runs"],
    "vocabulary": ["bad_input"],
    "command_line": ["bad_input"],
}
LOADED_ONCE = ("beartype", "hypothesis", "jaxtyping", "nbval.plugin", "pytest", "sacrebleu", "safetensors.torch")
LOADED_ONCE += ("tokenizers", "torch._dynamo", "tqdm.auto", "yaml")
OPTIONS = ("-q", "-x", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
MESSAGES = ("description", "help", "metavar", "desc")  # keyword arguments for people alone

# Mutants that change nothing a test can see: a pattern for "file: the line | old → new", and why.
EXPLAINED = [
    (r"\| [^→]*\bdevice=[^→]* → (?!pass|.*\bdevice=)", "matters on a GPU alone"),
    (r"(runs|commands/train).py: print\(.*flush=True", "when a line appears, not whether"),
    (r"vocabulary.py: .*add_special_tokens=False", "the course's tokenizers have none to add"),
    (r"vocabulary.py: .*skip_special_tokens=True", "is the library's default"),
    (r"decoding.py: fast, src_mask, memory, limits, cache = _start\(.* \| 1 → 2", "only sets more room aside"),
    (r"decoding.py: .*best\[sentence\].score < .* → .* <= ", "in a tie the search goes on, and nothing scores higher"),
    (r"decoding.py: .*= candidates.topk\(count, dim=-1\) \| -1 → 1$", "the last of two axes is axis 1"),
    (r"recurrence.py: self.encoder = .*\| .*batch_first=True.* → (?!.*batch_first)", "a packed batch says how it lies"),
]

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, "min": "max", "max": "min",
}  # fmt: skip
OPPOSITE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # as good as a `not` before it


class Mutant(NamedTuple):
    """One change: in `file`, the bytes from `start` to `end`, the text `old` in the line `text`, become `new`."""

    file: str
    line: int
    text: str
    start: int
    end: int
    old: str
    new: str


def mutants(file: str, source: bytes) -> list[Mutant]:
    """List all mutants of a file, in the order of its text.

    Args:
        file: its name.
        source: its content.
    """
    lines, found = source.splitlines(keepends=True), set()
    for node, new in changes(ast.parse(source)):
        start, end = (
            sum(map(len, lines[: line - 1])) + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        )
        old = source[start:end].decode()
        if isinstance(new, ast.expr):
            new = ast.unparse(new) if isinstance(new, ast.Constant | ast.Slice) else f"({ast.unparse(new)})"
        elif isinstance(new, ast.stmt):
            new = ast.unparse(new)
        text = lines[node.lineno - 1].decode().strip()
        found.add(Mutant(file, node.lineno, text, start, end, old, new.replace("{old}", old)))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new))


def changes(node: Any) -> Iterator[tuple[Any, ast.AST | str]]:
    """Pair parts of a syntax tree with what may stand in their place; nothing in messages and annotations.

    Args:
        node: the root.
    """

    def changed(part: Any, **fields: Any) -> Any:
        new = copy.copy(part)
        vars(new).update(fields)
        return new

    if isinstance(node, ast.JoinedStr | ast.Raise):
        return
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                yield node, changed(node, ops=[*node.ops[:i], OTHER[type(op)](), *node.ops[i + 1 :]])
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHER:
            yield node, changed(node, op=OTHER[type(node.op)]())
        case ast.UnaryOp():
            yield node, node.operand
        case ast.Constant(value=bool()):
            yield node, ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield node, ast.Constant(node.value + 1)
        case ast.Call():
            match node.func:
                case ast.Name(id="min" | "max" as name):
                    yield node, changed(node, func=ast.Name(OTHER[name]))
                case ast.Attribute(attr="min" | "max" as name):
                    yield node, changed(node, func=changed(node.func, attr=OTHER[name]))
            for keyword in node.keywords:
                if keyword.arg and keyword.arg not in MESSAGES:
                    yield node, changed(node, keywords=[other for other in node.keywords if other is not keyword])
        case ast.Slice():
            yield from ((node, changed(node, **{bound: None})) for bound in ("lower", "upper") if getattr(node, bound))
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.For(body=[*_, last]) | ast.While(body=[*_, last]):
            if not isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue):
                yield last, "{old}\n" + " " * last.col_offset + "break"
    match node:  # what decides: conditions, and strings that are looked up or compared
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.comprehension(ifs=[test]):
            match test:
                case ast.UnaryOp(op=ast.Not()):
                    pass
                case ast.Compare(ops=[op]) if isinstance(op, OPPOSITE):
                    pass
                case _:
                    yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Subscript(slice=ast.Constant(value=str() as key) as child):
            yield child, ast.Constant("x" + key)
        case ast.Dict(keys=keys) | ast.Compare(comparators=keys):
            strings = [key for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            yield from ((key, ast.Constant("x" + key.value)) for key in strings)
    match node:
        case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changes(child)


def module_files() -> list[str]:
    """List the files to mutate, as paths in the project: all that is not the course's."""
    paths = sorted(path for room in ("annotated", "annotated_workbench") for path in (ROOT / room).rglob("*.py"))
    return [path.relative_to(ROOT).as_posix() for path in paths if path.name != "__init__.py"]


def concerned(file: str) -> list[str]:
    """List the tests to run when a file is mutated, as paths in the project, its own first."""
    name = own_tests(file)
    paths = (f"tests/test_{test}.py" for test in [name, *MORE_TESTS.get(name, [])])
    return [path for path in paths if (ROOT / path).exists()]


def run_tests(project: Path, file: str, limit: float, *, first: bool = False) -> tuple[str, float]:
    """Run the tests that concern a file, in a child of this process, which has torch loaded.

    Args:
        project: a folder that `copy_project` filled.
        file: the file that was mutated.
        limit: seconds by the clock.
        first: keep the compiled code of the unchanged module and of the tests for the runs that follow.

    Returns:
        "survived", "killed" or "timed out", and the seconds of one core that it took.
    """
    end = time.monotonic() + limit
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            os.chdir(project)
            os.environ |= {"PYTHONPATH": str(project), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
            os.environ["PYTHONDONTWRITEBYTECODE"] = "" if first else "1"
            sys.dont_write_bytecode = not first
            sys.path.insert(0, str(project))
            for name in [name for name in sys.modules if name.partition(".")[0] in (*PACKAGES, "tests", "tools")]:
                del sys.modules[name]
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = int(importlib.import_module("pytest").main([*OPTIONS, *concerned(file)]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    verdict = "timed out"
    while time.monotonic() < end:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended:
            verdict = "killed" if ended.si_status else "survived"
            break
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    return verdict, used.ru_utime + used.ru_stime


def place(line: dict[str, Any]) -> str:
    """Say where a mutant is and what it changes, on one line."""
    return re.sub(r"\s+", " ", "{file}:{line}: {old} → {new}".format(**line))


def explanation(line: dict[str, Any]) -> str | None:
    """Say why nothing can tell a mutant from the module, if EXPLAINED does."""
    shown = re.sub(r"\s+", " ", "{file}: {text} | {old} → {new}".format(**line))
    return next((reason for pattern, reason in EXPLAINED if re.search(pattern, shown)), None)


def report(lines: list[dict[str, Any]]) -> list[str]:
    """Lay the verdicts out by file; then list the mutants that live: those no test notices, and those explained."""
    explained = {place(line): explanation(line) for line in lines if line["verdict"] == "survived"}
    verdicts = [
        (line["file"], "explained" if explained.get(place(line)) else line["verdict"].replace("timed out", "late"))
        for line in lines
    ]
    text = [f"{'':24}{'mutants':>9}{'killed':>9}{'timed out':>11}{'explained':>11}{'survived':>10}{'noticed':>9}"]
    for file in [*sorted({line["file"] for line in lines}), "all"]:
        count = Counter(verdict for name, verdict in verdicts if file in (name, "all"))
        noticed = count["killed"] + count["late"]
        share = noticed / max(1, noticed + count["survived"])
        row = f"{count['killed']:>9}{count['late']:>11}{count['explained']:>11}{count['survived']:>10}{share:>9.1%}"
        text.append(f"{file:24}{count.total():>9}{row}")
    text += ["", "No test notices:", *(one for one, reason in explained.items() if not reason)]
    text += ["", "Explained:", *(f"{one}: {reason}" for one, reason in explained.items() if reason)]
    return [
        *text,
        "",
        f"{sum(line['seconds'] for line in lines) / max(1, len(lines)):.1f} seconds of one core a mutant",
    ]


def main() -> int:
    """Try the mutants that have no verdict yet, then print the table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="a line of JSON for each mutant")
    parser.add_argument("--only", nargs="+", help="files, such as annotated/fast/attention.py; all unless given")
    parser.add_argument("--sample", type=int, help="how many mutants to draw; all unless given")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    args = parser.parse_args()
    sources = {name: (ROOT / name).read_bytes() for name in module_files()}
    names = args.only or list(sources)
    found = [mutant for name in names for mutant in mutants(name, sources[name])]
    # Each draws a number of its own: what is in the sample stays in it when other files change.
    found.sort(key=lambda m: random.Random(f"{args.seed} {m.file} {m.text} {m.old} {m.new}").random())
    digests = {
        name: [
            hashlib.sha256(b"".join(contents)).hexdigest()[:16]
            for contents in ([sources[name]], [(ROOT / path).read_bytes() for path in concerned(name)])
        ]
        for name in names
    }
    known = {(line["code"], line["start"], line["new"]): line for line in read(args.results)}
    lines = []
    for mutant in sorted(found[: args.sample]):
        code, tests = digests[mutant.file]
        line = known.get((code, mutant.start, mutant.new), {})
        tried = line and (line["verdict"] != "survived" or line["tests"] == tests)
        lines.append(line if tried else mutant._asdict() | {"code": code, "tests": tests})
    missing = [line for line in lines if "verdict" not in line]
    print(f"{len(lines) - len(missing)} mutants have a verdict, {len(missing)} have none.", file=sys.stderr, flush=True)
    for name in LOADED_ONCE:
        with suppress(ImportError):
            importlib.import_module(name)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, args.results.open("a", encoding="utf-8") as results:
        project, limits = copy_project(Path(folder)), {}
        for count, line in enumerate(missing, start=1):
            file = line["file"]
            if file not in limits:
                verdict, seconds = run_tests(project, file, 1800, first=True)
                if verdict != "survived":
                    raise RuntimeError(f"the tests of {file} fail without a change:\n{(project / 'log').read_text()}")
                limits[file] = 30 + 6 * seconds
            source, path = sources[file], project / file
            path.write_bytes(source[: line["start"]] + line["new"].encode() + source[line["end"] :])
            line["verdict"], line["seconds"] = run_tests(project, file, limits[file])
            path.write_bytes(source)
            print(json.dumps(line, ensure_ascii=False), file=results, flush=True)
            print(f"{count} of {len(missing)}, {place(line)}: {line['verdict']}", file=sys.stderr, flush=True)
    print("\n".join(report(lines)))
    return int(any(line["verdict"] == "survived" and not explanation(line) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
