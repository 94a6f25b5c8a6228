import numpy as np
import pytest
import torch

from gpt_cli.common.rng import permutation, permuted, random_words, stream_key


def test_keys_tell_seeds_and_names_apart() -> None:
    keys = {stream_key(seed, *names) for seed in (0, 1) for names in (("a",), ("a", 1), ("a", "1"), ("b",), (1, "a"))}
    assert len(keys) == 10


def test_words_never_change() -> None:
    """Later versions continue checkpoints: change these numbers only with the checkpoint format."""
    assert stream_key(1337, "dropout", 3) == 0xC32A96510A099543
    assert random_words(0x0123456789ABCDEF, 0, 3).tolist() == [3833571298, 4088512568, 822606692]


def test_a_permutation_visits_everything_once_and_depends_on_its_key() -> None:
    first, second = permutation(stream_key(0, "a"), 1000), permutation(stream_key(0, "b"), 1000)
    assert sorted(first.tolist()) == list(range(1000))
    assert (first != second).any()
    assert permutation(1, 1).tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64, 65, 1000, 1_000_003])
def test_a_permutation_without_a_list_visits_everything_once(count: int) -> None:
    found = permuted(stream_key(0, "a"), np.arange(count), count)
    assert found.dtype == np.int64
    assert (np.sort(found) == np.arange(count)).all()


def test_a_permutation_without_a_list_depends_on_its_key_and_on_nothing_else() -> None:
    first, second = (permuted(stream_key(0, name), np.arange(1000), 1000) for name in "ab")
    assert np.count_nonzero(first == second) < 10  # one is expected
    assert permuted(stream_key(0, "a"), np.array([999, 3, 3]), 1000).tolist() == first[[999, 3, 3]].tolist()


def test_a_permutation_without_a_list_never_changes() -> None:
    """Later versions continue runs: change these numbers only with the checkpoint format."""
    expected = [151444006, 125426299, 69414067, 151178293, 120396567]
    assert permuted(0x0123456789ABCDEF, np.arange(5), 200_000_000).tolist() == expected
    assert permuted(1, np.array([0, 2**40]), 2**62).tolist() == [2520529153180529760, 3753132312459762824]


def test_a_permutation_without_a_list_looks_random() -> None:
    count = 1_000_003
    found = permuted(stream_key(7, "x"), np.arange(count), count)
    # places that are independent are a third of all apart
    assert np.abs(found - np.arange(count)).mean() == pytest.approx(count / 3, rel=0.005)
    for distance in (1, 2, 1000):
        neighbours = np.corrcoef(found[:-distance], found[distance:])[0, 1]
        assert abs(neighbours) < 5 / count**0.5


def test_samples_share_a_stream_where_the_lowest_32_bits_of_their_keys_are_equal() -> None:
    """Of seed 1283, samples 215 and 1305; docs/sampling.md has the chance."""
    keys = [stream_key(1283, "sample", number) for number in (215, 1305)]
    assert keys[0] != keys[1]
    assert keys[0] & 0xFFFFFFFF == keys[1] & 0xFFFFFFFF
    first, second = (torch.rand(20, generator=torch.Generator().manual_seed(key)) for key in keys)
    assert torch.equal(first, second)
