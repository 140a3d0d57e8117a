"""The imitated machines: they are what they say, and what fails on one of them is named."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from experiments import machines
from experiments.machines import MACHINES, ROOT, Run

UPDATES = """
import torch
start = torch.linspace(0.1, 1, 50)
weights = [torch.nn.Parameter(start.clone()) for _ in range(2)]
torch.optim.SGD(weights, lr=0.0).step()
assert torch.equal(*weights)  # the noise depends on the value alone
print((weights[0] / start - 1).tolist())
"""


def python_on(machine: str, code: str) -> str:
    """Run code on an imitated machine; return what it prints."""
    environment = os.environ | MACHINES[machine]
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_noise_moves_some_weights_by_their_last_bit_and_nothing_else_does() -> None:
    assert set(json.loads(python_on("native", UPDATES))) == {0.0}
    first, second = (json.loads(python_on(f"noise {seed}", UPDATES)) for seed in (1, 2))
    for change in (first, second):
        assert 5 < sum(x != 0 for x in change) < 50 and max(map(abs, change)) < 2.5e-7
    assert first != second


@pytest.mark.parametrize(
    ("machine", "capability"), [("AVX2", ("AVX2", "NO AVX", "DEFAULT")), ("plain", ("NO AVX", "DEFAULT"))]
)
def test_torch_believes_in_the_processor(machine: str, capability: tuple[str]) -> None:
    code = """
import torch
from annotated.fast.training import bf16_is_fast
print(torch.backends.cpu.get_cpu_capability(), bf16_is_fast(torch.device("cpu")), sep=",")
"""
    found, fast = python_on(machine, code).strip().split(",")
    assert found in capability and fast == "False"  # so the command line computes in float32, as it would there


def test_two_threads_are_two() -> None:
    assert python_on("two threads", "import torch; print(torch.get_num_threads())").strip() == "2"


def test_failures_are_named(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    suite = ElementTree.Element("testsuite")
    for name, verdict in (("Cell 0", None), ("Cell 12", "failure"), ("test_a", "error"), ("test_b", "skipped")):
        case = ElementTree.SubElement(suite, "testcase", name=name)
        if verdict:
            ElementTree.SubElement(case, verdict)
    ElementTree.ElementTree(suite).write(report)
    assert machines.failures(report) == ["12", "test_a"]


@pytest.mark.thorough
def test_a_notebook_is_compared_strictly_and_a_run_that_is_no_run_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        new_code_cell(source, execution_count=1, outputs=[new_output("stream", text=saved)])
        for source, saved in (
            ("print(1)", "1\n"),
            ("print(2)", "3\n"),
            ("import os; print(os.environ['MKL_CBWR'])", "COMPATIBLE\n"),
        )
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "a.ipynb")
    monkeypatch.setattr(machines, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--nbval-current-env"\n')
    found = machines.execute(Run("a.ipynb", "plain", Path(sys.executable)))
    assert found["failed"] == ["1"]
    assert "print(2)" in capsys.readouterr().err  # what pytest said of it is told
    assert machines.execute(Run("b.ipynb", "native", Path(sys.executable)))["failed"] == ["exit status 4"]


def line(what: str, machine: str, *failed: str, torch: str = "2.3.1") -> dict:
    about = {"torch": torch, "python": "3.11.7", "processor": "Z80", "date": "2026-11-22", "digest": "d" + what}
    return {"what": what, "machine": machine, "failed": list(failed), "seconds": 30, **about}


def test_the_table_shows_green_failing_and_missing_runs() -> None:
    lines = [
        line("notebooks/01_a.ipynb", "native"),
        line("notebooks/01_a.ipynb", "AVX2", "3", "14"),
        line("tests", "native"),
        line("tests", "no AMX") | {"digest": "older"},
    ]
    contents = {what: f"d{what}" for what in ("notebooks/01_a.ipynb", "tests")}
    title, _, head, first, second, _, foot = machines.table(lines, contents, {"notebooks/01_a.ipynb"})
    assert title == "Z80, torch 2.3.1, Python 3.11.7, 2026-11-22"
    assert head.split("  ")[-1] == "noise 4"
    assert first.split()[:4] == ["01_a", "·", "?", "3"] and "3 14" in first
    assert second.split() == ["tests", "·", "∘", *"???", *"––––"]
    assert foot == "4 runs, 2 failing cells and tests, 2 minutes of one core"


def test_a_run_is_repeated_when_what_it_rests_on_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is there but one notebook's runs, which are of an older state."""
    whats = ["tests", *(path.relative_to(ROOT).as_posix() for path in machines.notebook_paths())]
    old = "notebooks/01_attention.ipynb"
    about = {"torch": "2.3.1", "python": "3.11.7", "processor": machines.processor(), "date": "2026-11-22"}
    trained = [what for what in whats if machines.trains(what)]
    assert old in trained and "notebooks/15_model_variations.ipynb" not in trained
    done = [
        line(what, machine) | about
        for machine in machines.machines_here()
        for what in (trained if machine.startswith("noise") else whats)
    ]
    stale = [entry | {"digest": "older", "failed": ["7"]} if entry["what"] == old else entry for entry in done]
    stale += [entry | {"processor": "Z80", "digest": "older"} for entry in done]
    (tmp_path / "machines.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in stale))
    ran = []
    monkeypatch.setattr(machines, "STACKS", {"": ".venv"})
    monkeypatch.setattr(machines, "environment", lambda argument, folder: (Path(sys.executable), about))
    monkeypatch.setattr(machines, "digest", lambda what: "d" + what)
    monkeypatch.setattr(machines, "execute", lambda run: ran.append(run[:2]) or {"failed": [], "seconds": 1})
    monkeypatch.setattr("sys.argv", ["machines", str(tmp_path / "machines.jsonl")])
    assert machines.main() == 0
    assert sorted(ran) == sorted((old, machine) for machine in machines.machines_here())
    here, elsewhere = sorted(capsys.readouterr().out.split("\n\nZ80"), key=lambda part: "∘" in part)
    assert "?" not in here and "∘" not in here and "∘" in elsewhere  # what was green there is still told
    assert len(machines.read(tmp_path / "machines.jsonl")) == 2 * len(done)
    assert machines.main() == 0 and len(ran) == len(machines.machines_here())  # nothing is left to do
    monkeypatch.setattr(machines, "digest", lambda what: "new" if what == old else "d" + what)
    monkeypatch.setattr("sys.argv", ["machines", str(tmp_path / "machines.jsonl"), "--only", "nothing"])
    assert machines.main() == 1 and len(ran) == len(machines.machines_here())
    assert len(machines.read(tmp_path / "machines.jsonl")) == 2 * len(done)


def test_a_change_of_code_output_module_or_pins_changes_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "ROOT", tmp_path)

    def digest(
        code: str = "%config Any.thing = 1\nfrom annotated import a\nprint(1)",
        output: str = "1",
        prose: str = "One.",
        module: str = "def f():\n    import annotated.b.c",
        behind: str = "1",
        other: str = "1",
        pin: str = "1",
    ) -> str:
        cells = [new_markdown_cell(prose), new_code_cell(code, outputs=[new_output("stream", text=output)])]
        for name, text in (
            ("notebooks/07_n.ipynb", nbformat.writes(new_notebook(cells=cells))),
            ("annotated/a.py", module),
            ("annotated/b/c.py", behind),
            ("annotated/d.py", other),
            ("requirements.txt", pin),
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return machines.digest("notebooks/07_n.ipynb")

    assert digest(prose="Two.") == digest() == digest(other="2")
    assert digest(pin="1\n\n# The site\nsphinx==9\n") == digest(pin="1\n")
    changed = [digest(code="print( 1)"), digest(output="2"), digest(module="2"), digest(behind="2"), digest(pin="2")]
    assert len({digest(), *changed}) == 6


def test_what_a_lesson_imports_from_the_course_counts() -> None:
    found = machines.modules_behind("from annotated_course import claim, show", "01")
    assert {ROOT / "annotated_course" / name for name in ("claims.py", "plotting.py")} <= found
