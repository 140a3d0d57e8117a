"""The environment: what is pinned is installed, every file says the same, and importing the module stays cheap."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
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
    assert {pin.name for pin in PINS if pin.marker} == {"torch", "torchtext", "transformers", "ctranslate2"}


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


def test_the_package_asks_for_nothing_that_is_not_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    ranges = [Requirement(line) for line in project["dependencies"] + extras if not line.startswith("annotated[")]
    for python in PYTHONS:
        pins = pins_for(python)
        for loose in ranges:
            assert pins[loose.name] in loose.specifier, f"{loose} excludes the pinned {pins[loose.name]}"


def run_python(code: str) -> str:
    """Run code in a fresh interpreter, from the root of the project."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_what_trains_and_translates_loads_little_beyond_torch() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import annotated.__main__
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))
print(*sys.modules)
"""
    packages, modules = (set(line.split()) for line in run_python(code).splitlines())
    assert {
        f"annotated.{name}" for name in ("workbench.checkpoint", "decoding", "workbench.runs", "models.recurrence")
    } <= modules
    assert packages <= {"annotated", "jaxtyping", "numpy", "wadler_lindig"}


def test_every_module_imports_without_the_packages_that_only_some_functions_need() -> None:
    code = """
import importlib, pkgutil, sys
optional = ["IPython", "datasets", "matplotlib", "pooch", "sacrebleu", "safetensors", "seaborn", "spacy", "tokenizers"]
for name in [*optional, "torchtext", "tqdm", "transformers"]:
    sys.modules[name] = None
import annotated
for module in pkgutil.walk_packages(annotated.__path__, "annotated."):
    importlib.import_module(module.name)
    print(module.name)
"""
    assert "annotated.attention" in run_python(code).split()
