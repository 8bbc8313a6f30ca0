"""The training sample on the CPU: a few steps on generated images of rectangles."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

import train_yolov2
from torch.utils._python_dispatch import TorchDispatchMode

from darknet2caffe import read_network
from pytrtplugins.errors import ExecutionError
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import (
    ALONE,
    ANCHORS,
    SMALL,
    TINY,
    load,
    make_loop,
)
from training import augment
from training.checkpoint import Checkpoints
from training.data import open_data
from yolov2_training import data, evaluate, export, loss, network, recipe

pytestmark = [pytest.mark.usefixtures("one_thread"), WITHOUT_RANKS]


def test_augmented_boxes_lie_on_their_rectangles(rectangles: Path) -> None:
    """Without colours and holes, the drawn rectangle is where the planned box says."""
    images = load(rectangles)
    torch.manual_seed(0)
    lots = augment.draw_random_numbers(16, ALONE.device)
    plan, truth, valid = augment.Augmenter(ALONE.device, images).plan(lots, torch.tensor([0.5, 0.7, 1.3, 0.0]), 128)
    colour = torch.cat([torch.eye(3), torch.zeros(3, 1)], 1).expand(16, 3, 4)
    inputs = augment.render(
        augment._with_halves(images), plan._replace(colour=colour, holes=torch.zeros(16, 4, 4)), 128
    )
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


def test_ranks_with_unequal_numbers_of_boxes_have_the_loss_of_the_whole_batch() -> None:
    torch.manual_seed(1)
    out = torch.randn(2, 35, 4, 4) * 0.3
    truth = torch.tensor([[0.4, 0.6, 1.9, 2.4, 1.0], [2.1, 1.2, 3.8, 3.1, 0.0], [0.2, 2.1, 3.0, 3.6, 0.0]]).expand(
        2, -1, -1
    )
    valid = torch.tensor([[True, False, False], [True, True, True]])
    counts: list = []

    def loss_of(rows: slice, **given):
        leaf = out.clone().requires_grad_()
        found = loss.region_loss(leaf[rows], truth[rows], valid[rows], ANCHORS, 0.05, **given)[0]
        found.backward()
        return found.item(), leaf.grad

    whole = loss_of(slice(2))
    ranks = [slice(1), slice(1, 2)]
    for rows in ranks:
        loss_of(rows, per_rank=lambda count: counts.append(count.detach()) or count)
    alike = [loss_of(rows, per_rank=lambda _: sum(counts) / 2) for rows in ranks]
    apart = [loss_of(rows) for rows in ranks]
    for i in (0, 1):
        mean = (torch.as_tensor(alike[0][i]) + torch.as_tensor(alike[1][i])) / 2
        torch.testing.assert_close(mean, torch.as_tensor(whole[i]), rtol=1e-5, atol=1e-7)
    assert abs((apart[0][0] + apart[1][0]) / 2 - whole[0]) > 0.01


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

    def spoilt(*inputs):
        images, *rest = draw(*inputs)
        loop._seed_generators(loop.step)
        names.append(loop.task.drawn([""] * 2, loop.step))
        return (images * float("nan") if "images/3.png" in names[-1] else images), *rest

    loop.task.draw = spoilt
    with pytest.raises(ExecutionError, match=r"the loss is not a finite number; photos: .*images/3\.png") as caught:
        loop.run(seconds=60, look=lambda: None, save=lambda: None)
    assert caught.value.step == len(names) - 1
    assert caught.value.keys == tuple(names[-1])
    assert 1 <= len(names[-1]) <= 2


class Reads(TorchDispatchMode):
    """Notes the operators for which the host waits for a GPU: it reads a number, or uploads some of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "unique", "linalg_inv")
        indices = [t for each in args if isinstance(each, list) for t in each if torch.is_tensor(t)]
        masked = "index" in str(func) and any(t.dtype == torch.bool for t in indices)
        if masked or any(name in str(func) for name in names):
            self.found.append(str(func))
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_the_host_waits_for_nothing_in_a_step(rectangles: Path, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = recipe.Recipe(steps=1000, batch=4, sizes=(64,), **SMALL)
    loop = make_loop(rectangles, settings, loader=loader, precision="bf16", accumulate=2)
    loop.advance()  # the first step uploads how strongly images are changed
    with Reads() as reads:
        for name in ("tolist", "item", "cpu"):
            read = getattr(torch.Tensor, name)
            monkeypatch.setattr(
                torch.Tensor, name, lambda tensor, name=name, read=read: (reads.found.append(name), read(tensor))[1]
            )
        loop.advance()
        # the numbers of a resident loader's photos come from NumPy, and go through page-locked memory
        numbers = ["aten.lift_fresh.default"] if loader == "resident" else []
        assert reads.found == numbers
        loop.check()
        assert reads.found == [*numbers, "tolist"]


def test_the_full_size_network_is_darknets_yolov2_voc(tmp_path: Path) -> None:
    """Its sections, but for the numbers of training, are those of the .cfg that darknet has."""
    cfg = Path("/usr/share/darknet/cfg/yolov2-voc.cfg")
    if not cfg.is_file():
        pytest.skip("darknet's yolov2-voc.cfg is not installed (Debian's package darknet)")
    wide = recipe.Recipe(**recipe.NETWORKS["voc"])
    layers = network.declare_layers(wide.stages, wide.head, wide.passthrough, 20)
    export.write_cfg(tmp_path / "ours.cfg", layers, ANCHORS, 20, size=416)
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
        data.kmeans_anchors(data.box_shapes(open_data([rectangles], "train.txt")), cells=2),
    )
    inputs, boxes = data.letterbox_images(images, 64), images.boxes.clone()
    boxes[..., [2, 4]] += 8  # 48 of 64 rows are image
    truth, valid = torch.cat([boxes[..., 1:] / augment.STRIDE, boxes[..., :1]], -1), boxes[..., 0] >= 0
    torch.manual_seed(0)
    net = network.Yolov2(network.declare_layers((8, 8, 16, 16, 16, 16), 32, 8, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(80):
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
    line = ["--data", str(rectangles), "--output", str(tmp_path), "--steps", "4", "--hold-back", "0.2", *TINY]
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
    models = [f"model.{suffix}" for suffix in ("cfg", "weights", "names", "pt")]
    for name in (*models, "curve.png", "log.csv", "trace.json", "stages.png"):
        assert (tmp_path / name).stat().st_size > 0
    assert struct.unpack("<iiiQ", (tmp_path / "model.weights").read_bytes()[:20]) == (0, 2, 0, 16)
    assert (tmp_path / "model.names").read_text() == "red\ngreen\n"
    query = ["--data", str(rectangles), "--device", "cpu", "--model", str(tmp_path / "model.pt")]
    assert train_yolov2.main([*query, "--evaluate", "train.txt"]) == 0
    assert capsys.readouterr().out.startswith("mAP50: ")
    assert train_yolov2.main(["--data", str(tmp_path / "none")]) == 1
    assert "NoDataError" in capsys.readouterr().err


@pytest.mark.usefixtures("no_figure")
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
    assert train_yolov2.main([*line, "--output", str(tmp_path / "stopped")]) == 1
    assert "images/3.png does not decode" in capsys.readouterr().err
    assert train_yolov2.main([*line, "--output", str(tmp_path / "out"), "--skip-bad", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert "1 photos did not decode, and others took their place. One of them: images/3.png" in printed
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    assert {"read", "decode", "staging", "data_time", "step"} <= {event["name"] for event in events}
    assert (tmp_path / "out/stages.png").stat().st_size > 0
    assert ("num_workers=0" in printed) == (loader == "dataloader")
