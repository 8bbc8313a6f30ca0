"""Distances equal plain loops over their definitions; what is called chance is that."""

import itertools
import math

import numpy as np
import pytest

from pytrtplugins.mlops.drift.measures import bin_edges, chance_of, jensen_shannon, mmd, population_stability, shares


def distributions():
    random = np.random.default_rng(0)
    return [random.dirichlet(np.ones(size)) for size in (2, 2, 5, 5, 12, 12)]


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_index_and_the_divergence_are_their_definitions(place):
    p, q = distributions()[place : place + 2]
    assert population_stability(p, q) == pytest.approx(
        sum((y - x) * math.log(y / x) for x, y in zip(p, q, strict=True))
    )
    both = 0.0
    for one, other in ((p, q), (q, p)):
        both += sum(x * math.log2(x / ((x + y) / 2)) for x, y in zip(one, other, strict=True)) / 2
    assert jensen_shannon(p, q) == pytest.approx(both)
    assert population_stability(p, q) == pytest.approx(population_stability(q, p))


def test_equal_distributions_have_no_distance():
    (p, *_) = distributions()
    assert population_stability(p, p) == jensen_shannon(p, p) == 0


def test_distributions_that_share_nothing_are_one_bit_apart():
    p, q = np.array([1 - 1e-12, 1e-12]), np.array([1e-12, 1 - 1e-12])
    assert jensen_shannon(p, q) == pytest.approx(1, abs=1e-9)


def test_shares_are_counts_of_the_bins():
    edges = np.array([1.0, 2.0])
    found = shares(np.array([0.0, 0.9, 1.0, 1.5, 2.0, 7.0, 7.0]), edges)
    assert found.tolist() == pytest.approx([2.5 / 8.5, 2.5 / 8.5, 3.5 / 8.5])


def test_deciles_of_the_reference_have_a_tenth_each():
    random = np.random.default_rng(0)
    a, b = random.normal(size=5000), random.normal(1, 1, 5000)
    edges = bin_edges(a, b)
    assert len(edges) == 9
    assert shares(a, edges) == pytest.approx(0.1, abs=0.001)


@pytest.mark.parametrize(("count", "alone"), [(9, False), (10, True), (11, True)])
def test_a_value_that_a_tenth_of_the_reference_has_is_a_bin_of_its_own(count, alone):
    a = np.concatenate([np.full(count, 35.5), np.linspace(0, 100, 100 - count)])
    edges = bin_edges(a, a).tolist()
    assert (35.5 in edges and np.nextafter(35.5, np.inf) in edges) is alone


@pytest.mark.parametrize(("values", "bins"), [(20, 20), (21, 10)])
def test_up_to_twenty_values_have_a_bin_each_and_more_have_ten(values, bins):
    a = np.repeat(np.arange(float(values)), 5)
    assert len(bin_edges(a, a[:7])) + 1 == bins


def test_few_values_have_a_bin_each():
    edges = bin_edges(np.array([1.0, 1, 2, 5]), np.array([2.0, 3]))
    assert np.searchsorted(edges, [1, 2, 3, 5], side="right").tolist() == [0, 1, 2, 3]


def test_a_frequent_value_has_a_bin_of_its_own():
    random = np.random.default_rng(0)
    a = np.concatenate([np.full(900, 416.0), random.uniform(300, 500, 100)])
    for other in (415.9, 416.1):
        b = np.concatenate([np.full(900, other), random.uniform(300, 500, 100)])
        assert population_stability(*(shares(each, bin_edges(a, b)) for each in (a, b))) > 3


@pytest.mark.parametrize(("n", "m"), [(300, 300), (900, 150)])
def test_few_equal_samples_are_beyond_chance(n, m):
    """The 99th percentile of chi-squared with nine degrees is 21.67, the 99.9th 27.88: about one of a hundred is beyond the former."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(400):
        a, b = random.normal(size=n), random.normal(size=m)
        edges = bin_edges(a, b)
        found.append(population_stability(shares(a, edges), shares(b, edges)))
    chance = chance_of(10, n, m)
    assert chance == pytest.approx(27.88 * (1 / n + 1 / m), rel=0.01)
    assert sum(value > chance for value in found) <= 4
    assert 1 <= sum(value > chance * 21.67 / 27.88 for value in found) <= 14


def test_a_shift_is_beyond_chance():
    random = np.random.default_rng(1)
    a, b = random.normal(size=300), random.normal(0.8, 1, 300)
    edges = bin_edges(a, b)
    assert population_stability(shares(a, edges), shares(b, edges)) > chance_of(10, 300, 300)


def test_what_has_one_bin_is_never_beyond_chance():
    assert chance_of(1, 10, 10) == chance_of(5, 0, 10) == 0


def test_the_mean_discrepancy_is_its_definition():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(7, 3)), random.normal(0.5, 2, (5, 3))
    joined = [*a, *b]
    median = float(np.median([((x - y) ** 2).sum() for x, y in itertools.combinations(joined, 2)]))

    def mean(pairs):
        values = [math.exp(-((x - y) ** 2).sum() / median) for x, y in pairs]
        return sum(values) / len(values)

    expected = (
        mean(itertools.permutations(a, 2)) + mean(itertools.permutations(b, 2)) - 2 * mean(itertools.product(a, b))
    )
    assert mmd(a, b)[0] == pytest.approx(expected)


def test_equal_samples_are_within_chance_and_others_beyond():
    random = np.random.default_rng(0)
    a = random.normal(size=(40, 8))
    within = [mmd(a, random.normal(size=(30, 8)), seed=seed) for seed in range(6)]
    assert sum(found > chance for found, chance in within) <= 1
    assert min(found for found, _ in within) < 0
    found, chance = mmd(a, random.normal(0.6, 1, (30, 8)))
    assert found > chance > 0


def test_vectors_that_are_all_equal_are_no_distance_apart():
    assert mmd(np.ones((3, 2)), np.ones((4, 2)))[0] == pytest.approx(0)
