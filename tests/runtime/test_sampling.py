"""Choosing tokens: greedy ties, repeatable draws, filters, refused settings."""

import re

import numpy as np
import pytest

from runtime.sampling import Sampler, Sampling, SamplingError

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.3, 0.15]))


def draws(sampling: Sampling, logits: np.ndarray = LOGITS, count: int = 2000) -> np.ndarray:
    sampler = Sampler(sampling)
    return np.array([sampler.choose(logits) for _ in range(count)])


def test_greedy_takes_the_lowest_of_equal_bests() -> None:
    assert Sampler(Sampling()).choose(np.array([1, 3, 2, 3], np.float32)) == 1
    assert Sampler(Sampling()).choose(np.array([np.nan, -np.inf, 2, np.nan], np.float32)) == 2


def test_frequencies_follow_the_probabilities() -> None:
    counts = np.bincount(draws(Sampling(temperature=1, seed=1), count=20000), minlength=5) / 20000
    np.testing.assert_allclose(counts, np.exp(LOGITS), atol=0.015)


def test_temperature_sharpens() -> None:
    wanted = np.exp(LOGITS * 2) / np.exp(LOGITS * 2).sum()
    counts = np.bincount(draws(Sampling(temperature=0.5, seed=2), count=20000), minlength=5) / 20000
    np.testing.assert_allclose(counts, wanted, atol=0.015)


def test_seeds_repeat_and_differ() -> None:
    first, again, other = (draws(Sampling(temperature=1, seed=seed), count=50) for seed in (7, 7, 8))
    assert (first == again).all() and (first != other).any()
    fresh = (draws(Sampling(temperature=1), count=50) for _ in range(2))
    assert (next(fresh) != next(fresh)).any()


KEPT = [
    (Sampling(temperature=1, seed=0, top_k=1), {1}),
    (Sampling(temperature=1, seed=0, top_k=2), {1, 3}),
    (Sampling(temperature=1, seed=0, top_k=99), {0, 1, 2, 3, 4}),
    (Sampling(temperature=1, seed=0, top_p=0.39), {1}),
    (Sampling(temperature=1, seed=0, top_p=0.41), {1, 3}),
    (Sampling(temperature=1, seed=0, top_p=0.8), {1, 3, 4}),
    (Sampling(temperature=1, seed=0, min_p=0.5), {1, 3}),
    (Sampling(temperature=1, seed=0, min_p=1.0), {1}),
    (Sampling(temperature=1, seed=0, top_k=3, min_p=0.7), {1, 3}),
    # top_p counts what top_k has left: 0.4 / 0.7 > 0.5.
    (Sampling(temperature=1, seed=0, top_k=2, top_p=0.5), {1}),
]


@pytest.mark.parametrize("sampling,kept", KEPT)
def test_filters(sampling: Sampling, kept: set[int]) -> None:
    assert set(draws(sampling).tolist()) == kept


def test_top_k_ties_go_to_the_lower_ids() -> None:
    logits = np.array([0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    assert set(draws(Sampling(temperature=1, seed=3, top_k=2), logits).tolist()) == {1, 2}


def test_impossible_tokens_are_never_drawn() -> None:
    logits = np.array([-np.inf, 0.0, np.nan, 0.0])
    assert set(draws(Sampling(temperature=100, seed=4), logits).tolist()) == {1, 3}


REFUSED = [
    ({"temperature": -0.1}, "temperature must be a number from 0 to 100; got -0.1"),
    ({"temperature": float("nan")}, "temperature must be a number from 0 to 100; got nan"),
    ({"top_k": -1}, "top_k must be a whole number, 0 or more; got -1"),
    ({"top_k": 2.5}, "top_k must be a whole number, 0 or more; got 2.5"),
    ({"top_p": 0}, "top_p must be a number above 0, up to 1; got 0"),
    ({"top_p": 1.1}, "top_p must be a number above 0, up to 1; got 1.1"),
    ({"min_p": 2}, "min_p must be a number from 0 to 1; got 2"),
    ({"seed": -5}, "seed must be a whole number, 0 or more; got -5"),
]


@pytest.mark.parametrize("settings,message", REFUSED)
def test_settings_out_of_range(settings: dict, message: str) -> None:
    with pytest.raises(SamplingError, match=f"^{re.escape(message)}$"):
        Sampling(**settings)


@pytest.mark.parametrize("logits", [[np.nan, np.nan], [-np.inf, -np.inf], [0.0, np.inf]])
def test_hopeless_logits(logits: list[float]) -> None:
    with pytest.raises(SamplingError, match=r"^logits with a finite largest value were wanted, -?inf came: "):
        Sampler(Sampling()).choose(np.array(logits))
