"""One training in several processes: the same losses and files as in one, and an end when one of them dies."""

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from once import once
from safetensors.torch import load_file

from annotated.__main__ import main
from annotated_workbench.checkpoint import load_tensors
from tests.processes import CASES, OPTIONS, follow, make_task
from tests.runs import contents, read_metrics, train_arguments, write_corpus

ROOT = Path(__file__).parents[1]
TIME_LIMIT = 300  # seconds; on an idle machine it takes ten


def run_two(*arguments: object) -> list[SimpleNamespace]:
    """Run two processes as torchrun would, with nobody who kills what is left; return their status and errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.processes", *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [SimpleNamespace(err=p.communicate(timeout=TIME_LIMIT)[1], status=p.returncode) for p in started]
    finally:
        for process in started:
            process.kill()


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> SimpleNamespace:
    """What one process makes of the same tasks."""
    folder = tmp_path_factory.mktemp("one")
    return SimpleNamespace(cases={case: follow(case, folder / case, CASES[case]) for case in CASES}, folder=folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> SimpleNamespace:
    """What two processes make of them: the results of both, and the folder."""
    folder = tmp_path_factory.mktemp("two")
    follow("translation", folder / "one", replace(OPTIONS, epochs=1))
    assert [(process.status, process.err) for process in run_two(folder)] == [(0, ""), (0, "")]
    return SimpleNamespace(results=[json.loads((folder / f"{i}.json").read_text()) for i in range(2)], folder=folder)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one_and_go_on_from_one(one, two, case):
    first, second = (result[case] for result in two.results)
    expected = one.cases[case]
    torch.testing.assert_close(*map(torch.tensor, (first["losses"], expected["losses"])), rtol=1e-3, atol=1e-4)
    assert (first["losses"], first["weights"]) == (second["losses"], second["weights"])
    assert first["weights"] == pytest.approx(expected["weights"], rel=1e-4)
    for line, other, alone in zip(first["metrics"], second["metrics"], expected["metrics"], strict=True):
        for name in alone.keys() - {"minutes", "tokens_per_second"}:
            assert line[name] == other[name] == pytest.approx(alone[name], abs=1e-3), name
        assert line["minutes"] == other["minutes"]
    assert contents(two.folder / case).keys() == contents(one.folder / case).keys()
    if case == "translation":
        resumed = torch.tensor(two.results[0]["resumed"]["losses"])
        torch.testing.assert_close(resumed, torch.tensor(expected["losses"][-len(resumed) :]), rtol=1e-3, atol=1e-4)
        rows = {len(src) for src, _ in make_task(case).batches(OPTIONS.batch_tokens)}
        assert 1 in rows and any(count > 1 and count % 2 for count in rows)  # some shares have no row, or one less


def test_each_draws_a_dropout_of_its_own_and_a_resumed_run_is_the_unbroken_one(two):
    draws = [result["whole"]["draws"] for result in two.results]
    assert all(first != second for first, second in zip(*draws, strict=True))
    for result in two.results:
        whole, resumed = result["whole"], result["halves"]
        assert whole["losses"][-len(resumed["losses"]) :] == resumed["losses"]
        assert whole["weights"] == resumed["weights"] != result["translation"]["weights"]


def test_what_one_cannot_do_neither_does_and_the_first_one_prints_and_has_the_clock(two):
    first, second = two.results
    assert first["nonsense"] == second["nonsense"]
    assert first["nonsense"].startswith("update 1: the loss is nan: nothing was changed.")
    assert load_tensors(two.folder / "nonsense" / "state.safetensors")[1]["progress"]["step"] == 0
    assert first["different"] == second["different"]
    assert first["different"].startswith("the processes do not train the same: give each the same files and options")
    assert not (two.folder / "different").exists()
    assert "validation BLEU" in first["printed"] and second["printed"] == ""
    assert len(first["clock"]["losses"]) == len(second["clock"]["losses"])


def test_when_one_is_killed_the_other_says_so_in_a_line_and_the_run_can_go_on(tmp_path):
    write_corpus(tmp_path)
    first, second = run_two(tmp_path, "die")
    assert (first.status, second.status) == (2, -9)
    assert re.fullmatch("annotated: another process of this training has ended.*\n", first.err)
    assert load_tensors(tmp_path / "run" / "state.safetensors")[1]["progress"]["step"] == 0
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--epochs", "1"]) == 0


@pytest.mark.thorough
@once
def test_torchrun_trains_four_from_the_command_line_and_resumes(corpus, tmp_path):
    def torchrun(*arguments: str) -> str:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
        command = [*launcher, "-m", "annotated", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = [f"--val-source={corpus / 'my.de'}", f"--val-target={corpus / 'my.en'}", "--dropout=0", "--device=cpu"]
    four, one = tmp_path / "four", tmp_path / "one"
    printed = torchrun(*train_arguments(corpus, four, *options, "--epochs", "1"))
    assert printed.count(" threads in each of 4 processes") == 1
    assert "making them anew" not in torchrun("train", "--resume", "--out", str(four), "--epochs", "2")
    assert main(train_arguments(corpus, one, *options, "--epochs", "2")) == 0
    assert contents(four).keys() == contents(one).keys()
    losses = [[line["loss"] for line in read_metrics(out)] for out in (four, one)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    torch.testing.assert_close(*(load_file(out / "model.safetensors") for out in (four, one)), rtol=0, atol=1e-4)
