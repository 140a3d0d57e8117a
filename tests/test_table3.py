"""The arithmetic of Table 3 in small, and its runs' bookkeeping."""

import json
import math
from dataclasses import replace

import pytest

from annotated.config import TransformerConfig
from annotated_workbench.data import Pairs
from experiments import table3
from tests.runs import SENTENCES


def line(row: str, seed: int, ppl: float, bleu: float) -> dict:
    return {"row": row, "seed": seed, "ppl": ppl, "bleu": bleu, "parameters": 1_500_000}


LINES = [
    *(
        line("base", seed, math.exp(nats), bleu)
        for seed, (nats, bleu) in enumerate([(1.8, 30.0), (1.9, 31.0), (2.0, 32.0)])
    ),
    *(
        line("N = 1 (2)", seed, math.exp(nats), bleu)
        for seed, (nats, bleu) in enumerate([(2.1, 22.0), (2.2, 25.0), (2.3, 27.0), (2.2, 26.0)])
    ),
    line("dropout 0.2", 0, math.exp(1.95), 30.5),
]


def test_a_change_and_its_standard_error_by_hand():
    base, shallow, single = table3.summarise(LINES)
    assert base["bleu_change"] == 0
    assert shallow["nats_change"] == pytest.approx(0.3)
    assert shallow["bleu_change"] == pytest.approx(-6.0)
    assert shallow["bleu_paper_change"] == pytest.approx(23.7 - 25.8)
    assert shallow["nats_paper_change"] == pytest.approx(math.log(6.11 / 4.92), abs=1e-4)
    # BLEU: the squares are 2 and 9 + 0 + 4 + 1 = 14, with 2 and 3 degrees of freedom; the single run has none.
    assert shallow["bleu_error"] == pytest.approx(math.sqrt(16 / 5 * (1 / 3 + 1 / 4)))
    assert single["bleu_error"] == pytest.approx(math.sqrt(16 / 5 * (1 / 1 + 1 / 3)))
    assert shallow["nats_error"] == pytest.approx(math.sqrt(0.04 / 5 * (1 / 3 + 1 / 4)))


def test_a_run_that_has_its_line_is_not_repeated(tmp_path, monkeypatch, capsys):
    results = tmp_path / "table3.jsonl"
    results.write_text("".join(json.dumps(line(row.name, 0, 6.0, 30.0)) + "\n" for row in table3.ROWS))
    monkeypatch.setattr("sys.argv", ["table3", str(results), "--seeds", "1"])
    table3.main()
    printed = capsys.readouterr().out
    assert f"{len(table3.ROWS)} runs are done, 0 are missing." in printed
    assert "learned positions" in printed
    written = json.loads((tmp_path / "table3.json").read_text())
    assert [row["name"] for row in written["rows"]] == [row.name for row in table3.ROWS]
    assert len(written["rows"][0]["runs"]) == 1 and written["base"]["d_model"] == 128


def test_every_row_changes_one_thing_the_model_or_the_loss_knows():
    for row in table3.ROWS[1:]:
        ((name, _),) = row.changes.items()
        assert name == "smoothing" or hasattr(table3.BASE, name)


def test_a_run_is_trained_and_scored(monkeypatch):
    pairs = Pairs(*map(list, zip(*SENTENCES, strict=True)))
    monkeypatch.setattr(table3, "load_corpus", lambda *arguments: pairs)
    monkeypatch.setattr(table3, "VOCAB", 280)
    monkeypatch.setattr(table3, "BASE", TransformerConfig(280, d_model=8, d_ff=16, heads=2, layers=1))
    monkeypatch.setattr(table3, "OPTIONS", replace(table3.OPTIONS, epochs=1))
    line = table3.run(("label smoothing 0.2", 3))
    assert (line["row"], line["seed"]) == ("label smoothing 0.2", 3)
    assert 1 < line["ppl"] < 1000
    assert 0 <= line["bleu"] <= 100
    assert line["train_loss"] > 0
