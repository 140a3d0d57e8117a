"""One click: what Codespaces and Binder are told fits the course as it is."""

import json
import os
import re
import subprocess

import yaml
from once import once

from tests.test_environment import PROJECT
from tools.sync import ROOT

pytestmark = once

BINDER = ROOT / ".binder"


def test_a_dev_container_makes_the_environment_and_opens_the_start_page() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert container["updateContentCommand"] == "make env && .venv/bin/python -m tools.working_copy"
    assert container["customizations"]["codespaces"]["openFiles"] == ["work/start.md"]
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    assert container["image"].rpartition(":")[2] == re.search(r"python:([\d.]+)", docker)[1]


def test_binder_takes_the_course_s_own_versions_and_a_torch_without_gpus() -> None:
    lines = [line for line in (BINDER / "requirements.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    options = dict(line.split() for line in lines)
    assert (BINDER / options["-c"]).resolve() == ROOT / "requirements.txt"
    assert options["-e"] == ".[notebooks]" and "notebooks" in PROJECT["project"]["optional-dependencies"]
    assert options["--extra-index-url"].endswith("/whl/cpu")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text("utf-8"))
    python = (BINDER / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    assert python in workflow["jobs"]["test"]["strategy"]["matrix"]["python"]


def test_binder_s_scripts_can_run_and_make_the_start_page_which_is_shown_as_a_page() -> None:
    for script in (BINDER / "postBuild", BINDER / "start"):
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", script], check=True)
    text = (BINDER / "postBuild").read_text("utf-8")
    assert "python -m tools.working_copy\n" in text and json.loads(re.search(r"echo '(.*)'", text)[1])
