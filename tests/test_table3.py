"""The arithmetic of Table 3 in small, and a run of one of its rows."""

import json
from dataclasses import replace

import pytest
from once import once

from annotated.config import TransformerConfig
from annotated_workbench.data import DATA_FOLDER
from experiments import table3
from tests.runs import PAIRS

pytestmark = once

FILE = DATA_FOLDER / "results" / "table3.jsonl"


def test_the_table_follows_from_the_recorded_runs() -> None:
    lines = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    recorded = json.loads(FILE.with_suffix(".json").read_text(encoding="utf-8"))
    assert recorded["rows"] == table3.summarise(lines)


def test_a_change_and_its_standard_error_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "ROWS", [row for row in table3.ROWS if row.name in ("base", "N = 1 (2)")])
    scores = {"base": [30.0, 31.0, 32.0], "N = 1 (2)": [22.0, 25.0, 27.0, 26.0]}
    lines = [{"row": row, "ppl": 6.0, "bleu": bleu} for row, group in scores.items() for bleu in group]
    _, shallow = table3.summarise(lines)
    assert shallow["bleu_change"] == -6 and shallow["bleu_paper_change"] == pytest.approx(23.7 - 25.8)
    # The squares are 2 and 9 + 0 + 4 + 1 = 14, with 2 and 3 degrees of freedom.
    assert shallow["bleu_error"] == pytest.approx((16 / 5 * (1 / 3 + 1 / 4)) ** 0.5)


def test_a_run_is_trained_and_one_that_has_its_line_is_not_repeated(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "load_corpus", lambda *arguments: PAIRS)
    monkeypatch.setattr(table3, "BASE", TransformerConfig(280, d_model=8, d_ff=16, heads=2, layers=1))
    monkeypatch.setattr(table3, "OPTIONS", replace(table3.OPTIONS, epochs=1))
    results = tmp_path / "table3.jsonl"
    lines = [{"row": row.name, "seed": 0, "ppl": 6.0, "bleu": 30.0} for row in table3.ROWS if row.letter != "E"]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("sys.argv", ["table3", str(results), "--seeds", "1"])
    table3.main()
    *before, line = map(json.loads, results.read_text().splitlines())
    assert before == lines and (line["row"], line["seed"]) == ("learned positions", 0)
    assert 1 < line["ppl"] < 1000 and 0 <= line["bleu"] <= 100 and line["train_loss"] > 0
