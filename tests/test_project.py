"""The project: what is said of a reader's own pairs, of the milestones and of the score; and the notebook's size."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
import spacy.lang
import torch
from once import once

from annotated.config import TransformerConfig
from annotated.transformer import Transformer
from annotated_course import project
from annotated_course.project import faults, load_project, look_at, milestone, paired_bootstrap, plan
from annotated_workbench import runs
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import Pairs, load_corpus, load_text, read_lines
from annotated_workbench.files import write_ours
from annotated_workbench.metrics import bleu
from annotated_workbench.tasks import TranslationTask
from annotated_workbench.training_options import WARMUP, TrainingOptions
from annotated_workbench.vocabulary import SubwordTokenizer
from tests.runs import write_corpus
from tools.sync import ROOT

pytestmark = once

SENTENCES = Pairs(*(side[:600] for side in load_corpus("grammar", "train")))


def changed(number: int, source: str | None = None, target: str | None = None, times: int = 1) -> Pairs:
    """The sentences with another text in some lines from this one on, counted from 1."""
    sides = [list(side) for side in SENTENCES]
    for side, text in zip(sides, (source, target), strict=True):
        side[number - 1 : number - 1 + times] = [text or line for line in side[number - 1 : number - 1 + times]]
    return Pairs(*sides)


def failing(pairs: Pairs, tgt: str = "en", splits: dict[str, Pairs] | None = None) -> list[project.Outcome]:
    """What does not hold of pairs."""
    enough = {"train": Pairs(["a b"] * 2000, ["c d"] * 2000), "val": Pairs(["e"], ["f"]), "test": Pairs(["g"], ["h"])}
    return [finding for finding in look_at(pairs, splits or enough, "de", tgt) if finding.holds is False]


def test_files_are_split_no_sentence_is_in_two_splits_and_without_files_it_takes_the_grammars(tmp_path: Path) -> None:
    repeated = Pairs(*(side[:300] + side[:300] for side in SENTENCES))
    pairs, splits = load_project(*write_corpus(tmp_path, repeated), "de", "en")
    assert load_project(*write_corpus(tmp_path, repeated), "de", "en") == (pairs, splits)
    assert pairs == repeated and len(splits["test"].source) == 60 and len(splits["train"].source) > 300
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not any(set(a) & set(b) for a, b in zip(splits[first], splits[second], strict=True))
    assert failing(repeated, splits=splits)[0].remedy.startswith("below 2,000")


def cell(name: str, holding: str) -> str:
    """The code of the cell of a notebook that holds a text, up to its first blank line."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    return next(each.source.split("\n\n")[0] for each in cells if each.cell_type == "code" and holding in each.source)


def left_out(name: str) -> list[int]:
    """The lines that a notebook leaves out of its demonstration."""
    names: dict[str, Any] = {"SOURCE": None, "TEXT": None}
    exec(cell(name, "leave_out = []"), names)
    return names["leave_out"]


@pytest.mark.parametrize(("src", "tgt"), [("de", "en"), ("en", "de")])
def test_what_we_planted_into_the_pairs_is_found_and_what_the_notebook_leaves_out(src: str, tgt: str) -> None:
    (pairs, splits), lines = load_project(None, None, src, tgt), left_out("project")
    clean = load_corpus("grammar", "train", src, tgt)
    rows = zip(zip(*pairs, strict=True), zip(*clean, strict=True), strict=True)
    assert [i for i, (one, other) in enumerate(rows, start=1) if one != other] == lines
    assert pairs == splits["train"] and [len(splits[part].source) for part in ("val", "test")] == [600, 800]
    failed = {found.statement for found in look_at(pairs, splits, src, tgt) if not found.holds}
    assert failed == {"no broken characters", "no entities", "no pair appears twice"}
    _, splits = load_project(None, None, src, tgt, lines)
    assert len(splits["train"].source) == 12_000 - len(lines)
    assert all(found.holds for found in look_at(pairs, splits, src, tgt, lines))


def test_what_we_planted_into_the_text_is_found_and_what_the_notebook_leaves_out() -> None:
    lines, splits = project.load_own_text(None)
    failed = {found.statement for found in project.look_at_text(lines, splits) if not found.holds}
    assert failed == {"no broken characters", "no tags", "no long passage stands twice"}
    lines, splits = project.load_own_text(None, left_out("project_text"))
    assert all(found.holds for found in project.look_at_text(lines, splits, left_out("project_text")))
    assert not any(word in "".join(splits.values()) for word in ("Mädchen", "page 97", "â"))


@pytest.mark.parametrize(
    ("changed", "statement", "remedy"),
    [
        (lambda text: text[:9000] + "\n<b>x</b>\n" + text[9000:], "no tags", "(<b>x</b>)"),
        (lambda text: text[:40_000] + text, "no long passage stands twice", "characters of"),
        (lambda text: "ab" * 60_000, "no long passage stands twice", "120,000 characters of 120,000"),
        (lambda text: text[:9000] + "\0" + text[9000:], "no broken characters", "Read in a wrong encoding"),
        (lambda text: text + text[:4000], "what is held out is not in the training text", "by heart"),
        (lambda text: text[:-3000] + "ω" * 3000, "hardly any held-out character is new", "['ω']"),
        (lambda text: "".join(map(chr, range(4000, 4900))) + text, "hardly any character is rare", "stand there fewer"),
        (lambda text: text[:50_000], "enough characters to learn from: 40,000", "by heart"),
    ],
)
def test_a_fault_of_a_text_is_named(changed: Callable[[str], str], statement: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "my.txt"
    path.write_bytes(changed(load_text("tinyshakespeare")[:160_000]).replace("\n", "\r\n").encode())
    lines, splits = project.load_own_text(path)
    assert "\r" not in "".join(splits.values())
    failed = {found.statement: found.remedy for found in project.look_at_text(lines, splits) if not found.holds}
    assert remedy in failed[statement]


@pytest.mark.parametrize(("text", "said"), [(b"", "is empty"), (b"a line\n" * 40, "280 charact"), (b"\xff", "UTF-8")])
def test_a_text_that_is_none_is_refused(text: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_bytes(text)
    with pytest.raises(ValueError, match=said):
        project.load_own_text(tmp_path / "my.txt")


def test_what_a_model_writes_is_counted_by_kind() -> None:
    training = "the dog runs along the beach and the man sleeps under a tree in the garden"
    counted = project.writing_faults(["x the dog the dog the dog x", "x a zebra runs x"], training)
    assert counted == {"unknown words": pytest.approx(100 / 9), "texts that loop": 50, "copied pieces": 0}
    assert project.writing_faults([training], training)["copied pieces"] == 100


def test_the_notebook_keeps_both_sides_of_its_splits_and_whatever_lies_beside_them(tmp_path: Path) -> None:
    code = cell("project", "write_ours(")
    paths = source, target = tmp_path / "train.en", tmp_path / "train.target"
    for path, side in zip(paths, SENTENCES, strict=True):
        path.write_text("\n".join(side), encoding="utf-8")
    _, splits = load_project(source, target, "en", "en")
    names = {"Path": Path, "write_ours": write_ours, "splits": splits, "SOURCE": source, "TARGET": target}
    with pytest.raises(FileExistsError, match=r"train\.target is yours"):
        exec(code, names | {"FOLDER": tmp_path})
    assert [*map(read_lines, paths)] == [*SENTENCES] and {*tmp_path.iterdir()} == {*paths}
    exec(code, names | {"FOLDER": tmp_path / "mine"})
    kept = {tuple(read_lines(tmp_path / "mine" / f"train.{side}")) for side in Pairs._fields}
    assert kept == {*map(tuple, splits["train"])}


def test_too_few_lines_and_one_file_or_the_same_twice_are_refused(tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path, Pairs(["a", "b", "c"], ["d", "e", "f"]))
    with pytest.raises(ValueError, match=r"has 3 lines, .* at least 200"):
        load_project(source, target, "de", "en")
    with pytest.raises(ValueError, match=r"has 600 lines, .* 0 different .* learn from and 0 to val"):
        load_project(*write_corpus(tmp_path, Pairs(SENTENCES.source[:1] * 600, SENTENCES.target)), "de", "en")
    for other in (None, str(source), tmp_path / ".." / tmp_path.name / "my.de"):
        with pytest.raises(ValueError, match="give a file for each language"):
            load_project(source, other, "de", "en")


SHIFTED, EXCHANGED = Pairs(SENTENCES.source[1:], SENTENCES.target[:-1]), Pairs(SENTENCES.target, SENTENCES.source)
UNTRANSLATED = Pairs(SENTENCES.source, [*SENTENCES.source[:20], *SENTENCES.target[20:]])
LONG = "no sentence of more than 100 words or 1,000 characters"
DOUBLES = changed(9, "Ein Hund.", "A dog.", 40)
DOUBLES.source[20:40] = ["EIN HUND!"] * 20
IN_PLACE = changed(30, "The dog is in the house.", "Der Hund ist in dem Haus.", 7)


@pytest.mark.parametrize(
    ("pairs", "statement", "remedy"),
    [
        (changed(7, source="Die TÃ¼r ist schÃ¶n."), "no broken characters", "line 7 (Die TÃ¼r"),
        (DOUBLES, "no pair appears twice", "39 of 600 lines, the first is 10 "),
        (UNTRANSLATED, "the two sides differ", "20 of 600 lines, the first is 1 ("),
        (changed(8, target="so " * 101), LONG, "line 8 ("),
        (changed(8, "很" * 5000, "ho" * 2500), LONG, "line 8 ("),
        (changed(7, source="Ein Hund.\tA dog."), "no columns", "line 7 (Ein Hund."),
        (changed(7, source='"Ein Hund.","A dog."'), "no columns", "line 7 ("),
        (changed(7, target="<seg>A dog.</seg>"), "no tags", "line 7 ("),
        (changed(7, target="the dog &apos;s bone"), "no entities", "line 7 ("),
        (changed(7, source="ein Hun@@ d"), "no cut words", "line 7 (ein Hun@@ d"),
        (SHIFTED, "long sentences have long translations", "correlation"),
        (EXCHANGED, "left is de, right is en", "They look exchanged: exchange"),
        (IN_PLACE, "left is de, right is en", "7 of 600 lines, the first is 30 (The dog"),
    ],
)
def test_a_fault_of_the_pairs_is_named_with_its_line(pairs: Pairs, statement: str, remedy: str) -> None:
    (outcome,) = failing(pairs)
    assert outcome.statement == statement and remedy in outcome.remedy


def test_broken_characters_are_found_in_every_language_and_nowhere_else() -> None:
    whole = ["NÃO É POSSÍVEL", "AMANHÃ!", "CAFÉ… «LIÇÃO»", "Œuvre – où ?", "ÄÖÜ ß", "R&D <3"]
    assert not any(map(project._is_garbled, whole))
    for path in Path(spacy.lang.__path__[0]).glob("*/examples.py"):
        for text in import_module(f"spacy.lang.{path.parent.name}.examples").sentences:
            assert not any(found(text) or found(text.upper()) for found, _ in project.FAULTS.values()), text
            for encoding in ("latin-1", "cp437", "koi8-r"):
                again = text.encode().decode(encoding)
                assert project._is_garbled(again) or sum(sign > "\x7f" for sign in text) < 2, again


def test_a_few_pairs_that_are_not_translated_do_no_harm() -> None:
    assert "the two sides differ" not in [outcome.statement for outcome in failing(changed(5, "OK ja.", "OK ja.", 12))]


def test_a_wrong_language_is_named_and_an_unknown_one_is_not_examined() -> None:
    (finding,) = failing(SENTENCES, tgt="fi")
    assert "'fi'. Is TGT right?" in finding.remedy
    *_, sides, _ = look_at(SENTENCES, {name: SENTENCES for name in ("train", "val", "test")}, "zh", "en")
    assert str(sides) == "○ left is zh, right is en: there is no list of frequent words of 'zh'."


def test_what_is_learned_and_tested_is_counted() -> None:
    train = Pairs([*map(str, range(2000))], ["x"] * 2000)
    splits = {"train": train, "val": Pairs(["(5)!"], ["y"]), "test": Pairs(["z"], ["z"])}
    (finding,) = failing(SENTENCES, splits=splits)
    assert finding.remedy.startswith("1 training pairs share one")


def test_milestones_say_how_far_you_are(capsys: pytest.CaptureFixture[str]) -> None:
    holds, fails, unknown = ("it holds", True, ""), ("it learns", False, "train longer."), ("x", None, "unknown")
    for name in project.MILESTONES:
        milestone(name, [holds])
    assert capsys.readouterr().out.endswith("Your project: ✓ data   ✓ train   ✓ diagnose   ✓ evaluate\n")
    milestone("train", [holds, fails, unknown])
    printed = capsys.readouterr().out
    assert printed.startswith("✓ it holds\n✗ it learns: train longer.\n○ x: unknown\n")
    assert printed.endswith("Your project: ✓ data   ○ train   ○ diagnose   ○ evaluate\n")
    for name, rehearsal in (("train", False), ("diagnose", True)):
        milestone(name, [unknown], rehearsal=rehearsal)
        assert capsys.readouterr().out.endswith("Your project: ✓ data   ✓ train   ○ diagnose   ○ evaluate\n")


def test_faults_are_counted_by_kind() -> None:
    pair = "Ein Hund läuft am Strand.", "A dog runs along the beach."
    texts = {
        "A dog runs along the beach.": [],
        "": ["empty"],
        "Ein Hund läuft the beach.": [],
        "Ein Hund läuft am beach.": ["copies"],
        "A dog dog dog runs.": ["loops"],
        "A dog dog runs a dog.": [],
        "The man and the man and the man and": ["loops"],
        "A dog.": ["too short"],
        "A dog runs along the beach and it is a very happy dog today.": ["too long"],
    }
    numbers = faults(list(texts), [pair[0]] * len(texts), [pair[1]] * len(texts))
    for i, kinds in enumerate(texts.values()):
        assert [kind for kind in numbers if i in numbers[kind]] == kinds


def test_the_dictionary_takes_the_word_that_stands_beside() -> None:
    german = ["der Hund läuft", "der Hund schläft", "die Katze läuft"]
    dictionary = project.make_dictionary(Pairs(german, ["the dog runs", "the dog sleeps", "the cat runs"]))
    assert [dictionary[word] for word in ("Hund", "läuft", "schläft", "Katze")] == ["dog", "runs", "sleeps", "cat"]


def test_the_bootstrap_scores_as_bleu_does_and_in_pairs() -> None:
    references = list(SENTENCES.target[:40])
    ours = [" ".join(text.split()[:-1]) for text in references]
    theirs = [text.lower() for text in references]
    draws = paired_bootstrap(ours, theirs, references, "en", draws=2)
    drawn = torch.randint(40, (2, 40), generator=torch.Generator().manual_seed(0)).tolist()
    for texts, score in zip((ours, theirs), draws[0], strict=True):
        expected, _ = bleu([texts[i] for i in drawn[0]], [references[i] for i in drawn[0]], "en")
        assert score == pytest.approx(expected)
    assert all(one == other for one, other in paired_bootstrap(ours, ours, references, draws=5))


def test_the_plan_fits_the_time_and_the_pairs() -> None:
    look, short = plan(4000, 2000, None)
    assert (look.layers, short.max_minutes, short.epochs) == (1, None, 6)  # as the notebook says
    little_time, two_minutes = plan(29_000, 2000, 2)
    assert little_time == TransformerConfig.tiny(2000, dropout=0.2)
    assert (two_minutes.batch_tokens, two_minutes.warmup, two_minutes.max_minutes) == (1000, WARMUP // 10, 2)
    many, ten = plan(29_000, 6000, 10)
    assert many == TransformerConfig.small(6000, dropout=0.1)
    assert (ten.batch_tokens, ten.warmup, ten.rate) == (2048, WARMUP // 2, pytest.approx(0.5**0.5))


def test_a_run_is_kept_read_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Pairs(*(side[:40] for side in SENTENCES))
    tokenizer = SubwordTokenizer.train(pairs, vocab_size=300)
    config = TransformerConfig(len(tokenizer), d_model=8, d_ff=8, heads=2, layers=1, dropout=0.0)
    options = TrainingOptions(epochs=2, batch_tokens=2000, warmup=5, average=1)

    def train(home: Path = tmp_path, part: Pairs = pairs):
        torch.manual_seed(0)
        task, model = TranslationTask(tokenizer, part, pairs, "de", "en", config.max_length), Transformer(config)
        losses = project.record_losses(task)
        return model.state_dict(), losses, *project.train_once(model, task, home, options, pairs.target)

    weights, losses, run, lines = train()
    assert len(lines) == 2 and len(losses) == lines[-1]["step"] and max(losses) > lines[0]["loss"] > min(losses)
    again, unseen, same_run, read = train()
    assert (same_run, read, unseen) == (run, lines, [])
    assert train(part=Pairs(*(side[:30] for side in pairs)))[2] != run, "other pairs are another run"

    left, update = iter(range(lines[0]["step"])), runs.update
    with monkeypatch.context() as patch, pytest.raises(StopIteration):  # stopped after an epoch
        patch.setattr(runs, "update", lambda *arguments: (next(left), update(*arguments))[1])
        train(tmp_path / "stopped")
    finished, losses, _, gone_on = train(tmp_path / "stopped")
    assert [line["step"] for line in gone_on] == [line["step"] for line in lines]
    assert len(losses) == lines[-1]["step"] / 2
    for other in (again, finished, load_checkpoint(run)[0].state_dict()):
        assert all(weights[name].equal(weight) for name, weight in other.items())
