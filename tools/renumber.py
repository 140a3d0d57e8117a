"""Bring a working copy of the old chapter numbers over to the new ones; `tools.working_copy` asks for it.

Chapter 00 became 10, and 10 to 18 became 11 to 19; `annotated.course` and `annotated.workbench` became packages of
their own. All that changes is written into a folder beside, `DRAFT`, which is renamed to `READY` when it is complete.
Only then do its files take the places of the old ones. Cut off before, the next call begins again; cut off later, it
goes on. What was written in between, or stands where a file is to go, is kept.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from annotated_course import HOME
from annotated_workbench.files import sync_folder, write_whole

NUMBERS = {"00": "10"} | {str(number): str(number + 1) for number in range(10, 19)}
SLUGS = "why_attention evaluation model_variations speed classification generation bert_and_gpt relative_positions"
SLUGS += " beyond_quadratic debugging"
LESSONS = {
    f"{old}_{slug}.ipynb": f"{NUMBERS[old]}_{slug}.ipynb" for old, slug in zip(NUMBERS, SLUGS.split(), strict=True)
}
SOLUTIONS = {f"solutions/{old}_solutions.ipynb": f"solutions/{new}_solutions.ipynb" for old, new in NUMBERS.items()}
NAMES = LESSONS | SOLUTIONS
GIVEN, SOLVED = ".given.json", "solved.txt"
DRAFT, READY, PLAN = ".renumbering", ".renumbered", "plan.json"
MARK = "- the numbers here are those of the chapters 01 to 19"

OLD = "|".join(NUMBERS)
CHECK = re.compile(rf"(\bcheck\(\s*(?:number\s*=\s*)?[\"'])({OLD})(?=\.\d)")
SOLVED_NUMBER = re.compile(rf"^(\s*)({OLD})(?=\.\d)")
IMPORT = re.compile(r"(?<![\w.])from annotated\.course\.[\w.]+ import (\([^()]*\)|(?:\\\n|[^\n#;()])+)")
PACKAGE = re.compile(rf"(?<![\w.])annotated\.(course|workbench)\b(?:(\.exercises\.chapter_)({OLD})\b)?")

Keep = Callable[[Path, Path], Path]  # copies a file into a folder's `kept/`, under a new name there


def renumber(work: Path, keep: Keep) -> list[str]:
    """Bring a working copy over to the new numbers, if it has the old ones.

    Args:
        work: the working copy; need not exist.
        keep: copies a file into the `kept/` of a folder.

    Returns:
        A line that says what was done; none where nothing was.

    Raises:
        OSError: something cannot be read or written. The next call goes on.
        ValueError: the same of something that is no text.
    """
    if not (work / READY).exists():
        record = _record(work)
        if not _is_old(record, {path.name for path in work.glob("*.ipynb")}):
            return []
        if (work / DRAFT).exists():
            shutil.rmtree(work / DRAFT)
        _draft(work, record, keep)
        (work / DRAFT).rename(work / READY)
        sync_folder(work)
    return _move(work, keep)


def _record(work: Path) -> dict[str, Any]:
    """Read what was given last; nothing where that is damaged, which `update` tells."""
    try:
        record = json.loads((work / GIVEN).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_old(record: dict[str, Any], files: set[str]) -> bool:
    """Tell whether a working copy has the old numbers, by the first of the two that knows a renumbered lesson."""
    new = set(LESSONS.values())
    for names in (record.keys(), files):
        if names & (LESSONS.keys() | new):
            return not names & new
    return False


def _draft(work: Path, record: dict[str, Any], keep: Keep) -> None:
    """Write all that changes into `DRAFT`, and last the plan: what the old files were, and which of them go."""
    draft = work / DRAFT
    notebooks = {}
    for path in sorted(work.rglob("*.ipynb")):
        name = path.relative_to(work)
        if name.parts[0] != "kept" and not any(part.startswith(".") for part in name.parts):
            with suppress(OSError):  # a folder, or a link to nowhere
                notebooks[name.as_posix()] = path.read_bytes()
    moves: dict[str, str] = {}
    for old, new in reversed(NAMES.items()):  # 18 before 17, which goes to its place
        if old in notebooks and (new in moves or not os.path.lexists(work / new)):
            moves[old] = new
    staying = [old for old in NAMES if os.path.lexists(work / old) and old not in moves]
    was: dict[str, str] = {}

    def replace(old: str, before: bytes, after: bytes) -> None:
        if (new := moves.get(old, old)) != old or after != before:
            write_whole(draft / new, after)
            was[old] = _digest(before)

    for old, before in notebooks.items():
        after, said = _rewritten_notebook(before)
        replace(old, before, after)
        given = record.get(old)
        if after != before and not (isinstance(given, dict) and said == list(given.values())):
            keep(work / old, draft)
    if record:
        given = {NAMES.get(name, name): _rewritten_record(texts) for name, texts in record.items()}
        replace(GIVEN, (work / GIVEN).read_bytes(), json.dumps(given, ensure_ascii=False).encode())
    if (work / SOLVED).is_file():
        before = (work / SOLVED).read_bytes()
        lines = before.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        if MARK not in "".join(lines):
            mapped = "".join(SOLVED_NUMBER.sub(_new_number, line) for line in lines)
            replace(SOLVED, before, f"{MARK}\n{mapped}".encode("utf-8", "surrogateescape"))
    plan = {"was": was, "gone": sorted(moves.keys() - moves.values()), "staying": staying}
    write_whole(draft / PLAN, json.dumps(plan).encode())


def _move(work: Path, keep: Keep) -> list[str]:
    """Let what `READY` holds take its places, delete the old files, and then the folder."""
    ready = work / READY
    if not (ready / PLAN).exists():  # cut off while the folder was deleted
        shutil.rmtree(ready)
        return []
    plan = json.loads((ready / PLAN).read_text("utf-8"))

    def spare(name: str) -> None:
        """Keep a file that is about to go, unless all that it says is in the draft."""
        if (work / name).exists() and _digest((work / name).read_bytes()) != plan["was"].get(name):
            keep(work / name, work)

    for path in sorted(ready.rglob("*")):
        name = path.relative_to(ready).as_posix()
        if path.is_file() and name != PLAN:
            spare(name)
            (work / name).parent.mkdir(exist_ok=True)
            shutil.move(path, work / name)  # within one disk in one step
            sync_folder((work / name).parent)
    for name in plan["gone"]:
        spare(name)
        (work / name).unlink(missing_ok=True)
    shutil.rmtree(ready)
    line = (
        f"{work}: chapter 00 is now 10, and 10 to 18 are 11 to 19. Your notebooks, answers and solved exercises are "
        f"brought over; what you had changed is also in {work / 'kept'} as it was."
    )
    if plan["staying"]:
        line += (
            f" Left where they were, for their places are taken or they cannot be read: {', '.join(plan['staying'])}."
        )
    return [line]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _new_number(match: re.Match[str]) -> str:
    return match[1] + NUMBERS[match[2]]


def _rewritten(code: str) -> str:
    """Give a cell's code with the new numbers of exercises and the new names of packages."""

    def one_import(match: re.Match[str]) -> str:
        listed = match[1].replace("\\\n", " ").strip("()").strip().strip(",")
        names = [name.split() for name in listed.split(",")]
        known = all(name and name[0] in HOME for name in names)
        return f"from annotated_course import {match[1]}" if known else match[0]

    def package(match: re.Match[str]) -> str:
        return f"annotated_{match[1]}" + (match[2] + NUMBERS[match[3]] if match[2] else "")

    return CHECK.sub(_new_number, PACKAGE.sub(package, IMPORT.sub(one_import, code)))


def _rewritten_record(texts: Any) -> Any:
    """Do to what was given what is done to the notebooks, so that what nobody changed stays what nobody changed."""
    if not isinstance(texts, dict):
        return texts
    return {
        name: _rewritten(text) if isinstance(text, str) and text.startswith("code\n") else text
        for name, text in texts.items()
    }


def _rewritten_notebook(content: bytes) -> tuple[bytes, list[str]]:
    """Rewrite a notebook's code, whatever has saved it; what is no notebook stays as it is.

    Returns:
        The notebook, and what its cells said before, each headed by its type.
    """
    said, changed = [], False
    try:
        notebook = json.loads(content.decode("utf-8"))
        for sheet in notebook.get("worksheets", [notebook]):  # as IPython 2 saved it
            for cell in sheet["cells"]:
                key = "source" if "source" in cell else "input"
                source = "".join(cell[key])
                said.append(f"{cell['cell_type']}\n{source}")
                if cell["cell_type"] == "code" and (new := _rewritten(source)) != source:
                    cell[key], changed = new, True
        return (json.dumps(notebook, ensure_ascii=False, indent=1).encode() + b"\n" if changed else content), said
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return content, said
