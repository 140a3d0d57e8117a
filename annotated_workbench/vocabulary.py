"""Text to token ids and back: whole words, byte-pair subwords shared by both languages (§5.1), or characters."""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import accumulate, chain
from operator import add, methodcaller
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import tokenizers
from torch import Tensor

from annotated.config import BOS, EOS, PAD, UNK
from annotated_workbench.extras import load
from annotated_workbench.files import write_whole

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")  # their ids are PAD, BOS, EOS and UNK
TOKENIZER = "tokenizer.json"
LARGEST_VOCABULARY = 1_000_000  # subwords; what the largest multilingual models have, several times over
Sides = Iterable[Iterable[str]]  # texts, by language

# On the side of a word where, unusually, there is no space, or one; and what stands for these marks in texts.
JOINED, SPACED, IN_TEXT = "￭", "▁", str.maketrans("￭▁", "■_")
unmarked = methodcaller("strip", "￭▁")  # a word without marks
# A space that is not usual: before a full stop, inside brackets, in "don't" and "T-shirt", by Thai to Japanese letters.
EAST = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]"
NO_SPACE = re.compile(
    rf" (?:(?=[.,;:!?){EAST}|n't\b|'(?:s|re|ve|ll|d|m)\b)|(?<=[({EAST} )"
    r"|(?<=s )(?=' )|(?<=\w )(?=- \w)|(?<=\w - )(?=\w))"
)
# What shows nothing, like spaces, controls and formats: fillers, choices between variants, Braille's blank.
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
normal_form = partial(unicodedata.normalize, "NFC")  # an accented letter is one character, however it was typed


def sentence(text: str) -> str:
    """Bring a text into `normal_form`, without outer spaces; of nothing but invisible characters it is empty."""
    text = normal_form(text).strip()
    return text if set(map(unicodedata.category, BLANK.sub("", text))) - {"Cc", "Cf", "Zl", "Zp", "Zs"} else ""


@runtime_checkable
class Tokenizer(Protocol):
    """What training and decoding need of a tokenizer; ids never include <bos> or <eos> unless you add them."""

    def encode(self, text: str, language: str) -> list[int]:
        """Turn one text of the given language into token ids."""

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Turn many texts of the given language into token ids."""
        return [self.encode(text, language) for text in texts]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Turn token ids into text, leaving out <pad>, <bos> and <eos>."""

    def __len__(self) -> int:
        """Count the tokens, specials included: the model's vocab_size."""

    def content(self) -> bytes:
        """Give what `save` writes."""

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer into a folder, whole or not at all, from where `load_tokenizer` reads it."""
        write_whole(Path(folder) / TOKENIZER, self.content())


class Vocabulary:
    """The numbered words of a corpus, each once, `SPECIALS` first; else a ValueError says what is wrong."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if tuple(self.words[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"a vocabulary starts with {SPECIALS}; got {self.words[: len(SPECIALS)]}.")
        if len(self._ids) < len(self.words):
            twice, _ = Counter(self.words).most_common(1)[0]
            raise ValueError(f"a vocabulary lists each word once; {twice!r} is there more often.")

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], min_freq: int = 2) -> "Vocabulary":
        """Collect the words that occur at least `min_freq` times in tokenized sentences of the training split.

        After the specials they stand by falling count, ties by code point; rarer words become <unk>.
        """
        counts = Counter(chain.from_iterable(sentences))
        frequent = [word for word, count in counts.items() if count >= min_freq and word not in SPECIALS]
        return cls([*SPECIALS, *sorted(frequent, key=lambda word: (-counts[word], word))])

    def encode(self, words: Iterable[str]) -> list[int]:
        """Look up the id of each word; a word that is not listed gets `UNK`."""
        return [self._ids.get(word, UNK) for word in words]

    def decode(self, ids: Iterable[int] | Tensor) -> list[str]:
        """Look up the word of each id, in a list or a row of a tensor; a ValueError names an id outside."""
        ids = [int(i) for i in ids]
        if outside := [i for i in ids if not 0 <= i < len(self)]:
            raise ValueError(f"ids must lie in 0 … {len(self) - 1}; got {outside[0]}. Is this the model's vocabulary?")
        return [self.words[i] for i in ids]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids


class WordTokenizer(Tokenizer):
    """Words and punctuation marks as spaCy's rules split them, numbered by one vocabulary for all languages.

    The languages are codes that `spacy.blank` knows, such as "de"; a ValueError says why one cannot be used.

    Unusual spacing is part of a word, of the punctuation if there is any: "l'￭" is joined to what follows, "▁?" is not
    to what it follows. So any text of listed words can be decoded as it was, each white space as one space.
    """

    def __init__(self, vocabulary: Vocabulary, languages: Sequence[str]) -> None:
        self.vocabulary = vocabulary
        self._rules = {language: _word_rules(language) for language in languages}
        self._likeliest = {unmarked(normal_form(word)): word for word in reversed(vocabulary.words)}

    @classmethod
    def train(
        cls, sides: Sides, languages: Sequence[str] = ("de", "en"), min_freq: int = 2, *, spacing: bool = True
    ) -> "WordTokenizer":
        """Build the vocabulary from the training split's texts, side by side in the order of their languages.

        Without `spacing` words bear no marks of it, as is best where nothing is written and texts come spaced anyhow.
        """
        tokenizer, as_read = cls(Vocabulary(SPECIALS), languages), str if spacing else unmarked
        aligned = zip(languages, sides, strict=True)
        words = ([as_read(word) for word in tokenizer.words(text, code)] for code, texts in aligned for text in texts)
        return cls(Vocabulary.build(words, min_freq), languages)

    def words(self, text: str, language: str) -> list[str]:
        """Split a text into words and punctuation marks; a ValueError says which languages the tokenizer knows."""
        if language not in self._rules:
            raise ValueError(f"unknown language {language!r}; this tokenizer knows {', '.join(self._rules)}.")
        parts = [part for part in self._rules[language](normal_form(text).translate(IN_TEXT)) if not part.is_space]
        words = [part.text for part in parts]
        for i, (left, right, usual) in enumerate(zip(parts, parts[1:], _usual_spaces(words), strict=False)):
            space = " " * (left.idx + len(left) < right.idx)
            mark = SPACED if space else JOINED
            if space != usual and right.text[0].isalnum() > left.text[-1].isalnum():
                words[i] += mark
            elif space != usual:
                words[i + 1] = mark + words[i + 1]
        return words

    def encode(self, text: str, language: str) -> list[int]:
        """Turn one text into word ids; a word listed with other marks only is taken for that, any other for `UNK`."""
        words = self.words(text, language)
        return self.vocabulary.encode(w if w in self.vocabulary else self._likeliest.get(unmarked(w), w) for w in words)

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Join words into text, without <pad>, <bos> and <eos>; <unk> stays, because it stands for a word."""
        marked = [word for word in self.vocabulary.decode(ids) if word not in SPECIALS[:UNK]]
        text = "".join(map(add, marked, _usual_spaces([unmarked(word) for word in marked])))
        return re.sub(f" ?{SPACED} ?", " ", re.sub(f" ?{JOINED} ?", "", text)).strip()

    def __len__(self) -> int:
        return len(self.vocabulary)

    def content(self) -> bytes:
        """Give the words and the languages."""
        table = {"languages": list(self._rules), "words": self.vocabulary.words}
        return json.dumps(table, ensure_ascii=False, indent=0).encode()


def _usual_spaces(words: Sequence[str]) -> list[str]:
    """Give the space that usually follows each of the words, or none."""
    without = {place.end() for place in NO_SPACE.finditer(" ".join(words))}
    return [" " * (end not in without) for end in accumulate(len(word) + 1 for word in words)]


@cache
def _word_rules(language: str) -> Any:
    spacy = load("spacy")
    try:
        return spacy.blank(language).tokenizer
    except Exception as error:  # there is no such language, or its rules need a package, which says so in its own way
        raise ValueError(f"no word rules for {language!r}: {error}. Give a code such as 'de' or 'en'.") from None


class SubwordTokenizer(Tokenizer):
    """Byte-pair encoding shared by both languages: frequent words whole, rare ones in pieces, down to single bytes.

    Every text can be encoded, so <unk> never occurs (Sennrich et al., 2016; on bytes: Radford et al., 2019). Texts are
    brought into `normal_form` first; outer spaces are dropped. `bpe` starts with `SPECIALS`, or is refused.
    """

    def __init__(self, bpe: tokenizers.Tokenizer) -> None:
        if [bpe.token_to_id(special) for special in SPECIALS] != [PAD, BOS, EOS, UNK]:
            raise ValueError(f"it does not start with {', '.join(SPECIALS)}")
        # Unless this is set, the library warns whenever a process forks that has encoded a batch.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._bpe = bpe
        self._bpe.encode_special_tokens = True  # "<eos>" written in a text is text; the library does not save this

    @classmethod
    def train(cls, sides: Sides, languages: Sequence[str] = ("de", "en"), vocab_size: int = 6000) -> "SubwordTokenizer":
        """Learn the merges from all sides of the training split together; the same texts give the same merges.

        `vocab_size` counts the 4 specials and the 256 bytes, too; a small corpus may yield fewer.
        """
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        smallest = len(SPECIALS) + len(alphabet)
        if not smallest <= vocab_size <= LARGEST_VOCABULARY:
            raise ValueError(
                f"vocab_size must be at least {smallest} ({len(SPECIALS)} specials and {len(alphabet)} bytes), more to "
                f"learn any merge, and at most {LARGEST_VOCABULARY:,}; got {vocab_size}."
            )
        bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
        bpe.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC(), tokenizers.normalizers.Strip()])
        bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
        bpe.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
        )
        bpe.train_from_iterator(chain.from_iterable(sides), trainer)
        return cls(bpe)

    def encode(self, text: str, language: str) -> list[int]:
        """Turn one text into subword ids; all languages share the same subwords."""
        return self._bpe.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Turn many texts into subword ids."""
        return [encoding.ids for encoding in self._bpe.encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Join subwords into text, without specials and outer spaces."""
        return self._bpe.decode([int(i) for i in ids], skip_special_tokens=True).strip()

    def __len__(self) -> int:
        return self._bpe.get_vocab_size()

    def content(self) -> bytes:
        """Give the merges, in the format of the `tokenizers` library."""
        return self._bpe.to_str(pretty=True).encode()


class CharacterTokenizer(Tokenizer):
    """Each character is a token, spaces and ends of lines too; a character that was not there in training is `UNK`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def train(cls, text: str) -> "CharacterTokenizer":
        """Number the characters of a text in their order in Unicode."""
        return cls(Vocabulary([*SPECIALS, *sorted(set(normal_form(text)))]))

    def encode(self, text: str, language: str) -> list[int]:
        """Turn a text into ids; the language does not matter."""
        return self.vocabulary.encode(normal_form(text))

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Join characters into text, without <pad>, <bos> and <eos>; <unk> stays."""
        return "".join(entry for entry in self.vocabulary.decode(ids) if entry not in SPECIALS[:UNK])

    def __len__(self) -> int:
        return len(self.vocabulary)

    def content(self) -> bytes:
        """Give the characters."""
        return json.dumps({"characters": self.vocabulary.words[len(SPECIALS) :]}, ensure_ascii=False).encode()


def load_tokenizer(folder: str | Path) -> WordTokenizer | SubwordTokenizer | CharacterTokenizer:
    """Read whichever tokenizer a `save` wrote into a folder; an error says that it is missing or damaged."""
    path = Path(folder) / TOKENIZER
    if not path.is_file():
        raise FileNotFoundError(f"there is no tokenizer {path}. Give the folder of a trained model.")
    content = path.read_bytes()
    try:
        table = json.loads(content)
        if "characters" in table:
            return CharacterTokenizer(Vocabulary([*SPECIALS, *table["characters"]]))
        if "words" not in table:
            return SubwordTokenizer(tokenizers.Tokenizer.from_str(content.decode()))
        vocabulary, languages = Vocabulary(table["words"]), table["languages"]
    except Exception as error:  # `tokenizers` raises nothing more special
        raise ValueError(f"{path} is damaged ({error}). Save the tokenizer again.") from None
    return WordTokenizer(vocabulary, languages)  # a language without rules is no damage
