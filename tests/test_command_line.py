"""python -m annotated train | translate | evaluate: what a user types and sees."""

import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from annotated import __version__
from annotated.__main__ import main
from annotated.fast.training import bf16_is_fast
from annotated_workbench import command_line, commands, runs
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.metrics import bleu, chrf, loss_per_token
from annotated_workbench.training_options import WARMUP, TrainingOptions, defaults_for
from annotated_workbench.translation import Scored, translate
from annotated_workbench.vocabulary import WordTokenizer, load_tokenizer
from tests.runs import PAIRS, SMALL, read_metrics, train_arguments

DELIVERED = str(DATA_FOLDER / "checkpoints" / "de-en")  # it tells sentences apart
WRITER = str(DATA_FOLDER / "checkpoints" / "shakespeare")
ALLOWED = ("<module>", "bf16_is_fast", "has_fast_form", "keep_memory")  # they compute nothing of a model


def run_translate(folder: str, texts: list[str], **options) -> list[str]:
    model, _ = load_checkpoint(folder)
    bf16 = bf16_is_fast(torch.device("cpu"))  # as the command line decides
    return translate(model, load_tokenizer(folder), texts, "de", bf16=bf16, **options)


def test_training_says_what_it_does_and_how_far_it_is(run):
    chosen, first, batches, *lines, try_it = run.printed.splitlines()
    epochs = [line for line in lines if not line.startswith("Validation was best after epoch 1.00: ")]
    assert chosen == "57 training and 3 validation pairs; chosen for them: --dropout 0.3"
    assert re.search(r"280 tokens .* parameters, cpu, float32, \d+ thread", first)
    pattern = r"(\d+) batches an epoch, \d\.\d% of their tokens padding; 2 epochs, (\d+) updates .* for 7 \(--rate 1\)"
    found = re.fullmatch(pattern, batches)
    assert int(found[2]) == 2 * int(found[1])
    for i, line in enumerate(epochs, start=1):
        assert re.match(rf"epoch +{i}\.00 .*loss \d\.\d+ .*validation BLEU .*tokens/s .* done, [\d.]+ min left", line)
    assert len(epochs) == 2
    assert try_it.startswith(("Try it: ", "Its validation BLEU is "))


def what_next(out: str, *bleus: float) -> str:
    return commands.train._what_next(Namespace(task="translation", out=out), bleus)


def test_a_run_that_learned_nothing_says_how_to_start_again_no_higher_than_we_do(corpus, run, tmp_path):
    for bleus in ((1.0,), (0.9, 1.0, 0.9, 1.2), (0.9, 0.9, 0.9, 5.0)):  # the second one's third has passed with 1.0
        assert what_next(run.out, *bleus) == f"Try it: python -m annotated translate {run.out}"
    assert what_next(run.out, 0.9, 0.9, 0.9, 4.9).startswith("Its validation BLEU is 4.90, so it cannot")
    rate = re.fullmatch(r"Its validation BLEU is 0\.99, .*: start .* --rate (\S+) .*", what_next(run.out, 0.99))[1]
    assert main(train_arguments(corpus, tmp_path, "--rate", rate, "--epochs", "2")) == 0
    assert max(line["rate"] for line in read_metrics(tmp_path)) <= 1.01 * (128 * WARMUP) ** -0.5
    assert re.search(r"--resume and more --epochs; .* --rate 0\.028 ", what_next(str(tmp_path), 0.0))


def test_fine_tuning_begins_with_a_runs_model_and_goes_on_without_that_run(corpus, run, tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(run.out, old)
    lines = (corpus / "my.de").read_text().splitlines(keepends=True)
    (corpus / "other.de").write_text("".join(reversed(lines)))
    files = ["--source", str(corpus / "other.de"), "--target", str(corpus / "my.en"), "--out", str(new)]
    assert main(["train", "--init", str(old), *files, "--dropout", "0.5", "--rate", "1e-9", "--epochs", "1"]) == 0
    assert "chosen for them: --batch-tokens 256\n" in capsys.readouterr().out
    (model, info), (first, _) = load_checkpoint(new), load_checkpoint(old)
    torch.testing.assert_close(dict(model.named_parameters()), dict(first.named_parameters()), rtol=0, atol=1e-6)
    assert (info["src"], info["tgt"], model.config.dropout) == ("de", "en", 0.5)
    assert (new / "tokenizer.json").read_bytes() == (old / "tokenizer.json").read_bytes()
    shutil.rmtree(old)
    assert main(["train", "--resume", "--out", str(new), "--epochs", "2"]) == 0


def test_what_is_not_given_follows_from_the_corpus(corpus, tmp_path, capsys, monkeypatch):
    heard = {}
    monkeypatch.setattr(commands.train, "fit", lambda model, *args, **kwargs: heard.update(kwargs, model=model) or [{}])
    words = ["train", "--source", str(corpus / "my.de"), "--target", str(corpus / "my.en"), "--out", str(tmp_path)]
    assert main(words) == 0
    chosen = defaults_for(57)
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.items())
    assert capsys.readouterr().out.startswith(f"57 training and 3 validation pairs; chosen for them: {options}\n")
    assert heard["settings"] | chosen == heard["settings"]
    assert heard["options"] == TrainingOptions(batch_tokens=256, bf16=bf16_is_fast(torch.device("cpu")))
    assert (heard["model"].config.d_model, heard["model"].config.dropout) == (128, chosen["dropout"])
    assert main([*words, "--tokenizer", "words", "--batch-tokens", "700"]) == 0
    assert heard["options"].batch_tokens == 700
    assert "--vocab-size" not in capsys.readouterr().out


def test_a_line_stays_a_line_whatever_a_model_writes(run, capsys, monkeypatch):
    found = [[Scored("A\ndog", -0.5), Scored("", -2.0)]] * 2
    monkeypatch.setattr(commands.translate, "n_best", lambda *_, nbest, **how: [best[:nbest] for best in found])
    assert main(["translate", run.out, "Hund", "Hund"]) == 0
    assert capsys.readouterr().out == "A dog\nA dog\n"
    assert main(["translate", run.out, "Hund", "Hund", "--nbest", "2"]) == 0
    assert capsys.readouterr().out == "1\t-0.5000\tA dog\n1\t-2.0000\t\n2\t-0.5000\tA dog\n2\t-2.0000\t\n"


def test_training_takes_every_option(corpus, tmp_path):
    options = dict(src="en", tgt="de", tokenizer="words", layers=1, dropout=0.3, epochs=1, max_minutes=5.0)
    options |= dict(accumulate=3, schedule="linear", rate=0.5, smoothing=0.2, average=2, seed=7, device="cpu")
    more = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    files = ["--source", str(corpus / "my.en"), "--target", str(corpus / "my.de")]
    small = [word for word in SMALL if word not in ("--vocab-size", "280")]
    assert main(["train", *files, "--out", str(tmp_path), *small, *more, "--norm-first"]) == 0
    model, info = load_checkpoint(tmp_path)
    assert info["settings"] | options == info["settings"] and "help" not in info["settings"]
    assert (info["src"], info["tgt"]) == ("en", "de") and isinstance(load_tokenizer(tmp_path), WordTokenizer)
    assert (model.config.layers, model.config.dropout, model.config.norm_first) == (1, 0.3, True)


def test_an_interrupted_run_goes_on_with_its_settings(run, corpus, tmp_path, capsys, monkeypatch):
    words = train_arguments(corpus, tmp_path, "--epochs", "2")
    told = r"annotated: interrupted(?:: (.*) goes on from the start of this epoch)?\.\n"
    for place, name in ((commands.train, "fit"), (runs, "mixed_seed"), (runs, "_report")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, Mock(side_effect=KeyboardInterrupt))
            assert main(words) == 130
        words = shlex.split(re.fullmatch(told, capsys.readouterr().err)[1] or "")[3:] or words
    assert words[:2] == ["train", "--resume"] and main(words) == 0
    assert (tmp_path / "model.safetensors").read_bytes() == Path(run.out, "model.safetensors").read_bytes()
    configs = [json.loads(Path(folder, "config.json").read_text(encoding="utf-8")) for folder in (tmp_path, run.out)]
    assert configs[0] == configs[1]


@pytest.mark.parametrize(
    ("words", "fast", "expected"),
    [
        ([], True, {"dtype": torch.bfloat16}),
        ([], False, {"dtype": torch.float32}),
        (["--plain"], True, {"dtype": torch.float32, "plain": True}),
        (["--beam", "7", "--alpha", "0.25", "--precision", "fp32"], True, {"beam": 7, "alpha": 0.25}),
        (["--precision", "bf16", "--max-extra", "3"], False, {"dtype": torch.bfloat16, "max_extra": 3}),
    ],
)
def test_how_to_search_is_passed_on_and_the_precision_is_fast_unless_given(run, monkeypatch, words, fast, expected):
    heard = {}

    def listen(model, *args, **options):
        heard.update(options, dtype=next(model.parameters()).dtype)
        return [[Scored("…", 0.0)]]

    monkeypatch.setattr(commands.shared, "bf16_is_fast", lambda device: fast)
    monkeypatch.setattr(commands.translate, "n_best", listen)
    assert main(["translate", run.out, "Ein Bär", *words]) == 0
    defaults = {"nbest": 1, "beam": 4, "alpha": 0.6, "max_extra": 50, "plain": False, "dtype": torch.float32}
    assert heard == defaults | expected


def give(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_lines_of_standard_input_are_translated_one_by_one(capsys, monkeypatch):
    lines = "\ufeffEin Bär schla\u0308ft hier.\r\n\n  Ein Vogel\n\u200b\u2800\u3164\ufe0f\nEin Wolf wartet"
    give(monkeypatch, lines.encode())
    assert main(["translate", DELIVERED, "--beam", "0"]) == 0
    expected = run_translate(DELIVERED, ["Ein Bär schläft hier.", "", "Ein Vogel", "", "Ein Wolf wartet"], beam=0)
    assert expected[1] == expected[3] == ""
    assert capsys.readouterr().out.split("\n") == [*expected, ""]


def test_as_a_program_it_speaks_utf_8_and_answers_each_line_at_once_and_keeps_quiet(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = [sys.executable, "-m", "annotated", "translate", DELIVERED, "--beam", "0"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        for text in ("Ein Käfer läuft draußen.", "", "Ein Vogel"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == run_translate(DELIVERED, [text], beam=0)[0] + "\n"
        process.stdin.close()
        assert (process.wait(100), process.stderr.read()) == (0, b"")


def test_what_is_typed_and_said_is_utf_8_whatever_the_locale_says(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), "latin-1", write_through=True))
    assert main(["translate", DELIVERED, "\u2060", "Wie heißt du?".encode().decode("ascii", "surrogateescape")]) == 0
    assert sys.stderr.buffer.getvalue().decode().startswith("annotated: unsure of 'Wie heißt du?'")
    assert main(["generate", WRITER, "ß".encode().decode("ascii", "surrogateescape")]) == 2
    assert "the model has never seen 'ß'" in sys.stderr.buffer.getvalue().decode()


class Terminal(io.BytesIO):
    """What someone types: a line at a time."""

    def isatty(self):
        return True

    def read1(self, size=-1):
        return self.readline()


def test_a_terminal_is_asked_for_sentences(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal("Ein Hund rennt.\n\nWie heißt du?\n".encode())))
    assert main(["translate", DELIVERED, "--beam", "0"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == run_translate(DELIVERED, ["Ein Hund rennt.", "", "Wie heißt du?"], beam=0)
    assert printed.err == (
        "Sentences to translate from de, one a line; Ctrl-D ends.\n> > > "
        "annotated: unsure of 'Wie heißt du?' (words guessed: 5 of 5): a model knows only what is like the sentences "
        "it learned from.\n> \n"
    )


def test_an_error_far_down_keeps_what_was_translated_before_it(capsys, monkeypatch):
    monkeypatch.setattr(commands.shared, "READ_AT_ONCE", 20)
    give(monkeypatch, b"Ein Hund\nEin Wolf\nEin Vogel\nEin \xe4lterer Wolf\nEin Hund\n")
    assert main(["translate", DELIVERED, "--beam", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == run_translate(DELIVERED, ["Ein Hund", "Ein Wolf", "Ein Vogel"], beam=0)
    assert printed.err.startswith("annotated: standard input, line 4: not UTF-8 (")
    for before, place in ((["Ein Hund", "Ein Wolf"], "after 2 lines: "), ([], "")):
        give(monkeypatch, "\n".join([*before, "Hund " * 600]).encode())
        assert main(["translate", DELIVERED, "--beam", "0"]) == 2
        printed = capsys.readouterr()
        assert printed.out.splitlines() == run_translate(DELIVERED, before, beam=0)
        assert printed.err.startswith(f"annotated: {place}text 1 is ")


def test_where_nobody_reads_the_output_or_streams_are_closed_it_ends_quietly(run, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = f"{sys.executable} -m annotated translate {run.out}"
    for script, status in ((f"{command} Hund | true; exit ${{PIPESTATUS[0]}}", 141), (f"{command} <&- >&- 2>&-", 0)):
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=100)
        assert (done.returncode, done.stderr) == (status, b"")
    for words, status in (["classify", "none", "x"], 2), (["translate", run.out, "Wolf"], 0):  # of which it is unsure
        monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError(28, "no space left"))))
        assert main(words) == status


def test_a_file_s_name_is_no_text(run, tmp_path, capsys):
    (tmp_path / "my hund.txt").touch()
    assert main(["translate", run.out, str(tmp_path / "my hund.txt")]) == 0
    assert f"for what that file holds, give < '{tmp_path / 'my hund.txt'}'\n" in capsys.readouterr().err


def test_it_does_without_a_folder_for_temporary_files(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", (tmp_path / "none").read_bytes)  # a FileNotFoundError
    assert main(["translate", str(tmp_path)]) == 2 and tempfile.tempdir == "."


def test_a_test_set_is_translated_and_scored_with_signatures(run, corpus, capsys):
    files = ["--source", str(corpus / "my.de"), "--reference", str(corpus / "my.en")]
    arguments = ["evaluate", run.out, *files, "--beam", "2", "--show", "2", "--precision", "fp32"]
    assert main(arguments) == 0
    german, english = PAIRS
    model, tokenizer = load_checkpoint(run.out)[0], load_tokenizer(run.out)
    translations = translate(model, tokenizer, german, "de", beam=2)
    shown = [f"source       {german[i]}\nreference    {english[i]}\ntranslation  {translations[i]}\n" for i in range(2)]
    (b, b_signature), (c, c_signature) = bleu(translations, english), chrf(translations, english)
    nats = loss_per_token(model, tokenizer, PAIRS, "de", "en")
    assert 1 < nats < 6 and "tok:13a" in b_signature
    scores = [
        f"BLEU {b:.2f}  {b_signature}",
        f"chrF {c:.2f}  {c_signature}",
        f"loss {nats:.3f} nats a token of this vocabulary, perplexity {math.exp(nats):.2f}",
    ]
    assert capsys.readouterr().out == "\n".join([*shown, *scores, ""])


def watch(frame, event, _):
    """Let nothing of the fast room be called but what is allowed."""
    code = frame.f_code
    if event == "call" and "annotated/fast/" in code.co_filename:
        assert code.co_name in ALLOWED, f"--plain asked for {code.co_name}"


def test_plain_is_plain_in_every_task(corpus, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 20)
    for number, label in enumerate(("pos", "neg") * 4):
        (tmp_path / "reviews" / "train" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "reviews" / "train" / label / f"{number}.txt").write_text(f"a {label} film")
    translator, writer, critic = (str(tmp_path / name) for name in ("translator", "writer", "critic"))
    text, reviews = ["--text", str(tmp_path / "a.txt")], ["--reviews", str(tmp_path / "reviews")]
    uses = ["evaluate", writer, *text], ["evaluate", critic, *reviews], ["translate", translator, "Ein Hund"]
    uses += ["generate", writer, "to", "--count", "5"], ["classify", critic, "a pos film"]
    with monkeypatch.context() as patch, ExitStack() as after:
        after.callback(sys.setprofile, None)
        sys.setprofile(watch)
        patch.setattr(commands.shared, "bf16_is_fast", lambda device: True)  # and yet it is float32
        assert main([*train_arguments(corpus, translator, "--epochs", "1", "--precision", "auto"), "--plain"]) == 0
        assert main(["train", "--resume", "--out", translator, "--epochs", "2"]) == 0  # as it was begun
        assert main(["train", *text, "--out", writer, "--epochs", "2", "--plain"]) == 0
        assert main(["train", *reviews, "--out", critic, "--epochs", "1", "--plain"]) == 0
        assert capsys.readouterr().out.count(", cpu, float32, ") == 4
        assert [main([*use, "--plain"]) for use in uses] == [0] * 5
    plainly = capsys.readouterr().out
    assert [main([*use, "--precision", "fp32"]) for use in uses] == [0] * 5
    assert capsys.readouterr().out == plainly


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


def test_what_comes_with_the_course_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command_line.parse(["translate", "data/checkpoints/de-en", "--ensemble", "data/checkpoints/de-en"])
    assert found.model == found.ensemble[0] == DELIVERED
    (tmp_path / "data" / "checkpoints" / "de-en").mkdir(parents=True)
    assert command_line.parse(["translate", "data/checkpoints/de-en"]).model == "data/checkpoints/de-en"


def help_of(words, capsys) -> str:
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 0
    return capsys.readouterr().out


def test_help_names_the_commands_and_the_version_is_the_packages(capsys):
    printed = help_of(["--help"], capsys)
    for command in (*command_line.COMMANDS, "progress", "doctor"):
        assert re.search(rf"^ +{command}  +\w", printed, re.MULTILINE)
    assert help_of(["--version"], capsys) == f"annotated {__version__}\n"


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_help_explains_every_option_and_its_examples_can_be_typed(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    explained, examples = help_of([command, "--help"], capsys).split("examples:\n")
    row = command_line.COMMANDS[command]
    for name in [*f"{row.options} {' '.join(row.only.values())}".split(), *row.words]:
        assert re.search(rf"^  (--)?{name}\b.*\s{{2,}}[\w']", explained, re.MULTILINE), name
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
