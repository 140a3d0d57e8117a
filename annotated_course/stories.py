"""A small world of our own: its stories, questions about them in running text, and a token for each word."""

import re
import zlib
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from annotated_workbench.vocabulary import SPECIALS

# Of each sort the words of a first, smaller world stand first.
_WORLD = """
fox owl bear otter mouse dragon badger hedgehog rabbit frog duck goose donkey snail penguin squirrel baker king queen
pirate wizard gardener sailor knight clown painter tailor farmer teacher princess grandmother robot giant ghost poet
juggler cook boy girl witch

find/found paint/painted drop/dropped hide/hid steal/stole carry/carried buy/bought sell/sold lose/lost wash/washed
count/counted draw/drew mend/mended wrap/wrapped borrow/borrowed polish/polished collect/collected forget/forgot see/saw
bring/brought admire/admired fetch/fetched keep/kept shake/shook

kites lamps hats drums spoons balloons buttons bells balls keys boots books cups apples pears plums umbrellas baskets
ribbons candles teapots clocks stamps feathers stones shells flowers cakes coins pillows pencils letters eggs chairs
marbles lanterns maps mirrors flutes socks

red blue golden green white yellow black brown pink purple silver grey

two three five seven four six eight nine ten twelve

in/garden on/roof under/bridge by/river at/market in/kitchen behind/mill on/hill in/forest at/harbour near/castle
in/attic under/table at/school on/beach by/lake
"""
ACTORS, VERBS, THINGS, COLOURS, NUMBERS, PLACES = (sort.split() for sort in _WORLD.split("\n\n"))
KINDS = ("what", "how many", "colour", "where")

USER, ASSISTANT = "<user>", "<assistant>"
_OTHERS = ". ? the did what how many colour were where i don't know"
WORDS = [*SPECIALS, USER, ASSISTANT, *sorted({*f"{_WORLD} {_OTHERS}".replace("/", " ").split()})]
_NUMBER_OF = {word: i for i, word in enumerate(WORDS)}


class Sentence(NamedTuple):
    """Who did what to which things, and where."""

    actor: str
    verb: str  # "paint/painted"
    number: str
    colour: str
    things: str
    place: str  # "in/garden"

    def __str__(self) -> str:
        return f"the {self.actor} {self.verb.split('/')[1]} {self.object} {self.place.replace('/', ' the ')} ."

    @property
    def object(self) -> str:
        """Name the things as the story does, as in "three red kites"."""
        return f"{self.number} {self.colour} {self.things}"

    def asked(self, kind: str) -> tuple[str, str, str]:
        """Ask a question of one of the `KINDS`; return it, its short answer and its long one."""
        actor, (verb, past), place = self.actor, self.verb.split("/"), self.place.replace("/", " the ")
        question, short, long = {
            "what": (f"what did the {actor} {verb}", self.object, f"the {actor} {past} {self.object}"),
            "how many": (
                f"how many {self.things} did the {actor} {verb}",
                self.number,
                f"the {actor} {past} {self.number} {self.things}",
            ),
            "colour": (
                f"what colour were the {self.things} the {actor} {past}",
                self.colour,
                f"the {self.things} the {actor} {past} were {self.colour}",
            ),
            "where": (
                f"where did the {actor} {verb} the {self.things}",
                place,
                f"the {actor} {past} the {self.things} {place}",
            ),
        }[kind]
        return f"{question} ?", f"{short} .", f"{long} ."


def is_held_out(sentence: Sentence) -> bool:
    """Tell whether the combination of actor, verb and things, one in ten, is kept from training."""
    return zlib.crc32(" ".join((sentence.actor, sentence.verb, sentence.things)).encode()) % 10 == 0


def story(draw: Random, sentences: int, held_out: int | None = None, share: float = 1.0) -> list[Sentence]:
    """Tell a story of at most five sentences, in which no word of the world comes twice.

    Of the one at the place `held_out` training never sees the combination; None is for training. In use is a share of
    the world's words, from the first on, five of each sort at least.
    """
    world = [words[: max(5, int(len(words) * share))] for words in (ACTORS, VERBS, NUMBERS, COLOURS, THINGS, PLACES)]
    while True:
        told = [Sentence(*words) for words in zip(*(draw.sample(words, sentences) for words in world), strict=True)]
        if [is_held_out(sentence) for sentence in told] == [i == held_out for i in range(sentences)]:
            return told


def document(
    draw: Random, sentences: int, questions: int, share: float = 1.0, again: float = 0.0, kinds: Sequence[str] = KINDS
) -> str:
    """Write running text: a story, and questions about it, each with its answer, the short or the long one.

    It has so many sentences and, if there are as many to ask, questions of these kinds, by a share of the world's words
    as in `story`. With the probability `again` it is told a second time, its sentences in another order.
    """
    told = story(draw, sentences, share=share)
    again_told = draw.sample(told, sentences) if draw.random() < again else []
    pairs = [(sentence, kind) for sentence in told for kind in kinds]
    asked = [sentence.asked(kind) for sentence, kind in draw.sample(pairs, min(questions, len(pairs)))]
    return " ".join([*map(str, told + again_told), *(f"{question} {draw.choice(two)}" for question, *two in asked)])


def encode(text: str) -> list[int]:
    """Turn English into the numbers of its words; capitals don't count. A ValueError names those that aren't there."""
    words = re.findall(r"<\w+>|[\w']+|[^\w\s]", text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    if unknown := [word for word in words if word not in _NUMBER_OF]:
        raise ValueError(f"this small world has no {', no '.join(map(repr, dict.fromkeys(unknown)))}.")
    return [_NUMBER_OF[word] for word in words]


def decode(ids: Sequence[int]) -> str:
    """Write the words of some numbers, with capitals where sentences begin."""
    text = re.sub(r" ([.?])", r"\1", " ".join(WORDS[i] for i in ids)).replace(" i ", " I ")
    return re.sub(r"(^|[.?>] )(\w)", lambda start: start[1] + start[2].upper(), text)
