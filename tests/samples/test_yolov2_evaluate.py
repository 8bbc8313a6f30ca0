"""Average precision of detectors that answer right, of classes that occur or do not."""

from __future__ import annotations

import pytest

from pytrtplugins.errors import UsageError
from tests.samples.needs_torch import torch
from training.batch import NO_BOX, Pool
from yolov2_training.evaluate import in_classes_of, measure, scores
from yolov2_training.model import Model

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("a", "b", "c")
ANCHORS = torch.tensor([[2.0, 2.0]] * 5)


class Right(torch.nn.Module):
    """Finds one box of 64 pixels in the middle of each photo, of classes that it is told."""

    def __init__(self, *kinds: int) -> None:
        super().__init__()
        self._kinds = kinds

    def forward(self, inputs):
        cells = inputs.shape[-1] // 32
        out = torch.zeros(len(inputs), 5, 8, cells, cells)
        out[:, :, 4] = -20
        for image, kind in enumerate(self._kinds):
            out[image, 0, [4, 5 + kind], cells // 2, cells // 2] = 20.0
        return out.flatten(1, 2)


def photos(*kinds: int, size: int = 96) -> Pool:
    middle = size / 2
    boxes = torch.tensor([[[kind, middle - 32, middle - 32, middle + 32, middle + 32]] for kind in kinds])
    pixels = torch.zeros(len(kinds), size, size, 3, dtype=torch.uint8)
    return Pool(pixels, torch.full((len(kinds), 2), float(size)), boxes)


def test_classes_without_boxes_are_left_out_of_the_mean() -> None:
    """As VOC and COCO leave them out; what is not found still counts as 0."""
    inputs = torch.zeros(4, 3, 96, 96)
    perfect = scores(Model(Right(0, 1, 0, 1), ANCHORS, NAMES), inputs, photos(0, 1, 0, 1))
    assert perfect == {"mAP50": 1.0, "classes": 2, "AP50 a": 1.0, "AP50 b": 1.0}
    blind = scores(Model(Right(0, 0, 0, 2), ANCHORS, NAMES), inputs, photos(0, 1, 0, 1))
    assert blind == {"mAP50": pytest.approx(5 / 12), "classes": 2, "AP50 a": pytest.approx(5 / 6), "AP50 b": 0.0}
    nothing = scores(Model(Right(0), ANCHORS, NAMES), inputs[:1], photos(int(NO_BOX)))
    assert nothing["classes"] == 0
    assert nothing["mAP50"] != nothing["mAP50"]


def test_more_photos_than_are_looked_at_together_are_measured_as_few_are() -> None:
    kinds = [number % 3 for number in range(130)]

    class Several(Right):
        def forward(self, inputs):
            self._kinds, rest = self._kinds[: len(inputs)], self._kinds[len(inputs) :]
            out = super().forward(inputs)
            self._kinds = rest
            return out

    found = scores(Model(Several(*kinds), ANCHORS, NAMES), torch.zeros(130, 3, 96, 96), photos(*kinds))
    assert found == {"mAP50": 1.0, "classes": 3, "AP50 a": 1.0, "AP50 b": 1.0, "AP50 c": 1.0}


def test_classes_are_matched_by_their_names() -> None:
    """The photos have them in another order, one more, and one less."""
    model = Model(Right(0, 1, 0, 2), ANCHORS, NAMES)
    text = measure(model, photos(2, 1, 2, 0), ("other", "b", "a"), 96)
    assert text.splitlines() == [
        "mAP50: 1.0000 (mean of 2 of 3 classes, at 96 x 96 pixels)",
        "AP50 a: 1.0000",
        "AP50 b: 1.0000",
        "the photos have no box of: c",
        "the model does not know, and boxes of these count nowhere: other",
    ]
    empty = photos(0, 1)
    empty.boxes[1] = NO_BOX
    assert in_classes_of(model, empty, ("b", "c")).boxes[:, 0, 0].tolist() == [1.0, NO_BOX]


@pytest.mark.parametrize(("kinds", "names"), [((0, 0), ("x", "a")), ((0,), ("A",)), ((-1,), NAMES)])
def test_photos_without_a_box_of_the_models_classes_are_refused(kinds, names) -> None:
    with pytest.raises(UsageError, match=r"no box of a class that the model knows\.\nModel: a, b, c\.\nData: .*\nDo: "):
        measure(Model(Right(), ANCHORS, NAMES), photos(*kinds), names, 96)
