"""Words and subwords: indices, round trips, and files."""

import os
import random
import sys
import time
import unicodedata
from collections import Counter

import pytest
import spacy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from once import once

from annotated.config import BOS, EOS, PAD, UNK
from annotated_workbench import vocabulary
from annotated_workbench.data import DATA_FOLDER, read_lines
from annotated_workbench.vocabulary import (
    SPECIALS,
    SubwordTokenizer,
    Tokenizer,
    Vocabulary,
    WordTokenizer,
    load_tokenizer,
)

pytestmark = once

PAIRS = (
    ["Der Hund jagt die Katze.", "Die Katze schläft, z.B. im Haus.", "Den Hund sieht die Frau im Haus."],
    ["The dog chases the cat.", "The cat doesn't sleep (much).", "The woman's T-shirt is in the dogs' house."],
)
LANGUAGES = ("de", "en")


@pytest.fixture(scope="module")
def words():
    return WordTokenizer.train(PAIRS, LANGUAGES, min_freq=1)


@pytest.fixture(scope="module")
def subwords():
    # 4 specials + 256 bytes + 30 merges: most words fall into several subwords.
    return SubwordTokenizer.train(PAIRS, LANGUAGES, vocab_size=290)


def test_specials_have_fixed_ids():
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert SPECIALS == ("<pad>", "<bos>", "<eos>", "<unk>")


# Vocabulary


def test_vocabulary_orders_by_count_then_alphabet():
    sentences = [["rot", "ein", "ein", "Hund"], ["ein", "rot", "Ball", "Ball"], ["selten"]]
    assert Vocabulary.build(sentences).words == [*SPECIALS, "ein", "Ball", "rot"]
    assert Vocabulary.build(sentences, min_freq=3).words == [*SPECIALS, "ein"]
    assert Vocabulary.build(sentences, min_freq=1).words == [*SPECIALS, "ein", "Ball", "rot", "Hund", "selten"]


def test_vocabulary_maps_there_and_back():
    vocabulary = Vocabulary([*SPECIALS, "ein", "Hund"])
    assert vocabulary.encode(["Hund", "Katze", "ein"]) == [5, UNK, 4]
    assert vocabulary.decode([5, UNK, 4, EOS]) == ["Hund", "<unk>", "ein", "<eos>"]
    assert vocabulary.decode(torch.tensor([5, 4])) == ["Hund", "ein"]
    assert len(vocabulary) == 6
    assert "Hund" in vocabulary
    assert "Katze" not in vocabulary


def test_vocabulary_lists_a_special_once_even_if_a_text_holds_it():
    assert Vocabulary.build([["<eos>", "a"], ["<eos>", "a"]]).words == [*SPECIALS, "a"]


@pytest.mark.parametrize("index", [-1, 6])
def test_vocabulary_rejects_ids_outside(index):
    with pytest.raises(ValueError, match=rf"0 … 5; got {index}\."):
        Vocabulary([*SPECIALS, "ein", "Hund"]).decode([4, index])


def test_vocabulary_rejects_a_bad_list():
    with pytest.raises(ValueError, match="starts with"):
        Vocabulary(["ein", *SPECIALS])
    with pytest.raises(ValueError, match="'Hund' is there more often"):
        Vocabulary([*SPECIALS, "ein", "Hund", "Hund"])


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "B", "ä", "ß", "<eos>", "aa", "a-b", "1"]))), st.integers(1, 3))
def test_vocabulary_agrees_with_torchtext_on_every_index(sentences, min_freq):
    torchtext = pytest.importorskip("torchtext", reason="torchtext loads with torch 2.3 only")
    torchtext.disable_torchtext_deprecation_warning()
    from torchtext.vocab import build_vocab_from_iterator

    theirs = build_vocab_from_iterator(sentences, min_freq=min_freq, specials=list(SPECIALS))
    assert Vocabulary.build(sentences, min_freq).words == theirs.get_itos()


# Words


def test_words_are_split_by_the_rules_of_each_language(words):
    assert words.words("Er läuft z.B. nicht.", "de") == ["Er", "läuft", "z.B.", "nicht", "."]
    assert words.words("He doesn't run.", "en") == ["He", "does", "n't", "run", "."]
    assert words.words(" two  spaces\n", "en") == ["two", "spaces"]


def test_word_vocabulary_counts_both_languages(words):
    counts = Counter(
        word
        for texts, language in zip(PAIRS, LANGUAGES, strict=True)
        for t in texts
        for word in words.words(t, language)
    )
    assert counts["."] == 6
    assert words.vocabulary.words[4] == "."
    assert set(words.vocabulary.words) == {*SPECIALS, *counts}
    assert len(words) == 4 + len(counts)
    frequent = WordTokenizer.train(PAIRS, LANGUAGES)
    assert set(frequent.vocabulary.words) == {*SPECIALS, *(word for word, count in counts.items() if count >= 2)}


def test_unlisted_words_become_unknown_and_stay_visible(words):
    ids = words.encode("Der Elefant schläft.", "de")
    assert [i == UNK for i in ids] == [False, True, False, False]
    assert words.decode(ids) == "Der <unk> schläft."


@pytest.mark.parametrize(("side", "language"), list(enumerate(LANGUAGES)))
def test_words_join_into_the_text_they_came_from(words, side, language):
    assert [words.decode(ids) for ids in words.encode_batch(PAIRS[side], language)] == PAIRS[side]


def test_words_leave_an_unclear_hyphen_alone():
    vocabulary = Vocabulary([*SPECIALS, "a", "-", "(", ")", "b"])
    assert WordTokenizer(vocabulary, ["en"]).decode([4, 5, 8]) == "a-b"
    assert WordTokenizer(vocabulary, ["en"]).decode([6, 4, 7, 5, 8]) == "(a) - b"
    assert WordTokenizer(vocabulary, ["en"]).decode([4, 5, 6, 8, 7]) == "a - (b)"


def test_words_need_a_known_language(words):
    with pytest.raises(ValueError, match="unknown language 'fr'; this tokenizer knows de, en"):
        words.encode("le chien", "fr")
    for code in ("klingon", "lex_attrs", "punctuation", "char_classes", "tokenizer_exceptions"):  # spaCy's own modules
        with pytest.raises(ValueError, match=f"spaCy has no word rules for '{code}'"):
            WordTokenizer(words.vocabulary, [code])


@pytest.mark.parametrize("language", ["de", "fr", "xx", "zh"])
def test_words_without_end_are_cut(language):
    split = WordTokenizer(Vocabulary(SPECIALS), [language])
    texts = [unit * (10_000 // len(unit)) for unit in ("!", "'", "`", "=", "/", "(", "-", ".", "a", "a.", "!?", "中")]
    texts += ["http://" + "a." * 5_000, "".join(map(chr, range(0x2190, 0x2BFF))) * 4]
    for text in texts:
        began = time.process_time()
        words = split.words(text, language)
        assert time.process_time() - began < 3, f"{text[:9]} is slow"  # without cutting minutes
        assert "".join(words) == text
        assert max(map(len, words)) <= 64


@pytest.mark.parametrize(("language", "marks"), [("id", "*-"), ("ms", "'\"-")])
def test_mixed_marks_are_not_slow(language, marks):
    draw = random.Random(3)
    text = "".join(draw.choice(marks) * draw.randint(1, 5) for _ in range(33_000))  # 100 kB
    split = WordTokenizer(Vocabulary(SPECIALS), [language])
    began = time.process_time()
    assert "".join(split.words(text, language)) == text
    assert time.process_time() - began < 2  # one second, and three where each mark looks through all that follow


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_those_of_spacy(language):
    texts = [*read_lines(DATA_FOLDER / "captions" / f"val.{language}"), *PAIRS[0], *PAIRS[1], "(a<b>):-) $5 *a*"]
    ours, theirs = WordTokenizer(Vocabulary(SPECIALS), [language]), spacy.blank(language)
    assert all(ours.words(text, language) == [word.text for word in theirs(text)] for text in texts)


def test_words_that_people_write_are_not_cut():
    texts = [*PAIRS[1], "(" + "😀" * 20 + ")!", "." * 60, '"(?!)..."', "Rindfleischetikettierungsüberwachungsaufgaben"]
    texts += [f"https://example.org/{'a' * 40}", "👩🏽‍❤️‍💋‍👨🏿", "#@$%&*!?"]
    assert not any(vocabulary.UNBROKEN.search(text) for text in texts)
    assert all(vocabulary.PIECE.findall(text) == [text] for text in texts)


def test_the_delivered_tokenizer_gives_what_it_gave():
    delivered = load_tokenizer(DATA_FOLDER / "checkpoints" / "de-en")
    assert delivered.encode("Ein Mann mit Hut spielt Gitarre.", "de") == [283, 331, 318, 1081, 590, 1232, 17]


@pytest.mark.parametrize(
    ("language", "missing", "message"),
    [
        ("ja", "sudachipy", r"'ja' need: pip install sudachipy sudachidict_core$"),
        ("jpn", "sudachipy", r"'jpn' need: pip install sudachipy sudachidict_core$"),
        ("ko", "natto", r"'ko' need: pip install natto-py, and the library mecab-ko$"),
        ("th", "pythainlp", r"'th' need: pip install pythainlp$"),
        ("vi", "pyvi", r"'vi' need: pip install pyvi$"),
        ("de", "spacy", r"spacy is missing: pip install 'annotated\[words\]'$"),
    ],
)
def test_a_missing_package_is_named(words, tmp_path, monkeypatch, language, missing, message):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises((ValueError, ModuleNotFoundError), match=message):
        WordTokenizer(words.vocabulary, [language])
    words.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"de"', f'"{language}"'))
    with pytest.raises((ValueError, ModuleNotFoundError), match=message):  # the file is not damaged
        load_tokenizer(tmp_path)


# Subwords


@given(st.text())
def test_subwords_give_back_any_text(subwords, text):
    ids = subwords.encode(text, "de")
    assert subwords.decode(ids) == unicodedata.normalize("NFC", text).strip()
    assert all(len(SPECIALS) <= i < len(subwords) for i in ids)
    assert subwords.encode(subwords.decode(ids), "en") == subwords.encode(text.strip(), "en")


def test_subwords_share_one_form_of_a_letter(subwords):
    assert subwords.encode("scha\u0308rfer", "de") == subwords.encode("schärfer", "de")


def test_subwords_start_a_sentence_like_any_other_word(subwords):
    start, middle = subwords.encode("Hund", "de"), subwords.encode("x Hund", "de")
    assert middle[-len(start) :] == start


def test_subwords_keep_frequent_words_whole(subwords):
    counts = Counter(subwords.encode("Katze", "de"))
    assert len(subwords.encode("Katze", "de")) < len("Katze") < len(subwords.encode("Qxyvjk", "de"))
    assert counts.total() < 5


def test_subwords_have_the_size_asked_for_and_the_specials_in_front(subwords):
    assert len(subwords) == 290
    assert subwords.decode([4]) != subwords.decode([PAD, BOS, EOS]) == ""


def test_subwords_learn_the_same_merges_every_time(tmp_path):
    for run in "ab":
        SubwordTokenizer.train(PAIRS, LANGUAGES, vocab_size=290).save(tmp_path / run)
    first, second = (next((tmp_path / run).iterdir()).read_bytes() for run in "ab")
    assert first == second


def test_subwords_learn_from_both_languages(subwords):
    german = SubwordTokenizer.train((PAIRS[0], []), LANGUAGES, vocab_size=290)
    assert len(subwords.encode("The house", "en")) < len(german.encode("The house", "en"))


def test_subwords_stop_early_on_a_small_corpus():
    assert len(SubwordTokenizer.train((["ab"], ["ab"]), LANGUAGES, vocab_size=1000)) < 270


def test_subwords_need_room_for_every_byte():
    with pytest.raises(ValueError, match=r"at least 260 \(4 specials and 256 bytes\).*got 259"):
        SubwordTokenizer.train(PAIRS, LANGUAGES, vocab_size=259)


# Both


@pytest.fixture(params=["words", "subwords"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_a_tokenizer_has_the_shared_interface(tokenizer):
    assert isinstance(tokenizer, Tokenizer)


def test_a_batch_is_encoded_like_its_sentences(tokenizer):
    assert tokenizer.encode_batch(PAIRS[1], "en") == [tokenizer.encode(text, "en") for text in PAIRS[1]]
    assert tokenizer.encode_batch([], "en") == []
    assert tokenizer.encode("", "en") == []


def test_specials_are_added_by_nobody_and_skipped_in_text(tokenizer):
    ids = tokenizer.encode("Der Hund", "de")
    assert not {PAD, BOS, EOS, UNK} & set(ids)
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "Der Hund"
    assert tokenizer.decode(torch.tensor([BOS, *ids, EOS])) == "Der Hund"


@pytest.mark.parametrize("special", SPECIALS[:3])
def test_a_special_written_in_a_text_is_text(subwords, tokenizer, special, tmp_path):
    tokenizer.save(tmp_path)
    for either in (tokenizer, load_tokenizer(tmp_path)):
        assert not {PAD, BOS, EOS} & set(either.encode(f"Der {special} Hund", "de"))
    assert subwords.decode(subwords.encode(f"Der {special} Hund", "de")) == f"Der {special} Hund"


def test_a_saved_tokenizer_is_the_same_again(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "new" / "folder")
    again = load_tokenizer(tmp_path / "new" / "folder")
    assert type(again) is type(tokenizer)
    assert len(again) == len(tokenizer)
    text = "Die Frau jagt den Elefanten, z.B. im Haus."
    assert again.encode(text, "de") == tokenizer.encode(text, "de")
    assert again.decode(range(4, len(again))) == tokenizer.decode(range(4, len(tokenizer)))


def test_saving_replaces_the_tokenizer_that_was_there(words, subwords, tmp_path):
    words.save(tmp_path)
    subwords.save(tmp_path)
    assert isinstance(load_tokenizer(tmp_path), SubwordTokenizer)


def test_loading_needs_a_tokenizer(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no tokenizer .*nowhere.*Give the folder of a trained model"):
        load_tokenizer(tmp_path / "nowhere")


def test_a_folder_is_no_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(ValueError, match=r"tokenizer\.json is a folder, no tokenizer\. Give the folder of a trained"):
        load_tokenizer(tmp_path)


def test_without_the_library_no_file_is_called_damaged(subwords, tmp_path, monkeypatch):
    subwords.save(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match="tokenizers"):
        load_tokenizer(tmp_path)


def test_loading_rejects_a_damaged_file(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    file = next(tmp_path.iterdir())
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ValueError, match="is damaged"):
        load_tokenizer(tmp_path)


def test_a_vocabulary_has_a_limit():
    with pytest.raises(ValueError, match=r"at most 1,000,000; got 1000001"):
        SubwordTokenizer.train(PAIRS, LANGUAGES, vocab_size=1_000_001)


def test_a_text_without_end_teaches_nothing():
    long = "ab" * 10_001  # characters
    learnt = [SubwordTokenizer.train((texts, PAIRS[1]), LANGUAGES, 290) for texts in (PAIRS[0], [*PAIRS[0], long])]
    assert learnt[0].encode(long, "de") == learnt[1].encode(long, "de")
    shorter = SubwordTokenizer.train(([*PAIRS[0], long[:20_000]], PAIRS[1]), LANGUAGES, 290)
    assert len(shorter.encode(long, "de")) < len(learnt[0].encode(long, "de"))


@pytest.mark.parametrize(("setting", "kept"), [(None, "false"), ("true", "true")])
def test_the_library_is_told_about_threads_so_that_it_does_not_warn(monkeypatch, setting, kept):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if setting:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
    SubwordTokenizer.train(PAIRS, LANGUAGES, vocab_size=270)
    assert os.environ["TOKENIZERS_PARALLELISM"] == kept
