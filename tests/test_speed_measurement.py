"""What the measurements of speed count, and that their figures are what the documents say."""

import pytest

from annotated.config import TransformerConfig
from experiments.paper_run import weights_and_operations


def test_operations_are_counted_by_hand():
    config = TransformerConfig(6000, d_model=4, d_ff=8, heads=2, layers=3)
    # Multiplications of a position: 4 · 4² onto queries, keys, values and out, 2 · 5 · 4 between positions, thrice a
    # layer; 2 · 4 · 8 in the feed-forward network, twice a layer; three layers; and 4 · 6,000 onto the vocabulary.
    multiplications = 3 * (3 * (4 * 16 + 2 * 5 * 4) + 2 * (2 * 4 * 8)) + 4 * 6000
    weights, operations = weights_and_operations(config, length=5)
    # A product and a sum each, forward, and for both gradients backward.
    assert operations == pytest.approx(6 * multiplications)
    assert weights > 4 * 6000
