"""The words of the grammar corpus: what they mean, how they inflect, and what goes with what.

`kinds` are labels for meaning: a verb names the kinds its subject and objects may have, an adjective the kinds it can
describe. A noun also counts as a kind of its own, so that "bark" can ask for a "Hund".
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Determiner(NamedTuple):
    """A German determiner in its dictionary form and its English counterpart."""

    german: str
    english: str


@dataclass(frozen=True)
class Noun:
    """A German noun with gender, genitive singular and plural ("" where it has none), and its English translation."""

    german: str
    gender: str
    genitive: str
    plural: str
    english: str
    kinds: str
    english_plural: str = ""

    @property
    def is_weak(self) -> bool:
        """Whether the noun takes -n or -en in every case but the nominative singular (der Junge, den Jungen)."""
        return self.gender == "m" and self.genitive == self.plural and self.genitive.endswith("n")

    def fits(self, kinds: str) -> bool:
        """Whether the noun is of one of the kinds in a space-separated list."""
        return _overlap(f"{self.german} {self.kinds}", kinds)


@cache
def _overlap(one: str, other: str) -> bool:
    return not set(one.split()).isdisjoint(other.split())


@dataclass(frozen=True)
class Adjective:
    """A German adjective, its translation and the kinds it describes; `stem` takes the endings (hoch: hohe)."""

    german: str
    english: str
    kinds: str
    stem: str


@dataclass(frozen=True)
class Verb:
    """A German verb and its English pattern.

    `third` is the third person singular as a main clause shows it: "zieht an" for the separable verb "anziehen".
    `english` starts with the word that is conjugated; "{dat}", "{acc}" or a preposition in braces are objects.
    `objects` maps a case ("acc") or a preposition with its case ("auf acc") to the kinds allowed there.
    `places` are the kinds of place where it happens; a stative verb has no progressive in English.
    """

    german: str
    third: str
    english: str
    subjects: str
    objects: dict[str, str]
    places: str = ""
    stative: bool = False

    @property
    def prefix(self) -> str:
        """The separable prefix, or "" for a verb without one."""
        return self.third.partition(" ")[2]

    @property
    def needs_place(self) -> bool:
        """Whether a sentence without a place sounds unfinished."""
        return self.german in ("sitzen", "stehen", "liegen")

    @property
    def singular_form(self) -> str:
        """The third person singular without the prefix."""
        return self.third.partition(" ")[0]

    @property
    def plural_form(self) -> str:
        """The third person plural without the prefix."""
        return "sind" if self.german == "sein" else self.german.removeprefix(self.prefix)


class Modal(NamedTuple):
    """A modal verb: its infinitive, its German singular and plural, and its English singular and plural."""

    german: str
    singular: str
    plural: str
    english_singular: str
    english_plural: str


class Place(NamedTuple):
    """Where something happens: a German preposition with the dative, a noun, the English preposition and kinds."""

    preposition: str
    noun: str
    english: str
    kinds: str


class Adverb(NamedTuple):
    """A German adverb or fixed adverbial, its translation and its role (time, manner or frequency)."""

    german: str
    english: str
    role: str


class Weather(NamedTuple):
    """A verb-final clause about the weather, with its English in the progressive and in the simple present."""

    german: str
    english: str
    english_simple: str


DEFINITE = Determiner("der", "the")
INDEFINITE = Determiner("ein", "a")
BARE = Determiner("", "")
NO_SINGULAR = Determiner("kein", "a")
NO_PLURAL = Determiner("kein", "any")
QUANTITIES = (
    Determiner("zwei", "two"),
    Determiner("drei", "three"),
    Determiner("vier", "four"),
    Determiner("viel", "many"),
    Determiner("einig", "some"),
)

_SIMPLE_NOUNS = (
    # people
    Noun("Mann", "m", "Mannes", "Männer", "man", "person adult male", "men"),
    Noun("Frau", "f", "Frau", "Frauen", "woman", "person adult female", "women"),
    Noun("Junge", "m", "Jungen", "Jungen", "boy", "person child male"),
    Noun("Mädchen", "n", "Mädchens", "Mädchen", "girl", "person child female"),
    Noun("Kind", "n", "Kindes", "Kinder", "child", "person child", "children"),
    Noun("Baby", "n", "Babys", "Babys", "baby", "baby"),
    Noun("Mutter", "f", "Mutter", "Mütter", "mother", "person family adult female"),
    Noun("Vater", "m", "Vaters", "Väter", "father", "person family adult male"),
    Noun("Schwester", "f", "Schwester", "Schwestern", "sister", "person family female"),
    Noun("Bruder", "m", "Bruders", "Brüder", "brother", "person family male"),
    Noun("Lehrer", "m", "Lehrers", "Lehrer", "teacher", "person adult male"),
    Noun("Ärztin", "f", "Ärztin", "Ärztinnen", "doctor", "person adult female"),
    Noun("Koch", "m", "Kochs", "Köche", "cook", "person adult male"),
    Noun("Polizist", "m", "Polizisten", "Polizisten", "policeman", "person adult male", "policemen"),
    Noun("Bauer", "m", "Bauern", "Bauern", "farmer", "person adult male"),
    Noun("Nachbar", "m", "Nachbarn", "Nachbarn", "neighbour", "person adult male"),
    Noun("Tänzerin", "f", "Tänzerin", "Tänzerinnen", "dancer", "person adult female"),
    Noun("Sängerin", "f", "Sängerin", "Sängerinnen", "singer", "person adult female"),
    Noun("Touristin", "f", "Touristin", "Touristinnen", "tourist", "person adult female"),
    Noun("Maler", "m", "Malers", "Maler", "painter", "person adult male"),
    # animals
    Noun("Hund", "m", "Hundes", "Hunde", "dog", "animal pet"),
    Noun("Katze", "f", "Katze", "Katzen", "cat", "animal pet small"),
    Noun("Welpe", "m", "Welpen", "Welpen", "puppy", "animal pet small"),
    Noun("Kaninchen", "n", "Kaninchens", "Kaninchen", "rabbit", "animal small"),
    Noun("Maus", "f", "Maus", "Mäuse", "mouse", "animal small", "mice"),
    Noun("Pferd", "n", "Pferdes", "Pferde", "horse", "animal farm"),
    Noun("Esel", "m", "Esels", "Esel", "donkey", "animal farm"),
    Noun("Kuh", "f", "Kuh", "Kühe", "cow", "animal farm"),
    Noun("Ziege", "f", "Ziege", "Ziegen", "goat", "animal farm"),
    Noun("Schwein", "n", "Schweins", "Schweine", "pig", "animal farm"),
    Noun("Huhn", "n", "Huhns", "Hühner", "chicken", "animal farm small"),
    Noun("Ente", "f", "Ente", "Enten", "duck", "animal small"),
    Noun("Vogel", "m", "Vogels", "Vögel", "bird", "animal small"),
    Noun("Affe", "m", "Affen", "Affen", "monkey", "animal"),
    Noun("Fuchs", "m", "Fuchses", "Füchse", "fox", "animal"),
    # clothes
    Noun("Hut", "m", "Hutes", "Hüte", "hat", "thing clothes outer"),
    Noun("Mütze", "f", "Mütze", "Mützen", "cap", "thing clothes outer"),
    Noun("Jacke", "f", "Jacke", "Jacken", "jacket", "thing clothes outer"),
    Noun("Mantel", "m", "Mantels", "Mäntel", "coat", "thing clothes outer"),
    Noun("Schal", "m", "Schals", "Schals", "scarf", "thing clothes outer long", "scarves"),
    Noun("Hemd", "n", "Hemdes", "Hemden", "shirt", "thing clothes"),
    Noun("Pullover", "m", "Pullovers", "Pullover", "sweater", "thing clothes"),
    Noun("Kleid", "n", "Kleides", "Kleider", "dress", "thing gown long"),
    Noun("Rock", "m", "Rockes", "Röcke", "skirt", "thing gown long"),
    Noun("Schuh", "m", "Schuhs", "Schuhe", "shoe", "thing footwear"),
    Noun("Stiefel", "m", "Stiefels", "Stiefel", "boot", "thing footwear"),
    # food and drink
    Noun("Apfel", "m", "Apfels", "Äpfel", "apple", "food fruit"),
    Noun("Birne", "f", "Birne", "Birnen", "pear", "food fruit"),
    Noun("Banane", "f", "Banane", "Bananen", "banana", "food fruit"),
    Noun("Kuchen", "m", "Kuchens", "Kuchen", "cake", "food baked"),
    Noun("Brot", "n", "Brotes", "", "bread", "food baked mass"),
    Noun("Käse", "m", "Käses", "", "cheese", "food mass"),
    Noun("Suppe", "f", "Suppe", "", "soup", "food warm mass"),
    Noun("Karotte", "f", "Karotte", "Karotten", "carrot", "food vegetable"),
    Noun("Wasser", "n", "Wassers", "", "water", "drink mass"),
    Noun("Milch", "f", "Milch", "", "milk", "drink warm mass"),
    Noun("Kaffee", "m", "Kaffees", "", "coffee", "drink warm mass"),
    Noun("Tee", "m", "Tees", "", "tea", "drink warm mass"),
    Noun("Saft", "m", "Saftes", "", "juice", "drink mass"),
    Noun("Glas", "n", "Glases", "Gläser", "glass", "thing dish cup"),
    Noun("Tasse", "f", "Tasse", "Tassen", "cup", "thing dish cup"),
    Noun("Flasche", "f", "Flasche", "Flaschen", "bottle", "thing dish cup"),
    Noun("Teller", "m", "Tellers", "Teller", "plate", "thing dish"),
    # things to read, play with, carry
    Noun("Buch", "n", "Buches", "Bücher", "book", "thing text flat gift"),
    Noun("Zeitung", "f", "Zeitung", "Zeitungen", "newspaper", "thing text flat"),
    Noun("Brief", "m", "Briefes", "Briefe", "letter", "text flat long letter"),
    Noun("Geschichte", "f", "Geschichte", "Geschichten", "story", "story", "stories"),
    Noun("Ball", "m", "Balles", "Bälle", "ball", "thing toy ball gift"),
    Noun("Puppe", "f", "Puppe", "Puppen", "doll", "thing toy gift"),
    Noun("Stock", "m", "Stockes", "Stöcke", "stick", "stick long"),
    Noun("Gitarre", "f", "Gitarre", "Gitarren", "guitar", "thing instrument"),
    Noun("Geige", "f", "Geige", "Geigen", "violin", "thing instrument"),
    Noun("Klavier", "n", "Klaviers", "Klaviere", "piano", "piano furniture"),
    Noun("Tasche", "f", "Tasche", "Taschen", "bag", "thing bag"),
    Noun("Koffer", "m", "Koffers", "Koffer", "suitcase", "thing bag"),
    Noun("Rucksack", "m", "Rucksacks", "Rucksäcke", "backpack", "thing bag"),
    Noun("Korb", "m", "Korbes", "Körbe", "basket", "thing bag"),
    Noun("Schlüssel", "m", "Schlüssels", "Schlüssel", "key", "thing key"),
    Noun("Geschenk", "n", "Geschenks", "Geschenke", "present", "thing gift"),
    Noun("Blume", "f", "Blume", "Blumen", "flower", "thing flower gift"),
    Noun("Vase", "f", "Vase", "Vasen", "vase", "thing dish"),
    Noun("Leine", "f", "Leine", "Leinen", "leash", "thing leash long"),
    Noun("Decke", "f", "Decke", "Decken", "blanket", "thing flat soft"),
    Noun("Kissen", "n", "Kissens", "Kissen", "pillow", "thing flat soft"),
    Noun("Bild", "n", "Bildes", "Bilder", "picture", "thing picture gift"),
    Noun("Kamera", "f", "Kamera", "Kameras", "camera", "thing machine"),
    Noun("Telefon", "n", "Telefons", "Telefone", "phone", "thing machine"),
    Noun("Uhr", "f", "Uhr", "Uhren", "watch", "thing machine gift"),
    Noun("Lampe", "f", "Lampe", "Lampen", "lamp", "thing machine lamp"),
    Noun("Leiter", "f", "Leiter", "Leitern", "ladder", "ladder long"),
    # vehicles and furniture
    Noun("Auto", "n", "Autos", "Autos", "car", "vehicle motor"),
    Noun("Lastwagen", "m", "Lastwagens", "Lastwagen", "truck", "vehicle motor"),
    Noun("Traktor", "m", "Traktors", "Traktoren", "tractor", "vehicle motor"),
    Noun("Fahrrad", "n", "Fahrrades", "Fahrräder", "bicycle", "vehicle bicycle"),
    Noun("Boot", "n", "Bootes", "Boote", "boat", "vehicle boat"),
    Noun("Bus", "m", "Busses", "Busse", "bus", "vehicle transit"),
    Noun("Zug", "m", "Zuges", "Züge", "train", "transit long"),
    Noun("Tisch", "m", "Tisches", "Tische", "table", "furniture"),
    Noun("Stuhl", "m", "Stuhls", "Stühle", "chair", "furniture seat"),
    Noun("Bank", "f", "Bank", "Bänke", "bench", "furniture seat"),
    Noun("Sofa", "n", "Sofas", "Sofas", "sofa", "furniture seat soft"),
    Noun("Bett", "n", "Bettes", "Betten", "bed", "furniture seat soft"),
    Noun("Teppich", "m", "Teppichs", "Teppiche", "carpet", "furniture soft"),
    Noun("Regal", "n", "Regals", "Regale", "shelf", "furniture", "shelves"),
    Noun("Tür", "f", "Tür", "Türen", "door", "opening"),
    Noun("Fenster", "n", "Fensters", "Fenster", "window", "opening"),
    # outdoors, buildings and weather
    Noun("Baum", "m", "Baumes", "Bäume", "tree", "tree tall"),
    Noun("Stein", "m", "Steins", "Steine", "stone", "stone"),
    Noun("Zaun", "m", "Zauns", "Zäune", "fence", "barrier tall"),
    Noun("Mauer", "f", "Mauer", "Mauern", "wall", "barrier tall"),
    Noun("Brücke", "f", "Brücke", "Brücken", "bridge", "way building"),
    Noun("Turm", "m", "Turmes", "Türme", "tower", "tall building"),
    Noun("Haus", "n", "Hauses", "Häuser", "house", "building"),
    Noun("Berg", "m", "Berges", "Berge", "mountain", "tall"),
    Noun("Straße", "f", "Straße", "Straßen", "street", "way"),
    Noun("Fluss", "m", "Flusses", "Flüsse", "river", "lake"),
    Noun("See", "m", "Sees", "Seen", "lake", "lake"),
    Noun("Strand", "m", "Strandes", "Strände", "beach", "area"),
    Noun("Park", "m", "Parks", "Parks", "park", "area"),
    Noun("Garten", "m", "Gartens", "Gärten", "garden", "area"),
    Noun("Wald", "m", "Waldes", "Wälder", "forest", "area"),
    Noun("Wiese", "f", "Wiese", "Wiesen", "meadow", "area"),
    Noun("Stadt", "f", "Stadt", "Städte", "city", "area", "cities"),
    Noun("Dorf", "n", "Dorfes", "Dörfer", "village", "area"),
    Noun("Markt", "m", "Marktes", "Märkte", "market", "area"),
    Noun("Spielplatz", "m", "Spielplatzes", "Spielplätze", "playground", "area"),
    Noun("Bahnhof", "m", "Bahnhofs", "Bahnhöfe", "station", "building"),
    Noun("Schule", "f", "Schule", "Schulen", "school", "building"),
    Noun("Museum", "n", "Museums", "Museen", "museum", "building"),
    Noun("Zimmer", "n", "Zimmers", "Zimmer", "room", "room"),
    Noun("Küche", "f", "Küche", "Küchen", "kitchen", "room"),
    Noun("Regen", "m", "Regens", "", "rain", "mass"),
    Noun("Schnee", "m", "Schnees", "", "snow", "mass"),
    Noun("Gras", "n", "Grases", "", "grass", "mass"),
    Noun("Wind", "m", "Windes", "", "wind", "mass"),
    Noun("Wetter", "n", "Wetters", "", "weather", "mass"),
    Noun("Musik", "f", "Musik", "", "music", "mass"),
    Noun("Wolke", "f", "Wolke", "Wolken", "cloud", "cloud"),
)

_BY_GERMAN = {noun.german: noun for noun in _SIMPLE_NOUNS}

# First part, head, translation, kinds: gender and inflection come from the head.
COMPOUNDS = (
    ("Hunde", "Leine", "dog leash", "thing leash long"),
    ("Hunde", "Korb", "dog basket", "thing bag"),
    ("Kaffee", "Tasse", "coffee cup", "thing dish cup"),
    ("Wasser", "Flasche", "water bottle", "thing dish cup"),
    ("Apfel", "Baum", "apple tree", "tree tall"),
    ("Apfel", "Kuchen", "apple cake", "food baked"),
    ("Apfel", "Saft", "apple juice", "drink mass"),
    ("Regen", "Mantel", "raincoat", "thing clothes outer rainwear"),
    ("Winter", "Jacke", "winter jacket", "thing clothes outer"),
    ("Leder", "Jacke", "leather jacket", "thing clothes outer"),
    ("Stroh", "Hut", "straw hat", "thing clothes outer"),
    ("Sommer", "Kleid", "summer dress", "thing gown long"),
    ("Hand", "Tasche", "handbag", "thing bag"),
    ("Fuß", "Ball", "football", "thing toy ball gift"),
    ("Schnee", "Ball", "snowball", "ball"),
    ("Schnee", "Mann", "snowman", "snowman tall"),
    ("Spielzeug", "Auto", "toy car", "thing toy gift"),
    ("Kinder", "Buch", "children's book", "thing text flat gift"),
    ("Koch", "Buch", "cookbook", "thing text flat gift"),
    ("Küchen", "Tisch", "kitchen table", "furniture"),
    ("Garten", "Bank", "garden bench", "furniture seat"),
    ("Garten", "Zaun", "garden fence", "barrier tall"),
    ("Bücher", "Regal", "bookshelf", "furniture"),
    ("Haus", "Tür", "front door", "opening"),
    ("Wohn", "Zimmer", "living room", "room"),
    ("Super", "Markt", "supermarket", "building"),
    ("Gemüse", "Suppe", "vegetable soup", "food warm mass"),
)


def _compound(first: str, head: str, english: str, kinds: str) -> Noun:
    second = _BY_GERMAN[head]
    plural = first + second.plural.lower() if second.plural else ""
    english_plural = {"snowman": "snowmen", "bookshelf": "bookshelves"}.get(english, "")
    german, genitive = first + head.lower(), first + second.genitive.lower()
    return Noun(german, second.gender, genitive, plural, english, kinds, english_plural)


NOUNS = (
    *_SIMPLE_NOUNS,
    Noun("Regenschirm", "m", "Regenschirms", "Regenschirme", "umbrella", "thing umbrella gift"),
    *(_compound(*entry) for entry in COMPOUNDS),
)
NOUN = {noun.german: noun for noun in NOUNS}

_COLOURED = "thing clothes gown footwear toy bag flat vehicle seat flower opening"
_ANIMATE = "person baby animal"


def _adjective(german: str, english: str, kinds: str, stem: str = "") -> Adjective:
    return Adjective(german, english, kinds, stem or german)


ADJECTIVES = (
    # German uses one word for tall people and big things, English two.
    _adjective("groß", "tall", "adult"),
    _adjective(
        "groß", "big", "animal thing furniture vehicle building tree barrier room area lake tall stone ball cloud"
    ),
    _adjective(
        "klein", "small", "child baby animal thing furniture vehicle building room area lake stone snowman tree ball"
    ),
    _adjective(
        "alt", "old", "adult animal clothes gown footwear text bag furniture vehicle building tree machine opening"
    ),
    _adjective("jung", "young", "adult Hund Katze Pferd Kuh Ziege Affe Vogel"),
    _adjective("neu", "new", "clothes gown footwear text toy bag furniture vehicle building machine instrument dish"),
    _adjective("rot", "red", f"{_COLOURED} fruit"),
    _adjective("blau", "blue", _COLOURED),
    _adjective("grün", "green", f"{_COLOURED} fruit"),
    _adjective("gelb", "yellow", _COLOURED),
    _adjective("weiß", "white", f"{_COLOURED} animal building"),
    _adjective("schwarz", "black", f"{_COLOURED} animal"),
    _adjective("braun", "brown", "animal clothes bag furniture footwear"),
    _adjective("schön", "beautiful", "gown flower picture building area lake instrument Pferd Vogel"),
    _adjective("müde", "tired", _ANIMATE, "müd"),
    _adjective("hungrig", "hungry", _ANIMATE),
    _adjective("glücklich", "happy", _ANIMATE),
    _adjective("traurig", "sad", "person"),
    _adjective("krank", "sick", "person animal"),
    _adjective("freundlich", "friendly", "person pet"),
    _adjective("neugierig", "curious", _ANIMATE),
    _adjective("lang", "long", "long"),
    _adjective("schwer", "heavy", "bag furniture stone"),
    _adjective("leer", "empty", "cup bag Bus Zug seat Regal"),
    _adjective("warm", "warm", "warm outer Decke"),
    _adjective("heiß", "hot", "warm"),
    _adjective("kalt", "cold", "drink Regen Wind"),
    _adjective("frisch", "fresh", "fruit baked vegetable mass"),
    _adjective("süß", "sweet", "fruit baked Saft Apfelsaft Tee"),
    _adjective("nass", "wet", "Hund Katze Gras Straße clothes footwear Regenschirm"),
    _adjective("schmutzig", "dirty", "clothes footwear vehicle dish animal opening"),
    _adjective("teuer", "expensive", "clothes gown machine instrument motor bag", "teur"),
    _adjective("hoch", "high", "barrier Berg Turm", "hoh"),
    _adjective("dunkel", "dark", "Wald room Straße Wolke", "dunkl"),
    _adjective("stark", "strong", "Mann Junge Pferd Esel Wind Kaffee"),
    _adjective("weich", "soft", "soft"),
    _adjective("lustig", "funny", "Affe toy Geschichte picture Hut snowman"),
    _adjective("schnell", "fast", "motor Zug Fahrrad Pferd"),
    _adjective("tief", "deep", "lake Schnee"),
    _adjective("laut", "loud", "Musik"),
    _adjective("schlecht", "bad", "Wetter"),
)
# What an adjective does not describe although the kinds would allow it.
UNLIKELY = {
    "frisch": "Suppe Gemüsesuppe Apfelkuchen Tee Regen Wind Wetter Musik",
    "warm": "Hut Strohhut Regenmantel Lederjacke",
    "alt": "Welpe",
    "groß": "Maus",
}


@cache
def nouns_of(kinds: str) -> tuple[Noun, ...]:
    """The nouns of one of the kinds in a space-separated list."""
    return tuple(noun for noun in NOUNS if noun.fits(kinds))


@cache
def adjectives_for(noun: str) -> tuple[Adjective, ...]:
    """The adjectives that make sense with a German noun."""
    fitting = [adjective for adjective in ADJECTIVES if NOUN[noun].fits(adjective.kinds)]
    return tuple(adjective for adjective in fitting if noun not in UNLIKELY.get(adjective.german, "").split())


_ANYWHERE = "outside inside near"
_REST = "outside inside near seat"

VERBS = (
    # without an object
    Verb("schlafen", "schläft", "sleep", _ANIMATE, {}, _REST),
    Verb("sitzen", "sitzt", "sit", "person baby pet Affe Vogel Kaninchen Fuchs", {}, _REST),
    Verb("liegen", "liegt", "lie", _ANIMATE, {}, "near seat lying"),
    Verb("stehen", "steht", "stand", "person animal", {}, _ANYWHERE),
    Verb("warten", "wartet", "wait", "person Hund", {}, _ANYWHERE),
    Verb("spielen", "spielt", "play", "child baby pet Affe", {}, _ANYWHERE),
    Verb("laufen", "läuft", "run", "person pet farm Affe Fuchs", {}, "outside"),
    Verb("tanzen", "tanzt", "dance", "person", {}, "outside inside"),
    Verb("singen", "singt", "sing", "person Vogel", {}, "outside"),
    Verb("lachen", "lacht", "laugh", "person baby", {}, "outside inside"),
    Verb("lächeln", "lächelt", "smile", "person baby", {}),
    Verb("weinen", "weint", "cry", "child baby", {}, "outside inside"),
    Verb("arbeiten", "arbeitet", "work", "adult", {}, "outside inside"),
    Verb("kochen", "kocht", "cook", "adult", {}, "Küche"),
    Verb("lesen", "liest", "read", "person", {}, _REST),
    Verb("schwimmen", "schwimmt", "swim", "person Hund Ente", {}, "water"),
    Verb("springen", "springt", "jump", "child pet Affe Ziege", {}, "outside"),
    Verb("fliegen", "fliegt", "fly", "Vogel Ente", {}, "air"),
    Verb("bellen", "bellt", "bark", "Hund Welpe", {}, _ANYWHERE),
    Verb("aufstehen", "steht auf", "get up", _ANIMATE, {}),
    Verb("aufwachen", "wacht auf", "wake up", _ANIMATE, {}),
    Verb("einschlafen", "schläft ein", "fall asleep", _ANIMATE, {}, _REST),
    Verb("weglaufen", "läuft weg", "run away", "child animal", {}),
    Verb("hinfallen", "fällt hin", "fall down", "child", {}, "outside"),
    Verb("einkaufen", "kauft ein", "shop", "adult", {}, "shop"),
    Verb("zurückkommen", "kommt zurück", "come back", "person animal", {}),
    # with an accusative object
    Verb(
        "jagen",
        "jagt",
        "chase {acc}",
        "pet Fuchs Affe Ziege child Polizist",
        {"acc": "pet small Affe person"},
        "outside",
    ),
    Verb("sehen", "sieht", "see {acc}", "person animal", {"acc": f"{_ANIMATE} toy tree building vehicle"}, "", True),
    Verb("hören", "hört", "hear {acc}", "person animal", {"acc": f"{_ANIMATE} transit Musik"}, "", True),
    Verb("kennen", "kennt", "know {acc}", "person", {"acc": "person building story"}, "", True),
    Verb("lieben", "liebt", "love {acc}", "person", {"acc": "person pet baby Musik"}, "", True),
    Verb("mögen", "mag", "like {acc}", "person", {"acc": "person pet fruit baked drink Musik"}, "", True),
    Verb("brauchen", "braucht", "need {acc}", "person", {"acc": "outer key bag machine vehicle ladder"}, "", True),
    Verb("haben", "hat", "have {acc}", "person", {"acc": "pet toy bag vehicle instrument"}, "", True),
    Verb(
        "suchen", "sucht", "look for {acc}", "person", {"acc": f"{_ANIMATE} key bag text outer ball"}, "outside inside"
    ),
    Verb("tragen", "trägt", "wear {acc}", "person", {"acc": "clothes footwear"}),
    Verb("tragen", "trägt", "wear {acc}", "female", {"acc": "gown"}),
    Verb("tragen", "trägt", "carry {acc}", "person", {"acc": "bag dish stone ladder instrument umbrella baby"}),
    Verb("rufen", "ruft", "call {acc}", "person", {"acc": "person pet"}, "outside"),
    Verb("umarmen", "umarmt", "hug {acc}", "person", {"acc": "person pet baby Puppe"}, "outside inside"),
    Verb("küssen", "küsst", "kiss {acc}", "adult family", {"acc": "adult family baby"}, "outside"),
    Verb("begrüßen", "begrüßt", "greet {acc}", "person", {"acc": "person pet"}, "outside inside"),
    Verb("beobachten", "beobachtet", "watch {acc}", "person animal", {"acc": f"{_ANIMATE} transit"}, "outside"),
    Verb(
        "fotografieren",
        "fotografiert",
        "photograph {acc}",
        "person",
        {"acc": f"{_ANIMATE} building vehicle"},
        "outside",
    ),
    Verb("zeichnen", "zeichnet", "draw {acc}", "person", {"acc": f"{_ANIMATE} building tree flower"}, "outside inside"),
    Verb("malen", "malt", "paint {acc}", "person", {"acc": f"{_ANIMATE} building flower picture"}, "outside inside"),
    Verb("wecken", "weckt", "wake {acc}", "person pet", {"acc": "person pet baby"}),
    Verb("besuchen", "besucht", "visit {acc}", "person", {"acc": "adult Museum Schule"}),
    Verb("fragen", "fragt", "ask {acc}", "person", {"acc": "person"}, "outside"),
    Verb("füttern", "füttert", "feed {acc}", "person", {"acc": "animal baby"}, "outside inside"),
    Verb("streicheln", "streichelt", "stroke {acc}", "person", {"acc": "pet farm Kaninchen"}, "outside inside"),
    Verb("waschen", "wäscht", "wash {acc}", "person", {"acc": "motor clothes dish fruit Hund"}),
    Verb("putzen", "putzt", "clean {acc}", "adult", {"acc": "opening footwear Tisch Küchentisch Regal Küche Klavier"}),
    Verb("kaufen", "kauft", "buy {acc}", "adult", {"acc": "food drink text outer toy flower"}, "shop"),
    Verb("verkaufen", "verkauft", "sell {acc}", "adult", {"acc": "fruit baked flower picture farm"}, "shop"),
    Verb("essen", "isst", "eat {acc}", "person", {"acc": "food"}, "outside inside seat"),
    Verb("fressen", "frisst", "eat {acc}", "farm Kaninchen", {"acc": "vegetable fruit Gras"}, "open"),
    Verb("trinken", "trinkt", "drink {acc}", "person", {"acc": "drink"}, "outside inside seat"),
    Verb("lesen", "liest", "read {acc}", "person", {"acc": "text"}, _REST),
    Verb("schreiben", "schreibt", "write {acc}", "person", {"acc": "letter story"}, "inside seat"),
    Verb("werfen", "wirft", "throw {acc}", "person", {"acc": "ball stick Stein"}, "outside"),
    Verb("fangen", "fängt", "catch {acc}", "person Hund", {"acc": "ball small"}, "outside"),
    Verb("halten", "hält", "hold {acc}", "person", {"acc": "ball small baby flower cup leash key machine umbrella"}),
    Verb("ziehen", "zieht", "pull {acc}", "adult farm", {"acc": "boat Koffer Esel Kuh"}),
    Verb("schieben", "schiebt", "push {acc}", "person", {"acc": "bicycle Auto Tisch Sofa Bett"}),
    Verb("fahren", "fährt", "drive {acc}", "adult", {"acc": "motor Bus"}),
    Verb("bauen", "baut", "build {acc}", "person", {"acc": "snowman barrier boat Haus Turm"}),
    Verb("reparieren", "repariert", "repair {acc}", "adult", {"acc": "vehicle machine furniture opening"}),
    Verb("backen", "backt", "bake {acc}", "person", {"acc": "baked"}, "Küche"),
    Verb("kochen", "kocht", "cook {acc}", "person", {"acc": "Suppe Gemüsesuppe"}, "Küche"),
    Verb("pflücken", "pflückt", "pick {acc}", "person", {"acc": "flower Apfel Birne"}, "Garten"),
    Verb("schneiden", "schneidet", "cut {acc}", "person", {"acc": "vegetable fruit baked Käse"}, "Küche"),
    Verb("anziehen", "zieht an", "put on {acc}", "person", {"acc": "clothes footwear"}),
    Verb("ausziehen", "zieht aus", "take off {acc}", "person", {"acc": "outer footwear"}),
    Verb("aufheben", "hebt auf", "pick up {acc}", "person", {"acc": "ball stick bag text key stone toy"}, "outside"),
    Verb(
        "anschauen", "schaut an", "look at {acc}", "person animal", {"acc": f"{_ANIMATE} picture building"}, "outside"
    ),
    Verb("anlächeln", "lächelt an", "smile at {acc}", "person baby", {"acc": "person baby"}),
    Verb("anrufen", "ruft an", "phone {acc}", "person", {"acc": "adult"}),
    Verb("einladen", "lädt ein", "invite {acc}", "person", {"acc": "person"}),
    Verb("mitnehmen", "nimmt mit", "take {acc} along", "person", {"acc": "pet bag umbrella machine"}),
    Verb("wegwerfen", "wirft weg", "throw away {acc}", "person", {"acc": "footwear text flower"}),
    Verb("aufmachen", "macht auf", "open {acc}", "person", {"acc": "opening Koffer Geschenk Flasche letter"}),
    Verb("zumachen", "macht zu", "close {acc}", "person", {"acc": "opening Koffer"}),
    Verb("einpacken", "packt ein", "pack {acc}", "person", {"acc": "clothes gift machine"}),
    Verb("festhalten", "hält fest", "hold on to {acc}", "person", {"acc": "leash ball ladder bag child"}),
    # with a dative object
    Verb("helfen", "hilft", "help {dat}", "person", {"dat": "person"}, "outside inside"),
    Verb("folgen", "folgt", "follow {dat}", "person animal", {"dat": "person animal"}, "outside"),
    Verb("danken", "dankt", "thank {dat}", "person", {"dat": "person"}),
    Verb("antworten", "antwortet", "answer {dat}", "person", {"dat": "person"}),
    Verb("winken", "winkt", "wave to {dat}", "person", {"dat": "person"}, "outside"),
    Verb("zuhören", "hört zu", "listen to {dat}", "person", {"dat": "person"}, "outside inside"),
    Verb("zusehen", "sieht zu", "watch {dat}", "person pet", {"dat": "person animal"}, "outside"),
    Verb("nachlaufen", "läuft nach", "run after {dat}", "child pet", {"dat": "person animal"}, "outside"),
    Verb("gehören", "gehört", "belong to {dat}", "toy bag vehicle pet instrument", {"dat": "person"}, "", True),
    # German makes the thing the subject, English the person
    Verb("gefallen", "gefällt", "like {nom}", "picture toy gown outer building story", {"dat": "person"}, "", True),
    # with a dative and an accusative object
    Verb("geben", "gibt", "give {dat} {acc}", "person", {"dat": "person", "acc": "gift fruit cup key"}),
    Verb(
        "zeigen",
        "zeigt",
        "show {dat} {acc}",
        "person",
        {"dat": "person", "acc": "picture text toy pet machine vehicle"},
    ),
    Verb("bringen", "bringt", "bring {dat} {acc}", "person", {"dat": "person", "acc": "drink text flower cup baked"}),
    Verb("schicken", "schickt", "send {dat} {acc}", "person", {"dat": "adult", "acc": "letter flower picture"}),
    Verb("erzählen", "erzählt", "tell {dat} {acc}", "person", {"dat": "person", "acc": "story"}),
    Verb("vorlesen", "liest vor", "read {acc} to {dat}", "person", {"dat": "person", "acc": "Buch letter story"}),
    # with a preposition
    Verb("warten", "wartet", "wait for {auf}", "person", {"auf acc": "person transit"}, "outside"),
    Verb("zeigen", "zeigt", "point at {auf}", "person", {"auf acc": f"{_ANIMATE} building vehicle cloud"}, "outside"),
    Verb("klettern", "klettert", "climb {auf}", "child Affe Katze", {"auf acc": "tree barrier Leiter Berg"}),
    Verb("klettern", "klettert", "climb onto {auf}", "child baby", {"auf acc": "seat Tisch"}),
    Verb("springen", "springt", "jump onto {auf}", "child pet", {"auf acc": "seat Tisch Mauer"}),
    Verb("springen", "springt", "jump into {in}", "child Hund Ente", {"in acc": "lake Boot Wasser Schnee"}),
    Verb("springen", "springt", "jump over {über}", "child pet Pferd Ziege", {"über acc": "barrier stone stick"}),
    Verb(
        "laufen",
        "läuft",
        "run into {in}",
        "person pet farm",
        {"in acc": "Garten Wald Park Haus room Schule Stadt Dorf"},
    ),
    Verb(
        "laufen", "läuft", "run through {durch}", "person pet farm", {"durch acc": "Garten Wald Park Stadt Dorf Schnee"}
    ),
    Verb("laufen", "läuft", "run around {um}", "child pet", {"um acc": "tree Haus Tisch snowman Auto"}),
    Verb("gehen", "geht", "walk to {zu}", "person", {"zu dat": "Bahnhof Schule Brücke Markt Park See Museum Auto"}),
    Verb("fahren", "fährt", "drive to {zu}", "adult", {"zu dat": "Bahnhof Schule Brücke Markt See Museum Supermarkt"}),
    Verb(
        "kommen",
        "kommt",
        "come out of {aus}",
        "person pet",
        {"aus dat": "Haus Wald room Schule Bahnhof Garten Supermarkt"},
    ),
    Verb("spielen", "spielt", "play with {mit}", "child pet baby", {"mit dat": "child pet ball toy"}, "outside inside"),
    Verb("sprechen", "spricht", "talk to {mit}", "person", {"mit dat": "person"}, "outside inside"),
    Verb("tanzen", "tanzt", "dance with {mit}", "person", {"mit dat": "person"}, "outside"),
    Verb("lachen", "lacht", "laugh at {über}", "person", {"über acc": "person pet picture story snowman Affe"}),
    Verb("träumen", "träumt", "dream of {von}", "person", {"von dat": "person pet area vehicle"}),
    Verb("reiten", "reitet", "ride {auf}", "person", {"auf dat": "Pferd Esel"}, "open"),
    Verb("legen", "legt", "put {acc} on {auf}", "person", {"acc": "flat key", "auf acc": "furniture"}),
    Verb(
        "stellen", "stellt", "put {acc} on {auf}", "person", {"acc": "dish lamp", "auf acc": "Tisch Küchentisch Regal"}
    ),
    Verb(
        "stellen",
        "stellt",
        "put {acc} under {unter}",
        "person",
        {"acc": "bag footwear", "unter acc": "Tisch Bett Bank"},
    ),
    Verb("füllen", "füllt", "fill {acc} with {mit}", "person", {"acc": "cup", "mit dat": "drink"}),
    # English need not say how things are placed
    Verb("stehen", "steht", "be", "dish lamp drink Suppe Gemüsesuppe", {}, "top", True),
    Verb("stehen", "steht", "be", "seat Tisch Küchentisch Bücherregal Klavier", {}, "indoors", True),
    Verb("stehen", "steht", "be", "vehicle", {}, "parking", True),
    Verb("liegen", "liegt", "be", "flat key fruit Brot Käse", {}, "top", True),
)

COPULA = Verb("sein", "ist", "be", "", {}, "", True)
MUSIC = Verb("spielen", "spielt", "play", "person", {}, "outside inside")
INSTRUMENTS = ("Gitarre", "Geige", "Klavier")
CONJUNCTIONS = {"weil": "because", "obwohl": "although", "während": "while", "wenn": "when", "dass": "that"}
# Verbs whose object is a clause with "dass".
REPORTING = (
    Verb("sehen", "sieht", "see", "person", {}, "", True),
    Verb("wissen", "weiß", "know", "person", {}, "", True),
    Verb("sagen", "sagt", "say", "person", {}, "", True),
    Verb("glauben", "glaubt", "believe", "person", {}, "", True),
    Verb("hoffen", "hofft", "hope", "person", {}, "", True),
)
MODALS = (
    Modal("wollen", "will", "wollen", "wants to", "want to"),
    Modal("müssen", "muss", "müssen", "has to", "have to"),
    Modal("können", "kann", "können", "can", "can"),
    Modal("dürfen", "darf", "dürfen", "may", "may"),
)

PLACES = (
    Place("in", "Park", "in", "outside open"),
    Place("in", "Garten", "in", "outside Garten"),
    Place("in", "Wald", "in", "outside open"),
    Place("in", "Dorf", "in", "outside open"),
    Place("in", "Stadt", "in", "outside shop"),
    Place("auf", "Wiese", "in", "outside open lying"),
    Place("auf", "Straße", "on", "outside parking"),
    Place("auf", "Spielplatz", "at", "outside"),
    Place("auf", "Markt", "at", "outside shop"),
    Place("auf", "Brücke", "on", "outside"),
    Place("an", "Strand", "on", "outside open lying"),
    Place("an", "Fluss", "by", "outside open"),
    Place("an", "See", "by", "outside"),
    Place("vor", "Haus", "in front of", "outside parking"),
    Place("vor", "Schule", "in front of", "outside parking"),
    Place("vor", "Museum", "in front of", "outside parking"),
    Place("hinter", "Haus", "behind", "outside parking"),
    Place("neben", "Apfelbaum", "next to", "outside"),
    Place("unter", "Baum", "under", "near parking"),
    Place("neben", "Auto", "next to", "near"),
    Place("neben", "Zaun", "next to", "near"),
    Place("hinter", "Gartenzaun", "behind", "near"),
    Place("vor", "Haustür", "in front of", "near"),
    Place("in", "Küche", "in", "inside Küche"),
    Place("in", "Zimmer", "in", "inside"),
    Place("in", "Wohnzimmer", "in", "inside"),
    Place("in", "Haus", "in", "inside"),
    Place("in", "Supermarkt", "in", "shop"),
    Place("auf", "Bett", "on", "seat"),
    Place("auf", "Sofa", "on", "seat"),
    Place("auf", "Bank", "on", "seat"),
    Place("auf", "Gartenbank", "on", "seat"),
    Place("auf", "Teppich", "on", "seat"),
    Place("in", "Gras", "in", "lying"),
    Place("in", "Schnee", "in", "lying"),
    Place("in", "See", "in", "water"),
    Place("in", "Fluss", "in", "water"),
    Place("in", "Wasser", "in", "water"),
    Place("über", "Wald", "over", "air"),
    Place("über", "See", "over", "air"),
    Place("über", "Haus", "over", "air"),
    Place("neben", "Fenster", "next to", "indoors"),
    Place("neben", "Tür", "next to", "indoors"),
    Place("auf", "Tisch", "on", "top"),
    Place("auf", "Küchentisch", "on", "top"),
)

ADVERBS = (
    Adverb("heute", "today", "time"),
    Adverb("jetzt", "now", "time"),
    Adverb("am Morgen", "in the morning", "time"),
    Adverb("am Abend", "in the evening", "time"),
    Adverb("im Sommer", "in summer", "summer"),
    Adverb("langsam", "slowly", "manner"),
    Adverb("schnell", "quickly", "manner"),
    Adverb("vorsichtig", "carefully", "manner"),
    Adverb("leise", "quietly", "manner"),
    Adverb("laut", "loudly", "manner"),
    Adverb("fröhlich", "happily", "manner"),
    Adverb("oft", "often", "frequency"),
    Adverb("immer", "always", "frequency"),
    Adverb("manchmal", "sometimes", "frequency"),
    Adverb("jeden Tag", "every day", "habit"),
    Adverb("jeden Abend", "every evening", "habit"),
)
# Which verbs each manner adverb suits.
MANNERS = {
    "langsam": "aufstehen aufwachen einschlafen schwimmen schreiben lesen ziehen schieben aufmachen gehen fressen",
    "schnell": "laufen aufstehen jagen essen zeichnen anziehen ausziehen aufheben zumachen einpacken fressen antworten",
    "vorsichtig": "halten streicheln putzen schneiden aufheben aufmachen zumachen legen stellen klettern",
    "leise": "singen lachen weinen sprechen vorlesen antworten aufmachen zumachen",
    "laut": "singen lachen weinen bellen rufen vorlesen antworten",
    "fröhlich": "spielen tanzen singen umarmen begrüßen winken springen",
}
# What people do where, in a weather of their choice.
PASTIMES = {
    "outside": "spielen tanzen singen schwimmen laufen lachen zeichnen malen fotografieren füttern fangen werfen jagen",
    "inside": "spielen tanzen singen arbeiten lesen schlafen zeichnen malen schreiben essen trinken kochen umarmen",
}
# What can go on while the person or animal does something else; relative clauses about the subject use these.
BACKGROUND = (
    "tragen halten lieben mögen haben kennen sehen hören suchen rufen beobachten anschauen anlächeln festhalten "
    "streicheln füttern jagen folgen helfen winken zuhören zusehen nachlaufen warten sprechen spielen lachen weinen "
    "singen bellen anrufen brauchen besuchen fotografieren"
)
# What may be the reason for what; "weil" and "obwohl" use them.
REASONS = {
    "müde": "schlafen sitzen liegen einschlafen",
    "hungrig": "essen fressen kochen backen einkaufen",
    "glücklich": "tanzen singen lachen lächeln springen umarmen",
    "traurig": "weinen",
    "krank": "liegen schlafen",
    "neugierig": "anschauen beobachten folgen fragen zusehen aufmachen",
}
OBSTACLES = {
    "müde": "arbeiten tanzen kochen lesen spielen laufen schwimmen helfen putzen vorlesen reparieren",
    "krank": "arbeiten kochen schwimmen einkaufen",
    "hungrig": "schlafen warten spielen arbeiten",
}
BAD_WEATHER = (
    Weather("es regnet", "it is raining", "it rains"),
    Weather("es schneit", "it is snowing", "it snows"),
    Weather("es kalt ist", "it is cold", "it is cold"),
)
GOOD_WEATHER = (
    Weather("die Sonne scheint", "the sun is shining", "the sun shines"),
    Weather("es warm ist", "it is warm", "it is warm"),
)
WEATHER_CLOTHES = {"es regnet": "rainwear", "es schneit": "Mantel Winterjacke", "es kalt ist": "Mantel Schal Mütze"}
# Genitive prepositions, and what may follow them, with the adjective that goes with it.
CIRCUMSTANTIAL = {"trotz": "despite", "wegen": "because of"}
MUSIC_EFFECTS = {"wegen": "tanzen singen aufwachen", "trotz": "schlafen lesen arbeiten einschlafen"}
CIRCUMSTANCES = (
    ("kalt", "Regen"),
    ("kalt", "Wind"),
    ("stark", "Wind"),
    ("tief", "Schnee"),
    ("schlecht", "Wetter"),
    ("laut", "Musik"),
    ("dunkel", "Wolke"),
)
