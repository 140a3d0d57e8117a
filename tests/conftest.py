"""What every test shares: shapes checked at each call, a fixed seed, real data; and a lesson's sections run again."""

import contextlib
import importlib
import io
import os
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
import shapes
import torch
from hypothesis import settings
from nbval.plugin import IPyNbCell
from once import PINNED

from tests.pages import opened
from tools.chromium import CHROMIUM, open_chromium

if not torch.__version__.startswith(PINNED):  # what no other torch can change is not even imported
    files = Path(__file__).parent.glob("test_*.py")
    collect_ignore = [file.name for file in files if "\npytestmark = once\n" in file.read_text("utf-8")]

shapes.install()  # before any test imports the packages: from here on a wrong shape is an error
own_line = importlib.import_module("annotated_course.own_line")
own_line.NOT_THE_READERS += (shapes.__file__,)

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

settings.register_profile("annotated", deadline=None, database=None, derandomize=True)
settings.load_profile("annotated")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test-all` ask for the long proofs."""
    parser.addoption("--all", action="store_true", help="tests marked thorough, too, and each lesson's sections again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long proofs out unless asked; else run a lesson's sections again when nbval has run the whole."""
    if not config.getoption("--all"):
        left_out = {item for item in items if item.get_closest_marker("thorough") or is_seen_once(item)}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    elif torch.__version__.startswith(PINNED):  # one torch is enough
        groups = [list(group) for _, group in groupby(items, key=lambda item: item.parent)]
        items[:] = [item for group in groups for item in group + again(group)]


def is_seen_once(item: pytest.Item) -> bool:
    """Tell whether a cell stands in a notebook without a number, and it is enough to see it on the pinned torch."""
    return isinstance(item, IPyNbCell) and not item.path.stem[0].isdigit() and not torch.__version__.startswith(PINNED)


def again(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cells of a lesson, its last section first, so that none prepares the next; nothing for any other items."""
    if not isinstance(items[0], IPyNbCell) or items[0].path.parent.name != "notebooks":
        return []
    section, section_of = 0, []
    for cell in items[0].parent.nb.cells:
        section += cell.cell_type == "markdown" and bool(re.search(r"^## ", cell.source, re.MULTILINE))
        section_of += [section] if cell.cell_type == "code" else []
    return [
        IPyNbCell.from_parent(
            item.parent, name=f"{item.name} again", cell_num=item.cell_num, cell=item.cell, options=item.options
        )
        for item in sorted(items, key=lambda item: -section_of[item.cell_num])
    ]


@pytest.fixture(autouse=True)
def seed() -> None:
    """Start every test from the same random numbers, in whatever order the tests run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder with the Multi30k files; the test is skipped where there is none."""
    folder = Path(os.environ.get("ANNOTATED_DATA", "")) / "multi30k"
    if not (folder / "train.de").is_file():
        pytest.skip("needs Multi30k: set ANNOTATED_DATA to the folder that holds multi30k/train.de")
    return folder


@pytest.fixture(scope="module")  # a whole session would keep its event loop from the tests that want their own
def browser() -> Iterator:
    """A headless Chromium; the test is skipped where there is none, and on an imitated processor."""
    if "ATEN_CPU_CAPABILITY" in os.environ:
        pytest.skip("an imitated processor draws no other page.")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine.")
    pytest.importorskip("playwright.sync_api")
    with open_chromium() as chromium:
        yield chromium


@pytest.fixture
def visit(browser) -> Iterator[Callable]:
    """A function that opens a page, with the arguments of `opened`, until the test ends."""
    with contextlib.ExitStack() as pages:
        yield lambda *address, **options: pages.enter_context(opened(browser, *address, **options))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A folder with the sixty pairs of `tests.runs` in my.de and my.en."""
    from tests.runs import write_corpus  # no earlier than the check of shapes

    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def run(corpus, tmp_path_factory) -> SimpleNamespace:
    """A run of two epochs on that corpus: its folder, and what it printed."""
    from annotated.__main__ import main
    from tests.runs import train_arguments

    out = tmp_path_factory.mktemp("runs") / "de-en"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(train_arguments(corpus, out, "--epochs", "2")) == 0
    return SimpleNamespace(out=str(out), printed=printed.getvalue())
