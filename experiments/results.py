"""What experiments share: their arguments, a lesson's own code, what a file of results says of its origin."""

import argparse
import json
import platform
import re
import time
from pathlib import Path
from typing import Any

import torch

from annotated_workbench.files import write_whole
from tools.sync import ROOT


def arguments(doc: str | None, *, seeds: int | None = None) -> argparse.ArgumentParser:
    """Make a parser of the file to write and, with a default for them, of how many seeds to try."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file to write")
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, help="seeds of each case, from 0")
    return parser


def names_of_lesson(notebook: str, tag: str) -> dict[str, Any]:
    """Run the cells of a lesson that carry a tag; return all names that they define."""
    names: dict[str, Any] = {}
    for cell in json.loads((ROOT / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]:
        if tag in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), names)
    return names


def processor() -> str:
    """Name the processor, the instructions that torch uses, and the generation where the system tells it."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", info)
    generation = re.search(r"cpu family\s*: (\d+)\nmodel\s*: (\d+)", info)  # several may bear one name
    which = name[1] if name else platform.processor() or platform.machine()
    numbers = ", family {}, model {}".format(*generation.groups()) if generation else ""
    return f"{which} ({torch.backends.cpu.get_cpu_capability()}){numbers}"


def about() -> dict[str, str]:
    """Say with what and when something was measured."""
    return {"torch": torch.__version__, "processor": processor(), "date": time.strftime("%Y-%m-%d")}


def save(path: Path, content: dict[str, Any], indent: int | None = 1) -> None:
    """Write results as JSON, whole or not at all."""
    write_whole(path, (json.dumps(content, ensure_ascii=False, indent=indent) + "\n").encode())
