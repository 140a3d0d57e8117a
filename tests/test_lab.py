"""The course in JupyterLab as a reader meets it: `make lab`, pictures, cells run, an exercise got wrong, then right."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

import nbformat
import pytest
from once import once

from tools.sync import ROOT, notebook_paths

pytestmark = [once, pytest.mark.thorough]  # JupyterLab in a browser

IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
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
BOOK = "window.jupyterapp.shell.currentWidget.content"
SHOW = f"""what => {BOOK}.scrollToItem(
  [...{BOOK}.model.cells].findIndex(cell => cell.type === "code" && cell.sharedModel.source.includes(what)), "start")"""
ANSWER = f"""async ([place, source]) => {{
  {BOOK}.model.cells.get(place).sharedModel.setSource(source);
  for ({BOOK}.activeCellIndex of [place, place + 1]) await window.jupyterapp.commands.execute("notebook:run-cell");
}}"""
CELLS = f"[{BOOK}.widgets.length, {BOOK}.activeCellIndex]"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that `make lab` has started, with a working copy in a folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "docs").symlink_to(ROOT / "docs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --port {port} --ServerApp.port_retries=0 --IdentityProvider.token= --ServerApp.password= "
    options += f"--ServerApp.root_dir={folder} --LabApp.expose_app_in_browser=True"
    folders = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = os.environ | folders | {"ANNOTATED_WORK": str(folder / "work")}
    command = ["make", "lab", f"ARGS={options}"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            while server.poll() is None:
                with suppress(OSError), urlopen(address, timeout=60):
                    break
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGINT)  # once asks, twice means it
            os.killpg(server.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def tab(browser, lab: str) -> Any:
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
    tab.wait_for_selector(IDLE)
    assert tab.evaluate("window.jupyterapp.shell.currentWidget.context.path") == "work/00_tour.ipynb"


def test_pictures_and_the_live_page_move_before_a_cell_has_run_and_no_key_leaves_a_picture(tab, lab) -> None:
    tour, first = ("view_attention(", "select", "button"), ("play_with(", "input", ".play-handle", "summary")
    for name, (cell, *parts) in {"00_tour": tour, "01_attention": first}.items():
        tab.goto(f"{lab}/lab/tree/work/{name}.ipynb?reset")
        tab.wait_for_selector(IDLE)
        tab.evaluate(SHOW, cell)
        for part in parts:
            tab.locator(f":is(.attention-view, .play) {part}").first.focus()
            before = tab.evaluate(CELLS)
            for key in ("ArrowRight", "ArrowUp", "d", "d", "x"):
                tab.keyboard.press(key)
            assert tab.evaluate(CELLS) == before
    tab.goto(f"{lab}/lab/tree/docs/live/index.html?reset")
    tab.frame_locator(".jp-HTMLViewer iframe").locator("#builder fieldset").first.wait_for(state="attached")


def test_a_link_to_a_heading_leads_there_at_the_first_click(tab, lab) -> None:
    tab.goto(f"{lab}/lab/tree/work/01_attention.ipynb?reset")
    tab.wait_for_selector(IDLE)
    card = tab.locator(".jp-MarkdownCell", has_text="Exercise 01.6 · ")
    card.get_by_role("link", name="solution").click()
    tab.wait_for_function(f"""() => {BOOK}.widgets.find(
      cell => cell.node.getBoundingClientRect().bottom > {BOOK}.node.getBoundingClientRect().top + 20
    )?.model.sharedModel.source.startsWith("## Exercise 01.6")""")


def test_a_notebook_runs_as_saved_shows_formulas_and_figures_and_says_whether_an_answer_is_right(tab, lab) -> None:
    tab.goto(f"{lab}/lab/tree/work/01_attention.ipynb?reset")
    tab.wait_for_selector(IDLE)
    tab.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    tab.evaluate(RUN_ALL)
    tab.wait_for_selector(IDLE)
    saved = nbformat.read(ROOT / "notebooks" / "01_attention.ipynb", as_version=4).cells
    cells = tab.evaluate(PRINTED)
    texts = ["".join(output.get("text", "") for output in cell.get("outputs", [])) for cell in saved]
    assert [printed for _, printed in cells] == texts
    tab.evaluate(SHOW, "show(")
    assert tab.locator(".jp-OutputArea-output img").first.bounding_box()["width"] > 300
    place = next(i for i, (source, _) in enumerate(cells) if source.startswith('check("01.2"')) - 1
    assert "○ 01.2" in cells[place + 1][1]
    solutions = nbformat.read(ROOT / "notebooks" / "solutions" / "01_solutions.ipynb", as_version=4).cells
    right = solutions[next(i for i, cell in enumerate(solutions) if cell.source.startswith('check("01.2"')) - 1].source
    for answer, verdict in (("my_attention = lambda query, key, value: value", "✗ 01.2"), (right, "✓ 01.2")):
        tab.evaluate(ANSWER, [place, answer])
        assert verdict in tab.evaluate(PRINTED)[place + 1][1]
    tab.evaluate(ANSWER, [place, "from annotated_course.exercises import progress\nprogress()"])
    assert "01  ○●○○○○   next: 01.1 One row by hand" in tab.evaluate(PRINTED)[place][1]
