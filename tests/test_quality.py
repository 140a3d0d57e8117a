"""What the comparison of recipes does beside training."""

from itertools import islice

from annotated_workbench.data import Encoded
from experiments import quality


def test_the_rate_rises_then_falls_to_nothing_at_the_last_minute() -> None:
    rate = quality.falling(8.0, 4)
    assert [rate(step, 0.0) for step in (1, 2, 4, 9)] == [2.0, 4.0, 8.0, 8.0]
    assert [rate(9, share) for share in (0.25, 0.75, 1.0, 1.1)] == [6.0, 2.0, 0.0, 0.0]


def test_an_epoch_has_every_pair_once() -> None:
    rows = [[number, 2] for number in range(4, 9)]
    recipe = quality.Recipe("a test", {}, 4, lambda step, share: 1.0, accumulate=2)  # two pairs a batch, two batches
    updates = list(islice(quality.groups(recipe, Encoded(rows, rows, list(range(5)))), 4))
    assert [len(update) for update in updates] == [2, 1, 2, 1]
    for epoch in (updates[:2], updates[2:]):
        seen = [number for update in epoch for batch in update for number in batch.src[:, 0].tolist()]
        assert sorted(seen) == [4, 5, 6, 7, 8]


def test_curves_are_drawn(tmp_path) -> None:
    curve = [{"minutes": 2.0, "step": 9, "bleu": 10.0}, {"minutes": 4.0, "step": 19, "bleu": 20.0}]
    quality.draw({name: {"curve": curve} for name in quality.RECIPES}, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 10_000
