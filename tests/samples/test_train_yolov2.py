"""The training sample on the CPU: a few steps on generated images of rectangles."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import io
import json
import re
import shutil
import struct
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')
sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))

import train_yolov2

from darknet2caffe import read_network
from pytrtplugins.errors import ExecutionError, FormatError, ImageError, NoDataError, UsageError, WeightsError
from pytrtplugins.shards import make_shards
from training import augment
from training import loop as engine
from training.batch import Pool
from training.checkpoint import Checkpoints
from training.loader import make_loader
from training.ranks import Ranks
from training.sampler import StepSampler
from training.schedule import Schedule
from training.settings import Settings
from yolov2_training import data, evaluate, export, loss, model, network, recipe, task, teacher

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
ALONE = Ranks(0, 1, torch.device("cpu"), False)
SMALL = {"stages": (4, 4, 8, 8, 8, 8), "head": 8, "passthrough": 4}
CLASSES = ("red", "green")
ANCHORS = torch.tensor([[0.5, 0.5], [1.0, 1.0], [1.5, 1.0], [1.0, 2.0], [2.5, 2.5]])
TINY = ("--batch", "4", "--sizes", "64", "--stages", "4,4,8,8,8,8", "--head", "8", "--passthrough", "4")


def draw_set(folder: Path, count: int = 10) -> Path:
    """Images with one coloured rectangle each, in the YOLO layout."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    names = []
    for i in range(count):
        pixels, kind = np.full((48, 64, 3), 90, np.uint8), i % 2
        (x, y), (w, h) = rng.integers(0, 24, 2), rng.integers(12, 24, 2)
        pixels[y : y + h, x : x + w, kind] = 250
        Image.fromarray(pixels).save(folder / f"images/{i}.png")
        (folder / f"labels/{i}.txt").write_text(
            f"{kind} {(x + w / 2) / 64} {(y + h / 2) / 48} {w / 64} {h / 48}\n",
        )
        names.append(f"images/{i}.png")
    (folder / "classes.txt").write_text("red\ngreen\n")
    (folder / "train.txt").write_text("\n".join(names))
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of PyTorch cost more than they give for networks as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rectangles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_set(tmp_path_factory.mktemp("set") / "rectangles")


def load(folder: Path) -> Pool:
    return data.load_photos(data.open_data([folder], "train.txt"), torch.device("cpu"), side=64)


def make_loop(folder: Path, settings: recipe.Recipe, *, begin: int = 0, **given) -> engine.Loop:
    """The engine with this sample's task and a resident loader."""
    photos = data.open_data([folder], "train.txt")
    how = Settings(**{key: given.pop(key) for key in list(given) if key in Settings.__dataclass_fields__})
    anchors = given["start"].anchors if "start" in given else data.kmeans_anchors(data.box_shapes(photos))
    what = task.Detection(settings, CLASSES, anchors, how, ALONE.device, **given)
    sampler = StepSampler(len(photos), settings.batch, seed=settings.seed)
    loader = make_loader("resident", photos, sampler, ALONE.device, size=64, start=begin, stop=settings.steps)
    what.draw_from(loader.pool, lambda number: photos.read(number).key)
    schedule = Schedule(settings.steps, settings.learning_rate)
    adam: tuple[type, dict] = (torch.optim.AdamW, {})
    return engine.Loop(what, loader, how, ALONE, schedule, optimizer=adam, seed=settings.seed, decay=settings.ema)


def tiny_network(classes: int = 6) -> network.Yolov2:
    """Random weights with fitting batch norm statistics; one channel a layer varies so little that epsilon matters."""
    torch.manual_seed(3)
    net = network.Yolov2(network.declare_layers((4, 8, 8, 8, 16, 16), 16, 4, classes)).train()
    for convolution, norm in net.convolutions():
        if norm is not None:
            convolution.weight.data[0] *= 2e-3
            norm.momentum = 1.0
            norm.weight.data.uniform_(0.5, 1.5)
            norm.bias.data.uniform_(-0.5, 0.5)
    torch.nn.init.normal_(net.parts[-1].weight, std=0.2)
    with torch.no_grad():
        net(torch.rand(8, 3, 96, 96))
    return net.eval()


def test_folder_tar_and_shards_give_the_same_images(rectangles: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(rectangles, arcname=".")
    make_shards(rectangles, tmp_path / "shards", progress=False)
    found = []
    for place in (rectangles, tmp_path / "set.tar", tmp_path / "shards"):
        opened = data.open_data([place], "train.txt")
        found.append({Path(each.key).stem: each for each in map(opened.read, range(len(opened)))})
    for other in found[1:]:
        assert sorted(other) == sorted(found[0])
        for key, example in other.items():
            assert example.image == found[0][key].image
            np.testing.assert_allclose(example.boxes, found[0][key].boxes, rtol=0, atol=1e-6)
    sets = [data.open_data([path], "train.txt") for path in (rectangles, tmp_path / "shards")]
    assert [found.classes for found in sets] == [CLASSES, CLASSES]
    anchors = [data.kmeans_anchors(data.box_shapes(found)) for found in sets]
    torch.testing.assert_close(*anchors, rtol=0, atol=1e-4)


def test_missing_and_unreadable_data_are_named(rectangles: Path, tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="nowhere"):
        data.open_data([tmp_path / "nowhere"], "train.txt")
    with pytest.raises(NoDataError, match=r"val\.txt is missing"):
        data.open_data([rectangles], "val.txt")
    broken = draw_set(tmp_path / "broken", 2)
    (broken / "images/1.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"images/1\.png"):
        load(broken)
    with pytest.raises(NoDataError, match="2 boxes, too few for 5 anchors"):
        data.kmeans_anchors(np.ones((2, 2), np.float32))
    (broken / "labels/0.txt").write_text("7 0.5 0.5 0.1 0.1\n")
    with pytest.raises(FormatError, match=r"unknown class 7") as caught:
        data.open_data([broken], "all")
    assert "\nDo: repair" in str(caught.value)
    (broken / "train.txt").write_text("images/9.png\n")
    with pytest.raises(FormatError, match=r"images/9\.png: the list names it"):
        data.open_data([broken], "train.txt")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/shards.json").touch()
    with pytest.raises(UsageError, match=r"shards have no list 'val\.txt'"):
        data.open_data([tmp_path / "shards"], "val.txt")


def test_held_back_images_are_the_same_each_time_and_never_trained_on() -> None:
    kept, held = data.hold_back(100, 0.12)
    assert len(held) == 12
    assert sorted(kept + held) == list(range(100))
    assert (kept, held) == data.hold_back(100, 0.12)


def test_boxes_are_cut_at_the_borders_of_their_photo(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set", 2)
    (folder / "labels/0.txt").write_text("1 0.0 0.5 0.5 0.25\n")
    (example,) = (each for each in map(data.open_data([folder], "all").read, range(2)) if "0.png" in each.key)
    np.testing.assert_allclose(example.boxes, [[1, 0.125, 0.5, 0.25, 0.25]])


def test_augmented_boxes_lie_on_their_rectangles(rectangles: Path) -> None:
    """Without colours and holes, the drawn rectangle is where the planned box says."""
    images = load(rectangles)
    augmenter = augment.Augmenter(images)
    torch.manual_seed(0)
    plan, truth, valid = augmenter.plan(16, 128, 0.5, (0.7, 1.3))
    colour = torch.cat([torch.eye(3), torch.zeros(3, 1)], 1).expand(16, 3, 4)
    inputs = augment.render(augmenter.pixels, plan._replace(colour=colour, holes=torch.zeros(16, 4, 4)), 128)
    checked = 0
    for image, boxes, good in zip(inputs, truth, valid, strict=True):
        for x1, y1, x2, y2, kind in boxes[good].tolist():
            left, top, right, bottom = (round(value * augment.STRIDE) for value in (x1, y1, x2, y2))
            inside = image[int(kind), top + 2 : bottom - 2, left + 2 : right - 2]
            if inside.numel():
                assert inside.mean() > 0.9
                checked += 1
    assert checked > 10


def test_balance_draws_rare_classes_more_often(rectangles: Path) -> None:
    images = load(rectangles)
    images.boxes[1:, :, 0] = 0.0
    images.boxes[0, :, 0] = 1.0
    shares = [augment._shares(images, balance) for balance in (0.0, 0.5, 1.0)]
    torch.testing.assert_close(shares[0], torch.full((10,), 0.1))
    assert shares[0][0] < shares[1][0] < shares[2][0]
    torch.testing.assert_close(shares[2][0], torch.tensor(0.5))


def test_every_box_teaches_its_best_predictions() -> None:
    torch.manual_seed(1)
    truth = torch.tensor([[[0.4, 0.6, 1.9, 2.4, 1.0], [2.1, 1.2, 3.8, 3.1, 0.0], [0.0, 0.0, 4.0, 4.0, 1.0]]])
    found = loss.decode(torch.randn(1, 35, 4, 4) * 0.3, ANCHORS)
    owner, target = loss._assign(found, truth, torch.tensor([[True, True, False]]))
    assert 0 < (target > 0).sum() <= 2 * loss.ALIGNED
    assert set(owner[target > 0].tolist()) == {0, 1}
    for i in (0, 1):
        overlap = loss.iou(found.boxes[0, owner[0] == i], truth[0, i, :4])
        assert target[0, owner[0] == i].max() <= overlap.max() + 1e-6


def test_loss_gradient_is_the_difference_quotient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets count as constants, so they are held fixed."""
    torch.manual_seed(1)
    out = torch.randn(1, 35, 4, 4) * 0.3
    truth = torch.tensor([[[0.4, 0.6, 1.9, 2.4, 1.0], [2.1, 1.2, 3.8, 3.1, 0.0]]])
    valid = torch.tensor([[True, True]])
    fixed = loss._assign(loss.decode(out, ANCHORS), truth, valid)
    monkeypatch.setattr(loss, "_assign", lambda *_: fixed)
    leaf = out.clone().requires_grad_()
    loss.region_loss(leaf, truth, valid, ANCHORS, 0.05)[0].backward()
    for part in (slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 7)):
        direction = torch.zeros_like(out)
        direction.view(5, 7, 16)[:, part] = leaf.grad.view(5, 7, 16)[:, part]
        direction /= direction.norm()
        up, down = (
            loss.region_loss(out + sign * 1e-2 * direction, truth, valid, ANCHORS, 0.05)[0].item() for sign in (1, -1)
        )
        assert (up - down) / 2e-2 == pytest.approx((leaf.grad * direction).sum().item(), rel=0.1)


def test_images_without_boxes_teach_only_objectness() -> None:
    out = torch.zeros(2, 35, 4, 4, requires_grad=True)
    total, parts = loss.region_loss(out, torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.bool), ANCHORS)
    total.backward()
    gradient = out.grad.view(2, 5, 7, 4, 4)
    assert parts[0] == parts[2] == 0
    assert (gradient[:, :, 4] > 0).all()
    assert not gradient[:, :, [0, 1, 2, 3, 5, 6]].any()


def test_average_precision_of_a_perfect_and_a_blind_network(rectangles: Path) -> None:
    images = load(rectangles)
    inputs = data.letterbox_images(images, 64)

    class Oracle(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x):
            out = torch.full((len(x), 5, 7, 2, 2), -20.0)
            centre = images.boxes[:, 0, [1, 2]] / 2 + images.boxes[:, 0, [3, 4]] / 2 + torch.tensor([0.0, 8.0])
            wh = images.boxes[:, 0, [3, 4]] - images.boxes[:, 0, [1, 2]]
            for i, ((cx, cy), size) in enumerate(zip(centre.tolist(), wh, strict=True)):
                column, row = int(cx / 32), int(cy / 32)
                inner = torch.tensor([cx / 32 - column, cy / 32 - row]).clamp(1e-4, 1 - 1e-4)
                out[i, 0, :2, row, column] = torch.logit(inner)
                out[i, 0, 2:4, row, column] = torch.log(size / 32 / ANCHORS[0])
                out[i, 0, 4, row, column] = 5.0
                out[i, 0, 5 + int(images.boxes[i, 0, 0]), row, column] = 5.0
            return out.flatten(1, 2)

    assert evaluate.average_precision(Oracle(), inputs, images, ANCHORS, 2) == [1.0, 1.0]
    blind = network.Yolov2(network.declare_layers((4,) * 6, 4, 4, 2)).eval()
    assert max(evaluate.average_precision(blind, inputs, images, ANCHORS, 2)) < 0.2


@pytest.mark.parametrize("given", [{}, {"accumulate": 2, "data_format": "NCHW"}], ids=["whole", "parts"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(rectangles: Path, tmp_path: Path, given) -> None:
    settings = recipe.Recipe(steps=6, batch=4, sizes=(64, 96), **SMALL, dropout=0.3)
    whole, first = (make_loop(rectangles, settings, **given) for _ in range(2))
    for _ in range(6):
        whole.advance()
    for _ in range(3):
        first.advance()
    checkpoints = Checkpoints(tmp_path, ALONE)
    first.save(checkpoints, {})
    assert checkpoints.wait()
    second = make_loop(rectangles, settings, begin=3, **given)
    torch.manual_seed(99)
    second.resume(checkpoints, *checkpoints.newest())
    for _ in range(3):
        second.advance()
    ends = second.average.full()
    for name, tensor in whole.average.full().items():
        assert torch.equal(tensor, ends[name]), name
    assert torch.equal(whole.measured, second.measured)


def test_a_loss_that_is_no_number_names_the_photos_that_were_drawn(rectangles: Path) -> None:
    """Photo 3 of the pool makes it so; the first step that draws it is told by the names that the error has."""
    settings = recipe.Recipe(steps=50, batch=2, sizes=(64,), **SMALL, mosaic=0.0, mixup=0.0)
    loop = make_loop(rectangles, settings)
    draw, names = loop.task.draw, []

    def spoilt(batch, step):
        images, *rest = draw(batch, step)
        loop._sow(step)
        names.append(loop.task.drawn(batch.keys, step))
        return (images * float("nan") if "images/3.png" in names[-1] else images), *rest

    loop.task.draw = spoilt
    with pytest.raises(ExecutionError, match=r"the loss is not a finite number; photos: .*images/3\.png") as caught:
        loop.run(seconds=60, look=lambda: None, save=lambda: None)
    assert caught.value.step == len(names) - 1
    assert caught.value.keys == tuple(names[-1])
    assert 1 <= len(names[-1]) <= 2


def test_the_full_size_network_is_darknets_yolov2_voc(tmp_path: Path) -> None:
    """Its sections, but for the numbers of training, are those of the .cfg that darknet has."""
    cfg = Path("/usr/share/darknet/cfg/yolov2-voc.cfg")
    if not cfg.is_file():
        pytest.skip("darknet's yolov2-voc.cfg is not installed (Debian's package darknet)")
    wide = recipe.Recipe(**recipe.NETWORKS["voc"])
    layers = network.declare_layers(wide.stages, wide.head, wide.passthrough, 20)
    export.write_cfg(tmp_path / "ours.cfg", layers, ANCHORS, 20)
    ours, theirs = (read_network(path) for path in (tmp_path / "ours.cfg", cfg))
    assert [(type(layer), layer.dims) for layer in ours.layers] == [
        (type(layer), layer.dims) for layer in theirs.layers
    ]
    numbers = sum(t.numel() for pair in network.Yolov2(layers).convolutions() for t in export._arrays(*pair))
    assert numbers == 50_676_061  # of yolov2-voc.weights, without its header
    options = train_yolov2.parse(["--data", "x", "--network", "voc", "--head", "512"])
    assert (options.stages, options.head, options.passthrough) == (wide.stages, 512, 64)


def test_the_loss_leads_to_the_boxes(rectangles: Path) -> None:
    """A network that minimizes the loss of ten images finds their rectangles."""
    images, anchors = (
        load(rectangles),
        data.kmeans_anchors(data.box_shapes(data.open_data([rectangles], "train.txt")), cells=2),
    )
    inputs, boxes = data.letterbox_images(images, 64), images.boxes.clone()
    boxes[..., [2, 4]] += 8  # 48 of 64 rows are image
    truth, valid = torch.cat([boxes[..., 1:] / augment.STRIDE, boxes[..., :1]], -1), boxes[..., 0] >= 0
    torch.manual_seed(0)
    net = network.Yolov2(network.declare_layers((8, 8, 16, 16, 16, 16), 32, 8, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        loss.region_loss(net(inputs), truth, valid, anchors)[0].backward()
        optimizer.step()
    for _, norm in net.convolutions():
        if norm is not None:
            norm.momentum = 1.0
    with torch.no_grad():
        net(inputs)
    found = evaluate.average_precision(net.eval(), inputs, images, anchors, 2)
    assert sum(found) / 2 > 0.8


def test_the_command_line_trains_resumes_exports_and_evaluates(
    rectangles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--data", str(rectangles), "--out", str(tmp_path), "--steps", "4", "--hold-back", "0.2", *TINY]
    line += ["--device", "cpu", "--evaluations", "2"]
    assert train_yolov2.main([*line, "--seconds", "0"]) == 0
    assert "stopped at step 1 of 4 after --seconds" in capsys.readouterr().out
    assert train_yolov2.main(line) == 1
    assert "a run of 1 steps is there.\nDo: add --resume" in capsys.readouterr().err
    assert train_yolov2.main([*line, "--resume", "--mixup", "0.5"]) == 1
    assert "made with another recipe: --mixup 0.4 (now 0.5)" in capsys.readouterr().err
    assert train_yolov2.main([*line, "--resume", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert "the schedule is done" in printed
    assert re.search(r"\d+ images/s, [\d.]+ ms a step, data_time [\d.]+ ms \([\d.]+%\)", printed)
    names = (
        "model.cfg",
        "model.weights",
        "model.names",
        "model.pt",
        "curve.png",
        "log.csv",
        "trace.json",
        "stages.png",
    )
    for name in names:
        assert (tmp_path / name).stat().st_size > 0
    assert struct.unpack("<iiiQ", (tmp_path / "model.weights").read_bytes()[:20]) == (0, 2, 0, 16)
    assert (tmp_path / "model.names").read_text() == "red\ngreen\n"
    query = ["--data", str(rectangles), "--device", "cpu", "--model", str(tmp_path / "model.pt")]
    assert train_yolov2.main([*query, "--evaluate", "train.txt"]) == 0
    assert capsys.readouterr().out.startswith("mAP50: ")
    assert train_yolov2.main(["--data", str(tmp_path / "none")]) == 1
    assert "NoDataError" in capsys.readouterr().err


@pytest.mark.parametrize("loader", ["spdl-cpu", "dataloader"])
def test_a_run_with_photos_that_are_loaded_beside_it(
    rectangles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], loader: str
) -> None:
    """A photo that does not decode ends it, or is replaced; the trace has the stages."""
    pytest.importorskip("spdl.pipeline", reason='this loader needs spdl-core (pip install "pytrtplugins[train]")')
    folder = tmp_path / "set"
    shutil.copytree(rectangles, folder)
    broken = folder / "images/3.png"
    broken.write_bytes(broken.read_bytes()[:-60])  # its head is whole
    line = ["--data", str(folder), "--steps", "4", *TINY, "--device", "cpu", "--loader", loader, "--workers", "0"]
    assert train_yolov2.main([*line, "--out", str(tmp_path / "stopped")]) == 1
    assert "images/3.png does not decode" in capsys.readouterr().err
    assert train_yolov2.main([*line, "--out", str(tmp_path / "out"), "--skip-bad", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert "1 photos did not decode, and others took their place. One of them: images/3.png" in printed
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    assert {"read", "decode", "staging", "data_time", "step"} <= {event["name"] for event in events}
    assert (tmp_path / "out/stages.png").stat().st_size > 0
    assert ("num_workers=0" in printed) == (loader == "dataloader")


def test_libdarknet_computes_what_pytorch_computes(libdarknet, tmp_path: Path) -> None:
    net = tiny_network()
    export.write_darknet(tmp_path / "net-1.1", net, ANCHORS, "abcdef", seen=640)
    export.write_cfg(tmp_path / "net-1.1.cfg", net.layers, ANCHORS, 6, size=96)
    x = np.random.default_rng(0).random((1, 3, 96, 96), dtype=np.float32)
    with libdarknet.load(tmp_path / "net-1.1.cfg", tmp_path / "net-1.1.weights") as network:
        found = network.predict(x[0]).reshape(5, 11, 3, 3)
    with torch.no_grad():
        raw = net(torch.from_numpy(x)).view(5, 11, 3, 3)
    expected = torch.cat([raw[:, :2].sigmoid(), raw[:, 2:4], raw[:, 4:5].sigmoid(), raw[:, 5:].softmax(1)], 1)
    assert expected[:, 5:].std() > 0.01
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-4)


def write_teacher(path: Path) -> None:
    """A two-headed darknet network with every layer type that a teacher may have."""
    normal = "[convolutional]\nfilters={}\nsize={}\nstride={}\npad=1\nbatch_normalize=1\nactivation=leaky\ngroups={}\n"
    last = "[convolutional]\nfilters=21\nsize=1\nstride=1\npad=1\nactivation=linear\n[yolo]\nmask=0,1,2\n"
    text = "[net]\nwidth=64\n" + normal.format(4, 3, 2, 1) + normal.format(4, 3, 2, 4)
    text += "[maxpool]\nsize=3\nstride=1\n" + normal.format(8, 1, 2, 1) + normal.format(8, 3, 2, 2)
    text += normal.format(8, 3, 1, 8) + "[dropout]\n[shortcut]\nfrom=-3\nactivation=linear\n"
    text += normal.format(8, 3, 2, 1) + last + "[route]\nlayers=-3\n[upsample]\nstride=2\n[route]\nlayers=-1,7\n" + last
    path.write_text(text)
    rng, shapes = np.random.default_rng(0), []
    for filters, weights, normed in (
        *((4, 4 * 27, 1), (4, 4 * 9, 1), (8, 8 * 4, 1), (8, 8 * 4 * 9, 1), (8, 8 * 9, 1), (8, 8 * 8 * 9, 1)),
        *((21, 21 * 8, 0), (21, 21 * 16, 0)),
    ):
        shapes += [rng.random(filters * (4 if normed else 1)), rng.standard_normal(weights)]
    body = np.concatenate(shapes).astype("<f4").tobytes()
    path.with_suffix(".weights").write_bytes(struct.pack("<iiiQ", 0, 2, 5, 0) + body)


def test_a_teacher_is_imitated_better_after_some_steps(
    rectangles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MEMORY", 0.8)
    write_teacher(tmp_path / "teacher-1.1.cfg")
    guide = teacher.Teacher(tmp_path / "teacher-1.1.cfg")
    coarse, fine = guide(torch.rand(2, 3, 64, 64))
    assert [t.shape[1:] for t in (*coarse, *fine)] == [(8, 2, 2), (21, 2, 2), (16, 4, 4), (21, 4, 4)]
    settings = recipe.Recipe(
        steps=40, batch=4, sizes=(64,), stages=(4, 8, 8, 8, 8, 8), head=8, passthrough=4, imitation=8.0
    )
    runner = make_loop(rectangles, settings, teacher=guide)
    before = {name: tensor.clone() for name, tensor in guide.state_dict().items()}
    runner.advance()
    first = runner.measured[3].item()
    for _ in range(39):
        runner.advance()
    assert runner.measured[3].item() < first - 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in guide.state_dict().items())


def test_a_teacher_with_wrong_weights_is_refused(tmp_path: Path) -> None:
    write_teacher(tmp_path / "teacher.cfg")
    weights = tmp_path / "teacher.weights"
    whole = weights.read_bytes()
    for content in (whole[:-4], whole + bytes(8)):
        weights.write_bytes(content)
        with pytest.raises(WeightsError, match=r"teacher\.weights"):
            teacher.Teacher(tmp_path / "teacher.cfg")


def test_imitation_is_free_for_a_linear_function_of_the_features() -> None:
    torch.manual_seed(0)
    module, features = teacher.Imitation([6], [(4, 3)]), torch.randn(2, 6, 5, 5)
    wanted = module.maps[0](features).detach() * 3 + 1
    assert module([features], [tuple(wanted.split([4, 3], 1))], torch.ones(())).item() == pytest.approx(0, abs=1e-5)
    leaf = features.clone().requires_grad_()
    module([leaf], [tuple(torch.randn(2, 7, 5, 5).split([4, 3], 1))], torch.zeros(())).backward()
    assert not leaf.grad.any()
    assert module.maps[0].weight.grad.any()
    assert module([features], [tuple(torch.randn(2, 7, 5, 5).split([4, 3], 1))], torch.ones(())).item() > 0.5


def test_a_model_file_keeps_its_network(rectangles: Path, tmp_path: Path) -> None:
    settings = recipe.Recipe(stages=(4, 8, 8, 8, 16, 16), head=16, passthrough=4)
    first = model.Model(tiny_network(2), ANCHORS, CLASSES)
    model.save_model(tmp_path / "model.pt", first, settings)
    again, same = model.load_model(tmp_path / "model.pt")
    x = torch.rand(1, 3, 64, 64)
    assert same == settings
    assert again.classes == CLASSES
    with torch.no_grad():
        assert first.network(x).std() > 0.3
        torch.testing.assert_close(again.network(x), first.network(x), rtol=0, atol=0.02)
    runner = make_loop(rectangles, settings, start=again)
    assert torch.equal(runner.task.module.anchors, ANCHORS)
    assert torch.equal(runner.task.network.parts[0][0].weight, again.network.parts[0][0].weight)


def test_logs_and_images_are_written(tmp_path: Path) -> None:
    from yolov2_training import curve

    rows = [{"step": 1.0, "epoch": 0.5, "box": 0.7}, {"step": 2.0, "epoch": 1.0, "box": 0.5, "mAP50": 0.25}]
    curve.write_log(tmp_path / "log.csv", rows)
    assert curve.read_log(tmp_path / "log.csv") == rows
    curve.draw_curve(tmp_path / "curve.png", {"run": rows})
    assert Image.open(io.BytesIO((tmp_path / "curve.png").read_bytes())).width > 500


def test_links_stay_links(tmp_path: Path) -> None:
    from yolov2_training import curve

    names = ("net.cfg", "net.weights", "net.names", "log.csv", "curve.png")
    (tmp_path / "kept").mkdir()
    for name in names:
        (tmp_path / name).symlink_to(tmp_path / "kept" / name)
    rows = [{"step": 1.0, "epoch": 0.5, "box": 0.7}, {"step": 2.0, "epoch": 1.0, "box": 0.5}]
    export.write_darknet(tmp_path / "net", tiny_network(), ANCHORS, "abcdef")
    curve.write_log(tmp_path / "log.csv", rows)
    curve.draw_curve(tmp_path / "curve.png", {"run": rows})
    for name in names:
        assert (tmp_path / name).is_symlink(), name
        assert (tmp_path / "kept" / name).stat().st_size > 0
    assert len(list(tmp_path.iterdir())) == 6
