"""`make run`: a cell that fails is reported, and the course goes on to train and to translate."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from once import once

from tools import run

pytestmark = once

FAILS = """for bound in (2, 1):
    assert total < bound
print("not reached")"""


def cell(source: str, saved: str = "") -> nbformat.NotebookNode:
    outputs = [new_output("stream", text=saved)] if saved else []
    return new_code_cell(source, execution_count=1, outputs=outputs)


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of two notebooks: in the first, on this machine, one claim fails and one printed number differs."""
    first = new_notebook(
        cells=[
            new_markdown_cell("# 01\n\nA first look.\n\n## 1. Sums"),
            cell("total = 1\nprint(total)", "1\n"),
            cell(FAILS),
            new_markdown_cell("No heading here."),
            cell('print("same")\nprint(f"{total / 3:.2f}")', "same\n0.34\n"),
            new_markdown_cell("## 2. Zeros"),
            cell("print(-0.0)", "0.0\n"),
        ]
    )
    second = new_notebook(cells=[cell("print('fine')", "fine\n")])
    (tmp_path / "notebooks").mkdir()
    for name, notebook in (("01_first", first), ("02_second", second)):
        nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "notebook_paths", lambda: sorted(tmp_path.glob("notebooks/*.ipynb")))
    monkeypatch.setattr(run, "TRAIN", ["train", "--help"])
    monkeypatch.setattr(run, "EVALUATE", ["evaluate", "--help"])
    return tmp_path


def test_what_differs_is_named_and_the_course_goes_on(course: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.main() == 1
    printed = capfd.readouterr().out
    claim = "01_first, cell 1 (1. Sums): assert total < bound\n    AssertionError: \n"
    digit = "01_first, cell 2 (1. Sums): printed '0.33', saved is '0.34'\n"
    notebooks, _, rest = printed.partition("\npython -m annotated train --help\n")
    trained, _, evaluated = rest.partition("\npython -m annotated evaluate --help\n")
    assert claim + digit in notebooks and "\n02_second: " in notebooks
    assert "usage: python -m annotated train" in trained and "usage: python -m annotated evaluate" in evaluated
    assert evaluated.endswith(f"The course ran to its end, but not all is as saved:\n{claim}{digit}")
    done = nbformat.read(course / "build" / "notebooks" / "01_first.ipynb", as_version=4)
    assert "".join(output.text for output in done.cells[-1].outputs) == "-0.0\n"  # executed to its last cell, and saved


def test_what_unfolds_is_compared_too() -> None:
    def folded(statement: str) -> nbformat.NotebookNode:
        data = {"text/plain": "✓ 1 more check", "text/html": f"<details>✓ 1 more check\n✓ {statement}\n</details>"}
        return new_code_cell(outputs=[new_output("display_data", data)])

    assert run.compare(folded("1 word"), folded("1 word")) is None
    assert run.compare(folded("1 word"), folded("2 words")) == "printed '✓ 2 words', saved is '✓ 1 word'"
    failed = new_code_cell(outputs=[new_output("stream", text="✗ 1 word: 2, expected 1\n")])
    difference = run.compare(folded("1 word"), failed)
    assert difference == "printed '✗ 1 word: 2, expected 1', saved is '✓ 1 more check'"


def test_where_nothing_differs_all_is_well(course: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (course / "notebooks" / "01_first.ipynb").unlink()
    assert run.main() == 0
    assert capfd.readouterr().out.endswith("All notebooks printed what they have saved.\n")


def test_a_training_that_fails_is_worse(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (course / "notebooks" / "01_first.ipynb").unlink()
    monkeypatch.setattr(run, "TRAIN", ["train", "--preset", "gigantic"])
    assert run.main() == 2
