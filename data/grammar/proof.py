"""That the grammar corpus is right: each phenomenon is found in the text on disk and checked in both languages.

    python -m pytest data/grammar/proof.py    after generate.py has written the files anew

The corpus is frozen, and `tests/test_grammar.py` holds it by checksums, so this need not run with the tests. It reads
the text with patterns and tables of its own; from the corpus's program it takes only the dictionary.
"""

import re
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import generate  # noqa: E402
import lexicon  # noqa: E402

SPLITS = ("train", "val", "test")


def _lines(name: str) -> list[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


PAIRS = {split: list(zip(_lines(f"{split}.de"), _lines(f"{split}.en"), strict=True)) for split in SPLITS}
TRAIN = PAIRS["train"]
ALL = [pair for split in SPLITS for pair in PAIRS[split]]
SIMPLE = [(german, english) for german, english in ALL if "," not in german and " und " not in german]


@pytest.fixture(scope="module")
def generated() -> dict[str, list[generate.Sentence]]:
    return generate.generate()


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text)


def _bag(text: str) -> tuple[str, ...]:
    return tuple(sorted(_words(text.lower())))


def _plural(noun: lexicon.Noun) -> str:
    return noun.english_plural or re.sub(r"([^aeiou])y$", r"\1ie", noun.english) + (
        "es" if re.search(r"(s|x|ch|sh)$", noun.english) else "s"
    )


def _alternatives(words: list[str] | set[str]) -> str:
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


FINITE = {
    form
    for verb in (*lexicon.VERBS, lexicon.COPULA, *lexicon.REPORTING)
    for form in (verb.singular_form, verb.plural_form)
}
FINITE |= {form for modal in lexicon.MODALS for form in (modal.singular, modal.plural)}
FINAL = FINITE | {verb.prefix + form for verb in lexicon.VERBS for form in (verb.singular_form, verb.plural_form)}
FINAL |= {"regnet", "schneit", "scheint"}
VERB_FORM = _alternatives(FINITE)
ADJECTIVE = f"(?:{_alternatives({a.stem for a in lexicon.ADJECTIVES})})"
QUANTITIES = {"zwei", "drei", "vier", "viele", "vielen", "einige", "einigen"}
DATIVE = r"(?:dem|der|den|einem|einer|seinem|seiner|seinen|ihrem|ihrer|ihren)"


# Files


def test_sentences_are_short_and_punctuated() -> None:
    for text in (sentence for pair in ALL for sentence in pair):
        assert 3 <= len(_words(text)) <= 20, text
        assert re.fullmatch(r"[A-ZÄÖÜ][\w']*(,? [\w']+)*\.", text), text


def test_no_sentence_twice_and_none_in_two_splits() -> None:
    assert len({german for german, _ in ALL}) == len(ALL)
    for side in (0, 1):
        texts = {split: {pair[side] for pair in PAIRS[split]} for split in SPLITS}
        assert not texts["train"] & texts["val"]
        assert not texts["train"] & texts["test"]
        assert not texts["val"] & texts["test"]


def test_a_german_sentence_has_one_translation() -> None:
    translation = dict(ALL)
    for pair in islice(generate.stream(seed=2), 5_000):
        assert translation.setdefault(pair.german, pair.english) == pair.english


def test_at_least_150_lemmas_a_side_and_all_of_them_in_training() -> None:
    german: dict[str, set[str]] = {}
    english: dict[str, set[str]] = defaultdict(set)
    for noun in lexicon.NOUNS:
        german[f"noun {noun.german}"] = {noun.german, noun.genitive, noun.plural} - {""}
        english[noun.english] |= {noun.english, _plural(noun)}
    for verb in lexicon.VERBS:
        german[f"verb {verb.german}"] = {verb.german, verb.singular_form, verb.plural_form}
        stem = verb.english.split()[0].removesuffix("e")[:4]
        english[verb.english.partition(" {")[0]] |= {"is", "are"} if verb.english == "be" else {stem}
    for adjective in lexicon.ADJECTIVES:
        german[adjective.german] = {adjective.stem + ending for ending in ("", "e", "en", "er", "es", "em")}
        english[adjective.english] |= {adjective.english}
    for word, other in [(a.german, a.english) for a in lexicon.ADVERBS] + [
        (place.preposition, place.english) for place in lexicon.PLACES
    ]:
        german[f"uninflected {word}"] = {word}
        english[other] |= {other}
    assert min(len(german), len(english)) >= 150
    german_text, english_text = (" ".join(pair[side].lower() for pair in TRAIN) for side in (0, 1))
    words = set(_words(german_text))
    for lemma, forms in german.items():
        assert any(f.lower() in (german_text if " " in f else words) for f in forms), lemma
    for lemma, forms in english.items():
        assert any(re.search(rf"\b{form}", english_text) for form in forms), lemma


def test_the_vocabulary_is_moderate() -> None:
    for side in (0, 1):
        assert 500 <= len({word for pair in TRAIN for word in _words(pair[side].lower())}) <= 900


# Word order


@pytest.mark.parametrize(
    ("german", "english"),
    [
        ("Heute", "Today"),
        ("Jetzt", "Now"),
        ("Jeden Tag", "Every day"),
        ("Im Sommer", "In summer"),
        ("Am Strand", "On the beach"),
        ("Im Park", "In the park"),
    ],
)
def test_the_verb_is_second_after_a_fronted_adverbial(german: str, english: str) -> None:
    fronted = [pair for pair in ALL if re.match(rf"{german} [a-zäöü]", pair[0])]
    assert len(fronted) >= 5
    for source, target in fronted:
        verb, following = _words(source.removeprefix(german))[:2]
        assert verb in FINITE, source
        assert following in {*_subject_openers(), *_plural_openers()}, source
        assert target.startswith(english + ", "), target


def _subject_openers() -> set[str]:
    return {"der", "die", "das", "ein", "eine", "zwei", "drei", "vier", "viele", "einige"}


def _plural_openers() -> set[str]:
    plurals = {noun.plural for noun in lexicon.NOUNS}
    return plurals | {a.stem + ending for a in lexicon.ADJECTIVES for ending in ("e",)}


def test_the_verb_is_second_after_a_subordinate_clause() -> None:
    fronted = [pair for pair in ALL if re.match(r"(Weil|Obwohl|Während|Wenn) ", pair[0])]
    assert len(fronted) >= 300
    for source, target in fronted:
        clauses = source.split(", ")
        assert any(_words(clause)[0] in FINITE for clause in clauses[1:]), source
        assert re.match(r"(Because|Although|While|When) .+, ", target), target


@pytest.mark.parametrize(
    ("german", "english"),
    [("weil", "because"), ("obwohl", "although"), ("während", "while"), ("wenn", "when"), ("dass", "that")],
)
def test_the_verb_is_last_in_a_subordinate_clause(german: str, english: str) -> None:
    clauses = [
        (clause, source, target)
        for source, target in ALL
        for clause in re.findall(rf"(?:^|, ){german} ([^,.]+)[,.]", source, re.IGNORECASE)
    ]
    assert len(clauses) >= 100
    for clause, source, target in clauses:
        assert f" {german}" not in source or f", {german} " in source, source
        final = _words(clause)[-1]
        followed_by_relative = f"{clause}, d" in source and final not in FINAL
        assert followed_by_relative or final in FINAL, source
        assert re.search(rf"\b{english}\b", target, re.IGNORECASE), target


def test_the_verb_is_last_in_a_relative_clause() -> None:
    pattern = re.compile(r", (?:(?:auf|mit|in|durch|über|um|von|zu|aus) )?(?:der|die|das|den|dem|denen) ([^,.]+)[,.]")
    clauses = [(clause, *pair) for pair in ALL for clause in pattern.findall(pair[0])]
    assert len(clauses) >= 1000
    for clause, source, target in clauses:
        assert _words(clause)[-1] in FINAL, source
        assert re.search(r"\b(who|whom|that)\b", target), target


def test_the_relative_pronoun_says_who_acts() -> None:
    found = {"den": 0, "der": 0}
    person = _alternatives({noun.german for noun in lexicon.NOUNS if noun.gender == "m" and noun.fits("person")})
    for source, target in ALL:
        match = re.match(rf"(?:Der|Ein) (?:\w+ )?(?:{person}), (den|der) ", source)
        if match:
            found[match[1]] += 1
            assert (" whom " in target) == (match[1] == "den"), source
    assert min(found.values()) >= 20


@pytest.mark.parametrize("verb", [verb for verb in lexicon.VERBS if verb.prefix], ids=lambda verb: verb.german)
def test_a_separable_prefix_stands_alone_or_joins(verb: lexicon.Verb) -> None:
    forms = rf"(?:{verb.singular_form}|{verb.plural_form})"
    apart = [
        pair
        for pair in ALL
        if re.fullmatch(rf"(?:(?! und )[^,])* {forms} (?:(?! und )[^,])*\b{verb.prefix}\.", pair[0])
    ]
    joined = [pair for pair in ALL if re.search(rf", [^,.]* {verb.prefix}{forms}[.,]", pair[0])]
    assert len(apart) >= 10
    assert joined
    stem = verb.english.split()[0].removesuffix("e")[:3]
    particle = [word for word in verb.english.split()[1:] if word[0] != "{"]
    for source, target in [*apart, *joined]:
        assert re.search(rf"\b{stem}", target), (source, target)
        assert all(word in _words(target) for word in particle), (source, target)


def test_a_modal_sends_the_infinitive_to_the_end() -> None:
    modals = {form for modal in lexicon.MODALS for form in (modal.singular, modal.plural)}
    infinitives = {verb.german for verb in lexicon.VERBS}
    found = [pair for pair in SIMPLE if modals & set(_words(pair[0])[1:])]
    assert len(found) >= 100
    for source, target in found:
        assert _words(source)[-1] in infinitives, source
        assert re.search(r"\b(wants? to|has to|have to|can|may)\b", target), target


# Case


def test_accusative_before_the_subject() -> None:
    nouns = {form: noun for noun in lexicon.NOUNS if noun.gender == "m" for form in (noun.german, noun.genitive)}
    subjects = {form: noun for noun in lexicon.NOUNS for form in (noun.german, noun.plural) if form}
    opening = rf"(?:Den|Einen) (?:{ADJECTIVE}en )?([A-ZÄÖÜ]\w+) (?:{VERB_FORM})"
    object_first = re.compile(rf"{opening} (?:der|die|das|ein|eine) (?:{ADJECTIVE}\w+ )?([A-ZÄÖÜ]\w+)\b")
    found = 0
    for source, target in SIMPLE:
        match = object_first.match(source)
        if not match or match[1] not in nouns or nouns[match[1]].plural == match[1]:
            continue
        found += 1
        subject, thing = subjects[match[2]], nouns[match[1]]
        actor = re.match(rf"(The|An?) ([\w']+ )*?({subject.english}|{_plural(subject)})\b", target)
        assert actor, (source, target)
        assert thing.english in target[actor.end() :], (source, target)
    assert found >= 100


def test_either_order_of_the_same_german_words_means_the_same_where_case_decides() -> None:
    orders = defaultdict(set)
    for source, target in TRAIN:
        if "," not in source:
            orders[_bag(source), target].add(source)
    twins = [sources for sources in orders.values() if any(s.startswith(("Den ", "Einen ", "Dem ")) for s in sources)]
    assert sum(len(sources) > 1 for sources in twins) >= 50


def test_dative_verbs_take_a_dative() -> None:
    subject = r"(?:Der|Das|Ein|Eine) (?:\w+ )?[A-ZÄÖÜ]\w+"
    for verb in [verb for verb in lexicon.VERBS if list(verb.objects) == ["dat"] and not verb.stative]:
        pattern = re.compile(rf"{subject} {verb.singular_form} ([a-zäöü]\w+) .*\b{verb.prefix}\.")
        found = [(match[1], source) for source, _ in SIMPLE if (match := pattern.match(source))]
        following = [word for word, source in found if not source.startswith("Der ") or _masculine(source)]
        assert len(following) >= 3, verb.german
        assert not {"das", "die", "einen", "eine", "ein", "des"} & set(following), verb.german
        assert any(re.fullmatch(DATIVE, word) for word in following), verb.german


def _masculine(source: str) -> bool:
    nouns = {noun.german for noun in lexicon.NOUNS if noun.gender == "m"}
    return next(word for word in _words(source)[1:] if word[0].isupper()) in nouns


def test_the_dative_plural_ends_in_n() -> None:
    after_quantity = re.compile(rf"\b(?:mit|von) (\w+) (?:{ADJECTIVE}\w+ )?([A-ZÄÖÜ]\w+)")
    quantities = [match for source, _ in ALL for match in after_quantity.findall(source) if match[0] in QUANTITIES]
    assert {quantity for quantity, _ in quantities} == QUANTITIES - {"viele", "einige"}
    assert all(noun[-1] in "ns" for _, noun in quantities)


def test_giving_puts_the_dative_before_the_accusative() -> None:
    giving = re.compile(rf"\b(?:gibt|zeigt|bringt) ({DATIVE}) (?:\w+en )?[A-ZÄÖÜ]\w+ (?:den|die|das|einen|eine|ein) ")
    found = [pair for pair in ALL if giving.search(pair[0])]
    assert len(found) >= 30
    assert all(re.search(r"\b(giv|show|bring|gives|shows)", target) for _, target in found)


def test_prepositions_contract() -> None:
    text = " ".join(source for source, _ in ALL)
    for contraction in ("im", "am", "ins", "zum", "zur", "vom"):
        assert len(re.findall(rf"\b{contraction}\b", text, re.IGNORECASE)) >= 5, contraction
    # A noun with a relative clause keeps its article: "in das Boot, das ..."
    assert not re.search(r"[^,] (in dem|an dem|zu dem|zu der|von dem|in das) (\w+ )?[A-ZÄÖÜ]\w+[ .]", text)


def test_two_way_prepositions_tell_where_from_where_to() -> None:
    movement = re.compile(r"\b(?:läuft|laufen|springt|springen)\b")
    where_to = re.compile(r"\b(?:ins|in den|in die|in einen|in eine|in ein)\b")
    where = re.compile(r"\b(?:im|in der|in einem|in einer) (?:\w+en )?(?:Park|Garten|Wald|Dorf|Stadt)\b")
    into = [pair for pair in SIMPLE if movement.search(pair[0]) and where_to.search(pair[0].lower())]
    inside = [pair for pair in SIMPLE if movement.search(pair[0]) and where.search(pair[0])]
    assert len(into) >= 50
    assert len(inside) >= 50
    for source, target in into:
        assert " into " in target, source
    for source, target in inside:
        assert where_to.search(source.lower()) or " into " not in target, source
    either = {re.sub(r" (?:into|in) ", " in(to) ", target) for _, target in into}
    either &= {re.sub(r" in ", " in(to) ", target) for _, target in inside}
    assert len(either) >= 20
    laid = [pair for pair in SIMPLE if re.search(r"\b(?:legt|stellt)\b.* auf ", pair[0])]
    assert len(laid) >= 20
    assert not any(re.search(r" auf (?:dem|der|einem|einer) ", source) for source, _ in laid)


# Agreement

# Determiner, ending and gender (p: plural), as grammars of German list them.
WEAK = {
    *(("der", "e", "m"), ("den", "en", "m"), ("dem", "en", "m"), ("des", "en", "m")),
    *(("die", "e", "f"), ("der", "en", "f")),
    *(("das", "e", "n"), ("dem", "en", "n"), ("des", "en", "n")),
    *(("die", "en", "p"), ("den", "en", "p"), ("der", "en", "p")),
}
MIXED = {
    *(("ein", "er", "m"), ("einen", "en", "m"), ("einem", "en", "m"), ("eines", "en", "m")),
    *(("eine", "e", "f"), ("einer", "en", "f")),
    *(("ein", "es", "n"), ("einem", "en", "n"), ("eines", "en", "n")),
}
MIXED_PLURAL = {(owner, "en", "p") for owner in ("seine", "ihre", "seinen", "ihren", "keine")}
STRONG = {
    *(("", "er", "m"), ("", "en", "m"), ("", "em", "m")),
    *(("", "e", "f"), ("", "er", "f")),
    *(("", "es", "n"), ("", "em", "n"), ("", "en", "n")),
    *(("", "e", "p"), ("", "en", "p"), ("", "er", "p")),
}


def _endings() -> set[tuple[str, str, str]]:
    """Every determiner ("" for none or a numeral), adjective ending and gender of the noun found in the corpus."""
    genders = defaultdict(set)
    for noun in lexicon.NOUNS:
        genders[noun.german].add(noun.gender)
        genders[noun.genitive].add(noun.gender)
        if noun.plural:
            genders[noun.plural].add("p")
            genders[noun.plural + "n"].add("p")
    determiners = {determiner for determiner, _, _ in WEAK | MIXED | MIXED_PLURAL} | {"sein", "ihr", "kein"}
    determiners |= {word + ending for word in ("sein", "ihr", "kein") for ending in ("em", "er", "es", "e", "en")}
    pattern = re.compile(rf"(?:(\w+) )?\b{ADJECTIVE}(en|er|es|em|e) ([A-ZÄÖÜ]\w+)")
    relative_pronoun = re.compile(r", (?:(?:auf|mit|in|über|um|von) )?(?:der|die|das|den|dem|denen) ")
    contracted = {"im": "dem", "am": "dem", "zum": "dem", "vom": "dem", "zur": "der", "ins": "das"}
    found = set()
    for source, _ in ALL:
        text = relative_pronoun.sub(", ", source[0].lower() + source[1:])
        for word, ending, noun in pattern.findall(text):
            before = contracted.get(word, word)
            if noun in genders and len(genders[noun]) == 1:
                determiner = before if before in determiners else ""
                found.add((determiner, ending, next(iter(genders[noun]))))
    return found


def test_adjective_endings() -> None:
    found = _endings()
    articles = {determiner for determiner, _, _ in WEAK | MIXED}
    assert {entry for entry in found if entry[0] in articles} == WEAK | MIXED
    assert {entry for entry in found if not entry[0]} == STRONG
    owned = {entry for entry in found if entry[0] and entry[0] not in articles}
    assert owned >= MIXED_PLURAL
    as_ein = {(re.sub("^(sein|ihr|kein)", "ein", determiner), ending, gender) for determiner, ending, gender in owned}
    assert {entry for entry in as_ein if entry[2] != "p"} <= MIXED
    assert {ending for _, ending, gender in as_ein if gender == "p"} == {"en"}


def test_the_verb_agrees_with_the_subject() -> None:
    singular = {noun.german: noun for noun in lexicon.NOUNS if noun.german != noun.plural}
    plural = {
        noun.plural: noun for noun in lexicon.NOUNS if noun.german != noun.plural and noun.genitive != noun.plural
    }
    forms = {verb.singular_form: "is" for verb in lexicon.VERBS} | {verb.plural_form: "are" for verb in lexicon.VERBS}
    counts = {"is": 0, "are": 0}
    opening = re.compile(rf"(?:\w+ )?(?:{ADJECTIVE}\w+ )?([A-ZÄÖÜ]\w+) ({_alternatives(set(forms))})\b")
    for source, target in ALL:
        match = opening.match(source)
        if not match or match[1] not in singular | plural:
            continue
        noun = (singular | plural)[match[1]]
        english = re.match(rf"(?:\w+ ){{0,2}}({noun.english}|{_plural(noun)}) (is|are) ", target, re.IGNORECASE)
        if english:
            counts[english[2]] += 1
            assert forms[match[2]] == english[2] == ("is" if match[1] in singular else "are"), (source, target)
    assert min(counts.values()) >= 300


def test_english_pronouns_follow_the_person_not_the_gender() -> None:
    expected = {"er": {"he", "it"}, "sie": {"she", "it", "they"}, "es": {"she", "it"}}
    found = defaultdict(set)
    for source, target in ALL:
        german = re.search(r"\b(?:weil|obwohl) (er|sie|es) (?!kalt|warm)\w+ (?:ist|sind)\b", source, re.IGNORECASE)
        english = re.search(r"\b(?:because|although) (he|she|it|they) (?:is|are)\b", target, re.IGNORECASE)
        if german:
            found[german[1]].add(english[1])
    assert found == expected


def test_a_and_an() -> None:
    for _, target in ALL:
        assert not re.search(r"\b(a [aeiou]|an [^aeiou])", target.lower()), target


@pytest.mark.parametrize("entry", lexicon.COMPOUNDS, ids=lambda entry: entry[2])
def test_compounds(entry: tuple[str, str, str, str]) -> None:
    first, head, english, _ = entry
    compound, simple = lexicon.NOUN[first + head.lower()], lexicon.NOUN[head]
    assert compound.gender == simple.gender
    found = [target for source, target in TRAIN if re.search(rf"\b{compound.german}\b", source)]
    assert len(found) >= 3
    assert all(re.search(f"{english}|{_plural(compound)}", target, re.IGNORECASE) for target in found)


# What only order or case can tell


def test_hundreds_of_english_sentences_share_their_words_and_differ_in_meaning() -> None:
    bags = defaultdict(dict)
    for source, target in TRAIN:
        if "," not in target:
            bags[_bag(target)][target] = source
    groups = [group for group in bags.values() if len(group) > 1]
    assert len(groups) >= 300
    assert all(len(set(group.values())) == len(group) for group in groups)


def test_german_sentences_share_their_words_and_differ_in_meaning() -> None:
    bags = defaultdict(dict)
    for source, target in TRAIN:
        if "," not in source:
            bags[_bag(source)][source] = _bag_of_roles(target)
    assert sum(len(set(group.values())) > 1 for group in bags.values()) >= 80


def _bag_of_roles(target: str) -> str:
    """The English sentence without its fronted adverbial, which says nothing about who does what."""
    return target.rpartition(", ")[2]


# Held-out combinations


def test_training_never_sees_what_is_held_out(generated: dict[str, list[generate.Sentence]]) -> None:
    for split in ("train", "val"):
        assert not any(generate.is_held_out(c) for pair in generated[split] for c in pair.combinations)
    kinds = defaultdict(int)
    for pair in generated["test"]:
        held_out = [c for c in pair.combinations if generate.is_held_out(c)]
        assert held_out, pair.german
        for kind in {c[0] for c in held_out}:
            kinds[kind] += 1
    assert set(kinds) == {"subject verb object", "adjective noun", "object first", "conjunction verb"}
    assert min(kinds.values()) >= 30


def test_held_out_descriptions_are_not_in_the_training_text() -> None:
    stems = {adjective.stem: adjective.german for adjective in lexicon.ADJECTIVES}
    nouns = {
        form: noun.german
        for noun in lexicon.NOUNS
        for form in (noun.german, noun.genitive, noun.plural, noun.plural + "n")
    }
    pattern = re.compile(rf"\b({_alternatives(set(stems))})(?:en|er|es|em|e) ([A-ZÄÖÜ]\w+)", re.IGNORECASE)

    def described(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
        text = " ".join(source for source, _ in pairs)
        return {(stems[stem.lower()], nouns[noun]) for stem, noun in pattern.findall(text) if noun in nouns}

    trained, tested = described(TRAIN), described(PAIRS["test"])
    new = {pair for pair in tested if generate.is_held_out(("adjective noun", *pair))}
    assert len(new) >= 50
    assert not new & trained


def test_held_out_verbs_never_follow_their_object_in_training() -> None:
    held_out = [verb for verb in lexicon.VERBS if generate.is_held_out(("object first", verb.german))]
    pattern = re.compile(rf"(?:Den|Einen|Dem|Einem) (?:{ADJECTIVE}en )?[A-ZÄÖÜ]\w+ (\w+) ")

    def leading(split: str) -> set[str]:
        return {match[1] for source, _ in PAIRS[split] if (match := pattern.match(source))}

    forms = {form for verb in held_out for form in (verb.singular_form, verb.plural_form)}
    forms -= {f for v in lexicon.VERBS if v not in held_out for f in (v.singular_form, v.plural_form)}
    assert forms & leading("test")
    assert not forms & leading("train")


def test_every_word_of_the_test_split_is_in_training() -> None:
    for side in (0, 1):
        known = {word for pair in TRAIN for word in _words(pair[side].lower())}
        assert {word for pair in PAIRS["test"] for word in _words(pair[side].lower())} <= known
