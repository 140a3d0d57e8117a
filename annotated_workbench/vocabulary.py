"""Text to token ids and back: whole words, byte-pair subwords shared by both languages (§5.1), or characters."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from annotated.config import BOS, EOS, PAD, UNK
from annotated_workbench.extras import load
from annotated_workbench.files import write_whole

if TYPE_CHECKING:
    import tokenizers

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")  # their ids are PAD, BOS, EOS and UNK

TOKENIZER = "tokenizer.json"
LONGEST_TOKEN = 64  # characters; a text with more of them for each token that a model takes is too long unread
# No language writes so much without a space: 64 characters, or 12 symbols where up to five alike count as one.
UNBROKEN = re.compile(r"(?:(?:([^\w\s])\1{0,4}+){12}|\S{64})(?=\S)")
PIECE = re.compile(r".{1,10000}(?!\S)|.{1,10000}", re.DOTALL)  # what rules for texts without spaces take at once
LONG = re.compile(r"\S{500}(?=\S)")  # what is no word teaches merges in pieces: their time takes the square of it
LONGEST_TEXT = 20_000  # characters to learn merges from at once
RULES_NEED = {  # what to install where a module is missing, if it is called otherwise
    "sudachipy": "sudachipy sudachidict_core",
    "natto": "natto-py, and the library mecab-ko",
}
LARGEST_VOCABULARY = 1_000_000  # subwords; what the largest multilingual models have, several times over


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
    """The numbered words of a corpus, the four specials first.

    Args:
        words: every word once, at its index; starts with `SPECIALS`.

    Raises:
        ValueError: the specials are not in front, or a word is listed twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if tuple(self.words[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"a vocabulary starts with {SPECIALS}; got {self.words[: len(SPECIALS)]}.")
        if len(self._ids) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ValueError(f"a vocabulary lists each word once; {twice!r} is there more often.")

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], min_freq: int = 2) -> "Vocabulary":
        """Collect the words seen at least `min_freq` times: the specials, then by falling count, ties by code point.

        Args:
            sentences: tokenized sentences, of the training split only.
            min_freq: how often a word must occur to get an index of its own; rarer ones become <unk>.
        """
        counts = Counter(chain.from_iterable(sentences))
        frequent = [word for word, count in counts.items() if count >= min_freq and word not in SPECIALS]
        return cls([*SPECIALS, *sorted(frequent, key=lambda word: (-counts[word], word))])

    def encode(self, words: Iterable[str]) -> list[int]:
        """Look up the id of each word; a word that is not listed gets `UNK`."""
        return [self._ids.get(word, UNK) for word in words]

    def decode(self, ids: Iterable[int] | Tensor) -> list[str]:
        """Look up the word of each id.

        Args:
            ids: token ids, in a list or a row of a tensor.

        Raises:
            ValueError: an id lies outside the vocabulary.
        """
        ids = [int(i) for i in ids]
        outside = [i for i in ids if not 0 <= i < len(self)]
        if outside:
            raise ValueError(f"ids must lie in 0 … {len(self) - 1}; got {outside[0]}. Is this the model's vocabulary?")
        return [self.words[i] for i in ids]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids


class WordTokenizer(Tokenizer):
    """Words and punctuation marks as spaCy's rules split them, numbered by one vocabulary for all languages.

    Args:
        vocabulary: the numbered words.
        languages: codes that `spacy.blank` knows, such as "de".

    Raises:
        ValueError: spaCy has no rules for a language, or needs a package for them that is missing.
    """

    def __init__(self, vocabulary: Vocabulary, languages: Sequence[str]) -> None:
        self.vocabulary = vocabulary
        self._rules = {language: _word_rules(language) for language in languages}

    @classmethod
    def train(
        cls, sides: Iterable[Iterable[str]], languages: Sequence[str] = ("de", "en"), min_freq: int = 2
    ) -> "WordTokenizer":
        """Build the vocabulary from both sides of a corpus, or from texts of one language.

        Args:
            sides: the texts of each language; the training split only.
            languages: the languages' codes, in that order.
            min_freq: how often a word must occur to be listed.
        """
        tokenizer = cls(Vocabulary(SPECIALS), languages)
        aligned = zip(languages, sides, strict=True)
        words = (tokenizer.words(text, language) for language, texts in aligned for text in texts)
        tokenizer.vocabulary = Vocabulary.build(words, min_freq)
        return tokenizer

    def words(self, text: str, language: str) -> list[str]:
        """Split a text into words and punctuation marks, without spaces.

        What is no word by its length (`UNBROKEN`) is cut first: spaCy's rules take the square of it.

        Args:
            text: a sentence.
            language: one of the tokenizer's languages.

        Raises:
            ValueError: the tokenizer has no rules for this language.
        """
        if language not in self._rules:
            raise ValueError(f"unknown language {language!r}; this tokenizer knows {', '.join(self._rules)}.")
        rules = self._rules[language]
        if type(rules).__module__ == "spacy.tokenizer":  # rules between spaces; others know words where there is none
            text = UNBROKEN.sub(r"\g<0> ", text)
        return [word.text for piece in PIECE.findall(text) for word in rules(piece) if not word.is_space]

    def encode(self, text: str, language: str) -> list[int]:
        """Turn one text into word ids; an unlisted word becomes `UNK`."""
        return self.vocabulary.encode(self.words(text, language))

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Join words into readable text, without <pad>, <bos> and <eos>; <unk> stays, because it stands for a word.

        Spaces go where they are not usual: before a full stop or a comma, inside brackets, in "don't" and "T-shirt".
        """
        text = " ".join(word for word in self.vocabulary.decode(ids) if word not in SPECIALS[:UNK])
        text = re.sub(r" (?=[.,;:!?)]|n't\b|'(?:s|re|ve|ll|d|m)\b)|(?<=\() |(?<=s) (?=' )", "", text)
        return re.sub(r"(?<=\w) - (?=\w)", "-", text)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def content(self) -> bytes:
        """Give the words and the languages."""
        table = {"languages": list(self._rules), "words": self.vocabulary.words}
        return json.dumps(table, ensure_ascii=False, indent=0).encode()


class SubwordTokenizer(Tokenizer):
    """Byte-pair encoding shared by both languages: frequent words whole, rare ones in pieces, down to single bytes.

    Every text can be encoded, so <unk> never occurs (Sennrich et al., 2016; on bytes: Radford et al., 2019). Texts are
    brought into Unicode's NFC form first; outer spaces are dropped.

    Args:
        bpe: the trained tokenizer of the `tokenizers` library.
    """

    def __init__(self, bpe: "tokenizers.Tokenizer") -> None:
        self._bpe = bpe
        # "<eos>" written in a text is text. The library does not save this setting.
        self._bpe.encode_special_tokens = True

    @classmethod
    def train(
        cls, sides: Iterable[Iterable[str]], languages: Sequence[str] = ("de", "en"), vocab_size: int = 6000
    ) -> "SubwordTokenizer":
        """Learn the merges from all sides of a corpus together; the same texts always give the same merges.

        Args:
            sides: the texts of each language; the training split only. What is longer than `LONGEST_TEXT` teaches
                nothing: the time goes with the square of the length of a word.
            languages: not needed here; it keeps the call the same as for words.
            vocab_size: number of tokens, with the 4 specials and the 256 bytes. A small corpus may yield fewer.

        Raises:
            ValueError: `vocab_size` leaves no room for the specials and the bytes, or is above `LARGEST_VOCABULARY`.
        """
        library = _tokenizers()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        smallest = len(SPECIALS) + len(alphabet)
        if not smallest <= vocab_size <= LARGEST_VOCABULARY:
            raise ValueError(
                f"vocab_size must be at least {smallest} ({len(SPECIALS)} specials and {len(alphabet)} bytes), more to "
                f"learn any merge, and at most {LARGEST_VOCABULARY:,}; got {vocab_size}."
            )
        bpe = library.Tokenizer(library.models.BPE())
        bpe.normalizer = library.normalizers.Sequence([library.normalizers.NFC(), library.normalizers.Strip()])
        bpe.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        bpe.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
        )
        texts = (LONG.sub(r"\g<0> ", text) for text in chain.from_iterable(sides) if len(text) <= LONGEST_TEXT)
        bpe.train_from_iterator(texts, trainer)
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
    """Each character is a token, spaces and ends of lines too; a character that was not there in training is `UNK`.

    Args:
        vocabulary: the numbered characters.

    Raises:
        ValueError: one of them is longer than a character.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        longer = [entry for entry in vocabulary.words[len(SPECIALS) :] if len(entry) != 1]
        if longer:
            raise ValueError(f"{longer[0]!r} is not one character.")

    @classmethod
    def train(cls, text: str) -> "CharacterTokenizer":
        """Number the characters of a text in their order in Unicode."""
        return cls(Vocabulary([*SPECIALS, *sorted(set(text))]))

    def encode(self, text: str, language: str) -> list[int]:
        """Turn a text into ids; the language does not matter."""
        return self.vocabulary.encode(text)

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Join characters into text, without <pad>, <bos> and <eos>; <unk> stays."""
        return "".join(entry for entry in self.vocabulary.decode(ids) if entry not in SPECIALS[:UNK])

    def __len__(self) -> int:
        return len(self.vocabulary)

    def content(self) -> bytes:
        """Give the characters."""
        return json.dumps({"characters": self.vocabulary.words[len(SPECIALS) :]}, ensure_ascii=False).encode()


def load_tokenizer(folder: str | Path) -> WordTokenizer | SubwordTokenizer | CharacterTokenizer:
    """Read whichever tokenizer was saved in a folder.

    Args:
        folder: where a tokenizer's `save` wrote, such as the folder of a trained model.

    Raises:
        FileNotFoundError: the folder holds no tokenizer.
        ValueError: its file is damaged; or as in `WordTokenizer`.
    """
    path = Path(folder) / TOKENIZER
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"it holds {type(content).__name__}, not a table")
        if "characters" in content:
            return CharacterTokenizer(Vocabulary([*SPECIALS, *_texts(content, "characters")]))
        if "words" not in content:
            return SubwordTokenizer(_byte_pairs(content))
        vocabulary, languages = Vocabulary(_texts(content, "words")), _texts(content, "languages")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no tokenizer {path}. Give the folder of a trained model.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, no tokenizer. Give the folder of a trained model.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}). Save the tokenizer again.") from None
    return WordTokenizer(vocabulary, languages)  # a language without rules is no damage


def _texts(content: dict[str, Any], name: str) -> list[str]:
    texts = content.get(name)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} must be a list of texts")
    return texts


def _byte_pairs(content: dict[str, Any]) -> "tokenizers.Tokenizer":
    library = _tokenizers()
    try:
        bpe = library.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(error) from None
    if [bpe.token_to_id(special) for special in SPECIALS] != [PAD, BOS, EOS, UNK]:
        raise ValueError(f"it does not start with {', '.join(SPECIALS)}")
    return bpe


def _word_rules(language: str) -> Any:
    spacy = load("spacy")
    try:
        rules = spacy.blank(language).tokenizer
    except (ImportError, AttributeError) as error:  # of the language, or of a package that its rules import
        missing = getattr(error.__context__, "name", None) or ""
        if isinstance(error, AttributeError) or not missing or missing.startswith("spacy.lang."):
            raise ValueError(f"spaCy has no word rules for {language!r}. Give a code such as 'de' or 'en'.") from None
        missing = missing.partition(".")[0]
        needed = RULES_NEED.get(missing, missing)
        raise ValueError(
            f"{missing} is missing, which spaCy's word rules for {language!r} need: pip install {needed}"
        ) from None
    # A prefix is in front: spaCy, which looks through all that follows, takes the square of it, three seconds for
    # 100 kB in Indonesian.
    prefixes = getattr(getattr(rules, "prefix_search", None), "__self__", None)
    if isinstance(prefixes, re.Pattern):
        rules.prefix_search = prefixes.match
    return rules


def _tokenizers() -> Any:
    # Without this setting the library warns on stderr whenever the process forks after encoding.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    return tokenizers
