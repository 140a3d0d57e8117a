"""Equality with an engine in C++: CTranslate2 translates the same with the weights of the delivered model."""

import pytest

from annotated import decoding
from annotated.config import EOS
from annotated.fast import decoding as fast_decoding
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_corpus, pad
from annotated_workbench.vocabulary import load_tokenizer
from experiments import peers

pytest.importorskip("ctranslate2", reason="is installed beside the newer torch only")

MODEL = DATA_FOLDER / "checkpoints" / "de-en"


rooms = pytest.mark.parametrize("searches", [decoding, fast_decoding], ids=["plain", "fast"])


@pytest.fixture(scope="module")
def sources() -> list[list[int]]:
    texts = load_corpus("captions", "test").source[:50]
    return [[*ids, EOS] for ids in load_tokenizer(MODEL).encode_batch(texts, "de")]


@rooms
def test_greedy_decoding_writes_the_same(sources, searches):
    model, _ = load_checkpoint(MODEL)
    translate = peers.ctranslate2(model, "float32", beam=1, alpha=0.0, max_extra=50)
    assert [h.ids for h in searches.greedy_decode(model, pad(sources))] == translate(sources)


@rooms
def test_beam_search_mostly_writes_the_same(sources, searches):
    # Its length penalty has another form, and it stops by another rule.
    model, _ = load_checkpoint(MODEL)
    translate = peers.ctranslate2(model, "float32", beam=4, alpha=0.0, max_extra=50)
    ours = [h.ids for h in searches.beam_search(model, pad(sources), 4, alpha=0.0)]
    same = sum(a == b for a, b in zip(ours, translate(sources), strict=True))
    assert same >= 48
