"""What networks are judged by: verification and classification on made-up people, detection by `evaluate`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import NoDataError, UsageError
from pytrtplugins.mlops.tables import ClassificationTask, DetectionTask, LabelledImages, VerificationTask, verify
from pytrtplugins.mlops.tables.tasks import DetectionTask as _Detection
from pytrtplugins.models import YoloData

from .people import classifier, network, photos


def reference(model):
    return ptp.build(model, engine="reference", progress=False)


def test_the_chart_shows_these_figures_of_each_task_and_columns_have_these_digits(faces):
    tasks = (VerificationTask(faces, pixels="0..255").figures, ClassificationTask.figures, DetectionTask.figures)
    assert [[figure.key for figure in figures if figure.drawn] for figures in tasks] == [
        ["tpr_at_001", "cosine_mean"],
        ["top1"],
        ["map50"],
    ]
    assert all(figure.digits == (5 if "cosine" in figure.key else 4) for figures in tasks for figure in figures)


def test_verification_takes_all_pairs_of_the_data(faces):
    engine = reference(network())
    figures, kept = VerificationTask(faces, pixels="0..255").measure(engine, None)
    embeddings = []
    with engine.create_context() as context:
        for name in faces.names:
            x = faces.image(name).transpose(2, 0, 1)[None].astype(np.float32)
            embeddings.append(context.run({"data": x})["embedding"][0].copy())
    rows = np.stack([row / np.linalg.norm(row) for row in embeddings])
    pairs = [(i, j) for i in range(len(rows)) for j in range(i + 1, len(rows))]
    same = [faces.names[i].split("/")[0] == faces.names[j].split("/")[0] for i, j in pairs]
    wanted = verify(np.array([rows[i] @ rows[j] for i, j in pairs]), np.array(same))
    assert [figure.key for figure in VerificationTask(faces, pixels="0..255").figures] == [
        "tpr_at_001",
        "tpr_at_01",
        "balanced_accuracy",
        "cosine_mean",
        "cosine_1",
    ]
    assert figures["tpr_at_001"] == wanted.tpr_at_001
    assert figures["balanced_accuracy"] == wanted.balanced_accuracy
    assert np.allclose(kept, rows, atol=1e-6)
    assert figures["cosine_mean"] == pytest.approx(1)
    assert figures["cosine_1"] == pytest.approx(1)


def test_embeddings_are_compared_with_those_of_the_first_engine(faces):
    task = VerificationTask(faces, pixels="0..255")
    _, kept = task.measure(reference(network()), None)
    figures, _ = task.measure(reference(network(seed=1)), kept)
    assert figures["cosine_1"] <= figures["cosine_mean"] < 0.9


def test_a_network_with_a_fixed_batch_gets_its_last_images_padded(faces):
    task = VerificationTask(faces, pixels="0..255")
    free, kept = task.measure(reference(network()), None)
    fixed, again = task.measure(reference(network(batch=4)), None)
    assert np.array_equal(kept, again)
    assert fixed == free


def test_classification_counts_the_best_and_the_best_five(faces):
    task = ClassificationTask(faces, pixels="0..255")
    figures, best = task.measure(reference(classifier(faces.labels)), None)
    assert figures == {"top1": 1.0, "top5": 1.0, "same": 1.0}
    assert best == faces.numbers.tolist()
    turned = [*faces.labels[1:], faces.labels[0]]
    figures, _ = task.measure(reference(classifier(turned)), best)
    assert figures["top1"] == 0.0
    assert figures["same"] == 0.0
    named = ClassificationTask(faces, pixels="0..255", classes=tuple(turned))
    assert named.measure(reference(classifier(turned)), None)[0]["top1"] == 1.0


def test_classes_without_a_name_are_an_error_that_names_them(faces):
    task = ClassificationTask(faces, pixels="0..255", classes=("s1", "s2"))
    with pytest.raises(
        UsageError, match=r"6 classes, and 2 have names; without a name are s3, s4, s5, s6.*\n.*--names"
    ):
        task.measure(reference(classifier(faces.labels)), None)


def test_a_name_of_two_classes_that_the_data_have_is_refused(faces):
    task = ClassificationTask(faces, pixels="0..255", classes=(*faces.labels, "s2"))
    network = reference(classifier((*faces.labels, "s2")))
    with pytest.raises(UsageError, match="several classes of the network are called s2"):
        task.measure(network, None)


def test_calibration_takes_the_first_image_of_each_label_before_the_second(faces):
    seen, rest = faces.split(0.5)
    task = VerificationTask(rest, seen, "0..255")
    engine = reference(network())
    batches = task.calibration(engine.inputs, 4)
    found = np.concatenate([batch["data"] for batch in batches])
    wanted = [photos()[name] for name in ("s1/0.png", "s2/0.png", "s3/0.png", "s1/1.png")]
    assert np.array_equal(found, np.stack(wanted).transpose(0, 3, 1, 2))


def test_calibration_makes_more_images_where_that_is_asked_for(faces):
    seen, rest = faces.split(0.5)
    plain, more = (VerificationTask(rest, seen, "0..255", augmented=augmented) for augmented in (False, True))
    inputs = reference(network()).inputs
    own = np.concatenate([batch["data"] for batch in plain.calibration(inputs, 9)])
    found = np.concatenate([batch["data"] for batch in more.calibration(inputs, 90)])
    assert np.array_equal(found[:9], own)
    assert np.array_equal(found[9:18], own[..., ::-1])
    assert np.array_equal(found[18:27, ..., :-1], own[..., 1:])  # moved to the left by a pixel
    assert len(np.unique(found.reshape(90, -1), axis=0)) == 90
    assert plain.identity == more.identity  # what needs no more images stays as it was measured
    assert plain.notes == ()
    assert more.notes == ("calibration has 9 images: those beyond 9 are mirrored and moved copies of them",)
    with pytest.raises(NoDataError, match=r"calibration with 91 images: .* has 9 for that$"):
        more.calibration(inputs, 91)


def test_too_few_images_or_none_to_calibrate_on_are_refused(faces):
    engine = reference(network())
    with pytest.raises(NoDataError, match=r"calibration with 10 images: .* has 9 for that; .* makes 90 of them"):
        VerificationTask(faces, faces.split(0.5)[0]).calibration(engine.inputs, 10)
    with pytest.raises(UsageError, match="need images to calibrate on"):
        VerificationTask(faces).calibration(engine.inputs, 1)


def test_inputs_repeat_images_where_there_are_too_few(faces):
    task = VerificationTask(faces, pixels="0..255")
    arrays = task.inputs(reference(network()).inputs, 20)
    assert arrays["data"].shape == (20, 3, 16, 16)
    assert np.array_equal(arrays["data"][18], arrays["data"][0])


def test_figures_depend_on_images_and_pixels(faces, tmp_path):
    first = VerificationTask(faces).identity
    assert first == VerificationTask(LabelledImages(faces.source)).identity
    assert first != VerificationTask(faces, pixels="imagenet").identity
    assert first != VerificationTask(faces.split(0.5)[0]).identity


def test_figures_of_detection_are_not_those_of_labels_drawn_on_another_form(tmp_path):
    (tmp_path / "classes.txt").write_text("cat\n")
    (tmp_path / "val.txt").write_text("a.jpg\n")
    (tmp_path / "a.jpg").write_bytes(b"")
    tasks = [DetectionTask(YoloData(tmp_path, exif=exif)) for exif in (None, "shown", "stored")]
    assert [task.identity.get("exif") for task in tasks] == [None, "shown", "stored"]


def test_detection_gives_the_figures_of_evaluate(monkeypatch):
    assert DetectionTask is _Detection
    seen: dict[str, object] = {}

    class Detector:
        def __init__(self, engine, names, mode):
            seen.update(engine=engine, names=names, mode=mode)

    class Found:
        map50, map = 0.5, 0.25

    def evaluate(detector, data, split, limit):
        seen.update(data=data, split=split, limit=limit)
        return Found

    from pytrtplugins.mlops.tables import tasks

    monkeypatch.setattr(tasks, "Yolov2", Detector)
    monkeypatch.setattr(tasks, "evaluate", evaluate)
    task = DetectionTask("data", names=("cat",), mode="stretch", limit=7)
    assert task.measure("engine", None) == ({"map50": 0.5, "map": 0.25}, None)
    assert seen == {
        "engine": "engine", "names": ["cat"], "mode": "stretch", "data": "data", "split": "val.txt", "limit": 7
    }  # fmt: skip


def test_the_best_and_the_best_five_of_seven_classes_are_counted_by_rank(monkeypatch):
    """Image i has its class at rank i + 1; the first engine told the best class of four images as this one does."""
    names = tuple("abcdefg")
    scores = np.zeros((7, 7), np.float32)
    for image in range(7):
        order = [(image + 1 + other) % 7 for other in range(6)]
        order.insert(image, image)
        scores[image, order] = np.arange(7, 0, -1)
    monkeypatch.setattr(ClassificationTask, "_outputs", lambda *given: scores)
    task = ClassificationTask(SimpleNamespace(labels=names, numbers=np.arange(7)))
    figures, best = task.measure(None, None)
    assert figures == {"top1": 1 / 7, "top5": 5 / 7, "same": 1.0}
    other = [place if number < 4 else -1 for number, place in enumerate(best)]
    assert task.measure(None, other)[0]["same"] == pytest.approx(4 / 7)
