"""What experiments share: their arguments, what a file of results says of its origin, and writing it whole."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from annotated_course.bench import processor
from annotated_workbench.files import write_whole


def arguments(doc: str | None, *, seeds: int | None = None) -> argparse.ArgumentParser:
    """Make a parser of the file to write and, with a default for them, of how many seeds to try."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file to write")
    if seeds is not None:
        parser.add_argument("--seeds", type=int, default=seeds, help="seeds of each case, from 0")
    return parser


def about() -> dict[str, str]:
    """Say with what and when something was measured."""
    return {"torch": torch.__version__, "processor": processor(), "date": time.strftime("%Y-%m-%d")}


def save(path: Path, content: dict[str, Any], indent: int | None = 1) -> None:
    """Write results as JSON, whole or not at all."""
    write_whole(path, (json.dumps(content, ensure_ascii=False, indent=indent) + "\n").encode())
