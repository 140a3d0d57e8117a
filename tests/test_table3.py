"""The arithmetic of Table 3 in small, and its runs' bookkeeping."""

import json
import math
from dataclasses import replace

import pytest

from annotated.config import TransformerConfig
from annotated_workbench.data import Pairs
from experiments import table3
from tests.runs import SENTENCES

BLEU = {"base": [30.0, 31.0, 32.0], "N = 1 (2)": [22.0, 25.0, 27.0, 26.0], "dropout 0.2": [30.5]}
NATS = {"base": [1.8, 1.9, 2.0], "N = 1 (2)": [2.1, 2.2, 2.3, 2.2], "dropout 0.2": [1.95]}
LINES = [
    {"row": row, "seed": seed, "ppl": math.exp(NATS[row][seed]), "bleu": bleu}
    for row, scores in BLEU.items()
    for seed, bleu in enumerate(scores)
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


def test_a_run_that_has_its_line_is_not_repeated(tmp_path, monkeypatch):
    results = tmp_path / "table3.jsonl"
    lines = [{"row": row.name, "seed": 0, "ppl": 6.0, "bleu": 30.0} for row in table3.ROWS]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("sys.argv", ["table3", str(results), "--seeds", "1"])
    monkeypatch.setattr(table3, "run", None)  # would be called for any run that is missing
    table3.main()
    written = json.loads((tmp_path / "table3.json").read_text())
    assert [row["name"] for row in written["rows"]] == [row.name for row in table3.ROWS]
    assert [row["runs"] for row in written["rows"]] == [[line] for line in lines] and written["base"]["d_model"] == 128


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
    assert 1 < line["ppl"] < 1000 and 0 <= line["bleu"] <= 100 and line["train_loss"] > 0
