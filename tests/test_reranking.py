"""Choosing among candidates by both directions' probabilities."""

import pytest

from experiments.reranking import Candidate, choose


def test_the_weights_decide_by_hand():
    short, long = Candidate("short", 2, -1.0, -6.0), Candidate("long", 4, -2.0, -3.0)
    assert choose([[short, long], [long]], 0.0, 0.0) == ["short", "long"]
    assert choose([[short, long]], 0.5, 0.0) == ["long"]  # −1 − 3 against −2 − 1.5
    assert choose([[short, long]], 0.0, 0.6) == ["long"]  # −1 + 1.2 against −2 + 2.4


@pytest.mark.parametrize(("weight", "bonus", "best"), [(0.33, 0.0, "short"), (0.34, 0.0, "long"), (0.0, 0.49, "short")])
def test_just_beside_the_point_where_both_are_alike(weight, bonus, best):
    # −1 − 6λ + 2β against −2 − 3λ + 4β: alike at λ = 1/3 and at β = 1/2.
    candidates = [Candidate("short", 2, -1.0, -6.0), Candidate("long", 4, -2.0, -3.0)]
    assert choose([candidates], weight, bonus) == choose([candidates[::-1]], weight, bonus) == [best]
