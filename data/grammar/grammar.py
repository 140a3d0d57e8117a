"""German and English grammar, as far as the captions need it: phrases and clauses that render themselves in both.

Nothing here is random or knows which sentences make sense; that is left to the lexicon and the templates.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lexicon import Adjective, Determiner, Modal, Noun, Verb

GENDERS = "mfnp"  # masculine, feminine, neuter; p is the plural, which has no gender

# One column for each of GENDERS.
_DEFINITE = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
    "gen": ("des", "der", "des", "der"),
}
_EIN_ENDINGS = {
    "nom": ("", "e", "", "e"),
    "acc": ("en", "e", "", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("es", "er", "es", "er"),
}
_WEAK = {
    "nom": ("e", "e", "e", "en"),
    "acc": ("en", "e", "e", "en"),
    "dat": ("en", "en", "en", "en"),
    "gen": ("en", "en", "en", "en"),
}
_MIXED = {**_WEAK, "nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en")}
_STRONG = {
    "nom": ("er", "e", "es", "e"),
    "acc": ("en", "e", "es", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("en", "er", "en", "er"),
}
_EIN_WORDS = ("ein", "kein", "sein", "ihr")
_INFLECTED_QUANTITIES = ("viel", "einig")
_CONTRACTIONS = {"in dem": "im", "an dem": "am", "in das": "ins", "zu dem": "zum", "zu der": "zur", "von dem": "vom"}
_GERMAN_ORDER = ("time", "circumstance", "dat", "manner", "acc", "place", "object", "predicate")
_ENGLISH_ORDER = ("predicate", "manner", "place", "time", "circumstance")


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjective, owner in the genitive, attribute ("mit einem Hut") and relative clause."""

    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None
    owner: "NounPhrase | None" = None
    attribute: "tuple[str, str, NounPhrase] | None" = None
    relative: "RelativeClause | None" = None

    @property
    def gender(self) -> int:
        """The column of the inflection tables."""
        return GENDERS.index("p" if self.plural else self.noun.gender)

    def german(self, case: str) -> str:
        """The phrase in German in a case: "nom", "acc", "dat" or "gen"."""
        words = [self._german_determiner(case), self._german_adjective(case), self._german_noun(case)]
        if self.owner:
            words.append(self.owner.german("gen"))
        if self.attribute:
            preposition, _, phrase = self.attribute
            words.append(prepositional(preposition, "dat", phrase))
        if self.relative:
            words.append(self.relative.german(self))
        return " ".join(word for word in words if word)

    def english(self) -> str:
        """The phrase in English."""
        words = [self.adjective.english] if self.adjective else []
        words.append(english_plural(self.noun) if self.plural else self.noun.english)
        article = possessive(self.owner) if self.owner else self.determiner.english
        if article == "a" and words[0][0] in "aeiou":
            article = "an"
        if self.attribute:
            _, preposition, phrase = self.attribute
            words += [preposition, phrase.english()]
        if self.relative:
            words.append(self.relative.english(self))
        return " ".join([article, *words] if article else words)

    def _german_determiner(self, case: str) -> str:
        if self.determiner.german == "der":
            return _DEFINITE[case][self.gender]
        if self.determiner.german in _EIN_WORDS:
            return self.determiner.german + _EIN_ENDINGS[case][self.gender]
        if self.determiner.german in _INFLECTED_QUANTITIES:
            return self.determiner.german + _STRONG[case][self.gender]
        return self.determiner.german

    def _german_adjective(self, case: str) -> str:
        if not self.adjective:
            return ""
        table = _MIXED if self.determiner.german in _EIN_WORDS else _STRONG
        if self.determiner.german == "der":
            table = _WEAK
        return self.adjective.stem + table[case][self.gender]

    def _german_noun(self, case: str) -> str:
        noun = self.noun
        if self.plural:
            return noun.plural + ("n" if case == "dat" and noun.plural[-1] not in "ns" else "")
        if case == "gen" or (noun.is_weak and case != "nom"):
            return noun.genitive
        return noun.german


@dataclass(frozen=True)
class Pair:
    """Two noun phrases joined by "und": a plural."""

    first: NounPhrase
    second: NounPhrase
    plural: bool = field(default=True, init=False)

    def german(self, case: str) -> str:
        """The phrase in German in a case."""
        return f"{self.first.german(case)} und {self.second.german(case)}"

    def english(self) -> str:
        """The phrase in English."""
        return f"{self.first.english()} and {self.second.english()}"


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun as the subject; it stands for `antecedent`."""

    antecedent: NounPhrase

    @property
    def plural(self) -> bool:
        """Whether the pronoun is plural."""
        return self.antecedent.plural

    def german(self, case: str) -> str:
        """The nominative; German follows the grammatical gender."""
        if case != "nom":
            raise ValueError(f"pronouns are inflected as subjects only ('nom'), not in case {case!r}")
        return ("er", "sie", "es", "sie")[self.antecedent.gender]

    def english(self) -> str:
        """The nominative; English follows the natural gender."""
        if self.plural:
            return "they"
        noun = self.antecedent.noun
        return "she" if noun.fits("female") else "he" if noun.fits("male") else "it"


@dataclass(frozen=True)
class Adverbial:
    """A part of a clause whose form never changes, with its role in the word order and the noun phrase in it, if any.

    The roles are time, circumstance, manner, place, frequency, and predicate for what belongs to the verb ("ist müde").
    """

    german: str
    english: str
    role: str
    phrase: NounPhrase | None = None


@dataclass(frozen=True)
class RelativeClause:
    """A clause that describes a noun, which fills its gap: the subject ("nom") or one of the object slots."""

    clause: "Clause"
    gap: str

    def german(self, head: NounPhrase) -> str:
        """The clause with its commas, verb at the end."""
        preposition, case = split_slot(self.gap)
        pronoun = "denen" if case == "dat" and head.plural else _DEFINITE[case][head.gender]
        opening = f"{preposition} {pronoun}".strip()
        return f", {opening} {german_final(self.clause, gap=self.gap)} ,"

    def english(self, head: NounPhrase) -> str:
        """The clause without commas: it says which one is meant."""
        person = head.noun.fits("person")
        if self.gap == "nom" and "{nom}" not in self.clause.verb.english:
            return f"{'who' if person else 'that'} {_predicate(self.clause, head.plural, gap=self.gap)}"
        return f"{'whom' if person else 'that'} {english_clause(self.clause, gap=self.gap)}"


@dataclass(frozen=True)
class Clause:
    """A subject, a verb and what goes with it; `objects` maps the verb's slots to phrases in German order."""

    subject: NounPhrase | Pair | Pronoun
    verb: Verb
    objects: dict[str, NounPhrase] = field(default_factory=dict)
    adverbials: tuple[Adverbial, ...] = ()
    modal: Modal | None = None
    simple: bool = False
    negated: bool = False


def split_slot(slot: str) -> tuple[str, str]:
    """Split an object slot into preposition ("" for none) and case."""
    preposition, _, case = slot.rpartition(" ")
    return preposition, case


def prepositional(preposition: str, case: str, phrase: NounPhrase) -> str:
    """A German prepositional phrase, contracted where German contracts (im Park, zur Schule)."""
    text = f"{preposition} {phrase.german(case)}"
    for long, short in _CONTRACTIONS.items():
        if text.startswith(long + " ") and not phrase.relative:
            return short + text.removeprefix(long)
    return text


def _finite_and_final(clause: Clause) -> tuple[str, str]:
    verb, plural = clause.verb, clause.subject.plural
    if clause.modal:
        return clause.modal.plural if plural else clause.modal.singular, verb.german
    return verb.plural_form if plural else verb.singular_form, verb.prefix


def _german_middle(clause: Clause, gap: str = "") -> dict[str, str]:
    """The parts between the verb and the end of a clause, in order, keyed by slot or role."""
    parts = []
    for slot, phrase in clause.objects.items():
        if slot != gap:
            preposition, case = split_slot(slot)
            text = prepositional(preposition, case, phrase) if preposition else phrase.german(case)
            parts.append(("object" if preposition else case, slot, text))
    for adverbial in clause.adverbials:
        role = "time" if adverbial.role == "frequency" else adverbial.role
        parts.append((role, adverbial.role, adverbial.german))
    parts.sort(key=lambda part: _GERMAN_ORDER.index(part[0]))
    return {key: text for _, key, text in parts}


def german_main(clause: Clause, front: str = "nom") -> str:
    """A main clause: one part in front ("nom", a slot or a role), then the finite verb, then everything else."""
    finite, final = _finite_and_final(clause)
    middle = {"nom": clause.subject.german("nom"), **_german_middle(clause)}
    first = middle.pop(front)
    return " ".join([first, finite, *middle.values(), final]).strip()


def german_inverted(clause: Clause) -> str:
    """A main clause after a subordinate one: the finite verb comes first."""
    finite, final = _finite_and_final(clause)
    return " ".join([finite, clause.subject.german("nom"), *_german_middle(clause).values(), final]).strip()


def german_final(clause: Clause, gap: str = "") -> str:
    """A subordinate clause without its conjunction: verb at the end, separable prefix joined."""
    finite, final = _finite_and_final(clause)
    last = f"{final} {finite}" if clause.modal else final + finite
    subject = [] if gap == "nom" else [clause.subject.german("nom")]
    return " ".join([*subject, *_german_middle(clause, gap).values(), last])


def english_clause(clause: Clause, *, front: str = "", gap: str = "") -> str:
    """The clause in English; a fronted adverbial keeps its place, a fronted object does not."""
    place = next((adverbial.english for adverbial in clause.adverbials if adverbial.role == front == "place"), "")
    if place and clause.verb.english == "be":
        return f"{place} {_conjugate('be', clause, clause.subject.plural)} {clause.subject.english()}"
    subject = clause.objects["dat"] if "{nom}" in clause.verb.english else clause.subject
    text = f"{subject.english()} {_predicate(clause, subject.plural, front=front, gap=gap)}"
    for adverbial in clause.adverbials:
        if adverbial.role == front != "frequency":
            text = f"{adverbial.english}, {text}"
    return text


def _predicate(clause: Clause, plural: bool, *, front: str = "", gap: str = "") -> str:
    verb, _, pattern = clause.verb.english.partition(" ")
    slots = {split_slot(slot)[0] or slot: "" if slot == gap else p.english() for slot, p in clause.objects.items()}
    if not isinstance(clause.subject, Pronoun):
        slots["nom"] = "" if gap == "nom" else clause.subject.english()
    words = [_conjugate(verb, clause, plural), pattern.format(**slots)]
    words[:0] = [adverbial.english for adverbial in clause.adverbials if adverbial.role == "frequency"]
    rest = [adverbial for adverbial in clause.adverbials if adverbial.role not in ("frequency", front)]
    words += [adverbial.english for adverbial in sorted(rest, key=lambda part: _ENGLISH_ORDER.index(part.role))]
    return " ".join(" ".join(words).split())


def _conjugate(verb: str, clause: Clause, plural: bool) -> str:
    no = "not " if clause.negated else ""
    if clause.modal:
        return f"{clause.modal.english_plural if plural else clause.modal.english_singular} {no}{verb}"
    if verb == "be":
        return "are" if plural else "is"
    if not clause.simple and not clause.verb.stative:
        return f"{'are' if plural else 'is'} {no}{participle(verb)}"
    if no:
        return f"{'do' if plural else 'does'} not {verb}"
    return verb if plural else third_person(verb)


def participle(verb: str) -> str:
    """The English -ing form: chase, run, lie -> chasing, running, lying."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb):
        return verb + verb[-1] + "ing"
    return verb + "ing"


def third_person(verb: str) -> str:
    """The English third person singular of the simple present."""
    return "has" if verb == "have" else _add_s(verb)


def english_plural(noun: Noun) -> str:
    """The plural of an English noun."""
    unchanged = {"bread", "cheese"}
    return noun.english_plural or (noun.english if noun.english in unchanged else _add_s(noun.english))


def _add_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|sh|ch)$", word) else "s")


def possessive(owner: NounPhrase) -> str:
    """The English genitive: the man's, the children's, the girls'."""
    text = owner.english()
    return text + ("'" if owner.plural and text.endswith("s") else "'s")


def sentence(text: str) -> str:
    """Punctuate: capital letter, full stop, and one comma where two meet."""
    text = re.sub(r"[ ,]*,[ ,]*", ", ", text.strip()).removesuffix(", ")
    return text[0].upper() + text[1:] + "."


def noun_phrases(part: Clause | NounPhrase | Pair | Pronoun) -> Iterator[NounPhrase]:
    """Every noun phrase in a clause or phrase, nested ones and relative clauses included."""
    match part:
        case Clause():
            nested = (part.subject, *part.objects.values(), *(adverbial.phrase for adverbial in part.adverbials))
        case Pair():
            nested = (part.first, part.second)
        case NounPhrase():
            yield part
            nested = (part.owner, part.attribute and part.attribute[2], part.relative and part.relative.clause)
        case Pronoun():
            nested = ()
    for each in nested:
        if each:
            yield from noun_phrases(each)


def clauses(clause: Clause) -> Iterator[Clause]:
    """The clause and the relative clauses in it."""
    yield clause
    for phrase in (clause.subject, *clause.objects.values()):
        if isinstance(phrase, NounPhrase) and phrase.relative:
            yield phrase.relative.clause
