"""The environment: pins are installed and say the same everywhere; imports run one way, and importing stays cheap."""

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from once import once
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.sync import PACKAGES, ROOT

PINS = [
    Requirement(line)
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def pins_for(python: str) -> dict[str, str]:
    """The versions that a Python takes by itself, by name."""
    chosen = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate({"python_version": python})]
    assert len({pin.name for pin in chosen}) == len(chosen), f"a package is pinned twice for Python {python}"
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in chosen}


def is_installed(pinned: str, name: str) -> bool:
    """Whether this version is installed, whatever its build (2.13.0+cpu is 2.13.0)."""
    return Version(version(name)).public == pinned


def expected_here() -> dict[str, str]:
    """What must be installed here: this Python's own pins, or the newer stack's, which runs on any Python."""
    own = pins_for(f"{sys.version_info.major}.{sys.version_info.minor}")
    if "TORCH" not in os.environ and is_installed(own["torch"], "torch"):
        return own
    newer = pins_for(PYTHONS[-1])
    return {**newer, "torch": os.environ.get("TORCH", newer["torch"])}


@pytest.mark.parametrize(("name", "pinned"), expected_here().items())
def test_what_is_pinned_is_installed(name: str, pinned: str) -> None:
    assert is_installed(pinned, name), f"{name}: pinned {pinned}, installed {version(name)}; run make env"


def test_the_newer_stack_has_no_torchtext() -> None:
    assert ("torchtext" in expected_here()) == (Version(version("torch")) < Version("2.4"))


def test_every_pin_is_exact_and_stated_once() -> None:
    assert all(re.fullmatch(r"==[0-9.]+", str(pin.specifier)) for pin in PINS)
    stated = [(canonicalize_name(pin.name), str(pin.marker)) for pin in PINS]
    assert len(set(stated)) == len(stated)
    of_one_stack = {"torch", "torchtext", "transformers", "ctranslate2", "onnx", "onnxruntime", "onnxscript"}
    assert {pin.name for pin in PINS if pin.marker} == of_one_stack


@pytest.mark.parametrize(
    ("python", "torch", "torchtext"),
    [
        ("3.11", "2.3.1", "0.18.0"),
        ("3.12", "2.3.1", "0.18.0"),
        ("3.13", "2.13.0", None),
        ("3.14", "2.13.0", None),
    ],
)
def test_each_python_gets_torch_and_torchtext_that_load_together(
    python: str, torch: str, torchtext: str | None
) -> None:
    pins = pins_for(python)
    assert (pins["torch"], pins.get("torchtext")) == (torch, torchtext)


def test_the_conda_environment_reads_the_same_pins() -> None:
    assert yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8")) == {
        "name": "annotated",
        "channels": ["conda-forge"],
        "dependencies": ["python=3.11", "pip", {"pip": ["-r requirements.txt", "-e ."]}],
    }


def test_the_package_brings_its_types_and_its_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    data = {"annotated": ["py.typed", "fast/native.c"], "annotated_workbench": ["py.typed"]}
    data["annotated_course"] = ["py.typed", "*.pyi", "*.html", "chapters/*/*", "play/*.js", "play/*.css"]
    assert project["tool"]["setuptools"]["package-data"] == data
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)
    assert callable(pkgutil.resolve_name(project["project"]["scripts"]["annotated"]))


def test_the_package_asks_for_nothing_that_is_not_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    ranges = [Requirement(line) for line in project["dependencies"] + extras if not line.startswith("annotated[")]
    for python in PYTHONS:
        pins = pins_for(python)
        for loose in ranges:
            assert pins[loose.name] in loose.specifier, f"{loose} excludes the pinned {pins[loose.name]}"


def import_contracts(project: Path) -> str:
    """What import-linter says of a project's packages."""
    linter = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([linter, "--no-cache"], cwd=project, capture_output=True, text=True).stdout


@once
def test_imports_run_one_way() -> None:  # each line breaks a contract
    assert "Contracts: 3 kept, 0 broken." in import_contracts(ROOT)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("annotated/attention.py", "import annotated.models.gpt"),
        ("annotated/attention.py", "import numpy"),
        ("annotated/models/gpt.py", "from annotated.fast import memory"),
        ("annotated/fast/memory.py", "def f():\n    from annotated_workbench import files"),
        ("annotated_workbench/files.py", "import annotated_course.claims"),
        ("annotated_course/claims.py", "import tools.sync"),
    ],
)
@once
def test_an_import_the_other_way_is_seen(file: str, line: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tools").mkdir()
    with (tmp_path / file).open("a") as code:
        code.write(f"\n{line}\n")
    assert "1 broken" in import_contracts(tmp_path)


def test_every_room_is_there() -> None:
    folders = {path.name for path in (ROOT / "annotated").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {"models", "fast"}
    assert {path.stem for path in (ROOT / "annotated").glob("*.py")} == {
        *("__init__", "__main__", "config", "masking"),
        *("attention", "multi_head", "positional_encoding", "encoder", "decoder", "transformer"),
        *("training", "decoding"),
    }


def run_python(code: str, **environment: str | None) -> str:
    """Run code in a fresh interpreter, from the root of the project; None takes a variable out of its environment."""
    variables = {name: value for name, value in (dict(os.environ) | environment).items() if value is not None}
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("given", "policy"), [(None, "passive"), ("active", "active")])
def test_the_command_line_lets_threads_wait_in_peace_before_torch_loads(given: str | None, policy: str) -> None:
    # torch reads the variable when it loads: what is set later has no effect.
    code = """
import os, sys
seen = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            seen.append(os.environ.get("OMP_WAIT_POLICY"))
sys.meta_path.insert(0, Watch())
import annotated.__main__
assert "torch" in sys.modules
print(seen[0], os.environ["OMP_WAIT_POLICY"])
"""
    assert run_python(code, OMP_WAIT_POLICY=given).split() == [policy, policy]


def test_importing_what_trains_and_translates_loads_little_beyond_torch() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import annotated.__main__
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))
print(*sys.modules)
"""
    packages, modules = (set(line.split()) for line in run_python(code).splitlines())
    parts = (
        "decoding",
        "models.recurrence",
        "fast.decoding",
        "fast.training",
    )
    assert {f"annotated.{name}" for name in parts} <= modules
    assert {"annotated_workbench.checkpoint", "annotated_workbench.runs"} <= modules
    assert not {name for name in modules if name.startswith("annotated_course")}
    assert packages <= {"annotated", "annotated_workbench", "jaxtyping", "numpy", "torch", "wadler_lindig"}


def test_every_module_imports_without_the_packages_that_only_some_functions_need() -> None:
    code = """
import importlib, pkgutil, sys
optional = ["IPython", "datasets", "matplotlib", "pooch", "sacrebleu", "safetensors", "seaborn", "spacy", "tokenizers"]
for name in [*optional, "torchtext", "tqdm", "transformers"]:
    sys.modules[name] = None
for package in ("annotated", "annotated_course", "annotated_workbench"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
        print(module.name)
"""
    assert "annotated.attention" in run_python(code).split()
