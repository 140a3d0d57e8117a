"""What the measurement of growth counts, and what it draws."""

from annotated.config import TransformerConfig
from experiments import growth
from experiments.speed import multiplications


def test_operations_are_counted_by_hand() -> None:
    config = TransformerConfig(6000, d_model=4, d_ff=8, heads=2, layers=3)
    # For each of 15 tokens: 4 · 4² onto queries, keys, values and out, 2 · 5 · 4 between positions, thrice a layer;
    # 2 · 4 · 8 in the feed-forward network, twice a layer; three layers; and 4 · 6,000 onto the vocabulary.
    per_token = 3 * (3 * (4 * 16 + 2 * 5 * 4) + 2 * (2 * 4 * 8)) + 4 * 6000
    assert multiplications(config, 3, 5) == 15 * per_token


def test_ours_and_the_library_are_measured_and_drawn(tmp_path) -> None:
    (row,) = growth.series("batch", (2,), 1)
    assert row.keys() == {"size", "operations", "ours", "library", "ours_mb", "library_mb"}
    assert all(number > 0 or (name.endswith("_mb") and number == 0) for name, number in row.items())
    rows = [row | {"size": size} for size in (1, 2)]
    found = {"peak": {"1": 1e9, "2": 2e9}, "sizes": dict.fromkeys(growth.AXES, rows)}
    growth.draw(found, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 10_000
