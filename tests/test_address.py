"""The course's address: written from one place, no badge while there is none; and the first cell finds the course."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from once import once

from tools.address import FIRST, FIRST_CELL, edits, read_address, with_first_cell
from tools.sync import ROOT, edited

pytestmark = once

NOBODY, ANNA = "OWNER/attention-in-notebooks", "Anna-B/our.course"
URL = f"https://github.com/{ANNA}"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """The files that hold the address."""
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", "README.md", "docs/INSTALL.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def put(course: Path, url: str) -> None:
    """Write another address into pyproject.toml."""
    file = course / "pyproject.toml"
    file.write_text(re.sub(r'(?<=^Repository = ").*(?="$)', url, file.read_text("utf-8"), flags=re.MULTILINE), "utf-8")


def documents(course: Path) -> dict[str, str]:
    """The documents as they should be, by their names."""
    texts = edited(course, edits(read_address(course)))
    return {path.relative_to(course).as_posix(): text for path, text in texts.items()}


@pytest.mark.parametrize("url", [URL, f"{URL}.git"])
def test_a_fork_sets_it_in_one_place_and_can_take_it_back(course: Path, url: str) -> None:
    before = documents(course)
    put(course, url)
    texts = documents(course)
    for name, text in texts.items():
        assert text != before[name] and "OWNER" not in text
        (course / name).write_text(text, "utf-8")
    live, install = "https://anna-b.github.io/our.course/docs/live/index.html", texts["docs/INSTALL.md"]
    assert texts["README.md"].count(live) == 3
    places = ("codespaces.new/", "mybinder.org/v2/gh/", "colab.research.google.com/github/")
    assert live in install and all(f"https://{place}{ANNA}" in install for place in places)
    assert all((ROOT / "docs" / image).is_file() for image in re.findall('<img src="(drawings/badges/[^"]+)', install))
    assert yaml.safe_load(texts["CITATION.cff"])["repository-code"] == URL and f"git clone {URL} &&" in install
    put(course, f"https://github.com/{NOBODY}")
    assert documents(course) == before


@pytest.mark.parametrize("url", ["", "https://example.org/a/b", "https://github.com/alone"])
def test_an_address_that_is_none_of_github_s_is_refused(course: Path, url: str) -> None:
    put(course, url)
    with pytest.raises(ValueError, match=r"it must be https://github\.com/OWNER/NAME"):
        read_address(course)


def test_the_workflow_puts_in_the_address_that_it_runs_at(course: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text("utf-8"))
    (step,) = (step["run"] for step in workflow["jobs"]["site"]["steps"] if "GITHUB_REPOSITORY" in step.get("run", ""))
    environment = os.environ | {"GITHUB_REPOSITORY": "Anna-B/our.course"}
    subprocess.run(["bash", "-ec", step.splitlines()[0]], cwd=course, env=environment, check=True)
    assert read_address(course) == ANNA
    assert step.splitlines()[1:] == ["make sync"]


def test_the_first_cell_stands_in_front_of_the_others() -> None:
    cells = [new_markdown_cell("# 01 · Some", id="words"), new_code_cell("x = 3", id="x", execution_count=1)]
    notebook = with_first_cell(new_notebook(cells=cells), NOBODY)
    notebook.cells[1].execution_count = 1
    assert "OWNER" in notebook.cells[1].source
    notebook = with_first_cell(notebook, ANNA)
    nbformat.validate(notebook)
    assert [cell.id for cell in notebook.cells] == ["words", FIRST, "x"] and notebook.cells[1].execution_count == 1
    assert f"git clone -q --depth 1 {URL} course" in notebook.cells[1].source


RUN = """
import os, shutil, sys, types
sys.meta_path = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
asked = []
if len(sys.argv) > 1:
    sys.modules["google.colab"] = types.ModuleType("google.colab")
    def system(line):
        asked.append(line)
        if line.startswith("git clone"):
            shutil.copytree(sys.argv[1], line.split()[-1])
    def get_ipython():
        return types.SimpleNamespace(system=system)
for _ in range(2):
    exec(open("first.py").read())
os.chdir("/")
import annotated
print(os.path.realpath(annotated.__file__), *asked, sep="\\n")
"""


def run(folder: Path, *fetched: Path) -> subprocess.CompletedProcess[str]:
    """Run the first cell in a notebook's folder, twice; the course is found or, on Colab, what git fetches."""
    (folder / "first.py").write_text(FIRST_CELL.format(repository=NOBODY), "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", RUN, *map(str, fetched)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_it_finds_the_course_above_or_on_colab_fetches_it_once_or_says_what_to_do(tmp_path: Path) -> None:
    checkout, here = tmp_path / "checkout", tmp_path / "content" / "deeper"  # nothing of the course above `here`
    shutil.copytree(ROOT / "annotated", checkout / "annotated", ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "notebooks" / "solutions").mkdir(parents=True)
    here.mkdir(parents=True)
    for folder in ("notebooks", "notebooks/solutions"):
        result = run(checkout / folder)
        assert result.stdout == f"{checkout / 'annotated' / '__init__.py'}\n" and not result.stderr
    result = run(here)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("ModuleNotFoundError: The course isn't here. Start it with `make")
    assert run(here, checkout).stdout.splitlines() == [
        str(here / "course" / "annotated" / "__init__.py"),
        f"git clone -q --depth 1 https://github.com/{NOBODY} course",
        f"{sys.executable} -m pip install -q -e 'course[download,plots,words]'",
    ]
