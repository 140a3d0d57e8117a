"""The environment: pins are installed and say the same everywhere; imports run one way, and importing stays cheap."""

import ast
import os
import pkgutil
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
    assert project["tool"]["setuptools"]["package-data"]["annotated"] == ["py.typed", "course/*.html"]
    assert (ROOT / "annotated" / "py.typed").is_file()
    assert callable(pkgutil.resolve_name(project["project"]["scripts"]["annotated"]))


def test_the_package_asks_for_nothing_that_is_not_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    ranges = [Requirement(line) for line in project["dependencies"] + extras if not line.startswith("annotated[")]
    for python in PYTHONS:
        pins = pins_for(python)
        for loose in ranges:
            assert pins[loose.name] in loose.specifier, f"{loose} excludes the pinned {pins[loose.name]}"


# What a room's files may import: of the module, and, where that is all they need, of other packages. A file's room is
# its folder; the paper's own files lie in none, nor does the one that starts the command line.
ROOMS = {
    "paper": {"paper"},
    "models": {"paper", "models"},
    "fast": {"paper", "models", "fast"},
    "workbench": {"paper", "models", "fast", "workbench"},
    "course": {"paper", "models", "fast", "workbench", "course"},
    "start": {"workbench", "course"},
}
PACKAGES = {"paper": {"torch", "jaxtyping"}, "models": {"torch", "jaxtyping"}, "start": set()}
OTHER_CODE = {"experiments", "notebooks", "tests", "tools"}


def imported_by(file: Path) -> set[str]:
    """The dotted names that a file imports anywhere in it, be they modules or what is in them."""
    names = set()
    package = file.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names |= {".".join((*base, *filter(None, (node.module,)), alias.name)) for alias in node.names}
    return names


def room_of(name: str) -> str | None:
    """The room that a dotted name leads to; of the package itself, whose version alone is asked for, None."""
    path = ROOT.joinpath(*name.split("."))
    while not (path.is_dir() or path.with_suffix(".py").is_file()):  # from the names in a module to the module
        path = path.parent
    if path == ROOT / "annotated":
        return None
    if path == ROOT / "annotated" / "__main__":
        return "start"
    return "paper" if path.parent == ROOT / "annotated" and not path.is_dir() else path.relative_to(ROOT).parts[1]


MODULE_FILES = sorted((ROOT / "annotated").rglob("*.py"))


@pytest.mark.parametrize("file", MODULE_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_run_one_way(file: Path) -> None:
    own = room_of(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")) or "paper"
    names = imported_by(file)
    inside = {name: room_of(name) for name in names if name.partition(".")[0] == "annotated"}
    wrong = {name: room for name, room in inside.items() if room is not None and room not in ROOMS[own]}
    assert not wrong, f"{own} may import {sorted(ROOMS[own])} only"
    outside = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"annotated"}
    assert not outside & OTHER_CODE
    assert outside <= PACKAGES.get(own, outside)


def test_every_room_is_there() -> None:
    folders = {path.name for path in (ROOT / "annotated").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ROOMS) - {"paper", "start"}
    assert {path.stem for path in (ROOT / "annotated").glob("*.py")} == {
        *("__init__", "__main__", "config", "masking"),
        *("attention", "multi_head", "positional_encoding", "encoder", "decoder", "transformer"),
        *("training", "decoding"),
    }


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("annotated", None),
        ("annotated.__version__", None),
        ("annotated.attention", "paper"),
        ("annotated.attention.attention", "paper"),
        ("annotated.__main__", "start"),
        ("annotated.fast.attention.attend", "fast"),
        ("annotated.course", "course"),
        ("annotated.course.exercises.chapter_01", "course"),
    ],
)
def test_names_lead_to_rooms(name: str, room: str | None) -> None:
    assert room_of(name) == room


def test_every_kind_of_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "annotated" / "fast").mkdir(parents=True)
    file = tmp_path / "annotated" / "fast" / "x.py"
    file.write_text(
        "import os, annotated.a as b\nfrom annotated import c\nfrom annotated.d.e import f as g, h\nfrom . import i\n"
        "from .j import k\nfrom .. import l\nfrom ..m import n\ndef f():\n    if True:\n        import torch.nn\n"
    )
    assert imported_by(file) == {
        *("os", "torch.nn", "annotated.a", "annotated.c", "annotated.d.e.f", "annotated.d.e.h"),
        *("annotated.fast.i", "annotated.fast.j.k", "annotated.l", "annotated.m.n"),
    }


def run_python(code: str, **environment: str | None) -> str:
    """Run code in a fresh interpreter, from the root of the project; None takes a variable out of its environment."""
    variables = {name: value for name, value in (dict(os.environ) | environment).items() if value is not None}
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("given", "policy"), [(None, "passive"), ("active", "active"), ("passive", "passive")])
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
        "workbench.checkpoint",
        "workbench.runs",
    )
    assert {f"annotated.{name}" for name in parts} <= modules
    assert not {name for name in modules if name.startswith("annotated.course")}
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
