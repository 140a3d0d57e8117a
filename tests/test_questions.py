"""The notebook of questions: fifty-five, each short, and each with a cell that runs without the others."""

import ast
import builtins
import re

import nbformat
from nbformat import NotebookNode
from once import once

from tools.address import FIRST
from tools.reading import is_folded
from tools.sync import ROOT

pytestmark = once

PAGE = nbformat.read(ROOT / "notebooks" / "questions.ipynb", as_version=4).cells
SETUP, *CELLS = [cell for cell in PAGE[1:-1] if cell.id != FIRST]
PARTS = r"### (?P<heading>.+)", r"(?P<answer>.+)", r"More: (?P<more>.+)", r"<small>Also asked as: .+</small>"
QUESTION = re.compile(r"(?:## .+\n\n)?" + r"\n\n".join(PARTS))


def questions() -> dict[str, tuple[re.Match[str], list[NotebookNode]]]:
    """Give the text of each question and its cells of code, under its heading."""
    found: dict[str, tuple[re.Match[str], list[NotebookNode]]] = {}
    for cell in CELLS:
        if cell.cell_type == "markdown":
            match = QUESTION.fullmatch(cell.source)
            assert match, cell.source
            found[match["heading"]] = match, []
        else:
            found[match["heading"]][1].append(cell)
    return found


QUESTIONS = questions()


def names(source: str) -> tuple[set[str], set[str]]:
    """Give the names that a cell reads, and those that it makes."""
    nodes = list(ast.walk(ast.parse(re.sub(r"^%.*$", "", source, flags=re.MULTILINE))))
    used = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in used if not isinstance(node.ctx, ast.Load)}
    made |= {str(node.name) for node in nodes if isinstance(node, ast.FunctionDef | ast.ExceptHandler)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imports = (alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names)
    made |= {(alias.asname or alias.name).split(".")[0] for alias in imports}
    return {node.id for node in used if isinstance(node.ctx, ast.Load)}, made


def test_there_are_fifty_five_to_all_of_which_the_contents_lead_and_each_is_short() -> None:
    listed = re.findall(r"^  - \[(.+)\]\(questions\.ipynb#", PAGE[0].source, re.MULTILINE)
    assert listed == list(QUESTIONS) and len(listed) == 55
    for heading, (text, cells) in QUESTIONS.items():
        assert len(heading.split()) <= 12 and heading.endswith("?"), heading
        assert heading.isascii(), "JupyterLab finds no heading by a name that must be encoded"
        assert len(text["answer"].split()) <= 75, heading
        assert len(re.findall(r"[.?!]\)?(?= |$)", text["answer"])) <= 3, f"{heading}: more than three sentences"
        assert re.match(r"\[.+\]\(\d\d_\w+\.ipynb#", text["more"]), heading
        shown, *drawings = cells
        assert not is_folded(shown) and all(map(is_folded, drawings)), heading
        assert sum(bool(line.strip()) for line in shown.source.split("\n")) <= 10, heading
        assert shown.outputs, f"{heading}: its cell shows nothing"


def test_no_question_needs_another_one_s_names() -> None:
    _, given = names(SETUP.source)
    shared = {"model", "tokenizer", "src", "tgt", "grammarian", "subwords", "writer", "characters", "letters"}
    for heading, (_, cells) in QUESTIONS.items():
        used, made = names("\n".join(cell.source for cell in cells))
        assert used - made - given - set(dir(builtins)) == set(), heading
        assert made & shared == set(), f"{heading} takes what all of them share"
