"""python -m annotated train | translate | evaluate: what a user types and sees."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from annotated import __main__ as command_line
from annotated.__main__ import main
from annotated.checkpoint import load_checkpoint
from annotated.data import DATA_FOLDER
from annotated.decoding import bleu, chrf, translate
from annotated.training import bf16_is_fast
from annotated.translator import Ensemble
from annotated.vocabulary import WordTokenizer, load_tokenizer

ANIMALS = {"Hund": "dog", "Vogel": "bird", "Bär": "bear", "Käfer": "beetle", "Wolf": "wolf"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "spielt": "plays", "wartet": "waits"}
PLACES = {"hier": "here", "dort": "there", "draußen": "outside"}
SENTENCES = [
    (f"Ein {animal} {verb} {place}.", f"A {ANIMALS[animal]} {VERBS[verb]} {PLACES[place]}.")
    for animal in ANIMALS
    for verb in VERBS
    for place in PLACES
]
SMALL = ["--preset", "tiny", "--vocab-size", "280", "--warmup", "7", "--batch-tokens", "300", "--precision", "fp32"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> SimpleNamespace:
    """Make text files: sixty pairs, and some that are not as they should be."""
    folder = tmp_path_factory.mktemp("corpus")

    def write(name: str, lines: list[str]) -> str:
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(folder / name)

    german, english = ([pair[side] for pair in SENTENCES] for side in (0, 1))
    return SimpleNamespace(
        de=write("my.de", german),
        en=write("my.en", english),
        short=write("short.en", english[:59]),
        long=write("long.de", ["Hund " * 600]),
        one=write("one.en", ["A dog."]),
        none=str(folder / "none"),
    )


def train_arguments(corpus, out, *more: str) -> list[str]:
    return ["train", "--source", corpus.de, "--target", corpus.en, "--out", str(out), *SMALL, *more]


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory) -> SimpleNamespace:
    """Train for two epochs; return the folder and what was printed."""
    out = tmp_path_factory.mktemp("runs") / "de-en"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(train_arguments(corpus, out, "--epochs", "2")) == 0
    return SimpleNamespace(out=str(out), printed=printed.getvalue())


def run_translate(run, texts, **options) -> list[str]:
    model, _ = load_checkpoint(run.out)
    bf16 = bf16_is_fast(torch.device("cpu"))  # as the command line decides
    return translate(model, load_tokenizer(run.out), texts, "de", bf16=bf16, **options)


# Training


def test_training_says_what_it_does_and_how_far_it_is(run):
    first, batches, *epochs = run.printed.splitlines()
    assert re.search(r"57 training and 3 validation pairs, 280 tokens .* parameters, cpu, float32, \d+ thread", first)
    assert re.fullmatch(r"\d+ batches an epoch, \d\.\d% of their tokens padding", batches)
    assert len(epochs) == 2
    for number, line in enumerate(epochs, start=1):
        assert re.search(
            rf"epoch +{number}\.00 .*loss \d\.\d+ .*validation BLEU .*tokens/s .*min done, [\d.]+ min left", line
        )


def test_training_leaves_a_folder_that_is_enough_to_translate(run):
    names = {path.name for path in Path(run.out).iterdir()}
    assert names == {
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "state.safetensors",
        "tokenizer.json",
    }
    assert len(list(Path(run.out, "checkpoints").iterdir())) == 2


def test_training_validates_on_the_given_files(corpus, tmp_path, capsys):
    more = ("--epochs", "1", "--val-source", corpus.de, "--val-target", corpus.en)
    assert main(train_arguments(corpus, tmp_path, *more)) == 0
    assert "60 training and 60 validation pairs" in capsys.readouterr().out


def test_training_takes_every_option(corpus, tmp_path):
    options = {
        "src": "en",
        "tgt": "de",
        "tokenizer": "words",
        "dropout": 0.3,
        "epochs": 1,
        "max_minutes": 5.0,
        "accumulate": 3,
        "schedule": "linear",
        "rate": 0.5,
        "smoothing": 0.2,
        "average": 2,
        "seed": 7,
        "device": "cpu",
    }
    more = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    files = ["--source", corpus.en, "--target", corpus.de]
    assert main(["train", *files, "--out", str(tmp_path), *SMALL, *more, "--norm-first"]) == 0
    model, info = load_checkpoint(tmp_path)
    assert info["settings"] | options == info["settings"]
    assert (info["src"], info["tgt"]) == ("en", "de")
    assert model.config.dropout == 0.3
    assert model.config.norm_first
    assert isinstance(load_tokenizer(tmp_path), WordTokenizer)


def test_a_resumed_run_has_the_settings_it_was_started_with(run, corpus, tmp_path, capsys):
    assert main(train_arguments(corpus, tmp_path, "--epochs", "1")) == 0
    assert main(["train", "--resume", "--out", str(tmp_path), "--epochs", "2"]) == 0
    assert (tmp_path / "model.safetensors").read_bytes() == Path(run.out, "model.safetensors").read_bytes()
    configs = [json.loads(Path(folder, "config.json").read_text(encoding="utf-8")) for folder in (tmp_path, run.out)]
    assert configs[0] == configs[1]


def test_an_interruption_is_no_crash(corpus, tmp_path, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "train", interrupt)
    assert main(train_arguments(corpus, tmp_path)) == 130
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--resume" in error


# Translating


def test_sentences_on_the_command_line_are_translated(run, capsys):
    texts = ["Ein Bär schläft hier.", "Ein Vogel"]
    assert main(["translate", run.out, *texts]) == 0
    assert capsys.readouterr().out.splitlines() == run_translate(run, texts)


def test_how_to_search_is_passed_on(run, capsys, monkeypatch):
    heard = {}
    monkeypatch.setattr(command_line, "translate", lambda *args, **options: heard.update(options) or ["…"])
    assert main(["translate", run.out, "Ein Bär", "--beam", "7", "--alpha", "0.25", "--precision", "fp32"]) == 0
    assert heard == {"beam": 7, "alpha": 0.25, "max_extra": 50, "bf16": False}
    assert main(["translate", run.out, "Ein Bär", "--precision", "bf16", "--max-extra", "3"]) == 0
    assert heard == {"beam": 4, "alpha": 0.6, "max_extra": 3, "bf16": True}


def test_another_runs_probabilities_are_averaged_in(run, corpus, tmp_path, monkeypatch):
    other = str(tmp_path / "other")
    assert main(train_arguments(corpus, other, "--epochs", "1", "--seed", "3")) == 0
    heard = []
    monkeypatch.setattr(command_line, "translate", lambda model, *args, **options: heard.append(model) or ["…"])
    assert main(["translate", run.out, "Ein Bär", "--ensemble", other, "--ensemble", run.out]) == 0
    (ensemble,) = heard
    assert isinstance(ensemble, Ensemble)
    for model, folder in zip(ensemble.models, (run.out, other, run.out), strict=True):
        torch.testing.assert_close(model.state_dict(), load_checkpoint(folder)[0].state_dict(), rtol=0, atol=0)


def test_lines_of_standard_input_are_translated_one_by_one(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Ein Bär schläft hier.\n\n  Ein Vogel\n \nEin Wolf wartet"))
    assert main(["translate", run.out, "--beam", "0"]) == 0
    expected = run_translate(run, ["Ein Bär schläft hier.", "", "Ein Vogel", "", "Ein Wolf wartet"], beam=0)
    assert expected[1] == expected[3] == ""
    assert capsys.readouterr().out.split("\n") == [*expected, ""]


def test_as_a_program_it_speaks_utf_8_and_keeps_quiet(run):
    texts = "Ein Käfer läuft draußen.\n\nEin Bär"
    command = [sys.executable, "-m", "annotated", "translate", run.out]
    done = subprocess.run(command, input=texts.encode(), capture_output=True, timeout=100)
    assert done.stdout.decode().split("\n") == [*run_translate(run, texts.split("\n")), ""]
    assert (done.returncode, done.stderr) == (0, b"")


def test_as_a_program_it_ends_in_status_2_after_bad_input(corpus):
    command = [sys.executable, "-m", "annotated", "translate", corpus.none, "Ein Bär"]
    done = subprocess.run(command, capture_output=True, timeout=100, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"annotated: no model in .*none.*\n", done.stderr)


# Evaluating


def test_a_test_set_is_translated_and_scored_with_signatures(run, corpus, tmp_path, capsys):
    output = tmp_path / "translations.en"
    arguments = ["evaluate", run.out, "--source", corpus.de, "--reference", corpus.en, "--beam", "2", "--show", "2"]
    assert main([*arguments, "--output", str(output)]) == 0
    german, english = ([pair[side] for pair in SENTENCES] for side in (0, 1))
    translations = run_translate(run, german, beam=2)
    assert output.read_text(encoding="utf-8").split("\n") == [*translations, ""]
    shown = [
        line
        for i in range(2)
        for line in (
            f"source       {german[i]}",
            f"reference    {english[i]}",
            f"translation  {translations[i]}",
            "",
        )
    ]
    (b, b_signature), (c, c_signature) = bleu(translations, english), chrf(translations, english)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [*shown, f"BLEU {b:.2f}  {b_signature}", f"chrF {c:.2f}  {c_signature}"]
    assert "tok:13a" in b_signature


# Help


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            "train",
            "--corpus --source --target --val-source --val-target --src --tgt --out --resume --preset --dropout "
            "--norm-first --tokenizer --vocab-size --epochs --max-minutes --batch-tokens --accumulate --schedule "
            "--warmup --rate --smoothing --average --seed --precision --device",
        ),
        ("translate", "--ensemble --beam --alpha --max-extra --device"),
        (
            "evaluate",
            "--corpus --split --source --reference --show --output --ensemble --beam --alpha --max-extra --device",
        ),
    ],
)
def test_help_explains_every_option(command, options, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    assert exit.value.code == 0
    # An entry is "  --name VALUE  explanation", the explanation on the next line if the first is too narrow.
    entries = re.findall(r"^  (?:-h, )?(\S+)([^\n]*(?:\n {4,}[^\n]*)*)", capsys.readouterr().out, re.MULTILINE)
    explained = {name for name, rest in entries if re.search(r"\s{2,}\w+[,;]? \w+", rest)}
    assert explained >= {*options.split(), "--help"}
    assert explained == {name for name, _ in entries}, "an option without an explanation"


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    for command in ("train", "translate", "evaluate"):
        assert re.search(rf"^ +{command}  +\w", printed, re.MULTILINE)


# Bad input

OWN = "train --source {de} --target {en} --out {new} --preset tiny --vocab-size 280"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "required: command"),
        ("learn", "'learn'"),
        ("train --corpus captions", "--out"),
        ("train --out {new}", "either --corpus, or --source and --target"),
        ("train --source {de} --out {new}", "either --corpus, or --source and --target"),
        (
            "train --corpus captions --source {de} --target {en} --out {new}",
            "either --corpus, or --source and --target",
        ),
        ("train --corpus wmt14 --out {new}", "'wmt14'"),
        ("train --corpus captions --src fr --out {new}", "'fr'"),
        ("train --source {none} --target {en} --out {new}", "{none}"),
        ("train --source {de} --target {short} --out {new}", "has 60 lines and {short} has 59"),
        (OWN + " --val-source {de}", "--val-source and --val-target go together"),
        (OWN + " --val-source {long} --val-target {one}", "limit is 512"),
        (OWN + " --preset huge", "'huge'"),
        (OWN + " --norm-first --preset recurrent", "--norm-first is for Transformers"),
        (OWN + " --device gpu", "'gpu'"),
        (OWN + " --device meta", "'meta'"),
        (OWN + " --precision fp64", "'fp64'"),
        (OWN + " --tokenizer words --src klingon", "'klingon'"),
        (OWN + " --epochs many", "'many'"),
        (OWN + " --epochs 0", "epochs=0"),
        (OWN + " --max-minutes 0", "max_minutes=0"),
        (OWN + " --warmup 0", "warmup=0"),
        (OWN + " --average 0", "average=0"),
        (OWN + " --batch-tokens 3", "max_tokens = 3"),
        (OWN + " --smoothing 1", "smoothing=1"),
        (OWN + " --dropout 1.5", "1.5"),
        (OWN + " --vocab-size 7", "got 7"),
        ("train --source {de} --target {en} --out {run} --preset tiny --vocab-size 280", "{run} already holds a run"),
        ("train --source {de} --target {en} --out {de} --preset tiny --vocab-size 280", "{de}"),
        ("train --resume --out {new}", "no run to resume in {new}"),
        ("train --resume --out {run}", "2 epochs"),
        ("train --resume --out {run} --epochs 3 --preset small", "not this model's"),
        ("translate", "model"),
        ("translate {new} Hund", "no model in {new}"),
        ("translate {de} Hund", "no model in {de}"),
        ("translate {run} Hund --beam 999", "beam=999"),
        ("translate {run} Hund --beam -1", "beam=-1"),
        ("translate {run} Hund --alpha -0.5", "alpha=-0.5"),
        ("translate {run} Hund --max-extra -1", "max_extra=-1"),
        ("translate {run} Hund --device gpu", "'gpu'"),
        ("translate {run} Hund --ensemble {new}", "no model in {new}"),
        ("translate {run} Hund --ensemble {delivered}", "{delivered} has other tokens or languages than {run}"),
        ("evaluate {run}", "either --corpus, or --source and --reference"),
        ("evaluate {run} --source {de}", "either --corpus, or --source and --reference"),
        ("evaluate {run} --corpus captions --source {de}", "either --corpus, or --source and --reference"),
        ("evaluate {run} --corpus captions --split dev", "'dev'"),
        ("evaluate {run} --source {de} --reference {none}", "{none}"),
        ("evaluate {run} --source {de} --reference {short}", "{short} has 59"),
        ("evaluate {run} --source {long} --reference {one}", "text 1 is"),
    ],
)
def test_bad_input_ends_in_status_2_and_one_line_that_names_it(arguments, message, run, corpus, tmp_path, capsys):
    names = vars(corpus) | {
        "run": run.out,
        "new": str(tmp_path / "new"),
        "delivered": str(DATA_FOLDER / "checkpoints" / "de-en"),
    }
    before = {path: path.read_bytes() for path in Path(run.out).rglob("*") if path.is_file()}
    assert main([word.format(**names) for word in arguments.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("annotated: ")
    assert message.format(**names) in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.safetensors"))
    assert {path: path.read_bytes() for path in Path(run.out).rglob("*") if path.is_file()} == before


def test_too_long_a_sentence_is_named(run, capsys):
    assert main(["translate", run.out, "Ein Bär", "Hund " * 600]) == 2
    assert "text 2 is" in capsys.readouterr().err
