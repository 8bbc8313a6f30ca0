"""Choosing kernels, and remembering the choice."""

from __future__ import annotations

import math

import pytest

from pytrtplugins.engines.cuda.conv.cache import Choice, TacticCache, choose, decode, encode

DEVICE = {"gpu": "NVIDIA H200", "driver": 13000}


def test_the_fastest_candidate_wins_and_the_first_of_equals():
    times = {"a": 3.0, "b": 1.5, "c": 1.5, "d": 1.9, "e": math.inf}
    chosen = choose([("own", times)], lambda provider, tactic: times[tactic])
    assert chosen == Choice("own", "b", 1.5, 4, (("own", "c", 1.5), ("own", "d", 1.9)))


def test_five_runners_up_are_kept():
    chosen = choose([("own", map(str, range(9)))], lambda _, tactic: 10.0 - 0.1 * int(tactic))
    assert (chosen.tactic, [tactic for _, tactic, _ in chosen.runners_up]) == ("8", list("76543"))


@pytest.mark.parametrize(("theirs", "name"), [(2.5, "own"), (1.5, "theirs"), (math.inf, "own")])
def test_a_kernel_that_others_wait_for_has_to_win_by_more_than_the_wait(theirs, name):
    times = {"own": 3.0, "theirs": theirs}
    chosen = choose([("theirs", [""]), ("own", [""])], lambda provider, _: times[provider], {"theirs": 1.0})
    assert (chosen.provider, chosen.microseconds, chosen.rivals) == (name, times[name], 1)


@pytest.mark.parametrize(
    ("theirs", "asked"),
    [
        ([2.0, 2.0, 2.0, 0.5], 3),  # three in a row that are too slow
        ([2.0, 2.0, 1.2, 2.0, 2.0, 2.0, 0.5], 6),
        ([2.0, 2.0, 0.9, 2.0, 2.0, 0.5], 6),
        ([math.inf, math.inf, math.inf, math.inf, 0.5], 5),  # what fails says nothing of the others
    ],
)
def test_a_provider_that_is_slow_again_and_again_is_asked_for_no_more(theirs, asked):
    built = []

    def tactics():
        for index in range(len(theirs)):
            built.append(index)
            yield str(index)

    def measure(provider, tactic):
        return theirs[int(tactic)] if provider == "theirs" else 1.0

    families = [("own", ["only"]), ("theirs", tactics()), ("last", ["only"])]
    chosen = choose(families, measure, patience={"theirs": 3})
    assert (len(built), chosen.rivals) == (asked, asked + 1)
    assert chosen.provider == ("theirs" if min(theirs[:asked]) < 1 else "own")


@pytest.mark.parametrize("times", [[], [math.inf], [math.inf, math.inf]])
def test_where_none_works_that_is_an_error(times):
    with pytest.raises(ValueError, match="no kernel works"):
        choose([("own", map(str, range(len(times))))], lambda _, tactic: times[int(tactic)])


def test_a_cache_remembers_across_objects_and_keeps_what_others_wrote(tmp_path):
    first, second = TacticCache(DEVICE, tmp_path), TacticCache(DEVICE, tmp_path)
    first.put({"p1": Choice("cudnn", "fused:x", 3.25, 4)})
    second.put({"p2": Choice("direct", "direct", 1.0, 1)})
    read = TacticCache(DEVICE, tmp_path)
    assert read.get("p1") == Choice("cudnn", "fused:x", 3.25, 4)
    assert read.get("p2") == Choice("direct", "direct", 1.0, 1)
    assert read.get("p3") is None


@pytest.mark.parametrize("other", [{"gpu": "NVIDIA L4", "driver": 13000}, {"gpu": "NVIDIA H200", "driver": 12080}])
def test_another_device_or_driver_has_a_cache_of_its_own(tmp_path, other):
    TacticCache(DEVICE, tmp_path).put({"p": Choice("cudnn", "fused:x")})
    assert TacticCache(other, tmp_path).get("p") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2, "choices": {}}', '{"format": 1, "choices": {"p": ["cudnn"]}}', "\x00\xff"]
)
def test_a_damaged_cache_counts_as_empty_and_is_written_anew(tmp_path, text):
    cache = TacticCache(DEVICE, tmp_path)
    cache.path.write_text(text)
    damaged = TacticCache(DEVICE, tmp_path)
    assert damaged.get("p") is None
    damaged.put({"p": Choice("direct", "direct")})
    assert TacticCache(DEVICE, tmp_path).get("p") == Choice("direct", "direct")


def test_the_text_tells_the_device_and_reads_back():
    choices = {"p": Choice("cudnn", "fused:eng0", 7.125, 3, (("own", "m64", 7.5), ("own", "m32", 8.0)))}
    text = encode(choices, DEVICE)
    assert "NVIDIA H200" in text
    assert decode(text) == choices


def test_a_cache_that_cannot_be_written_is_said_and_the_choice_is_kept(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    cache = TacticCache(DEVICE, tmp_path / "file")
    cache.put({"p": Choice("cudnn", "fused:x")})
    assert cache.get("p") == Choice("cudnn", "fused:x")
    assert "they will be chosen again" in caplog.text
