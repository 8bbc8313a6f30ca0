"""The parts of the training sample beside the loop: the export for darknet, the teacher, files of models and logs."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.errors import CfgError, WeightsError
from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.rectangles import (
    ANCHORS,
    CLASSES,
    make_loop,
    tiny_network,
)
from training import loop as engine
from yolov2_training import export, model, recipe, teacher

pytestmark = [pytest.mark.usefixtures("one_thread"), WITHOUT_RANKS]


def test_libdarknet_computes_what_pytorch_computes(libdarknet, tmp_path: Path) -> None:
    net = tiny_network()
    export.write_darknet(tmp_path / "net-1.1", net, ANCHORS, "abcdef", size=96, seen=640)
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
    last = "[convolutional]\nfilters=21\nsize=1\nstride=1\npad=1\nactivation=linear\n"
    last += "[yolo]\nmask=0,1,2\nclasses=2\nnum=3\nanchors=1,1,2,2,3,3\n"
    text = "[net]\nwidth=64\nheight=64\nchannels=3\n" + normal.format(4, 3, 2, 1) + normal.format(4, 3, 2, 4)
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


@pytest.mark.parametrize("option", ["stride=-2", "stride=2\nscale=0.5"])
def test_a_teacher_whose_upsample_shrinks_or_scales_is_refused(tmp_path: Path, option: str) -> None:
    cfg = tmp_path / "teacher.cfg"
    write_teacher(cfg)
    text = cfg.read_text().replace("[upsample]\nstride=2", f"[upsample]\n{option}")
    if option == "stride=-2":  # whose map of 1 x 1 nothing else can be joined with
        text = text.replace("layers=-1,7", "layers=-1")
        weights = cfg.with_suffix(".weights")
        weights.write_bytes(weights.read_bytes()[: -4 * 8 * 21])
    cfg.write_text(text)
    with pytest.raises(CfgError, match=r"\[upsample\] has a positive stride and no scale here"):
        teacher.Teacher(cfg)


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


def test_links_stay_links(tmp_path: Path) -> None:
    from training import curve

    names = ("net.cfg", "net.weights", "net.names", "log.csv", "curve.png")
    (tmp_path / "kept").mkdir()
    for name in names:
        (tmp_path / name).symlink_to(tmp_path / "kept" / name)
    rows = [{"step": 1.0, "epoch": 0.5, "box": 0.7}, {"step": 2.0, "epoch": 1.0, "box": 0.5}]
    export.write_darknet(tmp_path / "net", tiny_network(), ANCHORS, "abcdef", size=64)
    curve.write_log(tmp_path / "log.csv", rows)
    curve.draw_curve(tmp_path / "curve.png", {"run": rows}, ("box", "objectness"), "mAP50")
    for name in names:
        assert (tmp_path / name).is_symlink(), name
        assert (tmp_path / "kept" / name).stat().st_size > 0
    assert len(list(tmp_path.iterdir())) == 6
