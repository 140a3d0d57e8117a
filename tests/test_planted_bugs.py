"""Planted bugs are bugs that a linter accepts; in `make test-all`, each turns its file's tests red."""

import subprocess
import sys

import pytest
from once import once

from experiments.planted_bugs import BUGS, Bug, planted, try_out

pytestmark = once


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_still_fits_the_code_and_no_linter_sees_it(bug: Bug) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--quiet", f"--stdin-filename=annotated/{bug.file}.py", "-"]
    subprocess.run(command, input=planted(bug), text=True, check=True)


@pytest.mark.thorough
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug) -> None:
    by_tests, _ = try_out(bug)
    assert by_tests
