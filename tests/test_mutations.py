"""The mutants of a file are those listed by hand, a run tells the killed from the living, and the table adds up."""

import os
from pathlib import Path

import pytest
from once import once

from experiments import mutations
from experiments.mutations import ROOT, mutants

pytestmark = once

SOURCE = '''
def area(sizes: dict[str, "2"], times=3, exact: bool = True) -> "4":
    """Two lines, 5."""
    total = 0.5
    for name in sorted(sizes, reverse=True)[:7]:
        if name == "α" or not exact:
            continue
        total += min(sizes[name], sizes["β"]) ** -2
    if total < times:
        raise ValueError(f"{total + 1} is below {times}")
    return total
'''

BY_HAND = {
    ("3", "4"),
    ("True", "False"),
    ("0.5", "1.5"),
    ("sorted(sizes, reverse=True)", "(sorted(sizes))"),
    (":7", ":"),
    ("7", "8"),
    ('name == "α" or not exact', "(not (name == 'α' or not exact))"),
    ('name == "α" or not exact', "(name == 'α' and (not exact))"),
    ('name == "α"', "(name != 'α')"),
    ('"α"', "'xα'"),
    ("not exact", "(exact)"),
    ("continue", "break"),
    ('total += min(sizes[name], sizes["β"]) ** -2', "total -= min(sizes[name], sizes['β']) ** (-2)"),
    ('total += min(sizes[name], sizes["β"]) ** -2', "pass"),
    (
        'total += min(sizes[name], sizes["β"]) ** -2',
        'total += min(sizes[name], sizes["β"]) ** -2\n        break',
    ),
    ('min(sizes[name], sizes["β"]) ** -2', "(min(sizes[name], sizes['β']) * -2)"),
    ('min(sizes[name], sizes["β"])', "(max(sizes[name], sizes['β']))"),
    ('"β"', "'xβ'"),
    ("-2", "2"),
    ("2", "3"),
    ("total < times", "(total <= times)"),
    ("total < times", "(not total < times)"),
}


def test_the_mutants_of_ten_lines_are_those_by_hand() -> None:
    source = SOURCE.encode()
    found = mutants("area.py", source)
    assert {(mutant.old, mutant.new) for mutant in found} == BY_HAND
    # "True" stands there twice, as a default and as an argument.
    assert sorted(mutant.line for mutant in found if mutant.old == "True") == [2, 5]
    for mutant in found:
        assert source[mutant.start : mutant.end].decode() == mutant.old
        assert mutant.old.splitlines()[0] in mutant.text
        compile(source[: mutant.start] + mutant.new.encode() + source[mutant.end :], "area.py", "exec")


def test_every_mutant_of_the_module_is_a_program() -> None:
    for name in mutations.module_files():
        source = (ROOT / name).read_bytes()
        for mutant in mutants(name, source)[::25]:
            compile(source[: mutant.start] + mutant.new.encode() + source[mutant.end :], name, "exec")


def test_every_test_that_is_listed_exists() -> None:
    assert set(mutations.MORE_TESTS) <= {mutations.own_tests(name) for name in mutations.module_files()}
    for file, tests in mutations.MORE_TESTS.items():
        assert all((ROOT / "tests" / f"test_{test}.py").exists() for test in tests), file


@pytest.mark.parametrize("one", mutations.EXPLAINED, ids=lambda one: one[1])
def test_every_explanation_still_fits_the_code(monkeypatch: pytest.MonkeyPatch, one: tuple[str, str]) -> None:
    monkeypatch.setattr(mutations, "EXPLAINED", [one])
    files = {name: (ROOT / name).read_bytes() for name in mutations.module_files()}
    found = [mutant for name, source in files.items() for mutant in mutants(name, source)]
    assert any(mutations.explanation(mutant._asdict()) for mutant in found)


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("body", "verdict"),
    [("return 2", "survived"), ("return 3", "killed"), ("while True:\n        pass", "timed out"), ("!", "killed")],
)
def test_a_run_tells_the_killed_from_the_living(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, verdict: str
) -> None:
    (tmp_path / "annotated").mkdir()
    (tmp_path / "annotated" / "__init__.py").touch()
    (tmp_path / "annotated" / "two.py").write_text(f"def two():\n    {body}\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_two.py").write_text(
        "from annotated.two import two\n\n\ndef test_two():\n    assert two() == 2\n"
    )
    monkeypatch.setattr(mutations, "ROOT", tmp_path)
    found, seconds = mutations.run_tests(tmp_path, "annotated/two.py", 3.0 if verdict == "timed out" else 60.0)
    assert found == verdict, (tmp_path / "log").read_text()
    assert seconds > 0


def verdict(file: str, line: int, found: str) -> dict:
    about = {"file": file, "line": line, "text": f"x = {line}", "start": line, "end": line + 1, "old": str(line)}
    return about | {"new": f"{line}\n + 1", "code": "c", "tests": "t", "verdict": found, "seconds": 2.0}


def test_the_table_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "EXPLAINED", [(r"^b\.py: x = 7 \| 7 → 7 \+ 1$", "is a matter of taste")])
    lines = [
        verdict("a.py", 1, "killed"),
        verdict("a.py", 2, "killed"),
        verdict("a.py", 3, "survived"),
        verdict("b.py", 3, "killed"),
        verdict("b.py", 7, "survived"),
        verdict("b.py", 9, "timed out"),
    ]
    head, *rows, _, alive, first, _, excused, second, _, last = mutations.report(lines)
    assert head.split() == ["mutants", "killed", "timed", "out", "explained", "survived", "noticed"]
    assert [row.split() for row in rows] == [
        ["a.py", "3", "2", "0", "0", "1", "66.7%"],
        ["b.py", "3", "1", "1", "1", "0", "100.0%"],
        ["all", "6", "3", "1", "1", "1", "80.0%"],
    ]
    assert (alive, first) == ("No test notices:", "a.py:3: 3 → 3 + 1")
    assert (excused, second) == ("Explained:", "b.py:7: 7 → 7 + 1: is a matter of taste")
    assert last == "2.0 seconds of one core a mutant"
