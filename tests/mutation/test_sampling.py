"""Which errors are tried in which room, and with which tests."""

from itertools import islice

import pytest

from tests.mutation import sampling
from tests.mutation.covering import Covering, Measurement
from tests.mutation.operators import Mutant
from tests.mutation.sampling import ROOT, Room, chosen_tests, drawn, errors, rooms, shares


def test_every_folder_and_module_is_a_room():
    expected = {path.stem for path in (ROOT / "pytrtplugins").glob("*.py")} - {"__init__", "__main__"}
    expected |= {
        path.parent.relative_to(ROOT / "pytrtplugins").parts[0] for path in ROOT.glob("pytrtplugins/*/**/*.py")
    }
    assert set(rooms()) == expected | {"darknet2caffe"}
    sources = [source for room in rooms().values() for source in room.sources]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize("name", rooms())
def test_every_room_has_tests(name):
    room = rooms()[name]
    assert room.tests or not errors(room), f"{name}: no file in tests/ is at its place or names it"


def test_the_sample_is_a_function_of_the_seed():
    by_operator = errors(rooms()["tensor"])
    first = list(islice(drawn(by_operator, 1, "tensor"), 20))
    assert first == list(islice(drawn(by_operator, 1, "tensor"), 20))
    assert first[:5] == list(islice(drawn(by_operator, 1, "tensor"), 5))
    assert first != list(islice(drawn(by_operator, 2, "tensor"), 20))
    assert len({mutant.operator for mutant in first[: len(by_operator)]}) == len(by_operator)  # each in turn
    every = list(drawn(by_operator, 1, "tensor"))
    assert len(every) == len(set(every)) == sum(map(len, by_operator.values()))


def test_each_room_has_its_share():
    assert shares({"a": 10000, "b": 100, "c": 2, "d": 0}, 111) == {"a": 100, "b": 10, "c": 2, "d": 0}
    assert shares({"a": 100}, 1000) == {"a": 100}


G = ("tests/r/test_code.py::test_g[2]", "tests/r/test_code.py::test_g[1]")
SOURCE = """\
TABLE = {
    "a": 1,
    "b": 2,
}


def f(x, high=9):
    return min(
        x,
        high,
    )


def g(x):
    return TABLE[x]


OTHER = (1, 2, 3)
"""


@pytest.fixture
def covering(tmp_path, monkeypatch):
    """Measurements of a room "r", with a file beside its tests, one in another folder, and a fixture that runs g."""
    (tmp_path / "pytrtplugins/r").mkdir(parents=True)
    (tmp_path / "darknet2caffe").mkdir()
    (tmp_path / "pytrtplugins/r/code.py").write_text(SOURCE)
    monkeypatch.setattr("tests.mutation.sampling.ROOT", tmp_path)
    monkeypatch.setattr("tests.mutation.sampling.test_files", lambda: [])
    for cached in ("_tree", "_modules", "_words"):
        monkeypatch.setattr(f"tests.mutation.sampling.{cached}", getattr(sampling, cached).__wrapped__)
    (tmp_path / "pytrtplugins/s").mkdir()
    (tmp_path / "pytrtplugins/s/user.py").write_text("from ..r.code import TABLE\n\ndef h():\n    return TABLE\n")
    path = "pytrtplugins/r/code.py"
    near = {
        f"tests/r/test_code.py::test_{name}": seconds for name, seconds in (("f", 2.0), ("g[1]", 3.0), ("g[2]", 1.0))
    }
    far = {"tests/other/test_it.py::test_far": 0.1}
    shared = {"tests/s/test_fixture.py::test_asks": 0.1, "tests/s/test_fixture.py::test_imports": 0.1}
    return Covering(
        [
            Measurement("tests/r/test_code.py", near, {}, [("1", {path: [8]}), ("6", {path: [15]})]),
            Measurement("tests/other/test_it.py", far, {}, [("1", {path: [8, 9], "pytrtplugins/s/user.py": [4]})]),
            Measurement("tests/s/test_fixture.py", shared, {}, [("2", {path: [1, 2, 3, 7, 18]})], {path: [15]}),
        ]
    )


def test_what_runs_at_import_may_be_noticed_by_any_test_of_the_room(covering, monkeypatch):
    monkeypatch.setitem(covering.files, "tests/r/test_names.py", ["tests/r/test_names.py::test_names"])
    monkeypatch.setitem(covering.seconds, "tests/r/test_names.py::test_names", 0.1)
    for line, expected in ((3, True), (7, True), (10, False)):
        chosen = chosen_tests(
            Mutant("pytrtplugins/r/code.py", line, "", 0, 0, ""), covering, Room("r", sampling.ROOT / "pytrtplugins/r")
        )
        assert ("tests/r/test_names.py::test_names" in chosen[0]) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (10, ["tests/r/test_code.py::test_f", *G, "tests/other/test_it.py::test_far"]),  # of the statement
        (7, ["tests/r/test_code.py::test_f", *G, "tests/other/test_it.py::test_far"]),  # a default: of the body
        (
            3,  # a row: where the table is used, not where it is made
            [
                *G,
                "tests/r/test_code.py::test_f",
                "tests/other/test_it.py::test_far",
                "tests/s/test_fixture.py::test_asks",
                "tests/s/test_fixture.py::test_imports",  # beside the one whose fixture uses it
            ],
        ),
        (
            18,  # of the whole file
            [
                "tests/r/test_code.py::test_g[2]",
                "tests/r/test_code.py::test_f",
                "tests/r/test_code.py::test_g[1]",
                "tests/other/test_it.py::test_far",
                "tests/s/test_fixture.py::test_imports",
            ],
        ),
    ],
)
def test_tests_that_run_the_line_are_chosen_the_nearest_first(covering, line, expected):
    room = Room("r", sampling.ROOT / "pytrtplugins/r")
    chosen = chosen_tests(Mutant("pytrtplugins/r/code.py", line, "", 0, 0, ""), covering, room)
    assert [test for part in chosen for test in part] == expected
    assert all(test.startswith("tests/r/") for test in chosen[0])


def test_what_takes_too_long_is_left_out(covering, monkeypatch):
    monkeypatch.setattr("tests.mutation.sampling.ALL_S", 0.5)
    monkeypatch.setattr("tests.mutation.sampling.NEAR_S", 2.5)
    chosen = chosen_tests(
        Mutant("pytrtplugins/r/code.py", 3, "", 0, 0, ""), covering, Room("r", sampling.ROOT / "pytrtplugins/r")
    )
    assert chosen == [
        ["tests/r/test_code.py::test_g[2]"],
        ["tests/r/test_code.py::test_g[1]", "tests/r/test_code.py::test_f"],
    ]
