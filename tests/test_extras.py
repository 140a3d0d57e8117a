"""Packages that may be missing: what to install is said, by the module and by the command line."""

import sys

import pytest
import torch
from once import once

from annotated.__main__ import main
from annotated_course import plotting
from annotated_course.bars import progress_bar
from annotated_workbench.data import load_corpus
from annotated_workbench.extras import EXTRAS
from tests.test_environment import PROJECT

pytestmark = once


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pooch", lambda: load_corpus("multi30k", "val")),
        ("matplotlib", lambda: plotting.plot_attention(torch.ones(1, 1), ["a"], ["b"])),
        ("seaborn", lambda: plotting.plot_attention(torch.ones(1, 1), ["a"], ["b"])),
        ("IPython", lambda: list(progress_bar([1], 1))),
    ],
)
def test_what_is_missing_is_named_with_its_extra(package, call, monkeypatch):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    for module in {package, *(name for name in sys.modules if name.startswith(f"{package}."))}:
        monkeypatch.setitem(sys.modules, module, None)  # also where another test has imported it
    said = rf"^{package} is missing: pip install 'annotated\[{EXTRAS[package]}\]'$"
    with pytest.raises(ModuleNotFoundError, match=said):
        call()


def test_the_command_line_says_it_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert main(["train", "--corpus", "multi30k", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "annotated: pooch is missing: pip install 'annotated[download]'\n"


def test_every_extra_is_declared():
    extras = PROJECT["project"]["optional-dependencies"]
    brought_by = {package: package for package in EXTRAS} | {"IPython": "ipykernel"}
    for package, extra in EXTRAS.items():
        assert any(line.startswith(brought_by[package]) for line in extras[extra]), package
