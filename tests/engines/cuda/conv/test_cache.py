"""Choosing kernels, and remembering the choice."""

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.engines.cuda.conv import cache as module
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


@pytest.mark.parametrize(("others", "asked", "name"), [(5.0, ["fast"], "own"), (math.inf, ["fast", "plain"], "last")])
def test_an_unlikely_kernel_is_measured_only_where_no_other_works(others, asked, name):
    measured = []

    def measure(_, tactic):
        measured.append(tactic)
        return 1.0 if tactic == "plain" else others

    families = [("own", ["fast"]), ("last", ["plain"])]
    assert choose(families, measure, unlikely=("last",)).provider == name
    assert measured == asked


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


def test_many_choices_are_written_every_few_seconds_and_when_the_block_ends(tmp_path, monkeypatch):
    now, chosen = [0.0], Choice("direct", "direct", 1.0, 1)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cache = TacticCache(DEVICE, tmp_path)

    def on_disk():
        return {name for name in "abcdef" if TacticCache(DEVICE, tmp_path).get(name)}

    def choose_some():
        cache.put({"a": chosen})
        for now[0], name in ((4.9, "b"), (4.99, "c")):
            cache.put({name: chosen})
        assert (on_disk(), cache.get("c")) == ({"a"}, chosen)
        now[0] = 5.0
        cache.put({"d": chosen})
        assert on_disk() == {*"abcd"}
        TacticCache(DEVICE, tmp_path).put({"e": chosen})
        cache.put({"f": chosen})
        raise KeyError

    with pytest.raises(KeyError), cache.batched():
        choose_some()
    assert on_disk() == {*"abcdef"}
    cache.path.unlink()
    with cache.batched():
        pass
    assert not cache.path.exists()  # nothing was chosen
    cache.put({"a": chosen})
    cache.put({"b": chosen})
    assert {*"ab"} <= on_disk()


@pytest.mark.parametrize(
    "other",
    [
        {**DEVICE, "gpu": "NVIDIA L4"},
        {**DEVICE, "driver": 12080},
        {**DEVICE, "kernels": "0"},
        {"gpu": DEVICE["gpu"]},
        {},
    ],
)
def test_another_device_driver_or_fact_has_a_cache_of_its_own(tmp_path, other):
    TacticCache(DEVICE, tmp_path).put({"p": Choice("cudnn", "fused:x")})
    assert TacticCache(other, tmp_path).get("p") is None
    assert TacticCache(dict(reversed(DEVICE.items())), tmp_path).get("p") is not None


def test_another_format_version_has_a_file_of_its_own(tmp_path, monkeypatch):
    """Versions that stand beside each other on one machine do not overwrite each other's choices."""
    before = TacticCache(DEVICE, tmp_path)
    before.put({"p": Choice("cudnn", "fused:x")})
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    after = TacticCache(DEVICE, tmp_path)
    assert after.get("p") is None
    after.put({"p": Choice("direct", "direct")})
    monkeypatch.undo()
    assert TacticCache(DEVICE, tmp_path).get("p") == Choice("cudnn", "fused:x")


@pytest.mark.parametrize(("time", "near"), [(12.99, True), (13.0, False), (13.01, False)])
def test_a_runner_up_takes_less_than_1_3_times_as_long(time, near):
    chosen = choose([("own", ["best", "other"])], lambda _, tactic: 10.0 if tactic == "best" else time)
    assert bool(chosen.runners_up) == near


@pytest.mark.parametrize(("time", "asked"), [(12.99, 4), (13.0, 2)])
def test_a_tactic_that_takes_1_3_times_as_long_is_too_slow(time, asked):
    built = []
    choose([("own", ["x"]), ("theirs", map(str, range(4)))],
           lambda name, tactic: 10.0 if name == "own" else (built.append(tactic), time)[1], patience={"theirs": 2})  # fmt: skip
    assert len(built) == asked


WRITER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pytrtplugins.engines.cuda.conv.cache import Choice, TacticCache
cache = TacticCache({"gpu": "test"}, Path(sys.argv[1]))
for number in range(20):
    cache.put({f"{sys.argv[2]} {number}": Choice("direct", sys.argv[2], number)})
"""


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path):
    """What one of them wrote last is there, and everything that is there is as it was written."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(name)], env=environment) for name in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0] * 3
    (path,) = tmp_path.iterdir()
    choices = decode(path.read_bytes())
    assert any(all(f"{name} {number}" in choices for number in range(20)) for name in range(3))
    for key, choice in choices.items():
        name, number = key.split()
        assert choice == Choice("direct", name, float(number))


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
