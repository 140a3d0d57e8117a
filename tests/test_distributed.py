"""One training in several processes: the same batches, losses and files as in one, and an end when one of them dies."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from once import once
from safetensors.torch import load_file
from torch.distributed import TCPStore

from annotated.__main__ import main
from annotated_workbench.checkpoint import load_note
from tests.processes import CASES, FAILURES, HALVES, IN_THE_FIRST, follow, make_task
from tests.runs import train_arguments

ROOT = Path(__file__).parents[1]
TIME_LIMIT = 300  # seconds; on an idle machine it takes ten


def start(*arguments: object) -> tuple[TCPStore, list[subprocess.Popen]]:
    """Start two processes as torchrun would, at a port that the system chooses, with nobody who kills what is left."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    command = [sys.executable, "-W", "error", "-m", "tests.processes", *map(str, arguments)]
    return store, [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | found | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def finish(started: tuple[TCPStore, list[subprocess.Popen]]) -> list[SimpleNamespace]:
    """Wait until both end; return their status and what they printed."""
    _, processes = started
    try:
        printed = [process.communicate(timeout=TIME_LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        SimpleNamespace(status=process.returncode, out=out, err=err)
        for process, (out, err) in zip(processes, printed, strict=True)
    ]


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> SimpleNamespace:
    """What one process makes of the same tasks."""
    folder = tmp_path_factory.mktemp("one")
    cases = {case: follow(case, folder / case, options) for case, options in CASES.items()}
    return SimpleNamespace(cases=cases, whole=follow("translation", folder / "whole", HALVES), folder=folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> SimpleNamespace:
    """What two processes make of them: the results of both, and the folder."""
    folder = tmp_path_factory.mktemp("two")
    follow("translation", folder / "one", replace(HALVES, epochs=1))
    for process in finish(start(folder)):
        assert (process.status, process.err) == (0, "")
    return SimpleNamespace(results=[json.loads((folder / f"{i}.json").read_text()) for i in range(2)], folder=folder)


@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_one_process(one, two, case):
    losses = [result[case]["losses"] for result in two.results]
    assert losses[0] == losses[1]
    assert len(losses[0]) >= 50
    assert losses[0] == pytest.approx(one.cases[case]["losses"], abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_every_update_sees_the_rows_of_one_process_once_each(one, two, case):
    shares = [result[case]["rows"] for result in two.results]
    for whole, first, second in zip(one.cases[case]["rows"], *shares, strict=True):
        assert sorted(first + second) == sorted(whole)


@pytest.mark.parametrize("case", ["translation", "plain"])
def test_batches_that_do_not_divide_and_shares_without_a_row_were_among_them(case):
    rows = {len(src) for src, _ in make_task(case).batches(CASES[case].batch_tokens)}
    assert 1 in rows
    assert any(count > 1 and count % 2 for count in rows)


@pytest.mark.parametrize("case", CASES)
def test_both_end_with_the_same_weights_and_metrics(one, two, case):
    first, second = (result[case] for result in two.results)
    assert first["weights"] == second["weights"] == pytest.approx(one.cases[case]["weights"], rel=1e-4)
    for ours, other, theirs in zip(first["metrics"], second["metrics"], one.cases[case]["metrics"], strict=True):
        assert (ours["step"], ours["epoch"], ours["rate"]) == (theirs["step"], theirs["epoch"], theirs["rate"])
        assert (ours["loss"], ours["minutes"]) == (other["loss"], other["minutes"])


def test_only_the_first_prints(two):
    first, second = (result["printed"] for result in two.results)
    assert "batches an epoch" in first and "validation BLEU" in first
    assert second == ""


def files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_there_are_the_files_of_one_process(one, two):
    for case in CASES:
        assert files(two.folder / case) == files(one.folder / case)


def test_a_run_of_one_process_goes_on_in_two(one, two):
    epoch = len(one.whole["losses"]) // 2
    assert two.results[0]["resumed"]["losses"] == pytest.approx(one.whole["losses"][epoch:], abs=1e-4)
    assert [line["epoch"] for line in two.results[0]["resumed"]["metrics"]] == [1, 2]


def test_a_run_of_two_processes_goes_on_in_one(one, two, tmp_path):
    shutil.copytree(two.folder / "one", tmp_path / "run")
    resumed = follow("translation", tmp_path / "run", replace(HALVES, epochs=3), resume=True)
    assert [line["epoch"] for line in resumed["metrics"]] == [1, 2, 3]
    whole = follow("translation", tmp_path / "whole", replace(HALVES, epochs=3))
    assert resumed["losses"] == pytest.approx(whole["losses"][-len(resumed["losses"]) :], abs=1e-4)


def test_each_draws_a_dropout_of_its_own_and_a_resumed_run_is_the_unbroken_one(two):
    first, second = (result["halves"]["whole"]["draws"] for result in two.results)
    assert all(a != b for a, b in zip(first, second, strict=True))
    for result in two.results:
        whole, resumed = result["halves"]["whole"], result["halves"]["resumed"]
        assert whole["losses"][-len(resumed["losses"]) :] == resumed["losses"]
        assert whole["weights"] == resumed["weights"]


def test_a_loss_that_is_no_number_in_one_ends_both_alike(two):
    first, second = (result["nonsense"] for result in two.results)
    assert first == second
    assert first.startswith("ValueError: update 3: the loss is nan: nothing was changed.")
    assert load_note(two.folder / "nonsense" / "state.safetensors")["progress"]["step"] == 0


@pytest.mark.parametrize("name", FAILURES | IN_THE_FIRST)
def test_where_one_fails_alone_all_say_why(two, name):
    own = (FAILURES | IN_THE_FIRST)[name][2]
    first, second = (result["failures"][name] for result in two.results)
    failed, other = (first, second) if name in IN_THE_FIRST else (second, first)
    kind = "ValueError" if issubclass(own, ValueError | OSError) else "RuntimeError"
    assert failed.startswith(f"{own.__name__}: ") and "what is wrong" in failed
    assert other.startswith(f"{kind}: ") and "what is wrong" in other
    assert "rate" not in failed


def test_both_go_by_the_firsts_clock(two):
    first, second = (result["clock"] for result in two.results)
    assert len(first["losses"]) == len(second["losses"]) > 1
    assert first["metrics"][-1]["minutes"] == second["metrics"][-1]["minutes"] >= 0.005


def test_two_that_do_not_train_the_same_are_refused_before_anything_is_written(two):
    for result in two.results:
        assert result["different"].startswith(
            "ValueError: the processes do not train the same: give each the same files"
        )
    assert not (two.folder / "different").exists()


def test_where_all_fail_alike_one_says_so(two):
    assert sorted((result["end"] for result in two.results), key=str) == [2, "all fail alike"]


def test_when_one_is_killed_the_other_says_so_in_a_line_and_ends(corpus, tmp_path):
    for name in ("my.de", "my.en"):
        (tmp_path / name).write_bytes((corpus / name).read_bytes())
    first, second = finish(start(tmp_path, "die"))
    assert second.status == -9
    assert first.status == 2
    assert first.err.startswith("annotated: another process of this training has ended")
    assert first.err.count("\n") == 1
    assert load_note(tmp_path / "run" / "state.safetensors")["progress"]["step"] == 0


def torchrun(*arguments: str) -> str:
    """Run the command line in four processes; return what they print."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        "-m",
        "annotated",
    ]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@once
def test_torchrun_trains_four_from_the_command_line_on_mapped_pairs_and_resumes(corpus, tmp_path, capsys):
    val = [f"--val-{side}={corpus / name}" for side, name in (("source", "my.de"), ("target", "my.en"))]
    options = [*val, "--dropout", "0", "--device", "cpu"]
    four, one = tmp_path / "four", tmp_path / "one"
    printed = torchrun(*train_arguments(corpus, four, *options, "--mapped", str(tmp_path / "ids"), "--epochs", "1"))
    threads = torch.get_num_threads()  # $OMP_NUM_THREADS, which torchrun heeds; without it 1, as torchrun sets it
    assert printed.count(f"parameters, cpu, float32, {threads} threads in each of 4 processes") == 1
    printed = torchrun("train", "--resume", "--out", str(four), "--epochs", "2")
    assert "ids that" not in printed  # but those that there are
    assert main(train_arguments(corpus, one, *options, "--epochs", "2")) == 0
    assert files(four) == files(one)
    lines = [[json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()] for out in (four, one)]
    assert [line["loss"] for line in lines[0]] == pytest.approx([line["loss"] for line in lines[1]], abs=1e-4)
    torch.testing.assert_close(*(load_file(out / "model.safetensors") for out in (four, one)), rtol=0, atol=1e-4)


def test_several_processes_want_a_gpu_each(monkeypatch):
    from annotated_workbench.distributed import joined

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device, message in (("cuda", "more processes than GPUs, 1: give torchrun"), ("cuda:0", "not on cuda:0")):
        with pytest.raises(ValueError, match=message), joined(torch.device(device)):
            pass
