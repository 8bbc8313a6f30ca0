"""Tracks: what goes to ByteTrack, and what comes back; with the library itself where it is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from pytrtplugins.errors import MissingExtraError
from pytrtplugins.vision import Detection, Detections, Frame, Source, Tracker

IMAGE = np.zeros((2, 2, 3), np.uint8)


def box(x, score=0.9, label="cat"):
    return Detection(label, 0, score, (x, 50.0, x + 60, 120.0))


def frame(item, number=0, rate=10.0):
    return Frame(IMAGE, Source("x", "video"), item, number=number, rate=rate)


class ByteTrack:
    """What the library trackers has, as far as it is used: an object is known by its left edge, from its second frame on."""

    made: ClassVar[list[ByteTrack]] = []

    def __init__(self, **options):
        self.options, self.seen, self.numbers = options, set(), {}
        self.made.append(self)

    def update(self, given):
        left = given.xyxy[:, 0].tolist()
        for x in self.seen & set(left):
            self.numbers.setdefault(x, len(self.numbers))
        self.seen |= set(left)
        order = np.arange(len(left))[::-1]  # another than the caller's
        ids = np.array([self.numbers.get(left[place], -1) for place in order], int)
        return Converted(given.xyxy[order], {"place": given.data["place"][order]}, tracker_id=ids)


class Converted(SimpleNamespace):
    def __init__(self, xyxy, data, confidence=None, class_id=None, tracker_id=None):
        super().__init__(xyxy=xyxy, data=data, confidence=confidence, class_id=class_id, tracker_id=tracker_id)

    def __len__(self):
        return len(self.xyxy)


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackers", SimpleNamespace(ByteTrackTracker=ByteTrack))
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=Converted))
    ByteTrack.made = []


def test_objects_keep_their_numbers(library):
    tracker = Tracker(0.5)
    first = tracker.update(Detections([box(10), box(200)], "a.png"))
    assert (first.track_ids.tolist(), first.source) == ([-1, -1], "a.png")
    again = tracker.update(Detections([box(200), box(10), box(400)]))
    assert sorted(again.track_ids.tolist()) == [-1, 0, 1]
    assert tracker.update(Detections([box(10), box(200)])).track_ids.tolist() == again.track_ids[[1, 0]].tolist()
    assert [str(item) for item in again if item.track_id is not None] == [
        f"cat #{number}: 90%" for number in again.track_ids[:2].tolist()
    ]


def test_low_scores_stay_only_where_they_continue_a_track(library):
    tracker = Tracker(0.5)
    assert tracker.lowest == 0.1
    assert Tracker().score_threshold == 0.5
    tracker.update(Detections([box(10)]))
    found = tracker.update(Detections([box(10, 0.2), box(300, 0.3), box(400, 0.6), box(500, 0.5)]))
    assert [(item.xyxy[0], item.track_id) for item in found] == [(10, 0), (400, None)]


def test_each_video_is_a_scene_of_its_own_with_its_rate(library):
    tracker = Tracker(0.4)
    for number in range(2):
        found = tracker.update(Detections([box(10)]), frame(0, number))
    assert found.track_ids.tolist() == [0]
    for number in range(2):
        found = tracker.update(Detections([box(10)]), frame(1, number, rate=50.0))
    assert found.track_ids.tolist() == [1]
    assert [made.options["frame_rate"] for made in ByteTrack.made] == [10, 50]
    assert {made.options["track_activation_threshold"] for made in ByteTrack.made} == {0.4}


def test_nothing_found_is_no_track(library):
    assert len(Tracker().update(Detections())) == 0


@pytest.mark.parametrize(
    ("package", "rest"), [("trackers", ' && pip install --no-deps "trackers>=2.6"'), ("supervision", "")]
)
def test_a_missing_library_is_named_with_its_command(library, monkeypatch, package, rest):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtraError, match=rf"tracking needs the package '{package}'.*\nDo: pip install"
    ) as caught:
        Tracker()
    assert str(caught.value).endswith(f'"pytrtplugins[track]"{rest}')


def test_the_library_follows_what_moves():
    pytest.importorskip(
        "trackers", reason='tracking needs trackers (pip install "pytrtplugins[track]"; pip install --no-deps trackers)'
    )
    tracker = Tracker(0.5)
    for step in range(6):
        cat, dog = box(10.0 + 5 * step), box(300.0 - 4 * step, 0.2 if step == 3 else 0.8, "dog")
        found = tracker.update(Detections([cat, dog]))
    assert found.track_ids.tolist() == [0, 1]
    assert len(tracker.update(Detections())) == 0
