"""The time limit of a library's plans, with a clock of the test's making."""

import math

from pytrtplugins.engines.cuda.conv.search_time import SearchTime


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


class Limit(SearchTime):
    def __init__(self, seconds):
        self.clock = Clock()
        super().__init__(seconds, self.clock)
        self.begin()


def taken(limit, title, seconds, count=10):
    """How many candidates were had, where each takes so long."""
    found = 0
    for _ in limit.within(title, map(str, range(count))):
        found += 1
        limit.clock.now += seconds
    return found


def test_quick_candidates_are_all_tried():
    limit = Limit(45)
    assert [taken(limit, f"{number}", 0.1) for number in range(20)] == [10] * 20
    assert limit.cut == []


def test_slow_candidates_share_the_time_and_every_convolution_has_one():
    limit = Limit(45)
    found = []
    for left in range(21, 0, -1):
        limit.expect(left)
        found.append(taken(limit, f"convolution {left}", 2.5))
    assert min(found) >= 1
    assert limit.clock.now <= 45 + 21 + 2 * 2.5
    assert len(limit.cut) == 21


def test_a_share_is_over_when_more_than_it_has_passed():
    """Twice of ten seconds: the candidate that comes after 20 is tried, the one after 25 not."""
    limit = Limit(10)
    assert taken(limit, "one", 5.0) == 5
    assert limit.cut == ["one"]
    limit.begin()
    limit.expect(4)
    counts = [taken(limit, name, 2.5) for name in ("two", "three")]
    assert counts == [3, 1]  # after 5 of 5; of 2.5 left, after 1.25


def test_what_one_leaves_the_next_ones_may_take():
    limit = Limit(10)
    for left in range(10, 1, -1):
        limit.expect(left)
        assert taken(limit, "quick", 0.01) == 10
    limit.expect(1)
    assert taken(limit, "slow", 1.0) == 10
    assert limit.cut == []


def test_a_search_begins_with_all_of_the_time():
    limit = Limit(10)
    for _ in range(2):
        limit.begin()
        limit.expect(1)
        assert taken(limit, "large", 3.0) == 7
    assert limit.cut == ["large"]


def test_a_search_that_ends_early_pays_for_what_it_used():
    limit = Limit(10)
    candidates = limit.within("first", ["a", "b"])
    next(candidates)
    limit.clock.now += 9.5
    candidates.close()
    assert taken(limit, "second", 0.6) == 2  # a second, which each has at least, not the 20 of before


def test_there_may_be_no_limit():
    limit = Limit(math.inf)
    assert taken(limit, "any", 1e6) == 10
