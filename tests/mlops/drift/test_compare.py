"""A comparison tells what differs between two sets, and nothing where they are samples of one."""

import io

import numpy as np
import pytest
from PIL import Image

from pytrtplugins.errors import NoDataError, UsageError
from pytrtplugins.mlops.drift import Limit, compare_photos, read_limit, to_markdown, write_html
from pytrtplugins.mlops.drift import compare as drift_compare
from pytrtplugins.mlops.drift.compare import Drift, EmbeddingDrift, _exceeded, _histogram, _spread
from pytrtplugins.mlops.drift.measures import chance_of
from pytrtplugins.utils.progress import progress_bar
from tests.mlops.drift.sets import Photos, drawn, grey

pytest.importorskip("PIL")


def compare(a, b, **options):
    return compare_photos(a, b, progress=False, **options)


def drifts(found):
    return {row.name for row in found.rows if row.drift}


def test_samples_of_one_set_do_not_differ():
    found = compare(drawn(150, 0), drawn(150, 1))
    assert drifts(found) == set()
    assert found.drift == 0
    assert all(row.psi > 0 for row in found.rows if row.name in ("brightness", "box-size"))


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"low": 150, "high": 255}, {"brightness", "contrast"}),
        ({"side": 0.9}, {"box-size"}),
        ({"kind": 1}, {"classes"}),
    ],
)
def test_what_was_changed_is_named(changed, names):
    found = compare(drawn(150, 0), drawn(150, 1, **changed))
    assert drifts(found) == names
    assert found.drift == max(row.psi for row in found.rows if row.name in names)


def test_values_of_photos_and_boxes_are_right():
    photos = Photos(
        [grey(100), grey(200, (64, 32))],
        [[[0, 0.5, 0.5, 0.2, 0.8]], [[1, 0.5, 0.5, 0.5, 0.5], [0, 0.1, 0.1, 0.1, 0.1]]],
    )
    found = compare(photos, photos)
    means = {row.name: row.a.mean for row in found.rows if row.a}
    assert means == pytest.approx({
        "width": 48, "height": 28, "aspect": (32 / 24 + 2) / 2, "brightness": 150 / 2 / 255, "contrast": 150 / 2 / 255, "boxes": 1.5,
        "box-size": (0.4 + 0.5 + 0.1) / 3, "box-shape": (0.25 * 32 / 24 + 2 + 2) / 3,
    }, rel=1e-5)  # fmt: skip
    assert [(each.name, each.a) for each in found.classes] == [
        ("cat", pytest.approx(2 / 3)),
        ("dog", pytest.approx(1 / 3)),
    ]
    for row in found.rows:
        assert row.psi == 0
        assert not row.a_bars or sum(row.a_bars) == pytest.approx(1)


def test_the_progress_is_of_the_photos_that_are_measured(monkeypatch):
    totals = []

    def bar(title, total, progress):
        totals.append((title, total))
        return progress_bar(title, total, progress)

    monkeypatch.setattr(drift_compare, "progress_bar", bar)
    compare(drawn(4, 0), drawn(9, 1), photos=5)
    with pytest.raises(NoDataError):
        compare(Photos([], []), Photos([b"no photo"] * 1500, [[]] * 1500))
    assert totals == [("photos", 4 + 5), ("photos", 0 + 1000)]


@pytest.mark.parametrize(("channel", "luma"), [(0, 0.299), (1, 0.587), (2, 0.114)])
def test_brightness_is_the_luma_of_rgb(channel, luma):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., channel] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    photos = Photos([file.getvalue()] * 2, [[], []])
    means = {row.name: row.a.mean for row in compare(photos, photos).rows if row.a}
    assert means["brightness"] == pytest.approx(luma, rel=1e-5)


def test_sets_without_labels_are_compared_by_their_photos():
    a, b = drawn(30, 0), drawn(30, 1)
    b.boxes = [[] for _ in b.boxes]
    found = compare(a, b)
    assert {row.name for row in found.rows} == {"width", "height", "aspect", "brightness", "contrast"}
    assert found.classes == ()
    with pytest.raises(UsageError, match="'box-size': this figure needs boxes in both sets"):
        compare(a, b, limits=[Limit("box-size", 1)])


def test_photos_that_cannot_be_decoded_are_counted():
    b = drawn(30, 1)
    b.images[3] = b"no photo"
    found = compare(drawn(30, 0), b)
    assert (found.b.photos, found.b.measured, found.b.unreadable) == (30, 29, 1)
    b.images = [b"no photo"] * 30
    with pytest.raises(NoDataError, match="B: 0 photos that can be decoded"):
        compare(drawn(30, 0), b)


def test_so_many_photos_are_drawn_the_same_way_each_time():
    sets = [drawn(40, 0) for _ in range(3)]
    for each, seed in zip(sets, (5, 5, 6), strict=True):
        compare(each, drawn(5, 1), photos=10, seed=seed)
    assert sorted(sets[0].read_numbers) == sorted(sets[1].read_numbers) != sorted(sets[2].read_numbers)
    assert len(set(sets[0].read_numbers)) == 10


def test_vectors_tell_what_they_see():
    def embed(images):
        return np.array([[image.mean(), image.std()] for image in images])

    same = compare(drawn(60, 0), drawn(60, 1), embed=embed, embedding="y").embedding
    other = compare(drawn(60, 0), drawn(60, 1, low=180, high=255), embed=embed, embedding="y").embedding
    assert (same.output, same.values, same.drift) == ("y", 2, 0)
    assert other.drift == other.mmd > other.chance > 0


def test_limits_are_held_against_what_is_more_than_chance():
    a, b = drawn(150, 0), drawn(150, 1, low=150, high=255)
    limits = [read_limit(text) for text in ("drift=0.2", "brightness=100", "box-size=0")]
    found = compare(a, b, limits=limits)
    assert [(each.figure, each.most) for each in found.exceeded] == [("drift", 0.2)]
    assert found.exceeded[0].found == found.drift


@pytest.mark.parametrize(
    "text", ["drift", "drift=", "drift=-1", "=1", "drift=nan", "drift=1e3", "Drift=1", "drift=99999999"]
)
def test_a_limit_that_is_none(text):
    with pytest.raises(UsageError, match=r"such as drift=0\.2"):
        read_limit(text)


def test_a_limit_of_nothing_that_is_known():
    with pytest.raises(UsageError, match=r"'sharpness': expected one of aspect, .*drift, embedding"):
        compare(drawn(2, 0), drawn(2, 0), limits=[Limit("sharpness", 1)])
    with pytest.raises(UsageError, match="'embedding': this figure needs a network: --model"):
        compare(drawn(2, 0), drawn(2, 0), limits=[Limit("embedding", 1)])


def test_the_table_has_a_column_for_each_figure():
    lines = to_markdown(compare(drawn(4, 0), drawn(4, 1))).splitlines()
    assert lines[0] == "|  | A: median (5 %..95 %) | B: median (5 %..95 %) | PSI | by chance | Jensen-Shannon |"
    assert lines[1] == "|---|---:|---:|---:|---:|---:|"
    assert lines[2].count("|") == lines[0].count("|")


def test_pages_and_charts_show_the_figures(tmp_path):
    pytest.importorskip("matplotlib")
    found = compare(drawn(40, 0), drawn(40, 1, kind=1), names=("<a>", "b"), limits=[Limit("drift", 0.1)])
    write_html(found, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "<h1>&lt;a&gt; and b</h1>" in page
    assert page.count("<svg") == 1
    assert "class=marked" in page
    row = next(row for row in found.rows if row.name == "classes")
    for text in (page, to_markdown(found)):
        assert f"{row.psi:.3f}" in text
        assert f"Beyond the limit: drift is {found.drift:.4g}, the limit is 0.1." in text


@pytest.mark.parametrize(("found", "drift"), [(0.5, 0.0), (0.25, 0.0), (0.500001, 0.500001)])
def test_what_is_exactly_as_large_as_chance_is_no_drift(found, drift):
    row = Drift("boxes", "", None, None, psi=found, chance=0.5, jensen_shannon=0.0)
    assert (row.drift, EmbeddingDrift("out", 3, found, 0.5).drift) == (drift, drift)


def test_a_limit_that_is_met_exactly_is_not_exceeded():
    figures = {"drift": 0.25, "boxes": 0.5}
    limits = [Limit("drift", 0.25), Limit("boxes", 0.4999)]
    assert [(each.figure, each.found, each.most) for each in _exceeded(figures, limits)] == [("boxes", 0.5, 0.4999)]


def test_spreads_and_bars_are_those_of_known_values():
    values = np.arange(101.0)
    spread = _spread(values)
    assert (spread.mean, spread.p5, spread.median, spread.p95) == (50, 5, 50, 95)
    edges, (a, b) = _histogram(values, np.array([0.0, 100.0, 50.5, 50.5]))
    assert (len(edges), edges[0], edges[-1]) == (
        25,
        pytest.approx(0.04),
        pytest.approx(99.96),
    )  # 1 % and 99 % of all 105
    assert (sum(a), sum(b)) == pytest.approx((1, 1))
    assert (b[0], b[-1]) == (0.25, 0.25)  # what lies beyond is in the outer bars


def test_chance_counts_photos_with_boxes_where_boxes_are_compared():
    """Boxes of one photo are alike: ten photos of 40 have boxes, each many."""
    sets = []
    for seed in (0, 1):
        photos = drawn(40, seed)
        photos.boxes = [rows * 8 if number < 10 else [] for number, rows in enumerate(photos.boxes)]
        sets.append(photos)
    chances = {row.name: row.chance for row in compare(*sets).rows}
    assert chances["box-size"] == pytest.approx(chance_of(10, 10, 10), rel=0.5)
    assert chances["brightness"] < 0.5 * chances["box-size"]


def test_a_chart_shows_every_feature(tmp_path):
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(2)
    photos = Photos([grey(int(level)) for level in random.integers(60, 200, 20)], [[] for _ in range(20)])
    found = compare(photos, photos)
    write_html(found, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert [row.title for row in found.rows if row.edges and f"<!-- {row.title} -->" not in page] == []
    assert len(found.rows) % 3
