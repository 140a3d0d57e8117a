"""The course's address: written from one place, no badge while there is none; and the first cell finds the course."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from once import once

from tools.address import FIRST, FIRST_CELL, Address, addressed, badges, read_address, with_first_cell
from tools.sync import ROOT

pytestmark = once

NOBODY, ANNA = Address("OWNER", "attention-in-notebooks"), Address("Anna-B", "our.course")


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


def test_every_file_that_names_the_address_has_the_one_of_pyproject() -> None:
    for path, text in addressed(ROOT).items():
        assert path.read_text("utf-8") == text, "run make sync"


@pytest.mark.parametrize("url", [ANNA.url, f"{ANNA.url}/", f"{ANNA.url}.git"])
def test_a_fork_sets_it_in_one_place_and_can_take_it_back(course: Path, url: str) -> None:
    before = addressed(course)
    put(course, url)
    assert read_address(course) == ANNA
    texts = addressed(course)
    for path, text in texts.items():
        assert text != before[path] and "OWNER" not in text
        path.write_text(text, "utf-8")
    readme = texts[course / "README.md"]
    assert readme.count("\n") <= 70 and readme.count("https://anna-b.github.io/our.course/docs/live/index.html") == 3
    assert yaml.safe_load(texts[course / "CITATION.cff"])["repository-code"] == ANNA.url
    assert f"git clone {ANNA.url} &&" in texts[course / "docs" / "INSTALL.md"]
    put(course, NOBODY.url)
    assert addressed(course) == before


def test_badges_lead_to_each_place_and_ask_no_other_host() -> None:
    shown = badges(ANNA, "docs/drawings")
    assert re.findall('href="([^"]+)"', shown) == [
        "https://anna-b.github.io/our.course/docs/live/index.html",
        "https://codespaces.new/Anna-B/our.course",
        "https://mybinder.org/v2/gh/Anna-B/our.course/HEAD?urlpath=lab/tree/work/start.md",
        "https://colab.research.google.com/github/Anna-B/our.course/blob/main/notebooks/00_tour.ipynb",
    ]
    for picture in re.findall('src="([^"]+)"', shown):
        assert (ROOT / picture).is_file()


def test_as_long_as_nobody_has_said_where_the_course_is_no_badge_pretends() -> None:
    assert badges(NOBODY, "docs/drawings") == ""
    for name in ("README.md", "docs/INSTALL.md"):
        if read_address(ROOT).is_placeholder:
            assert not re.search("mybinder|colab.research|codespaces.new|github.io", (ROOT / name).read_text("utf-8"))
            assert ("no public address yet" in (ROOT / name).read_text("utf-8")) == (name == "docs/INSTALL.md")


@pytest.mark.parametrize("url", ["", "https://example.org/a/b", "https://github.com/alone", 'https://github.com/a/b"c'])
def test_an_address_that_is_none_of_github_s_is_refused(course: Path, url: str) -> None:
    put(course, url.replace('"', '\\\\"'))
    with pytest.raises(ValueError, match=r"it must be https://github\.com/OWNER/NAME"):
        read_address(course)


def test_a_file_that_has_lost_the_place_for_it_is_named(course: Path) -> None:
    (course / "CITATION.cff").write_text("title: none\n", "utf-8")
    with pytest.raises(ValueError, match=r"CITATION\.cff: 0 places"):
        addressed(course)


def test_the_workflow_puts_in_the_address_that_it_runs_at(course: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text("utf-8"))
    (step,) = (step["run"] for step in workflow["jobs"]["site"]["steps"] if "GITHUB_REPOSITORY" in step.get("run", ""))
    environment = os.environ | {"GITHUB_REPOSITORY": "Anna-B/our.course"}
    subprocess.run(["bash", "-ec", step.splitlines()[0]], cwd=course, env=environment, check=True)
    assert read_address(course) == ANNA
    assert step.splitlines()[1:] == ["make sync"]


def executed() -> nbformat.NotebookNode:
    """A notebook of words, and two cells that were run."""
    result = new_output("execute_result", {"text/plain": "3"}, execution_count=2)
    return new_notebook(
        cells=[
            new_markdown_cell("# 01 · Some", id="words"),
            new_code_cell("x = 3", id="imports", execution_count=1),
            new_code_cell("x", id="x", execution_count=2, outputs=[result]),
        ]
    )


def test_the_first_cell_stands_in_front_of_the_others_which_keep_what_they_printed() -> None:
    before = executed()
    notebook = with_first_cell(before, ANNA)
    nbformat.validate(notebook)
    assert before == executed()
    assert [cell.id for cell in notebook.cells] == ["words", FIRST, "imports", "x"]
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2, 3]
    (result,) = notebook.cells[-1].outputs
    assert (result.data, result.execution_count) == ({"text/plain": "3"}, 3)
    assert f"git clone -q --depth 1 {ANNA.url} course" in notebook.cells[1].source
    assert with_first_cell(notebook, ANNA) == notebook
    assert nbformat.writes(with_first_cell(notebook, NOBODY)) == nbformat.writes(with_first_cell(before, NOBODY))


def test_a_notebook_that_was_never_run_stays_one() -> None:
    notebook = executed()
    for cell in notebook.cells[1:]:
        cell.execution_count, cell.outputs = None, []
    assert [cell.get("execution_count") for cell in with_first_cell(notebook, ANNA).cells] == [None] * 4


def test_the_first_cell_is_short() -> None:
    lines = FIRST_CELL.format(url=NOBODY.url).splitlines()
    assert len([line for line in lines if line]) <= 8 and max(map(len, lines)) <= 120


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
import annotated, annotated_course
print(os.path.realpath(annotated.__file__), *asked, sep="\\n")
"""


def run(folder: Path, *fetched: Path) -> subprocess.CompletedProcess[str]:
    """Run the first cell in a folder, twice, by a Python that has the packages, and the course only if it is found.

    Args:
        folder: where the notebook is.
        fetched: on Colab, what git fetches.
    """
    (folder / "first.py").write_text(FIRST_CELL.format(url=NOBODY.url), "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", RUN, *map(str, fetched)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A checkout of the course, its packages alone."""
    checkout = tmp_path / "checkout"
    for package in ("annotated", "annotated_course"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "notebooks" / "solutions").mkdir(parents=True)
    return checkout


@pytest.mark.parametrize("folder", ["notebooks", "notebooks/solutions"])
def test_it_finds_the_course_in_a_folder_above(packages: Path, folder: str) -> None:
    result = run(packages / folder)
    assert result.stdout == f"{packages / 'annotated' / '__init__.py'}\n" and not result.stderr


def test_on_colab_it_fetches_the_course_once(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "content" / "deeper").mkdir(parents=True)  # nothing of the course in the folders above
    here = tmp_path / "content" / "deeper"
    result = run(here, packages)
    assert result.stdout.splitlines() == [
        str(here / "course" / "annotated" / "__init__.py"),
        f"git clone -q --depth 1 {NOBODY.url} course",
        f"{sys.executable} -m pip install -q -e 'course[download,plots,words]'",
    ]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {"download", "plots", "words"} < set(extras)


def test_where_there_is_no_course_it_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    result = run(folder)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("ModuleNotFoundError: The course isn't here. Start it with `make")
