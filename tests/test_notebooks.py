"""The notebooks as they are saved: executed, in step with the module, clean, and complete in their exercises.

That their outputs are right, and that their sections can be run again, is nbval's part, in the same run (`make test`).
"""

import functools
import html
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from once import once

from annotated_course.exercises import exercises_of
from tools.address import FIRST
from tools.chapters import read
from tools.reading import Count, count, is_folded, verdicts
from tools.site import DOCUMENTS
from tools.sync import ROOT, is_lesson, notebook_paths

pytestmark = once

NOTEBOOKS = notebook_paths()
LESSONS = [path for path in NOTEBOOKS if is_lesson(path)]
PAGES = [*NOTEBOOKS, ROOT / "README.md", *(ROOT / name for name in DOCUMENTS)]

MACHINE_TRACES = re.compile(
    r"""/(?:home|root|tmp|work|Users|usr|opt|var|mnt)/   # a path
    | [A-Z]:\\                                           # a path on Windows
    | \b0x[0-9a-f]{6,}                                   # an address in memory
    | \d{4}-\d\d-\d\d[T ]\d\d:\d\d | \d\d:\d\d:\d\d      # a date, a time
    | ipykernel_\d+ | <ipython-input                     # a kernel's own names""",
    re.VERBOSE,
)
NOT_COMPARED = re.compile(r"nbval-(?:ignore-output|skip)|NBVAL_(?:IGNORE_OUTPUT|SKIP)")
CARD = re.compile(r"^#+ .*Exercise (\d\d\.\d+)", re.MULTILINE)
FOLDED = {"jupyter": {"source_hidden": True}, "tags": ["proof", "hide-input"]}


@pytest.fixture(params=NOTEBOOKS, ids=[path.relative_to(ROOT / "notebooks").as_posix() for path in NOTEBOOKS])
def path(request: pytest.FixtureRequest) -> Path:
    """Each notebook in turn, solutions too."""
    return request.param


@pytest.fixture
def notebook(path: Path) -> nbformat.NotebookNode:
    return read(path)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def saved_texts(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell printed and displayed, without its pictures."""
    texts = [output.text for output in cell.outputs if output.output_type == "stream"]
    shown = [item for output in cell.outputs for item in output.get("data", {}).items()]
    return texts + [str(content) for kind, content in shown if not kind.startswith("image/")]


def test_each_lesson_has_its_solutions() -> None:
    solutions = [path.name for path in NOTEBOOKS if path.parent.name == "solutions"]
    assert solutions == [f"{path.stem[:2]}_solutions.ipynb" for path in LESSONS] != []


def test_a_notebook_is_valid_small_bare_and_executed_in_order(path: Path, notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    assert path.stat().st_size < 1_000_000
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.display_name == "Python 3 (ipykernel)"  # what JupyterLab writes, too
    assert {key for cell in notebook.cells for key in cell.metadata} <= {"annotated", "jupyter", "tags"}
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run make notebooks"
    assert cells[0].id == FIRST
    for cell in cells:
        compile(cell.source, path.name, "exec")  # also what `nbconvert --to script` makes of it is Python
        assert cell.id == FIRST or "get_ipython" not in cell.source


def test_outputs_hold_no_error_and_no_trace_of_a_machine(notebook: nbformat.NotebookNode) -> None:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    texts = [text for cell in code_cells(notebook) for text in saved_texts(cell)]
    assert [match[0] for text in texts for match in MACHINE_TRACES.finditer(text)] == []
    escaping = [cell.source for cell in code_cells(notebook) if NOT_COMPARED.search(cell.source + str(cell.metadata))]
    assert len(escaping) <= 2


def test_figures_have_a_text_for_those_who_cannot_see_them(notebook: nbformat.NotebookNode) -> None:
    for cell in code_cells(notebook):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            picture, words = cell.outputs[-2:]
            described = picture.metadata["image/png"].get("alt")
            assert described and f"</summary>{html.escape(described)}</details>" in words.data["text/html"], cell.source


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_links_and_pictures_inside_the_project_resolve(page: Path) -> None:
    prose, _ = prose_and_anchors(page)
    for target in re.findall(r"""(?:\]\(|(?:href|src|srcset)=")(?!https?:|mailto:)([^)\s"]+)""", prose):
        file, _, anchor = target.partition("#")
        leads_to = (page.parent / file).resolve() if file else page
        assert leads_to.exists(), target
        if anchor and leads_to.suffix in (".ipynb", ".md"):
            assert unquote(anchor) in prose_and_anchors(leads_to)[1], target


@functools.cache
def prose_and_anchors(path: Path) -> tuple[str, set[str]]:
    """A page's Markdown, code aside, and the names that JupyterLab, or of a document GitHub, gives to its headings."""
    notebook = path.suffix == ".ipynb"
    cells = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"] if notebook else []
    prose = "\n".join(cells) or path.read_text("utf-8")
    headings = [heading.strip() for heading in re.findall(r"^#+ (.*)", prose, re.MULTILINE)]
    names = {re.sub(r"[`*]", "", name) if notebook else re.sub(r"[^\w -]", "", name.lower()) for name in headings}
    return re.sub(r"```.*?```|`[^`\n]+`", "", prose, flags=re.DOTALL), {name.replace(" ", "-") for name in names}


@pytest.mark.parametrize("lesson", LESSONS, ids=[path.stem for path in LESSONS])
def test_the_main_line_can_be_read_in_one_sitting_and_the_tour_frightens_nobody(lesson: Path) -> None:
    counted, tour = count(read(lesson)), lesson.name.startswith("00")
    assert counted.words <= (1800 if tour else 3000) and counted.lines <= (120 if tour else 200)
    assert counted.ticks <= (12 if tour else 1000) and counted.figures >= 1


def test_claims_hold_and_every_proof_shows_some(path: Path, notebook: nbformat.NotebookNode) -> None:
    for cell in code_cells(notebook) if path.parent.name == "notebooks" else []:
        shown = "\n".join(saved_texts(cell))
        assert "✗" not in shown, shown
        assert verdicts(cell, "text/html") >= cell.source.count("claim("), cell.source
        tags = cell.metadata.get("tags", [])
        assert is_folded(cell) == ("hide-input" in tags)  # in JupyterLab and on a page
        assert "proof" not in tags or (is_folded(cell) and "✓ " in shown), cell.source


@pytest.mark.parametrize("lesson", LESSONS, ids=[path.stem for path in LESSONS])
def test_every_exercise_has_a_card_with_a_hint_and_a_link_to_its_solution(lesson: Path) -> None:
    chapter, prose = lesson.name[:2], [cell.source for cell in read(lesson).cells if cell.cell_type == "markdown"]
    cards = {card[1]: text for text in prose if (card := CARD.search(text))}
    assert list(cards) == list(exercises_of(chapter)) and len(cards) >= (2 if chapter == "00" else 4)
    for number, text in cards.items():
        for field in ("why it matters", "difficulty", "minutes", "<summary>hint"):
            assert field in text.lower(), f"the card of exercise {number} lacks {field!r}"
        (link,) = re.findall(r"\[solution\]\((\S+)\)", text)
        assert link.startswith(f"solutions/{chapter}_solutions.ipynb#Exercise-{number}:-")
        assert link.isascii(), "JupyterLab finds no heading by a name that must be encoded"


def test_the_main_line_is_all_but_exercises_and_deeper_and_checks_that_unfold_are_one_tick() -> None:
    picture = new_output("display_data", data={"image/png": "", "text/plain": "<Figure>"})
    unfolded = "<details><summary>✓ 2 more checks</summary>\n✓ a<br>\n✓ b\n"
    more = new_output("display_data", {"text/plain": "✓ 2 more checks", "text/html": unfolded})
    cells = [
        new_markdown_cell("# Title\n\nIt's three words: $a + b$ counts as one."),
        new_code_cell("x = 1\n\nclaim('x', x, 1)", outputs=[new_output("stream", text="✓ x\n"), picture]),
        new_code_cell("claim('y')\nclaim('z')", metadata=FOLDED, outputs=[new_output("stream", text="✓ y\n✗ z\n")]),
        new_code_cell("with more_checks():\n    claim('a')\n    claim('b')", outputs=[more]),
        new_markdown_cell("## Exercises\n\nnot counted"),
        new_code_cell("check('01.1', ...)", outputs=[new_output("stream", text="○ 01.1\n")]),
        new_markdown_cell("not counted\n\n## Summary\n\ncounted\n\n## Deeper\n\nnot counted"),
        new_code_cell("claim('w')", outputs=[new_output("stream", text="✓ w\n")]),
    ]
    assert count(new_notebook(cells=cells)) == Count(words=10, lines=5, ticks=4, figures=1)
