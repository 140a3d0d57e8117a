"""python -m annotated train | translate | evaluate: what a user types and sees."""

import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from annotated import __version__
from annotated.__main__ import main
from annotated.fast.training import bf16_is_fast
from annotated_workbench import command_line, commands, runs
from annotated_workbench.checkpoint import load_checkpoint, save_checkpoint
from annotated_workbench.data import DATA_FOLDER, Pairs
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.metrics import bleu, chrf, loss_per_token
from annotated_workbench.training_options import TrainingOptions, defaults_for
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import WordTokenizer, load_tokenizer
from tests.runs import SENTENCES, SMALL, train_arguments


@pytest.fixture(scope="module")
def delivered() -> SimpleNamespace:
    """The model that comes with the course: it tells sentences apart."""
    return SimpleNamespace(out=str(DATA_FOLDER / "checkpoints" / "de-en"))


@pytest.fixture(autouse=True)
def buffered(monkeypatch) -> None:
    """Programs started here buffer their output as usual, whatever the machine's setting."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def run_translate(run, texts, **options) -> list[str]:
    model, _ = load_checkpoint(run.out)
    bf16 = bf16_is_fast(torch.device("cpu"))  # as the command line decides
    return translate(model, load_tokenizer(run.out), texts, "de", bf16=bf16, **options)


# Training


def test_training_says_what_it_does_and_how_far_it_is(run):
    chosen, first, batches, *epochs, try_it = run.printed.splitlines()
    assert try_it == f"Try it: python -m annotated translate {run.out}"
    assert chosen == "chosen for 57 pairs (the fewer, the smaller model and batches): --dropout 0.3"
    assert re.search(r"57 training and 3 validation pairs, 280 tokens .* parameters, cpu, float32, \d+ thread", first)
    found = re.fullmatch(
        r"(\d+) batches an epoch, \d\.\d% of their tokens padding; "
        r"2 epochs, (\d+) updates at most, the learning rate rising for 7",
        batches,
    )
    assert int(found[2]) == 2 * int(found[1])
    assert len(epochs) == 2
    for number, line in enumerate(epochs, start=1):
        assert re.search(
            rf"epoch +{number}\.00 .*loss \d\.\d+ .*validation BLEU .*tokens/s .*min done, [\d.]+ min left", line
        )


def test_what_is_not_given_follows_from_the_corpus(corpus, tmp_path, capsys, monkeypatch):
    heard = {}
    monkeypatch.setattr(commands.train, "fit", lambda model, *args, **kwargs: heard.update(kwargs, model=model))
    files = ["--source", str(corpus / "my.de"), "--target", str(corpus / "my.en")]
    assert main(["train", *files, "--out", str(tmp_path / "own")]) == 0
    chosen = defaults_for(57)
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.items())
    assert capsys.readouterr().out.startswith(
        f"chosen for 57 pairs (the fewer, the smaller model and batches): {words}\n"
    )
    assert heard["settings"] | chosen == heard["settings"]
    assert heard["options"] == TrainingOptions(batch_tokens=256, bf16=bf16_is_fast(torch.device("cpu")))
    assert heard["model"].config.d_model == 128
    assert heard["model"].config.dropout == chosen["dropout"]
    assert main(["train", *files, "--out", str(tmp_path / "own"), "--tokenizer", "words", "--batch-tokens", "700"]) == 0
    assert heard["options"].batch_tokens == 700
    assert "--vocab-size" not in capsys.readouterr().out


def test_few_pairs_get_less_and_never_too_little():
    tiny = {"preset": "tiny", "vocab_size": 1200, "batch_tokens": 500, "dropout": 0.3}
    assert defaults_for(400) == tiny
    assert defaults_for(2) == tiny | {"vocab_size": 500, "batch_tokens": 256}
    multi30k = {"preset": "small", "vocab_size": 6000, "batch_tokens": 2048, "dropout": 0.1}  # best after ten minutes
    assert defaults_for(29_000) == defaults_for(10**6) == multi30k


def test_a_line_stays_a_line_whatever_a_model_writes(run, corpus, tmp_path, capsys, monkeypatch):
    for command in (commands.translate, commands.evaluate):
        monkeypatch.setattr(command, "translate", lambda model, tokenizer, texts, *a, **o: ["A\ndog"] * len(texts))
    assert main(["translate", run.out, "Hund", "Hund"]) == 0
    assert capsys.readouterr().out == "A dog\nA dog\n"
    files = ["--source", str(corpus / "my.de"), "--reference", str(corpus / "my.en")]
    assert main(["evaluate", run.out, *files, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == "A dog\n" * 60


def test_a_folder_that_is_taken_is_found_before_anything_is_read(run, corpus, monkeypatch):
    def read(*paths):
        raise AssertionError("read the corpus first")

    monkeypatch.setattr(commands.train, "read_pairs", read)
    assert main(train_arguments(corpus, run.out)) == 2


def test_training_takes_every_option(corpus, tmp_path):
    options = dict(
        src="en", tgt="de", tokenizer="words", layers=1, dropout=0.3, epochs=1, max_minutes=5.0, device="cpu"
    )
    options |= dict(accumulate=3, schedule="linear", rate=0.5, smoothing=0.2, average=2, seed=7)
    more = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    files = ["--source", str(corpus / "my.en"), "--target", str(corpus / "my.de")]
    small = [word for word in SMALL if word not in ("--vocab-size", "280")]
    assert main(["train", *files, "--out", str(tmp_path), *small, *more, "--norm-first"]) == 0
    model, info = load_checkpoint(tmp_path)
    assert info["settings"] | options == info["settings"]
    assert "help" not in info["settings"]
    assert (info["src"], info["tgt"]) == ("en", "de")
    assert (model.config.layers, model.config.dropout) == (1, 0.3)
    assert model.config.norm_first
    assert isinstance(load_tokenizer(tmp_path), WordTokenizer)


def interrupt(*args, **options):
    raise KeyboardInterrupt


def test_an_interruption_is_no_crash(run, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(commands.translate, "translate", interrupt)
    assert main(["translate", run.out, "Ein Bär"]) == 130
    assert capsys.readouterr().err == "annotated: interrupted.\n"
    monkeypatch.setattr(commands.train, "fit", interrupt)
    assert main(train_arguments(corpus, tmp_path)) == 130
    assert capsys.readouterr().err == "annotated: interrupted.\n"


def test_after_an_epoch_an_interrupted_run_goes_on_with_its_settings(run, corpus, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_report", interrupt)
        assert main(train_arguments(corpus, tmp_path, "--epochs", "2")) == 130
    told = re.fullmatch(r"annotated: interrupted: (.*) goes on from the last whole epoch\.\n", capsys.readouterr().err)
    assert main(shlex.split(told[1])[3:]) == 0
    assert (tmp_path / "model.safetensors").read_bytes() == Path(run.out, "model.safetensors").read_bytes()
    configs = [json.loads(Path(folder, "config.json").read_text(encoding="utf-8")) for folder in (tmp_path, run.out)]
    assert configs[0] == configs[1]


# Translating


def test_sentences_on_the_command_line_are_translated(delivered, capsys):
    texts = ["Ein Bär schläft hier.", "Ein Vogel"]
    assert main(["translate", delivered.out, *texts]) == 0
    assert capsys.readouterr().out.splitlines() == run_translate(delivered, texts)


def test_how_to_search_is_passed_on(run, capsys, monkeypatch):
    heard = {}

    def listen(model, *args, **options):
        heard.update(options, dtype=next(model.parameters()).dtype)
        return ["…"]

    monkeypatch.setattr(commands.translate, "translate", listen)
    assert main(["translate", run.out, "Ein Bär", "--beam", "7", "--alpha", "0.25", "--precision", "fp32"]) == 0
    assert heard == {"beam": 7, "alpha": 0.25, "max_extra": 50, "plain": False, "dtype": torch.float32}
    assert main(["translate", run.out, "Ein Bär", "--precision", "bf16", "--max-extra", "3"]) == 0
    assert heard == {"beam": 4, "alpha": 0.6, "max_extra": 3, "plain": False, "dtype": torch.bfloat16}


def test_another_runs_probabilities_are_averaged_in(run, tmp_path, monkeypatch):
    other = str(shutil.copytree(run.out, tmp_path / "other"))
    model, info = load_checkpoint(other)
    model.output.weight.data.mul_(1.1)
    save_checkpoint(other, model, **info)
    heard = []
    monkeypatch.setattr(commands.translate, "translate", lambda model, *args, **options: heard.append(model) or ["…"])
    words = ["--precision", "fp32", "--ensemble", other, "--ensemble", run.out]
    assert main(["translate", run.out, "Ein Bär", *words]) == 0
    (ensemble,) = heard
    assert isinstance(ensemble, Ensemble)
    for model, folder in zip(ensemble.models, (run.out, other, run.out), strict=True):
        expected = load_checkpoint(folder)[0].state_dict()
        torch.testing.assert_close(model.model.state_dict(), expected, rtol=0, atol=0)


def give(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_lines_of_standard_input_are_translated_one_by_one(delivered, capsys, monkeypatch):
    lines = "\ufeffEin Bär schläft hier.\r\n\n  Ein Vogel\n \nEin Wolf wartet"
    give(monkeypatch, lines.encode())
    assert main(["translate", delivered.out, "--beam", "0"]) == 0
    expected = run_translate(delivered, ["Ein Bär schläft hier.", "", "Ein Vogel", "", "Ein Wolf wartet"], beam=0)
    assert expected[1] == expected[3] == ""
    assert capsys.readouterr().out.split("\n") == [*expected, ""]


def test_as_a_program_it_speaks_utf_8_and_answers_each_line_at_once_and_keeps_quiet(delivered):
    command = [sys.executable, "-m", "annotated", "translate", delivered.out, "--beam", "0"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        for text in ("Ein Käfer läuft draußen.", "", "Ein Vogel"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == run_translate(delivered, [text], beam=0)[0] + "\n"
        process.stdin.close()
        assert (process.wait(100), process.stderr.read()) == (0, b"")


class Terminal(io.BytesIO):
    """What someone types: a line at a time."""

    def isatty(self):
        return True

    def read1(self, size=-1):
        return self.readline()


def test_a_terminal_is_asked_for_sentences(delivered, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal("Ein Hund rennt.\n\nWie heißt du?\n".encode())))
    assert main(["translate", delivered.out, "--beam", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == run_translate(delivered, ["Ein Hund rennt.", "", "Wie heißt du?"], beam=0)
    assert printed.err == (
        "Sentences to translate from de, one a line; Ctrl-D ends.\n> > > "
        "annotated: unsure of 'Wie heißt du?': a model knows only what is like the sentences it learned from.\n> \n"
    )


def test_an_error_far_down_keeps_what_was_translated_before_it(delivered, capsys, monkeypatch):
    monkeypatch.setattr(commands.shared, "READ_AT_ONCE", 20)
    give(monkeypatch, b"Ein Hund\nEin Wolf\nEin Vogel\nEin \xe4lterer Wolf\nEin Hund\n")
    assert main(["translate", delivered.out, "--beam", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == run_translate(delivered, ["Ein Hund", "Ein Wolf", "Ein Vogel"], beam=0)
    assert printed.err.startswith("annotated: standard input, line 4: not UTF-8 (")
    give(monkeypatch, b"Ein Hund\nEin Wolf\n" + b"Hund " * 600 + b"\n")
    assert main(["translate", delivered.out, "--beam", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == run_translate(delivered, ["Ein Hund", "Ein Wolf"], beam=0)
    assert printed.err.startswith("annotated: after 2 lines: text 1 is ")


@pytest.mark.parametrize(
    ("rest", "status", "error"),
    [
        ("| true; exit ${PIPESTATUS[0]}", 141, b""),  # nobody reads the output any more
        ("> /dev/full", 2, b"annotated: [Errno 28] No space left on device\n"),
    ],
)
def test_output_that_goes_nowhere_ends_quietly(run, rest, status, error):
    command = f"{sys.executable} -m annotated translate {run.out} Hund {rest}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (status, error)


# Evaluating


def test_a_test_set_is_translated_and_scored_with_signatures(run, corpus, tmp_path, capsys):
    output = tmp_path / "translations.en"
    files = ["--source", str(corpus / "my.de"), "--reference", str(corpus / "my.en")]
    arguments = ["evaluate", run.out, *files, "--beam", "2", "--show", "2", "--precision", "fp32"]
    assert main([*arguments, "--output", str(output)]) == 0
    german, english = ([pair[side] for pair in SENTENCES] for side in (0, 1))
    model, tokenizer = load_checkpoint(run.out)[0], load_tokenizer(run.out)
    translations = translate(model, tokenizer, german, "de", beam=2)
    assert output.read_text(encoding="utf-8").split("\n") == [*translations, ""]
    names = "source       ", "reference    ", "translation  "
    shown = [
        line
        for texts in list(zip(german, english, translations, strict=True))[:2]
        for line in (*(name + text for name, text in zip(names, texts, strict=True)), "")
    ]
    (b, b_signature), (c, c_signature) = bleu(translations, english), chrf(translations, english)
    nats = loss_per_token(model, tokenizer, Pairs(german, english), "de", "en")
    assert 1 < nats < 6 and "tok:13a" in b_signature
    assert capsys.readouterr().out.splitlines() == [
        *shown,
        f"BLEU {b:.2f}  {b_signature}",
        f"chrF {c:.2f}  {c_signature}",
        f"loss {nats:.3f} nats a token of this vocabulary, perplexity {math.exp(nats):.2f}",
    ]


# By the paper's own files


ALLOWED = ("<module>", "bf16_is_fast", "has_fast_form", "keep_memory")  # they compute nothing of a model


@contextmanager
def nothing_fast():
    """Let nothing of the fast room be called but what is allowed."""

    def watch(frame, event, _):
        code = frame.f_code
        if event == "call" and "annotated/fast/" in code.co_filename:
            assert code.co_name in ALLOWED, f"--plain asked for {code.co_name}"

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def read_losses(out: Path | str) -> list[float]:
    return [json.loads(line)["loss"] for line in Path(out, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_plain_training_is_the_fast_one_to_rounding_and_goes_on_plainly(corpus, tmp_path, monkeypatch, capsys):
    assert main(train_arguments(corpus, tmp_path / "fast", "--epochs", "2", "--dropout", "0")) == 0
    words = train_arguments(corpus, tmp_path / "plain", "--epochs", "1", "--dropout", "0", "--precision", "auto")
    capsys.readouterr()
    with monkeypatch.context() as patch, nothing_fast():
        patch.setattr(commands.shared, "bf16_is_fast", lambda device: True)  # and yet it is float32
        assert main([*words, "--plain"]) == 0
        assert main(["train", "--resume", "--out", str(tmp_path / "plain"), "--epochs", "2"]) == 0
    assert capsys.readouterr().out.count(", cpu, float32, ") == 2
    assert read_losses(tmp_path / "plain") == pytest.approx(read_losses(tmp_path / "fast"), abs=1e-3)
    german = [source for source, _ in SENTENCES[:6]]
    translations = []
    for name in ("fast", "plain"):
        model, info = load_checkpoint(tmp_path / name)
        assert info["settings"]["plain"] == (name == "plain")
        translations.append(translate(model, load_tokenizer(tmp_path / name), german, "de"))
    assert translations[0] == translations[1]


def test_plain_is_plain_in_every_task(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 20)
    for label in ("pos", "neg"):
        (tmp_path / "reviews" / "train" / label).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "reviews" / "train" / label / f"{number}.txt").write_text(f"a {label} film")
    writer, critic = (str(tmp_path / name) for name in ("writer", "critic"))
    text, reviews = ["--text", str(tmp_path / "a.txt")], ["--reviews", str(tmp_path / "reviews")]
    evaluations = ["evaluate", writer, *text], ["evaluate", critic, *reviews]
    uses = *evaluations, ["generate", writer, "to", "--count", "5"], ["classify", critic, "a pos film"]
    with nothing_fast():
        assert main(["train", *text, "--out", writer, "--epochs", "2", "--plain"]) == 0
        assert main(["train", *reviews, "--out", critic, "--epochs", "1", "--plain"]) == 0
        capsys.readouterr()
        assert [main([*use, "--plain"]) for use in uses] == [0] * 4
    plainly = capsys.readouterr().out
    assert [main([*use, "--precision", "fp32"]) for use in uses] == [0] * 4
    assert capsys.readouterr().out == plainly


# What is typed


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["RUN", "a", "--device", "cpu", "b", "", "-"], ["a", "b", "", "-"]),
        (["--device", "cpu", "RUN", "a"], ["a"]),
        (["RUN", "-5 Grad", "--device", "cpu", "--", "-x", "--help"], ["-5 Grad", "-x", "--help"]),
        (["--device", "cpu", "RUN"], []),
    ],
)
def test_texts_are_taken_in_any_place(words, texts):
    for command in ("translate", "classify"):
        args = command_line.parse([command, *words])
        assert (args.model, args.texts, args.device) == ("RUN", texts, "cpu")


def test_what_comes_with_the_course_is_found_or_its_absence_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = command_line.parse(["translate", "data/checkpoints/de-en", "--ensemble", "data/checkpoints/de-en"])
    assert found.model == found.ensemble[0] == str(DATA_FOLDER / "checkpoints" / "de-en")
    monkeypatch.setattr(commands.options, "DATA_FOLDER", tmp_path / "site-packages" / "data")
    assert main(["translate", "data/checkpoints/de-en", "Hund"]) == 2
    assert "it comes with the repository, not with the package" in capsys.readouterr().err


# Help


def help_of(words, capsys) -> str:
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 0
    return capsys.readouterr().out


def test_help_names_the_commands_and_the_version_is_the_packages(capsys):
    printed = help_of(["--help"], capsys)
    for command in (*command_line.COMMANDS, "progress", "doctor", "bench"):
        assert re.search(rf"^ +{command}  +\w", printed, re.MULTILINE)
    assert help_of(["--version"], capsys) == f"annotated {__version__}\n"


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_help_explains_every_option_and_its_examples_can_be_typed(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    explained, examples = help_of([command, "--help"], capsys).split("examples:\n")
    row = command_line.COMMANDS[command]
    names = [f"--{name}" for name in f"{row.options} {' '.join(row.only.values())}".split()]
    for name in [*names, *row.words, "--help"]:  # an entry is "  --name VALUE  explanation", on one line or two
        assert re.search(rf"^  (-h, )?{name}\b( [^ \n]+)?\s{{2,}}\w+[,;:]? [\w(/]", explained, re.MULTILINE), name
    assert not re.search(r"default:\s+(None|False|\[\])", explained)
    for line in examples.splitlines():
        words = shlex.split(line.split("<")[0], comments=True)
        assert words[:4] == ["python", "-m", "annotated", command]
        if "--resume" not in words:
            command_line.parse(words[3:])


@pytest.mark.parametrize(
    ("gpus", "apple", "name", "kind"),
    [
        (0, False, "auto", "cpu"),
        (0, True, "auto", "mps"),
        (2, True, "auto", "cuda"),
        (2, False, "cuda:1", "cuda:1"),
        (2, True, "cpu", "cpu"),
    ],
)
def test_the_device_is_what_there_is(monkeypatch, gpus, apple, name, kind):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
    assert commands.shared.find_device(name) == torch.device(kind)


@pytest.mark.parametrize(
    ("words", "fast", "dtype"),
    [
        ([], True, torch.bfloat16),
        ([], False, torch.float32),
        (["--precision", "fp32"], True, torch.float32),
        (["--plain"], True, torch.float32),
    ],
)
def test_the_precision_is_the_fast_one_unless_given(run, monkeypatch, words, fast, dtype):
    heard = []
    monkeypatch.setattr(commands.shared, "bf16_is_fast", lambda device: fast)
    monkeypatch.setattr(
        commands.translate, "translate", lambda model, *a, **o: heard.append(next(model.parameters()).dtype) or ["…"]
    )
    assert main(["translate", run.out, "Hund", *words]) == 0
    assert heard == [dtype]
