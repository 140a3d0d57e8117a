"""The documents of chapter 18's measurement, and the models that read them."""

import pytest
import torch

from experiments.long_sequences import (
    DOCUMENT,
    FACT_VALUES,
    FACTS,
    FIRST_NOISE,
    MODELS,
    NEAR,
    NOISE,
    NearAttention,
    make_documents,
    make_model,
    summarise,
)


def test_each_fact_stands_in_the_document_once_and_the_summary_has_them_in_order() -> None:
    documents, facts = make_documents(20, torch.Generator().manual_seed(0))
    first = FIRST_NOISE + NOISE
    assert documents.shape == (20, DOCUMENT) and facts.shape == (20, FACTS)
    assert torch.equal((facts - first) // FACT_VALUES, torch.arange(FACTS).expand(20, -1))
    assert torch.equal(documents.masked_fill(documents < first, 10**6).sort(dim=1).values[:, :FACTS], facts)
    noise = documents[documents < first]
    assert len(noise) == 20 * (DOCUMENT - FACTS) and noise.min() == FIRST_NOISE


def test_near_attention_sees_the_latest_positions_and_no_more() -> None:
    torch.manual_seed(0)
    near, x = NearAttention(6, 2), torch.randn(1, NEAR + 5, 6)
    moved = x.clone()
    moved[:, 2] += 1
    causal = torch.ones(NEAR + 5, NEAR + 5).tril().bool()
    with torch.no_grad():
        changed = (near(moved, moved, moved, causal) - near(x, x, x, causal)).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.nonzero().flatten().tolist() == list(range(2, 2 + NEAR))


@pytest.mark.parametrize("name", MODELS)
def test_no_model_reads_the_word_that_it_shall_write(name: str) -> None:
    torch.manual_seed(0)
    model = make_model(name).eval()
    documents, facts = make_documents(2, torch.Generator().manual_seed(1))
    later = facts.clone()
    later[:, 5] += 1
    with torch.no_grad():
        difference = (model(documents[:, :32], later) - model(documents[:, :32], facts)).abs().amax(dim=(0, 2))
    assert difference[:5].max() == 0 and difference[5] > 1e-3


def test_the_models_are_of_one_size_and_a_run_has_a_loss_and_a_share() -> None:
    plain, alone, compressed = (sum(p.numel() for p in make_model(name).parameters()) for name in MODELS)
    assert abs(plain - alone) < 0.002 * plain and alone < compressed < 1.12 * alone
    loss, right = summarise("decoder only", 32, seed=0, updates=2, batch=2)
    assert 1 < loss < 10 and 0 <= right < 0.3


def test_far_layers_with_groups_of_one_begin_as_dense_ones() -> None:
    torch.manual_seed(0)
    dense, grouped = make_model("near and dense"), make_model("near, groups of one")
    missing = grouped.load_state_dict(dense.state_dict(), strict=False).missing_keys
    assert missing and all("shrink" in name for name in missing)
    documents, facts = make_documents(3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(grouped(documents, facts), dense(documents, facts), atol=1e-4)
