"""What every test shares: shapes checked at each call, one thread, a fixed seed, and where the real data lies."""

import contextlib
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any test imports the package: from here on a wrong shape is an error, and so is a wrong annotation.
install_import_hook("annotated", "beartype.beartype")

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

settings.register_profile("annotated", deadline=None, database=None, derandomize=True)
settings.load_profile("annotated")


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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A folder with the sixty pairs of `tests.runs` in my.de and my.en."""
    from tests.runs import write_corpus

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
