"""The course in JupyterLab, as a reader meets it: `make lab`, cells run, an exercise got wrong, then right, progress.

Skipped where Chromium or make is not found, and on an imitated processor: it draws no other page.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
import pytest
from once import once

from tools.sync import ROOT, notebook_paths

pytestmark = once

pytestmark = pytest.mark.thorough  # JupyterLab in a browser

NOTEBOOKS = ("01_attention", "11_evaluation")
RUN_ALL = """async () => {
  const context = window.jupyterapp.shell.currentWidget.sessionContext;
  await context.ready;
  await context.session.kernel.info;
  return await window.jupyterapp.commands.execute("notebook:run-all-cells");
}"""
# JupyterLab draws only the cells in sight; their model holds all.
PRINTED = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => {
  const outputs = cell.outputs ? cell.outputs.toJSON() : [];
  return [cell.sharedModel.source, outputs.map(output => output.text || output.ename || "").join("")];
})"""
ANSWER = """async ([place, source]) => {
  const panel = window.jupyterapp.shell.currentWidget;
  panel.content.model.cells.get(place).sharedModel.setSource(source);
  for (const i of [place, place + 1]) {
    panel.content.activeCellIndex = i;
    await window.jupyterapp.commands.execute("notebook:run-cell");
  }
}"""


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that `make lab` has started, with a working copy in a folder of its own."""
    if shutil.which("make") is None:
        pytest.skip("there is no make on this machine.")
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --port {port} --ServerApp.port_retries=0 --IdentityProvider.token= --ServerApp.password= "
    options += f"--ServerApp.root_dir={folder} --LabApp.expose_app_in_browser=True"
    torch = ["TORCH=" + Path(sys.prefix).name.removeprefix(".venv-torch-")] * ("torch" in Path(sys.prefix).name)
    command = ["make", "lab", *torch, f"ARGS={options}"]
    environment = os.environ | {
        "ANNOTATED_WORK": str(folder / "work"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "run"),
    }
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(120):
                try:
                    urlopen(address, timeout=5).close()
                    break
                except (URLError, OSError):
                    assert server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.5)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGINT)  # once asks, twice means it
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


@pytest.fixture(scope="module")
def tab(browser, lab: str):
    """A tab at the page that `make lab` opens."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(lab)  # which leads to the page that it opens
    return page


def test_it_opens_at_the_start_page_which_leads_to_the_tour_and_shows_every_notebook(tab) -> None:
    tab.wait_for_selector(".jp-MarkdownViewer table img")
    listed = [path for path in notebook_paths() if path.parent.name == "notebooks"]
    assert tab.locator(".jp-MarkdownViewer table img").count() == len(listed)
    assert "0 of " in tab.locator(".jp-MarkdownViewer").inner_text()
    tab.locator(".jp-MarkdownViewer p a").nth(0).click()
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    assert tab.evaluate("window.jupyterapp.shell.currentWidget.context.path") == "work/00_tour.ipynb"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_its_formulas_and_figures(tab, lab: str, name: str) -> None:
    tab.goto(f"{lab}/lab/tree/work/{name}.ipynb?reset")
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    tab.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    tab.evaluate(RUN_ALL)
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    saved = [
        "".join(output.get("text", "") for output in cell.get("outputs", []))
        for cell in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    ]
    assert [printed for _, printed in tab.evaluate(PRINTED)] == saved
    picture = tab.locator(".jp-OutputArea-output img").first
    for _ in range(40):
        if picture.count():
            break
        tab.mouse.move(700, 500)
        tab.mouse.wheel(0, 700)
        tab.wait_for_timeout(100)
    assert picture.bounding_box()["width"] > 300


def test_an_exercise_is_got_wrong_and_then_right(tab, lab: str) -> None:
    tab.goto(f"{lab}/lab/tree/work/01_attention.ipynb?reset")
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    tab.evaluate(RUN_ALL)
    cells = tab.evaluate(PRINTED)
    place = next(i for i, (source, _) in enumerate(cells) if source.startswith('check("01.2"')) - 1
    assert "○ 01.2" in cells[place + 1][1]
    solutions = nbformat.read(ROOT / "notebooks" / "solutions" / "01_solutions.ipynb", as_version=4).cells
    right = solutions[next(i for i, cell in enumerate(solutions) if cell.source.startswith('check("01.2"')) - 1].source
    for answer, verdict in (("my_attention = lambda query, key, value: value", "✗ 01.2"), (right, "✓ 01.2")):
        tab.evaluate(ANSWER, [place, answer])
        assert verdict in tab.evaluate(PRINTED)[place + 1][1]
    tab.evaluate(ANSWER, [place, "from annotated_course.exercises import progress\nprogress()"])
    assert "01  ○●○○○○   next: 01.1 One row by hand" in tab.evaluate(PRINTED)[place][1]
