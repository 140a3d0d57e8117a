"""One click: what Codespaces and Binder are told fits the course as it is."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from once import once

from tools.sync import ROOT

pytestmark = once

BINDER = ROOT / ".binder"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


def test_a_dev_container_makes_the_environment_and_opens_the_start_page() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert container["updateContentCommand"] == "make env && .venv/bin/python -m tools.working_copy"
    assert container["customizations"]["codespaces"]["openFiles"] == ["work/start.md"]
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    assert f"PIP_EXTRA_INDEX_URL={container['containerEnv']['PIP_EXTRA_INDEX_URL']} " in docker
    assert container["image"].rpartition(":")[2] == re.search(r"python:([\d.]+)", docker)[1]


def test_binder_takes_the_course_s_own_versions_and_a_torch_without_gpus() -> None:
    lines = [line for line in (BINDER / "requirements.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    options = dict(line.split() for line in lines)
    assert (BINDER / options["-c"]).resolve() == ROOT / "requirements.txt"
    assert options["-e"] == ".[notebooks]" and "notebooks" in EXTRAS
    assert options["--extra-index-url"].endswith("/whl/cpu")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text("utf-8"))
    python = (BINDER / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    assert python in workflow["jobs"]["test"]["strategy"]["matrix"]["python"]


def test_binder_s_scripts_make_the_start_page_and_start_what_they_are_given(tmp_path: Path) -> None:
    environment = os.environ | {"ANNOTATED_WORK": str(tmp_path / "work"), "HOME": str(tmp_path)}
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"  # of an environment whose settings are these
    python.write_text(
        f'#!/bin/sh\ncase "$2" in *sys.prefix*) echo "{tmp_path}";; *) exec "{sys.executable}" "$@";; esac\n'
    )
    python.chmod(0o755)
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    subprocess.run([BINDER / "postBuild"], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert "Begin with" in (tmp_path / "work" / "start.md").read_text("utf-8")
    settings = json.loads((tmp_path / "share/jupyter/lab/settings/overrides.json").read_text("utf-8"))
    assert "Markdown Preview" in str(settings)
    started = subprocess.run(
        [BINDER / "start", "printf", "%s|", "two words"], capture_output=True, text=True, check=True
    )
    assert started.stdout == "two words|"
