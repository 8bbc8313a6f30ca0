"""What was found on an image, as a sequence, as arrays, as tables and pictures."""

import dataclasses
import io
import json
import pickle
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.vision import Detection, Detections, draw, save_image

DOG = Detection("dog", 1, 0.8, (50.0, 60.0, 150.0, 160.0))
CAT = Detection("cat", 0, 0.25, (0.5, 1.0, 20.0, 31.0))
IMAGE = np.full((200, 300, 3), 90, np.uint8)


def opened(data):
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(data)))


def test_it_is_a_sequence_and_equals_a_list():
    found = Detections([DOG, CAT])
    assert (len(found), found[0], found[-1], list(found)) == (2, DOG, CAT, [DOG, CAT])
    assert found == [DOG, CAT]
    assert found == Detections((DOG, CAT), IMAGE)
    assert found != [CAT, DOG]
    assert found != "dog"
    assert not Detections()
    assert DOG in found
    with pytest.raises(IndexError):
        found[2]
    assert pickle.loads(pickle.dumps(found)) == found


def test_slices_and_masks_give_detections_of_the_same_image():
    found = Detections([DOG, CAT, DOG], IMAGE)
    for part, wanted in (
        (found[1:], [CAT, DOG]),
        (found[found.scores > 0.5], [DOG, DOG]),
        (found[np.array([2, 1])], [DOG, CAT]),
    ):
        assert isinstance(part, Detections)
        assert part == wanted
        assert part.source is IMAGE
    assert found[found.labels == "mouse"] == []
    assert found[np.int64(1)] == CAT


def test_columns_are_arrays_that_cannot_be_written_to():
    found = Detections([DOG, CAT])
    np.testing.assert_array_equal(found.boxes_xyxy, [DOG.xyxy, CAT.xyxy])
    assert found.scores.tolist() == [0.8, 0.25]
    assert found.class_ids.tolist() == [1, 0]
    assert found.labels.tolist() == ["dog", "cat"]
    with pytest.raises(ValueError, match="read-only"):
        found.scores[0] = 1


def test_columns_of_nothing_have_their_dims():
    found = Detections()
    assert [a.shape for a in (found.boxes_xyxy, found.scores, found.class_ids, found.labels)] == [
        (0, 4),
        (0,),
        (0,),
        (0,),
    ]
    assert repr(found) == "<0 detections>"


def test_the_repr_names_the_best():
    assert repr(Detections([DOG])) == "<1 detection: dog: 80%>"
    assert repr(Detections([DOG] * 6)) == f"<6 detections: {', '.join(['dog: 80%'] * 5)}, ...>"


def test_plot_draws_on_the_source_or_on_another_image(tmp_path):
    save_image(IMAGE, tmp_path / "a.png")
    wanted = draw(IMAGE, [DOG])
    assert (wanted != IMAGE).any()
    for found in (
        Detections([DOG], IMAGE),
        Detections([DOG], tmp_path / "a.png"),
        Detections([DOG], str(tmp_path / "a.png")),
    ):
        np.testing.assert_array_equal(found.plot(), wanted)
    np.testing.assert_array_equal(Detections([DOG]).plot(IMAGE), wanted)
    np.testing.assert_array_equal(Detections([DOG], IMAGE[:100]).plot(IMAGE), wanted)
    with pytest.raises(UsageError, match=r"found\.plot\(image\)"):
        Detections([DOG]).plot()


def test_cocos_entries_have_widths_and_heights():
    first, second = json.loads(json.dumps(Detections([DOG, CAT]).to_coco(7)))
    assert first == {"image_id": 7, "category_id": 1, "bbox": [50, 60, 100, 100], "score": 0.8}
    assert second == {"image_id": 7, "category_id": 0, "bbox": [0.5, 1, 19.5, 30], "score": 0.25}
    assert [entry["category_id"] for entry in Detections([DOG, CAT]).to_coco(0, {0: 17, 1: 18})] == [18, 17]
    with pytest.raises(UsageError, match=r"class 1 \(dog\) has no category id"):
        Detections([DOG]).to_coco(0, {0: 17})


@pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_supervision", "supervision")])
def test_a_missing_package_is_named_with_its_command(monkeypatch, method, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"Detections\.{method} needs the package '{package}'.*") as caught:
        getattr(Detections([DOG]), method)()
    assert str(caught.value).endswith(f"\nDo: pip install {package}")


@pytest.mark.parametrize("items", [[DOG, CAT], []])
def test_pandas_gets_a_row_for_each(monkeypatch, items):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    made = Detections(items).to_pandas()
    assert list(made) == ["label", "class_id", "score", "left", "top", "right", "bottom"]
    assert [tuple(row) for row in zip(*made.values(), strict=True)] == [
        (item.label, item.class_id, item.score, *item.xyxy) for item in items
    ]


def test_supervision_gets_the_arrays(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=dict))
    made = Detections([DOG, CAT]).to_supervision()
    assert {name: (made[name].dtype, made[name].shape) for name in ("xyxy", "confidence", "class_id")} == {
        "xyxy": (np.float32, (2, 4)),
        "confidence": (np.float32, (2,)),
        "class_id": (np.int64, (2,)),
    }
    assert made["data"]["class_name"].tolist() == ["dog", "cat"]
    assert made["class_id"].flags.writeable
    assert made["tracker_id"] is None


def test_supervision_gets_the_tracks_where_one_is_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=dict))
    tracked = Detections([dataclasses.replace(DOG, track_id=0), CAT]).to_supervision()
    assert tracked["tracker_id"].tolist() == [0, -1]


def test_notebooks_show_the_image_and_a_table(tmp_path):
    found = Detections([Detection("<dog>", 1, 0.8, DOG.xyxy)] * 51, np.full((1000, 1600, 3), 90, np.uint8))
    text = found._repr_html_()
    assert '<img src="data:image/jpeg;base64,' in text
    cells = re.sub(r' style="[^"]*"', "", text)
    assert "<td>&lt;dog&gt;</td><td>0.80</td><td>50, 60, 150, 160</td>" in cells
    assert "and 21 more" in text
    assert opened(found._repr_png_()).shape == (1000, 1600, 3)
    np.testing.assert_array_equal(opened(Detections([DOG], IMAGE)._repr_png_()), draw(IMAGE, [DOG]))


@pytest.mark.parametrize("source", [None, "gone.png"])
def test_notebooks_show_the_table_alone_where_the_image_is_not_known(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = Detections([DOG], source)
    assert found._repr_png_() is None
    assert "<img" not in found._repr_html_()
    assert "dog" in found._repr_html_()
    assert "nothing found" in Detections()._repr_html_()
