"""Translations by chance, and what models of both directions learn from them."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from models import make_doubtful

from annotated.config import EOS, PAD
from annotated.fast.accelerate import accelerate
from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import Pairs, load_corpus
from annotated_workbench.translation import translate
from experiments import diversification

DELIVERED = Path("data/checkpoints/de-en")


def test_translations_by_chance_are_the_greedy_ones_when_cold_and_others_when_warm(monkeypatch):
    model, tokenizer, _ = load_translator([DELIVERED])
    texts = load_corpus("captions", "val").source[:20]
    greedy = translate(model, tokenizer, texts, "de", beam=0)
    monkeypatch.setattr(diversification, "SENTENCES", 7)
    monkeypatch.setattr(diversification, "TEMPERATURE", 0.0)
    assert diversification.translate_by_chance(model, tokenizer, texts, "de") == greedy
    monkeypatch.setattr(diversification, "TEMPERATURE", 0.8)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(diversification.translate_by_chance(model, tokenizer, texts, "de"))
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(drawn[0]) and sum(a != b for a, b in zip(drawn[0], greedy, strict=True)) > 3


def test_a_translation_ends_before_its_end_symbol_or_where_there_is_no_more_room():
    src = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD], [4, EOS, PAD, PAD]] * 4)
    drawn = diversification.draw_translations(accelerate(make_doubtful(0)).frozen(), src)
    assert not any(EOS in row for row in drawn)
    assert len({len(row) for row in drawn}) > 2
    assert max(map(len, drawn)) <= src.size(1) + diversification.LONGER


def test_a_teacher_of_the_other_direction_is_refused():
    with pytest.raises(ValueError, match=r"de-en translates de into en: give a run from en to de"):
        diversification.other_words(DELIVERED, ["A dog runs."], "en", "de")


def test_each_direction_learns_from_real_pairs_and_from_the_others_words(tmp_path, monkeypatch):
    sides = {"de": ["eins", "zwei"], "en": ["one", " a\tsecond\u2028line "]}
    asked, commands, broken_off = [], [], ["en-de-8"]

    def other_words(teacher, texts, src, tgt):
        asked.append((teacher, list(texts), src, tgt))
        return [[f"{number}. {tgt} of {text}" for text in texts] for number in (1, 2)]

    def train(command, check):
        commands.append(command)
        run = Path(command[command.index("--out") + 1])
        run.mkdir(exist_ok=True)
        (run / "state.safetensors").touch()
        if run.name in broken_off:
            broken_off.remove(run.name)
        else:
            (run / "metrics.jsonl").write_text(json.dumps({"epoch": 5}) + "\n")

    monkeypatch.setattr(diversification, "load_corpus", lambda _, split, src, tgt: Pairs(sides[src], sides[tgt]))
    monkeypatch.setattr(diversification, "other_words", other_words)
    monkeypatch.setattr(subprocess, "run", train)
    arguments = [str(tmp_path), "--teacher", "a-teacher", "--seeds", "7", "8", "--norm-first"]
    diversification.main(arguments)
    assert asked == [
        (Path("a-teacher"), sides["de"], "de", "en"),
        (tmp_path / "en-de-7", sides["en"], "en", "de"),
    ]
    english = ["one", "a second line"]
    assert (tmp_path / "en-de.de").read_text().splitlines() == 4 * sides["de"]
    assert (tmp_path / "en-de.en").read_text().splitlines() == 2 * english + [
        f"{number}. en of {text}" for number in (1, 2) for text in sides["de"]
    ]
    assert (tmp_path / "de-en.en").read_text().splitlines() == 4 * english
    assert [Path(command[command.index("--out") + 1]).name for command in commands] == [
        *("en-de-7", "en-de-8", "de-en-7", "de-en-8")
    ]
    assert all(command[-3:] == ["--seed", seed, "--norm-first"] for command, seed in zip(commands, "7878", strict=True))
    assert all(command[command.index("--val-target") + 1] == str(tmp_path / "val.de") for command in commands[:2])
    assert (tmp_path / "val.de").read_text().splitlines() == sides["de"]

    diversification.main(arguments)  # only what was broken off goes on, and nothing is translated again
    assert len(asked) == 2 and len(commands) == 5
    assert "--resume" in commands[-1] and "--seed" not in commands[-1] and str(tmp_path / "en-de-8") in commands[-1]
