"""Targets of a second model: draws from its teacher, and from counts of the text."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from gpt_cli.training.taught_targets import CERTAIN, COUNTS, OF_LAST, ORDER, TEACHER, NgramCounts, TaughtTargets


def of_teacher() -> tuple[np.ndarray, np.ndarray]:
    """The tokens 100, 101 and 102 at each of 4,000 positions, with the probabilities 0.6, 0.3 and 0.1."""
    cumulative = np.round(np.array([0.6, 0.9, 1.0]) * CERTAIN).astype(np.uint16)
    return np.tile(np.array([100, 101, 102], np.uint16), (4000, 1)), np.tile(cumulative, (4000, 1))


def test_shares_of_the_targets_are_the_teachers_and_those_of_counts() -> None:
    ids = np.tile(np.arange(50), 80)  # of which counts know each next one
    targets, positions = TaughtTargets(ids, seed=0), np.arange(1, 4001).reshape(40, 100) % 4000
    assert np.array_equal(targets(positions, 7), ids[positions])  # before there is a teacher
    targets.likely, targets.cumulative = of_teacher()
    drawn = [targets(positions, step) for step in range(20)]
    shares = [(each >= 100).mean() for each in drawn]
    assert np.mean(shares) == pytest.approx(TEACHER, abs=0.01)
    assert len(set(shares)) > 10
    ranks = np.bincount(np.concatenate([each[each >= 100] - 100 for each in drawn]), minlength=3)
    assert ranks / ranks.sum() == pytest.approx([0.6, 0.3, 0.1], abs=0.01)
    others = [(each[each < 100] != ids[positions][each < 100]).mean() for each in drawn]
    assert max(others) < 0.01
    random = TaughtTargets(
        np.random.default_rng(0).integers(0, 50, 4000), seed=0, likely=targets.likely, cumulative=targets.cumulative
    )
    differing = [((each := random(positions, step)) < 100) & (each != random.ids[positions]) for step in range(20)]
    assert np.mean(differing) == pytest.approx(COUNTS * 49 / 50, abs=0.01)  # counts know nothing, and guess


def test_the_last_of_several_models_learns_nothing_from_the_text_itself() -> None:
    ids = np.random.default_rng(0).integers(0, 50, 4000)
    targets, positions = TaughtTargets(ids, seed=0, num_targets=8), np.arange(1, 4001).reshape(40, 100) % 4000
    assert np.array_equal(targets(positions, 7), np.repeat(ids[positions], 8, axis=1))
    targets.likely, targets.cumulative = of_teacher()
    by_position = targets(positions, 7).reshape(40, 100, 8)
    assert (by_position == by_position[..., :1]).all()  # equal targets are one
    targets.is_last = True
    drawn = targets(positions, 7).reshape(40, 100, 8)
    assert (drawn >= 100).mean() == pytest.approx(OF_LAST, abs=0.01)
    assert (drawn == ids[positions][..., None]).mean() < 0.01  # counts leave the position itself out
    assert (drawn != drawn[..., :1]).any()


def test_a_position_draws_what_follows_its_longest_trusted_context_elsewhere() -> None:
    ids = [0, 1, 2, 0, 1, 3, 4, 1, 2, 0, 1, 2]
    counts, uniform = NgramCounts(np.array(ids)), (np.arange(5040) + 0.5) / 5040
    for position in range(len(ids)):
        expected, left = defaultdict[int, float](float), 1.0
        for order in range(ORDER, -1, -1):
            before = [ids[i] if i >= 0 else -1 for i in range(position - order, position)]
            others = [
                ids[at]
                for at in range(len(ids))
                if at != position and [ids[i] if i >= 0 else -1 for i in range(at - order, at)] == before
            ]
            trust = float(counts.orders[order][2][position])
            assert trust == 0.0 or others
            for token in others:
                expected[token] += left * trust / len(others)
            left *= 1 - trust
        assert left == 0
        drawn = Counter(counts.draw(np.full(5040, position), uniform).tolist())
        assert [drawn[t] / 5040 for t in range(5)] == pytest.approx([expected[t] for t in range(5)], abs=2e-3)


def test_contexts_are_trusted_as_often_as_the_text_agrees_with_them() -> None:
    sure = np.tile(np.arange(50), 40)  # one token decides the next
    assert NgramCounts(sure).orders[1][2][100:].min() > 0.99
    random = np.random.default_rng(0).integers(0, 50, 2000)  # which decides nothing
    assert NgramCounts(random).orders[1][2].mean() < 0.1


def test_what_follows_only_here_is_never_its_own_reason() -> None:
    ids = np.array([1, 2, 3, 1, 2, 3, 1, 2, 4])  # 4 stands nowhere else
    drawn = NgramCounts(ids).draw(np.full(1000, 8), np.linspace(0, 1, 1000, endpoint=False))
    assert 4 not in drawn
    assert (drawn == 3).mean() > 0.7  # after 1, 2
