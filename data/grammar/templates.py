"""Draw random sentences that make sense: the lexicon says what fits together, the grammar renders it."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypeVar

import lexicon
from grammar import (
    Adverbial,
    Clause,
    NounPhrase,
    Pair,
    Pronoun,
    RelativeClause,
    clauses,
    english_clause,
    german_final,
    german_inverted,
    german_main,
    noun_phrases,
    prepositional,
    sentence,
    split_slot,
)
from lexicon import BARE, DEFINITE, INDEFINITE, NOUN, Adverb, Determiner, Noun, Verb

Combination = tuple[str, ...]
Subject = NounPhrase | Pair
Choice = TypeVar("Choice")

_OWNABLE = "toy bag clothes footwear text key machine instrument pet bicycle"
_RELATED = "family Nachbar"
_ONE_EACH = {"tragen", "anziehen", "ausziehen", "fahren", "reiten"}  # "the men are wearing hats"
_UNWANTED = {"hinfallen", "weinen", "träumen", "weglaufen"}  # nobody wants, has or is allowed to
_REACTIONS = {
    "weil": {"lachen", "lächeln", "bellen"},
    "wenn": {"lachen", "lächeln", "bellen", "weglaufen", "aufwachen", "aufstehen"},
}

_ACTIONS = tuple(verb for verb in lexicon.VERBS if not verb.stative)


class Sentence(NamedTuple):
    """A sentence pair and the combinations of words in it that may be held out for the test split."""

    german: str
    english: str
    combinations: frozenset[Combination]


class Implausible(Exception):
    """Nothing sensible goes with the words drawn so far: draw again."""


def _choose(rng: random.Random, options: Sequence[Choice]) -> Choice:
    if not options:
        raise Implausible
    return rng.choice(options)


# Phrases


def _noun(rng: random.Random, kinds: str, avoid: Iterable[Noun] = ()) -> Noun:
    return _choose(rng, [noun for noun in lexicon.nouns_of(kinds) if noun not in avoid])


def _describe(rng: random.Random, phrase: NounPhrase, chance: float) -> NounPhrase:
    """Add a fitting adjective."""
    fitting = lexicon.adjectives_for(phrase.noun.german)
    return replace(phrase, adjective=rng.choice(fitting)) if fitting and rng.random() < chance else phrase


def _phrase(rng: random.Random, noun: Noun, *, plural: bool | None = None, counted: bool = True) -> NounPhrase:
    """A noun with a determiner and perhaps an adjective; `counted` allows "two" and "many"."""
    plural = bool(noun.plural) and (rng.random() < 0.22 if plural is None else plural)
    draw = rng.random()
    if noun.fits("family"):
        determiner = DEFINITE
    elif plural:
        quantity = rng.choice(lexicon.QUANTITIES) if counted else BARE
        determiner = DEFINITE if draw < 0.4 else BARE if draw < 0.6 else quantity
    elif noun.fits("mass"):
        determiner = DEFINITE if draw < 0.3 else BARE
    else:
        determiner = DEFINITE if draw < 0.55 else INDEFINITE
    return _describe(rng, NounPhrase(noun, determiner, plural), 0.6 if determiner == BARE else 0.3)


def _subject(rng: random.Random, verb: Verb, avoid: Iterable[Noun]) -> Subject:
    noun = _noun(rng, verb.subjects, avoid)
    draw = rng.random()
    if draw < 0.06 and noun.fits("person animal"):
        alike = "person" if noun.fits("person") else "animal"
        other = _noun(rng, verb.subjects, {*avoid, noun, *(each for each in lexicon.NOUNS if not each.fits(alike))})
        determiner = DEFINITE if noun.fits("family") or other.fits("family") else rng.choice((DEFINITE, INDEFINITE))
        return Pair(*(_describe(rng, NounPhrase(each, determiner), 0.2) for each in (noun, other)))
    phrase = _phrase(rng, noun)
    if draw < 0.16 and noun.fits("person"):
        return _dress(rng, phrase)
    if draw < 0.24 and noun.fits(_OWNABLE) and verb.german != "gehören":
        return _owned(rng, phrase, avoid)
    return phrase


def _dress(rng: random.Random, phrase: NounPhrase) -> NounPhrase:
    """Add what somebody wears: "in einem roten Hemd", "mit einem Hut"."""
    german, english, kinds = rng.choice(
        (("in", "in", "Hemd Jacke Mantel"), ("mit", "with", "Hut Schal Rucksack Tasche"))
    )
    noun = _noun(rng, f"{kinds} Kleid" if german == "in" and phrase.noun.fits("female") else kinds)
    worn = NounPhrase(noun, BARE if phrase.plural else INDEFINITE, phrase.plural)
    return replace(phrase, attribute=(german, english, _describe(rng, worn, 0.6)))


def _owned(rng: random.Random, phrase: NounPhrase, avoid: Iterable[Noun]) -> NounPhrase:
    """Add an owner: "das Fahrrad des alten Mannes"."""
    owner = _phrase(rng, _noun(rng, "person", {*avoid, phrase.noun}), counted=False)
    if owner.determiner == BARE:
        owner = replace(owner, determiner=DEFINITE)
    return replace(phrase, determiner=DEFINITE, owner=owner)


def _possessive(subject: NounPhrase) -> Determiner:
    if subject.plural:
        return Determiner("ihr", "their")
    if subject.noun.gender == "f":
        return Determiner("ihr", "her")
    return Determiner("sein", "his" if subject.noun.fits("male") else "its")


def _object(rng: random.Random, verb: Verb, slot: str, subject: Subject, avoid: Iterable[Noun]) -> NounPhrase:
    noun = _noun(rng, verb.objects[slot], avoid)
    goal = split_slot(slot)[0] not in ("", "mit") and not noun.fits("person baby animal")
    if goal:
        phrase = _phrase(rng, noun, plural=False)
        return phrase if phrase.adjective or phrase.determiner != BARE else replace(phrase, determiner=DEFINITE)
    if verb.german in _ONE_EACH or noun.fits("clothes gown footwear"):
        shoes = noun.fits("footwear") and rng.random() < 0.8
        phrase = _phrase(rng, noun, plural=subject.plural or shoes, counted=False)
    else:
        phrase = _phrase(rng, noun)
    if isinstance(subject, NounPhrase) and not verb.stative and verb.german != "kaufen":
        mine = noun.fits(_OWNABLE) or (noun.fits(_RELATED) and not (phrase.plural and noun.fits("Mutter Vater")))
        if mine and subject.noun.fits("person") and subject.noun.german != "Mädchen" and rng.random() < 0.45:
            return replace(phrase, determiner=_possessive(subject))
        if noun.fits(_OWNABLE) and rng.random() < 0.06:
            return _owned(rng, phrase, avoid)
    return phrase


def _relate(rng: random.Random, head: Subject) -> NounPhrase:
    """Add a relative clause whose German cannot be read in two ways."""
    if isinstance(head, Pair) or head.determiner not in (DEFINITE, INDEFINITE) or head.owner or head.attribute:
        raise Implausible
    verb, gap = _choose(rng, _gaps(head.noun))
    if gap == "nom":
        clause = _clause(rng, verb, subject=head, place_chance=0.2)
    else:
        clause = Clause(_phrase(rng, _noun(rng, verb.subjects, {head.noun})), verb, {gap: head})
        if gap == "acc" and not _case_is_clear(clause.subject, head):
            raise Implausible
    return replace(head, relative=RelativeClause(clause, gap))


@cache
def _gaps(noun: Noun) -> list[tuple[Verb, str]]:
    """The verbs of clauses that can describe a noun, each with the noun's part in it: the subject or the one object."""
    found = [(verb, "nom") for verb in lexicon.VERBS if verb.german in lexicon.BACKGROUND.split()]
    found = [(verb, gap) for verb, gap in found if noun.fits(verb.subjects)]
    single = [verb for verb in lexicon.VERBS if len(verb.objects) == 1 and verb.german != "gefallen"]
    return found + [(verb, slot) for verb in single for slot, kinds in verb.objects.items() if noun.fits(kinds)]


def _case_is_clear(subject: Subject, accusative: NounPhrase) -> bool:
    """Whether a masculine singular or the number of the verb shows who does what, whatever the order."""
    masculine = [phrase.gender == 0 for phrase in (subject, accusative) if isinstance(phrase, NounPhrase)]
    return any(masculine) or subject.plural != accusative.plural


# Clauses


def _place(rng: random.Random, kinds: str, avoid: Iterable[Noun]) -> Adverbial:
    wanted = set(kinds.split())
    if any(noun.fits("animal") and not noun.fits("pet") for noun in avoid):
        wanted -= {"inside", "seat"}
    fitting = [p for p in lexicon.PLACES if wanted & {p.noun, *p.kinds.split()} and NOUN[p.noun] not in avoid]
    place = _choose(rng, fitting)
    phrase = _describe(rng, NounPhrase(NOUN[place.noun], DEFINITE), 0.2)
    if phrase.noun.fits("mass"):
        phrase = replace(phrase, determiner=BARE if phrase.adjective else DEFINITE)
    elif rng.random() < 0.15:
        phrase = replace(phrase, determiner=INDEFINITE)
    german = prepositional(place.preposition, "dat", phrase)
    return Adverbial(german, f"{place.english} {phrase.english()}", "place", phrase)


def _fixed(adverb: Adverb) -> Adverbial:
    return Adverbial(adverb.german, adverb.english, adverb.role if adverb.role in ("manner", "frequency") else "time")


def _clause(
    rng: random.Random,
    verb: Verb,
    avoid: Iterable[Noun] = (),
    *,
    subject: Subject | None = None,
    place: str = "",
    place_chance: float = 0.0,
) -> Clause:
    """A clause with a subject and objects that fit the verb; `place` asks for a place of these kinds."""
    subject = subject or _subject(rng, verb, avoid)
    taken = {*avoid, *(phrase.noun for phrase in noun_phrases(subject))}
    objects = {}
    for slot in verb.objects:
        objects[slot] = _object(rng, verb, slot, subject, taken)
        taken |= {phrase.noun for phrase in noun_phrases(objects[slot])}
    somewhere = verb.needs_place or rng.random() < place_chance
    if place or (verb.places and somewhere):
        return Clause(subject, verb, objects, (_place(rng, place or verb.places, taken),))
    return Clause(subject, verb, objects)


def _with_adverbs(rng: random.Random, clause: Clause) -> Clause:
    """Add adverbs of manner and time; a habit makes the English simple present."""
    if clause.verb.stative:
        return clause
    extra, habit = [], False
    suited = [adverb for adverb, verbs in lexicon.MANNERS.items() if clause.verb.german in verbs.split()]
    manners = [adverb for adverb in lexicon.ADVERBS if adverb.german in suited]
    if manners and rng.random() < 0.3:
        extra.append(_fixed(rng.choice(manners)))
    if rng.random() < 0.3:
        summer = "outside" in clause.verb.places and "Schnee" not in {p.noun.german for p in noun_phrases(clause)}
        times = [a for a in lexicon.ADVERBS if a.role != "manner" and (a.role != "summer" or summer)]
        adverb = rng.choice(times)
        habit = adverb.role in ("frequency", "habit")
        extra.append(_fixed(adverb))
    return replace(clause, adverbials=(*extra, *clause.adverbials), simple=habit)


def _with_modal_or_negation(rng: random.Random, clause: Clause) -> Clause:
    draw = rng.random()
    if draw < 0.12 and not clause.simple and not clause.verb.stative and clause.verb.german not in _UNWANTED:
        people = all(phrase.noun.fits("person") for phrase in noun_phrases(clause.subject))
        modals = [modal for modal in lexicon.MODALS if people or modal.german in ("wollen", "können")]
        return replace(clause, modal=rng.choice(modals))
    thing = clause.objects.get("acc")
    manner = any(adverbial.role == "manner" for adverbial in clause.adverbials)
    if draw > 0.95 and len(clause.objects) == 1 and thing and not thing.owner and not manner and not clause.simple:
        several = thing.plural or thing.noun.fits("mass")
        determiner = lexicon.NO_PLURAL if several else lexicon.NO_SINGULAR
        return replace(clause, objects={"acc": replace(thing, determiner=determiner)}, negated=True)
    return clause


def _may_lead(clause: Clause, slot: str) -> bool:
    """Whether the object can stand before the verb and still be known as the object."""
    phrase = clause.objects[slot]
    if clause.negated or len(clause.objects) > 1 or phrase.determiner not in (DEFINITE, INDEFINITE):
        return False
    plain = isinstance(clause.subject, Pair) or clause.subject.determiner in (DEFINITE, INDEFINITE)
    return slot == "dat" or (slot == "acc" and plain and _case_is_clear(clause.subject, phrase))


# Sentences


def _make(german: str, english: str, parts: Iterable[Clause], *extra: Combination) -> Sentence:
    found = set(extra)
    for part in parts:
        for phrase in noun_phrases(part):
            if phrase.adjective:
                found.add(("adjective noun", phrase.adjective.german, phrase.noun.german))
        for clause in clauses(part):
            subject = clause.subject.antecedent if isinstance(clause.subject, Pronoun) else clause.subject
            actors = (subject.first, subject.second) if isinstance(subject, Pair) else (subject,)
            for actor in actors:
                for phrase in clause.objects.values():
                    words = (actor.noun.german, clause.verb.german, phrase.noun.german)
                    found.add(("subject verb object", *words))
    return Sentence(sentence(german), sentence(english), frozenset(found))


def _main(clause: Clause, front: str = "nom") -> Sentence:
    leading = [("object first", clause.verb.german)] if front in clause.objects else []
    return _make(german_main(clause, front), english_clause(clause, front=front), [clause], *leading)


def _mirror(clause: Clause) -> Clause | None:
    """The clause with subject and object exchanged, where that makes sense."""
    if len(clause.objects) != 1 or clause.negated or not isinstance(clause.subject, NounPhrase):
        return None
    (slot, phrase), subject = next(iter(clause.objects.items())), clause.subject
    if phrase.determiner.german in ("sein", "ihr") or "{nom}" in clause.verb.english:
        return None
    fits = phrase.noun.fits(clause.verb.subjects) and subject.noun.fits(clause.verb.objects[slot])
    return replace(clause, subject=phrase, objects={slot: subject}) if fits else None


def simple(rng: random.Random) -> list[Sentence]:
    """A main clause with any part in front, and often its twins: roles exchanged, or the other order."""
    clause = _clause(rng, rng.choice(lexicon.VERBS), place_chance=0.5)
    clause = _with_modal_or_negation(rng, _with_adverbs(rng, clause))
    fronts = [a.role for a in clause.adverbials if a.role != "frequency"]
    leading = [slot for slot in clause.objects if _may_lead(clause, slot)]
    draw, front = rng.random(), "nom"
    if fronts and draw < 0.35:
        front = rng.choice(fronts)
    elif leading and draw > 0.6:
        front = leading[0]
    family = [_main(clause, front)]
    if front in leading and rng.random() < 0.5:
        family.append(_main(clause))
    mirrored = _mirror(clause)
    if mirrored and rng.random() < 0.9:
        possible = front not in mirrored.objects or _may_lead(mirrored, front)
        family.append(_main(mirrored, front if possible else "nom"))
    return family


def direction(rng: random.Random) -> list[Sentence]:
    """Where something happens and where it leads: the case alone tells "im Park" from "in den Park"."""
    towards = [
        verb for verb in _ACTIONS if verb.german in ("laufen", "springen") and {"in acc", "auf acc"} & {*verb.objects}
    ]
    clause = _clause(rng, rng.choice(towards))
    ((slot, goal),) = clause.objects.items()
    preposition, _ = split_slot(slot)
    place = Adverbial(
        prepositional(preposition, "dat", goal),
        f"{'in' if preposition == 'in' else 'on'} {goal.english()}",
        "place",
        goal,
    )
    verb = next(verb for verb in _ACTIONS if verb.german == clause.verb.german and not verb.objects)
    return [_main(clause), _main(Clause(clause.subject, verb, adverbials=(place,)))]


def relative(rng: random.Random) -> list[Sentence]:
    """A main clause whose subject or last object carries a relative clause."""
    if rng.random() < 0.3:
        noun = _noun(rng, "toy bag clothes furniture vehicle building text pet person machine instrument")
        head = _relate(rng, NounPhrase(noun, DEFINITE, rng.random() < 0.2))
        return [_main(Clause(head, lexicon.COPULA, adverbials=(_predicate(rng, head),)))]
    clause = _clause(rng, rng.choice(lexicon.VERBS), place_chance=0.15)
    taken = {phrase.noun for phrase in noun_phrases(clause)}
    last = next(reversed(clause.objects), "")
    if last and not clause.verb.prefix and not clause.adverbials and rng.random() < 0.5:
        related = _relate(rng, clause.objects[last])
        clause = replace(clause, objects={**clause.objects, last: related})
    else:
        related = _relate(rng, clause.subject)
        clause = replace(clause, subject=related)
    inner = {phrase.noun for phrase in noun_phrases(related.relative.clause)} - {related.noun}
    if taken & inner:
        raise Implausible
    return [_main(clause)]


def _predicate(rng: random.Random, phrase: NounPhrase) -> Adverbial:
    fitting = [a for a in lexicon.adjectives_for(phrase.noun.german) if a != phrase.adjective]
    adjective = _choose(rng, fitting)
    return Adverbial(adjective.german, adjective.english, "predicate")


def copula(rng: random.Random) -> list[Sentence]:
    """Something is as an adjective says: "Das Fahrrad des Mannes ist neu"."""
    noun = _noun(rng, f"person animal building furniture vehicle food drink dish flower tree {_OWNABLE}")
    phrase = replace(_phrase(rng, noun), determiner=DEFINITE, adjective=None)
    if noun.fits(_OWNABLE) and rng.random() < 0.6:
        phrase = _owned(rng, phrase, ())
    return [_main(Clause(phrase, lexicon.COPULA, adverbials=(_predicate(rng, phrase),)))]


def music(rng: random.Random) -> list[Sentence]:
    """Somebody plays an instrument, which takes an article in English only."""
    instrument = NOUN[rng.choice(lexicon.INSTRUMENTS)]
    place = "inside" if instrument.fits("furniture") else lexicon.MUSIC.places
    clause = _clause(rng, lexicon.MUSIC, place=place if rng.random() < 0.5 else "")
    clause = _with_adverbs(rng, clause)
    played = Adverbial(instrument.german, f"the {instrument.english}", "predicate")
    return [_main(replace(clause, adverbials=(*clause.adverbials, played)))]


def _join(rng: random.Random, clause: Clause, word: str, inner: tuple[str, str], *parts: Clause) -> Sentence:
    """A main clause and a subordinate one, in either order; `inner` is the latter in German and English."""
    german, english = (f"{word} {inner[0]}", f"{lexicon.CONJUNCTIONS[word]} {inner[1]}")
    verbs = [("conjunction verb", word, part.verb.german) for part in parts]
    if rng.random() < 0.4:
        text = f"{german}, {german_inverted(clause)}", f"{english}, {english_clause(clause)}"
    else:
        text = f"{german_main(clause)}, {german}", f"{english_clause(clause)} {english}"
    return _make(*text, [clause, *parts], *verbs)


def two_events(rng: random.Random) -> list[Sentence]:
    """Two things happen: "während", or "wenn" and "weil" after a reaction."""
    word = rng.choice(("während", "wenn", "weil"))
    habit = word == "wenn"
    first = rng.choice([verb for verb in _ACTIONS if word == "während" or verb.german in _REACTIONS[word]])
    main = replace(_clause(rng, first, place_chance=0.1), simple=habit)
    taken = {phrase.noun for phrase in noun_phrases(main)}
    event = replace(_clause(rng, rng.choice(_ACTIONS), taken, place_chance=0.1), simple=habit)
    return [_join(rng, main, word, (german_final(event), english_clause(event)), event)]


def report(rng: random.Random) -> list[Sentence]:
    """Somebody sees, knows or says that something happens."""
    main = _clause(rng, rng.choice(lexicon.REPORTING))
    event = _clause(rng, rng.choice(lexicon.VERBS), {p.noun for p in noun_phrases(main)}, place_chance=0.2)
    event = _with_modal_or_negation(rng, event)
    german = f"{german_main(main)}, dass {german_final(event)}"
    english = f"{english_clause(main)} that {english_clause(event)}"
    return [_make(german, english, [main, event], ("conjunction verb", "dass", event.verb.german))]


def reason(rng: random.Random) -> list[Sentence]:
    """Somebody does something because, or although, he, she or it is in some state."""
    word = rng.choice(("weil", "obwohl"))
    table = lexicon.REASONS if word == "weil" else lexicon.OBSTACLES
    adjective = rng.choice([adjective for adjective in lexicon.ADJECTIVES if adjective.german in table])
    verb = rng.choice([verb for verb in _ACTIONS if verb.german in table[adjective.german].split()])
    main = _clause(rng, verb, place_chance=0.4)
    if not isinstance(main.subject, NounPhrase) or adjective not in lexicon.adjectives_for(main.subject.noun.german):
        raise Implausible
    if main.subject.adjective:
        raise Implausible
    state = Adverbial(adjective.german, adjective.english, "predicate")
    inner = Clause(Pronoun(main.subject), lexicon.COPULA, adverbials=(state,))
    return [_join(rng, main, word, (german_final(inner), english_clause(inner)))]


def weather(rng: random.Random) -> list[Sentence]:
    """The weather keeps people in, brings them out, or does not."""
    word = rng.choice(("weil", "obwohl", "wenn"))
    bad = rng.random() < 0.5
    state = rng.choice(lexicon.BAD_WEATHER if bad else lexicon.GOOD_WEATHER)
    place = "inside" if bad != (word == "obwohl") else "outside"
    if bad and word != "obwohl" and rng.random() < 0.5:
        main = _wear(rng, lexicon.WEATHER_CLOTHES[state.german])
    else:
        main = _clause(rng, _pastime(rng, place), place=place)
    habit = word == "wenn"
    inner = (state.german, state.english_simple if habit else state.english)
    return [_join(rng, replace(main, simple=habit), word, inner)]


def _wear(rng: random.Random, kinds: str) -> Clause:
    verb = next(verb for verb in lexicon.VERBS if verb.english == "wear {acc}")
    clause = _clause(rng, verb)
    plural = clause.subject.plural
    worn = _phrase(rng, _noun(rng, kinds), plural=plural, counted=False)
    return replace(clause, objects={"acc": replace(worn, determiner=BARE if plural else INDEFINITE)})


def _pastime(rng: random.Random, place: str) -> Verb:
    names = lexicon.PASTIMES[place].split()
    return rng.choice([verb for verb in _ACTIONS if verb.german in names and place in verb.places.split()])


def coordination(rng: random.Random) -> list[Sentence]:
    """Two main clauses with "und" or "aber"."""
    first = _clause(rng, rng.choice(_ACTIONS), place_chance=0.2)
    taken = {phrase.noun for phrase in noun_phrases(first)}
    second = _clause(rng, rng.choice(_ACTIONS), taken, place_chance=0.2)
    german, english = rng.choice(((" und", " and"), (", aber", ", but")))
    texts = (
        f"{german_main(first)}{german} {german_main(second)}",
        f"{english_clause(first)}{english} {english_clause(second)}",
    )
    return [_make(*texts, [first, second])]


def circumstance(rng: random.Random) -> list[Sentence]:
    """Something happens despite or because of something else, which stands in the genitive."""
    adjective_name, noun_name = rng.choice(lexicon.CIRCUMSTANCES)
    noun = NOUN[noun_name]
    adjective = next(a for a in lexicon.ADJECTIVES if a.german == adjective_name)
    determiner, described = rng.choice(((BARE, True), (DEFINITE, True), (DEFINITE, bool(noun.plural))))
    phrase = NounPhrase(noun, determiner, bool(noun.plural), adjective if described else None)
    word = rng.choice(tuple(lexicon.CIRCUMSTANTIAL))
    if noun_name == "Musik":
        names = lexicon.MUSIC_EFFECTS[word].split()
        clause = _clause(rng, rng.choice([verb for verb in _ACTIONS if verb.german in names]), place_chance=0.5)
    else:
        place = "inside" if word == "wegen" else "outside"
        clause = _clause(rng, _pastime(rng, place), place=place)
    german = f"{word} {phrase.german('gen')}"
    english = f"{lexicon.CIRCUMSTANTIAL[word]} {phrase.english()}"
    added = Adverbial(german, english, "circumstance", phrase)
    clause = replace(clause, adverbials=(added, *clause.adverbials))
    return [_main(clause, rng.choice(("nom", "circumstance", "circumstance")))]


TEMPLATES: tuple[tuple[Callable[[random.Random], list[Sentence]], int], ...] = (
    (simple, 45),
    (relative, 22),
    (direction, 3),
    (two_events, 9),
    (report, 7),
    (reason, 5),
    (weather, 6),
    (coordination, 6),
    (copula, 5),
    (circumstance, 5),
    (music, 2),
)
