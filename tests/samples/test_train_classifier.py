"""The classifier's program on the CPU: a few steps on photos of three colours, and what they leave."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason='training needs torch (pip install "pytrtplugins[train]")')

import train_classifier
from classifier_training.data import Classes, Drawn, open_classes
from classifier_training.model import Classifier, build_network, load_model
from classifier_training.recipe import Recipe
from classifier_training.run import top_shares
from classifier_training.task import Classification, Student, crop, middle

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import make_shards
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import draw_set
from tests.samples.torchvision_networks import require_torchvision
from training.curve import read_log
from training.data import load_photos, open_data
from training.settings import Settings

pytestmark = [pytest.mark.usefixtures("one_thread", "no_figure"), WITHOUT_RANKS]
CPU = torch.device("cpu")
COLOURS = ("blue", "green", "red")
NETWORK = """
from torch import nn

def small(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    )

def deep(classes):
    return nn.Conv2d(3, classes, 33)

def map(classes):
    return nn.Conv2d(3, classes, 1)
"""


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of noise in three colours, 12 of each, and a network in a file."""
    folder, rng = tmp_path_factory.mktemp("colours"), np.random.default_rng(0)
    for number, name in enumerate(COLOURS):
        (folder / "photos" / name).mkdir(parents=True)
        for photo in range(12):
            pixels = rng.integers(0, 120, (30, 40, 3)).astype(np.uint8)
            pixels[..., 2 - number] += 100
            Image.fromarray(pixels).save(folder / "photos" / name / f"{photo}.png")
    (folder / "networks.py").write_text(NETWORK)
    return folder


def line(colours: Path, out: Path, *more: str) -> list[str]:
    given = ["--data", str(colours / "photos"), "--model", f"{colours}/networks.py:small", "--device", "cpu"]
    return [*given, "--size", "32", "--batch", "12", "--learning-rate", "0.5", "--output", str(out), *more]


@pytest.fixture(scope="module")
def trained(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    out = tmp_path_factory.mktemp("run") / "out"
    options = line(colours, out, "--steps", "24", "--ema", "0.9", "--hold-back", "0.25", "--evaluations", "2")
    assert train_classifier.main(options) == 0
    return out


def test_it_learns_and_writes_what_it_says(trained: Path) -> None:
    rows = read_log(trained / "log.csv")
    assert rows[-1]["top1"] == 1.0
    assert rows[-1]["top5"] == 1.0
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert (trained / "model.names").read_text() == "blue\ngreen\nred\n"
    assert (trained / "curve.png").stat().st_size > 5000


def test_the_onnx_file_gives_the_logits_of_the_averaged_network(trained: Path, colours: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = load_model(trained / "model.pt")
    assert (model.classes, model.size) == (COLOURS, 32)
    photos = load_photos(open_classes([str(colours / "photos")]), CPU, side=48)
    images = middle(photos.pixels.permute(0, 3, 1, 2), photos.size, 32)
    session = onnxruntime.InferenceSession(trained / "model.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(logits), model.network(images), rtol=1e-4, atol=1e-4)
    assert (logits.argmax(1) == photos.boxes[:, 0, 0].numpy()).mean() == 1.0


def test_photos_are_measured_by_the_names_of_their_classes(
    trained: Path, colours: Path, tmp_path: Path, capsys
) -> None:
    for name in ("red", "blue"):  # whose numbers are other ones without green
        (tmp_path / "some" / name).mkdir(parents=True)
        for photo in range(3):
            (tmp_path / "some" / name / f"{photo}.png").symlink_to(colours / "photos" / name / f"{photo}.png")
    query = ["--evaluate", "all", "--start", str(trained / "model.pt"), "--device", "cpu"]
    query += ["--data", str(tmp_path / "some")]
    assert train_classifier.main(query) == 0
    assert capsys.readouterr().out == "6 photos of 2 classes: top-1 1.0000, top-5 1.0000\n"
    (tmp_path / "some/red").rename(tmp_path / "some/rosy")
    assert train_classifier.main(query) == 1
    assert "the model does not know the classes rosy; it has blue, green, red" in capsys.readouterr().err


def test_a_run_that_stops_and_continues_gives_the_bits_of_one_that_does_not(colours: Path, tmp_path: Path) -> None:
    options = ["--steps", "3", "--mixup", "0.4"]
    assert train_classifier.main(line(colours, tmp_path / "whole", *options)) == 0
    for _ in range(3):
        assert train_classifier.main(line(colours, tmp_path / "parts", *options, "--seconds", "0", "--resume")) == 0
    for file in ("model.pt", "model.onnx"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_ranks_with_parts_of_the_weights_train_the_same_network(colours: Path, tmp_path: Path, monkeypatch) -> None:
    """One rank, which shards its weights nevertheless."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, more in (("parts", ("--gpus", "1", "--variable_update", "parameter_server")), ("whole", ())):
        assert train_classifier.main(line(colours, tmp_path / name, "--steps", "2", *more)) == 0
    models = [load_model(tmp_path / name / "model.pt").network.state_dict() for name in ("parts", "whole")]
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)


def test_another_run_begins_with_a_model(trained: Path, colours: Path, tmp_path: Path, capsys) -> None:
    start = ["--start", str(trained / "model.pt"), "--steps", "1", "--hold-back", "0.25", "--learning-rate", "1e-9"]
    assert train_classifier.main(line(colours, tmp_path / "out", *start)) == 0
    assert read_log(tmp_path / "out/log.csv")[-1]["top1"] == 1.0
    assert train_classifier.main(["--data", "synthetic", *line(colours, tmp_path / "no", *start)[2:]]) == 1
    assert f"--start {trained}/model.pt: another network, or other classes" in capsys.readouterr().err


REFUSED = {
    "no function": (["--model", "{set}/networks.py:large"], "networks.py has no function large"),
    "no file": (["--model", "{set}/none.py:small"], "none.py is no Python file"),
    "small images": (["--model", "{set}/networks.py:deep"], "it takes no images of 32 x 32 pixels: .*Kernel size"),
    "output": (["--model", "{set}/networks.py:map"], r"its output for 2 images is \(2, 3, 32, 32\), expected \(2, 3\)"),
    "one class": (["--data", "{set}/one"], "0 photos of one class|1 classes"),
    "no photos": (["--data", "{set}/photos/red"], "it lies in no folder that names its class"),
    "start": (["--start", "{set}/networks.py"], "not a file of tensors, or damaged"),
    "no start": (["--evaluate", "all"], "--evaluate needs a model"),
    "size": (["--batch", "7", "--accumulate", "2"], "--batch 7: 1 rank with --accumulate 2 cannot split it equally"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_said_at_the_start(colours: Path, tmp_path: Path, capsys, case: str) -> None:
    (colours / "one/red").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(colours / "one/red/0.png")
    more, cause = REFUSED[case]
    options = line(colours, tmp_path / "out", "--steps", "2", *(part.replace("{set}", str(colours)) for part in more))
    assert train_classifier.main(options) == 1
    printed = capsys.readouterr()
    assert re.search(cause, printed.err)
    assert "\nDo: " in printed.err
    assert not (tmp_path / "out").exists()


def test_shards_of_folders_give_the_same_photos(colours: Path, tmp_path: Path) -> None:
    make_shards(colours / "photos", tmp_path / "shards", labels="folders", progress=False)
    places = [open_classes([str(place)]) for place in (colours / "photos", tmp_path / "shards")]
    assert places[0].classes == places[1].classes == COLOURS
    photos = [load_photos(place, CPU, side=48) for place in places]
    assert torch.equal(photos[0].pixels, photos[1].pixels)
    assert torch.equal(photos[0].boxes, photos[1].boxes)


def test_photos_with_boxes_of_one_class_count(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set", 6)
    (folder / "labels/0.txt").write_text("0 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.2 0.2\n")  # of two classes
    (folder / "labels/1.txt").write_text("")
    (folder / "labels/2.txt").write_text("1 0.5 0.5 0.2 0.2\n1 0.2 0.2 0.2 0.2\n")
    photos = Classes(open_data([folder], "all"))
    assert [photos.boxes(number).tolist() for number in range(len(photos))] == [
        [[kind, 0.5, 0.5, 1.0, 1.0]] for kind in (1, 1, 0, 1)
    ]
    assert photos.read(0).key == "images/2.png"
    assert photos.changed["photos with no class or several, left out"] == 2
    with pytest.raises(NoDataError, match="0 photos of one class"):
        Classes(_nothing())


def _nothing():
    class Nothing:
        classes = ("a", "b")

        def __len__(self) -> int:
            return 0

    return Nothing()


def test_drawn_photos_are_the_same_each_time() -> None:
    one, two = Drawn(), Drawn()
    assert one.read(5).image == two.read(5).image != one.read(6).image
    assert [int(one.boxes(number)[0, 0]) for number in (0, 999, 1000)] == [0, 999, 0]


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_crop_of_whole_pixels_is_these_pixels(mirrored: bool) -> None:
    pixels = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    sizes = torch.tensor([[48.0, 48.0], [40.0, 30.0]])
    begin, extent = torch.tensor([[5.0, 7.0], [8.0, 2.0]]), torch.tensor([[16.0, 16.0], [16.0, 16.0]])
    if mirrored:
        begin, extent = begin + extent * torch.tensor([1.0, 0.0]), extent * torch.tensor([-1.0, 1.0])
    images = crop(pixels, sizes, begin, extent, 16)
    expected = torch.stack([pixels[0, :, 7:23, 5:21], pixels[1, :, 2:18, 8:24]]) / 255
    torch.testing.assert_close(images, expected.flip(3) if mirrored else expected, rtol=0, atol=1e-5)


def test_the_middle_is_that_of_the_photo_and_not_of_its_square() -> None:
    pixels = torch.full((1, 3, 48, 48), 127, dtype=torch.uint8)
    pixels[0, :, :32, :48] = 0
    pixels[0, 0, 2:30, 10:38] = 255  # 28 pixels, 0.875 of 32
    image = middle(pixels, torch.tensor([[48.0, 32.0]]), 28)
    torch.testing.assert_close(image[0], torch.tensor([1.0, 0, 0]).view(3, 1, 1).expand(3, 28, 28), rtol=0, atol=1e-5)


def test_crops_have_the_shares_and_the_sides_that_the_recipe_says(colours: Path) -> None:
    """An image of its own coordinates says which rectangle was drawn."""
    side, count = 64, 400
    row = torch.arange(side, dtype=torch.float32).expand(side, side) * 4
    pixels = torch.stack([row, row.T, row]).byte().expand(count, 3, side, side)
    task = Classification(f"{colours}/networks.py:small", Recipe(size=32, smallest_crop=0.25), COLOURS, Settings(), CPU)
    torch.manual_seed(0)
    images, kinds, others, share = task.draw(
        (shape := type("S", (), {"images": count, "size": 32})),
        pixels,
        torch.full((count, 2), 64.0),
        torch.zeros(count).long(),
    )
    assert shape.images == len(images)
    assert torch.equal(kinds, others)
    assert share.eq(1).all()
    across, down = (
        (images[:, 0, 16, [0, -1]] * 255 / 4).diff(dim=1)[:, 0],
        (images[:, 1, [0, -1], 16] * 255 / 4).diff(dim=1)[:, 0],
    )
    width, height = across.abs() * 32 / 31, down * 32 / 31
    assert 0.4 < (across < 0).float().mean() < 0.6  # mirrored
    assert (down > 0).all()  # never upside down
    area = width * height / side**2
    assert 0.2 < area.min() < 0.3
    assert 0.85 < area.max() < 1.05
    assert 0.70 < (width / height).min() < 0.85 < 1.15 < (width / height).max() < 1.4


def test_the_loss_is_that_of_both_images_that_are_blended() -> None:
    network = Classifier(torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 4)))
    student, images = Student(network, smoothing=0.1), torch.rand(5, 3, 4, 4)
    kinds, others, share = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 1, 0, 2, 3]), torch.rand(5)
    loss, figures = student(images, kinds, others, share)
    with torch.no_grad():
        logs = network(images).double().log_softmax(1)
    wanted = 0.0
    for row in range(5):
        for kind, part in ((kinds[row], share[row]), (others[row], 1 - share[row])):
            wanted -= float(part) * (0.9 * logs[row, kind] + 0.1 * logs[row].mean()).item() / 5
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    assert figures[0].item() == loss.item()
    assert figures[1].item() == (logs.argmax(1) == kinds).float().mean().item()


def test_top_shares_count_ties_for_the_photo_and_ranks_as_sorting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits, kinds = torch.randn(300, 12), torch.randint(0, 12, (300,))
    given = iter(logits.split(128))

    class Known:
        size = 8

        @staticmethod
        def network(images):
            return next(given)

    class Photos:
        pixels, size = torch.zeros(300, 8, 8, 3, dtype=torch.uint8), torch.full((300, 2), 8.0)
        boxes = kinds[:, None, None].float().expand(-1, 1, 5)

    order = np.argsort(-logits.numpy(), 1)
    expected = [(order[:, :most] == kinds.numpy()[:, None]).any(1).mean() for most in (1, 5)]
    assert top_shares(Known, Photos) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "mobilenet_v3_small", "inception_v3"])
def test_networks_of_torchvision_are_trained(name: str) -> None:
    require_torchvision()
    size = 299 if name == "inception_v3" else 64
    task = Classification(name, Recipe(size=size), ("a", "b", "c"), Settings(), CPU)
    task.module.train()
    kinds = torch.tensor([0, 1])
    loss, _ = task.module(torch.rand(2, 3, size, size), kinds, kinds, torch.ones(2))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad is not None for parameter in task.module.parameters())
    outputs = task.module.network.eval()(torch.rand(1, 3, size, size))
    assert outputs.shape == (1, 3)


def test_a_network_that_torchvision_lacks_is_named() -> None:
    require_torchvision()
    with pytest.raises(UsageError, match=r"--model resnet51: torchvision has no such network\.\nDo: give resnet101"):
        build_network("resnet51", 10)


def test_a_model_of_other_weights_is_refused(trained: Path, tmp_path: Path) -> None:
    content = torch.load(trained / "model.pt", weights_only=True)
    content["classes"] = ["a"]
    torch.save(content, tmp_path / "wrong.pt")
    with pytest.raises(FormatError, match="its weights are not those of"):
        load_model(tmp_path / "wrong.pt")
    torch.save({"model": "resnet18"}, tmp_path / "other.pt")
    with pytest.raises(FormatError, match=r"other\.pt: not a model of this sample"):
        load_model(tmp_path / "other.pt")


def test_the_defaults_of_the_recipe_are_those_of_its_page() -> None:
    assert Recipe().to_dict() == {
        "steps": 10_000, "batch": 256, "learning_rate": 0.1, "weight_decay": 5e-5, "ema": 0.999, "smoothing": 0.1, "seed": 0,
        "size": 224, "momentum": 0.9, "mixup": 0.0, "smallest_crop": 0.08,
    }  # fmt: skip
    assert [Recipe(size=size).side for size in (32, 224, 299)] == [48, 336, 456]
