"""The progress bar shows how far a loop is, and leaves nothing behind."""

import itertools

import pytest
from once import once

from annotated_course import bars as module
from annotated_course.bars import progress_bar

pytestmark = once


class Display(list[str]):
    """In place of IPython's display and its handle: the list of what is shown."""

    def __call__(self, data: dict[str, str], raw: bool, display_id: bool = True) -> "Display":
        self.append(data.get("text/html", ""))
        assert raw and data["text/plain"] == ""
        return self

    update = __call__


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown in a notebook where the clock ticks once a second."""
    display = Display()
    seconds = itertools.count()
    monkeypatch.setattr("IPython.get_ipython", object)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(seconds)))
    return display


def test_all_items_pass_and_nothing_stays(shown: list[str]) -> None:
    assert list(progress_bar("abcd", 4)) == list("abcd")
    assert shown[0] == "" and shown[-1] == ""
    assert "update 1 of 4, about 6 s left" in shown[1] and 'max="4" value="1"' in shown[1]
    assert "update 3 of 4, about 1 s left" in shown[3]


def test_a_loop_that_breaks_or_fails_leaves_nothing_either(shown: list[str]) -> None:
    for letter in (bar := progress_bar("abcd", 4, "letter")):
        if letter == "c":
            break
    bar.close()
    assert "letter 2 of 4" in shown[-2] and shown[-1] == ""


def test_outside_a_notebook_it_only_passes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress_bar(range(3), 3)) == [0, 1, 2]
    assert capsys.readouterr().out == ""
