"""The regression tests of the notebooks bite: classic bugs turn the first lesson red, and nothing else does."""

from pathlib import Path

import pytest

from experiments.planted_bugs import BUGS, ROOT, Bug, copy_project, notebook_is_red, plant

LESSON = "notebooks/01_attention.ipynb"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project."""
    return copy_project(tmp_path)


@pytest.mark.thorough
def test_the_unchanged_lesson_is_green(project: Path) -> None:
    assert not notebook_is_red(project, LESSON)


@pytest.mark.thorough
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.file == "annotated/attention.py"], ids=lambda bug: bug.name)
def test_a_planted_bug_turns_the_lesson_red(project: Path, bug: Bug) -> None:
    plant(bug, project)
    assert notebook_is_red(project, LESSON)


def test_every_bug_still_fits_the_code() -> None:
    code = {bug.file: (ROOT / bug.file).read_text(encoding="utf-8") for bug in BUGS}
    assert [bug.name for bug in BUGS if code[bug.file].count(bug.old) != 1] == []


@pytest.mark.parametrize("old", ["no such text", "mask"])
def test_a_bug_that_does_not_fit_exactly_once_is_an_error(project: Path, old: str) -> None:
    with pytest.raises(ValueError, match="times, not once"):
        plant(Bug("misfit", "annotated/attention.py", old, ""), project)
