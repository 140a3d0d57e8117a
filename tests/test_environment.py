"""The environment: pins are installed and say the same everywhere, and importing stays cheap."""

import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml
from once import once
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from annotated.__main__ import main
from annotated_course import plotting
from annotated_course.bars import progress_bar
from annotated_workbench.data import load_corpus
from annotated_workbench.extras import EXTRAS
from tools.sync import PACKAGES, ROOT

PINS = [*map(Requirement, re.findall("^[^#\n].*", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE))]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BINDER = ROOT / ".binder"
EXTRA = ["IPython", "ctranslate2", "datasets", "matplotlib", "onnx", "pooch", "spacy", "torchtext", "transformers"]


def pins_for(python: str) -> dict[str, str]:
    """The versions that a Python takes by itself, by name."""
    chosen = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate({"python_version": python})]
    assert len({pin.name for pin in chosen}) == len(chosen), f"a package is pinned twice for Python {python}"
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in chosen}


def is_installed(pinned: str, name: str) -> bool:
    """Whether this version is installed, whatever its build (2.13.0+cpu is 2.13.0)."""
    return Version(version(name)).public == pinned


def test_what_is_pinned_is_installed() -> None:
    pins = pins_for(f"{sys.version_info.major}.{sys.version_info.minor}")
    if "TORCH" in os.environ or not is_installed(pins["torch"], "torch"):  # the newer stack, which runs on any Python
        pins = pins_for(PYTHONS[-1])
        pins["torch"] = os.environ.get("TORCH", pins["torch"])
    others = {name: version(name) for name, pinned in pins.items() if not is_installed(pinned, name)}
    assert others == {}, "run make env"
    assert ("torchtext" in pins) == (Version(version("torch")) < Version("2.4"))


@once
def test_every_pin_is_exact_and_stated_once_and_conda_reads_the_same() -> None:
    assert all(re.fullmatch(r"==[0-9.]+", str(pin.specifier)) for pin in PINS)
    stated = [(canonicalize_name(pin.name), str(pin.marker)) for pin in PINS]
    assert len(set(stated)) == len(stated)
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert conda["dependencies"] == ["python=3.11", "pip", {"pip": ["-r requirements.txt", "-e ."]}]


@once
@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_gets_versions_that_load_together_and_that_the_package_allows(python: str) -> None:
    pins = pins_for(python)
    old = python < "3.13"
    assert (pins["torch"], pins.get("torchtext")) == (("2.3.1", "0.18.0") if old else ("2.13.0", None))
    extras = [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    loose = map(Requirement, PROJECT["project"]["dependencies"] + extras)
    for need in loose:
        assert need.name not in pins or pins[need.name] in need.specifier, f"{need} excludes {pins[need.name]}"
        assert need.name == "annotated" or need.name in {pin.name for pin in PINS}, f"{need} is pinned nowhere"


@once
def test_the_package_brings_its_types_its_files_and_its_command() -> None:
    brought = PROJECT["tool"]["setuptools"]["package-data"]
    for package in PACKAGES:
        assert "py.typed" in brought[package] and (ROOT / package / "py.typed").is_file()
        assert all(list((ROOT / package).glob(pattern)) for pattern in brought[package])
    assert callable(pkgutil.resolve_name(PROJECT["project"]["scripts"]["annotated"]))


FAKE = """#!/bin/sh
echo "$*" >> asked
case "$*" in
*ensurepip*) ;;
"-m venv "*) mkdir "$3/bin" && touch "$3/pyvenv.cfg" && cp "$0" "$3/bin/python" ;;
"-m pip install -r "*) test ! -e offline ;;
"-m pip index "*" --index-url here "*) test ! -e torches || echo 2.3.1+cpu ;;
*print*) echo 3.12 ;;
esac
"""


@pytest.fixture
def make_env(tmp_path: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """`make env` in a folder with what it needs, a Python that only notes what it is asked, and `gpu` for a GPU."""
    (tmp_path / "bin").mkdir()
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name, content in {"fake": FAKE, "bin/nvidia-smi": "#!/bin/sh\ntest -e gpu\n"}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"MAKEFLAGS": "", "TORCH_INDEX": "here", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    return lambda: subprocess.run(["make", "help", "env", "PYTHON=./fake"], **how)


@once
def test_make_sets_up_again_what_it_left_half_made_and_leaves_alone_what_it_did_not_make(tmp_path, make_env) -> None:
    made, mine, offline = (tmp_path / name for name in (".venv/bin/python", ".venv/mine", "offline"))
    mine.parent.mkdir()
    for name, content in (("mine", ""), ("ready", "x\n"), ("begun", ""), ("ready", "/elsewhere\n")):
        (stamp := mine.with_name(name)).write_text(content)
        assert ".venv was not made by make" in make_env().stderr and mine.exists() and stamp.read_text() == content
    shutil.rmtree(mine.parent)
    offline.touch()
    assert make_env().stderr and made.exists()  # of an empty folder; then it could not go on
    mine.touch()
    offline.unlink()
    assert make_env().stderr == "" and made.exists() and not mine.exists()
    mine.touch()
    assert make_env().stderr == "" and mine.exists()  # it was ready
    (tmp_path / ".venv" / "ready").write_text("/elsewhere\n")
    assert make_env().stderr == "" and made.exists() and not mine.exists()


@once
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyPI's torch has no libraries for GPUs")
@pytest.mark.parametrize("there", [["torches"], [], ["torches", "gpu"]])
def test_make_takes_a_torch_without_gpus_where_none_answers_or_says_that_it_cannot(tmp_path, make_env, there) -> None:
    for name in there:
        (tmp_path / name).touch()
    assert ("No torch for CPUs from here" in make_env().stdout) == (not there)
    installed = re.findall(r"-m pip install (.*)", (tmp_path / "asked").read_text())
    first = ["--no-deps --index-url here --retries 0 --timeout 15 -r .venv/torch.txt"] * (there == ["torches"])
    assert installed == [*first, "-r .venv/requirements.txt", "--no-deps -e ."]
    assert "gpu" in there or (tmp_path / ".venv" / "torch.txt").read_text().startswith("torch==2.3.1; python")


def run_python(code: str) -> str:
    """Run code in a fresh interpreter, from the root of the project."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_command_line_loads_no_extra_and_lets_threads_wait_in_peace() -> None:
    code = """
import os, sys, torch
os.environ.pop("OMP_WAIT_POLICY", None)
import annotated.__main__
print(os.environ["OMP_WAIT_POLICY"], *sys.modules)
"""
    policy, *modules = run_python(code).split()
    assert policy == "passive" and "annotated_workbench.runs" in modules
    assert not {name.partition(".")[0] for name in modules} & {*EXTRA, "annotated_course"}


@once
def test_every_module_imports_without_the_extras() -> None:
    code = f"""
import importlib, pkgutil, sys
for name in {EXTRA}:
    sys.modules[name] = None
for package in ("annotated", "annotated_course", "annotated_workbench"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
        print(module.name)
"""
    assert "annotated.attention" in run_python(code).split()


@once
@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pooch", lambda: load_corpus("multi30k", "val")),
        ("matplotlib", lambda: plotting.plot_attention(torch.ones(1, 1), ["a"], ["b"])),
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


@once
def test_the_command_line_says_it_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert main(["train", "--corpus", "multi30k", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "annotated: pooch is missing: pip install 'annotated[download]'\n"


@once
def test_every_extra_is_declared():
    extras = PROJECT["project"]["optional-dependencies"]
    brought_by = {package: package for package in EXTRAS} | {"IPython": "ipykernel"}
    for package, extra in EXTRAS.items():
        assert any(line.startswith(brought_by[package]) for line in extras[extra]), package


@once
def test_a_dev_container_makes_the_environment_and_opens_the_start_page() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert container["updateContentCommand"] == "make env && .venv/bin/python -m tools.working_copy"
    assert container["customizations"]["codespaces"]["openFiles"] == ["work/start.md"]
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    assert container["image"].rpartition(":")[2] == re.search(r"python:([\d.]+)", docker)[1]


@once
def test_binder_takes_the_course_s_own_versions_and_a_torch_without_gpus_and_shows_the_start_page() -> None:
    lines = [line for line in (BINDER / "requirements.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    options = dict(line.split() for line in lines)
    assert (BINDER / options["-c"]).resolve() == ROOT / "requirements.txt"
    assert options["-e"] == ".[notebooks]" and "notebooks" in PROJECT["project"]["optional-dependencies"]
    assert options["--extra-index-url"].endswith("/whl/cpu")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text("utf-8"))
    python = (BINDER / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    assert python in workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    for script in (BINDER / "postBuild", BINDER / "start"):
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", script], check=True)
    text = (BINDER / "postBuild").read_text("utf-8")
    assert "python -m tools.working_copy\n" in text and json.loads(re.search(r"echo '(.*)'", text)[1])
