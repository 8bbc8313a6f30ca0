"""Loaders: each kind gives the same batches, keeps the order, tells what fails, and ends."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytrtplugins.errors import MissingExtraError, UsageError
from tests.samples.needs_torch import torch
from tests.samples.training.loaders import CPU, KINDS, LIMIT, SIDE, assert_equal, make
from tests.samples.training.photo_set import PhotoSet
from training import photos
from training.batch import GREY, Batch
from training.dataloader import advice
from training.loader import Options, make_loader
from training.optional import decode_gpu
from training.photos import decode, fitted_size, shrink
from training.sampler import StepSampler
from training.staging import Slot

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.parametrize("kind", ["spdl-cpu", "dataloader"])
def test_every_kind_gives_the_batches_of_resident(kind: str) -> None:
    """To the pixel, since both decode with the same function; the set's end lies within a batch."""
    data = PhotoSet(11)
    with make("resident", data) as expected, make(kind, data) as loader:
        batches = list(loader)
        for a, b in zip(expected, batches, strict=True):
            assert_equal(a, b)
    assert [b.step for b in batches] == list(range(6))


def test_a_batch_has_the_photos_that_the_sampler_says() -> None:
    data = PhotoSet(7)
    with make("spdl-cpu", data, stop=3) as loader:
        for batch in loader:
            assert batch.pixels.shape == (4, 3, SIDE, SIDE)
            assert batch.pixels.is_contiguous(memory_format=torch.channels_last)
            for row, number in enumerate(StepSampler(7, 4, seed=1).indices(batch.step)):
                record = data.read(number)
                photo = Image.open(io.BytesIO(record.image))
                photo.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=None)
                width, height = photo.size
                assert batch.keys[row] == record.key
                assert batch.size[row].tolist() == [width, height]
                stored = batch.pixels[row].permute(1, 2, 0)
                assert np.abs(stored[:height, :width].numpy().astype(int) - np.asarray(photo)).max() <= 1
                assert (stored[height:] == GREY).all()
                assert (stored[:, width:] == GREY).all()
                assert batch.valid[row].sum() == len(record.boxes)
                assert torch.equal(batch.boxes[row, : len(record.boxes)], torch.tensor(record.boxes))


@pytest.mark.parametrize("together", [1 << 26, 30_000, 1])
def test_photos_that_another_decoder_decodes_are_shrunk_alike(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """As many at a time as memory allows. PNG files and the like go to the CPU's decoder."""
    monkeypatch.setattr(decode_gpu, "_MOST_BYTES", together)
    data = PhotoSet(11)
    data.records[3] = PhotoSet(4, suffix="PNG").records[3]
    with make("resident", data) as expected, make("spdl-gpu", data) as loader:
        for a, b in zip(expected, loader, strict=True):
            assert_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_continues_with_the_same_batches(kind: str) -> None:
    data = PhotoSet(11)
    with make(kind, data) as whole, make(kind, data, start=3) as rest:
        for expected, found in zip(list(whole)[3:], rest, strict=True):
            assert_equal(expected, found)


def test_ranks_get_parts_of_the_batch() -> None:
    data = PhotoSet(11)
    with make("spdl-cpu", data, stop=2) as whole:
        expected = [batch.keys for batch in whole]
    parts = []
    for rank in (0, 1):
        with make("spdl-cpu", data, stop=2, rank=rank, world=2) as loader:
            parts.append([batch.keys for batch in loader])
    assert [a + b for a, b in zip(*parts, strict=True)] == expected


class Watched(PhotoSet):
    """Tells which step a photo is read for; photos are read once."""

    def __init__(self, steps: int) -> None:
        super().__init__(4 * steps)
        sampler = StepSampler(4 * steps, 4, seed=1)
        self.step_of = {int(number): step for step in range(steps) for number in sampler.indices(step)}


def test_stages_and_steps_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding of step 0 ends only when step 1 is read; the step that uses batch 0 only when step 1 is decoded."""
    data, read, decoded = Watched(3), threading.Event(), threading.Event()
    late = list[str]()

    class Reading(Watched):
        def read(self, number: int):
            if self.step_of[number] == 1:
                read.set()
            return super().read(number)

    def decode_slowly(image: bytes, key: str, side: int):
        step = data.step_of[int(key.removeprefix("photo"))]
        if step == 0 and not read.wait(LIMIT):
            late.append("decode did not overlap with read")
        if step == 1:
            decoded.set()
        return decode(image, key, side)

    monkeypatch.setattr(photos, "decode", decode_slowly)
    with make("spdl-cpu", Reading(3), stop=3) as loader:
        loader.next()
        assert decoded.wait(LIMIT), "decode did not overlap with the step"
    assert not late


def test_decoding_threads_work_at_once_and_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first photo of a batch is decoded after the last one of it."""
    data, last = Watched(2), threading.Event()
    order = StepSampler(8, 4, seed=1).indices(0).tolist()

    def decode_backwards(image: bytes, key: str, side: int):
        number = int(key.removeprefix("photo"))
        if number == order[0]:
            assert last.wait(LIMIT)
        if number == order[-1]:
            last.set()
        return decode(image, key, side)

    monkeypatch.setattr(photos, "decode", decode_backwards)
    with make("spdl-cpu", data, stop=2, options=Options(decoders=4)) as loader:
        assert loader.next().keys == tuple(f"photo{number}" for number in order)


def test_no_stage_has_more_threads_than_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two photos stay in the decoder for a while, in which a third must not come."""
    lock, third, inside, first = threading.Lock(), threading.Event(), [0], [2]

    def decode_counted(image: bytes, key: str, side: int):
        with lock:
            inside[0] += 1
            if inside[0] > 2:
                third.set()
            first[0] -= 1
            wait = first[0] >= 0
        if wait:
            third.wait(0.2)
        found = decode(image, key, side)
        with lock:
            inside[0] -= 1
        return found

    monkeypatch.setattr(photos, "decode", decode_counted)
    with make("spdl-cpu", PhotoSet(20), batch=20, options=Options(decoders=2)) as loader:
        for _ in loader:
            pass
    assert not third.is_set()


def test_a_slow_step_bounds_what_is_read_ahead() -> None:
    """At most ``ahead`` batches are in work or ready; the next one begins when a step takes one."""
    ahead, steps, taken, farthest = 2, 24, [-1], [0]

    class Reading(Watched):
        def read(self, number: int):
            farthest[0] = max(farthest[0], self.step_of[number] - taken[0])
            return super().read(number)

    with make("spdl-cpu", Reading(steps), stop=steps, options=Options(ahead=ahead, decoders=2)) as loader:
        for batch in loader:
            taken[0] = batch.step
            threading.Event().wait(0.01)  # the step
    assert 1 < farthest[0] <= ahead + 1


def test_the_largest_boxes_are_kept_in_their_order() -> None:
    slot = Slot(1, 8, 2)
    boxes = np.array([[0, 0.5, 0.5, 0.1, 0.1], [1, 0.5, 0.5, 0.9, 0.2], [2, 0.5, 0.5, 0.3, 0.3]], np.float32)
    slot.rows().put(0, "a", np.zeros((4, 6, 3), np.uint8), boxes)
    assert slot.boxes[0, :, 0].tolist() == [1, 2]
    assert slot.valid[0].tolist() == [True, True]
    slot.rows().put(0, "b", np.zeros((4, 6, 3), np.uint8), boxes[:1])
    assert slot.valid[0].tolist() == [True, False]
    assert slot.boxes[0, 1].tolist() == [0] * 5


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(8, 600))
def test_sizes_are_those_of_pillow(width: int, height: int, side: int) -> None:
    class Sized(Image.Image):
        """Pillow's rule without pixels."""

        def resize(self, size, *_, **__):
            self.asked = size
            return Image.new("L", (1, 1))

    image = Sized()
    image._size, image._mode, image.asked = (width, height), "L", (width, height)
    image.thumbnail((side, side))
    assert fitted_size(width, height, side) == image.asked


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_photos_are_shrunk_as_by_pillow(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    (record,) = (r for r in PhotoSet(11).records if r.key == "photo4")
    full = decode(record.image, "", 10_000)
    for side in (20, 33, 50):
        planes = torch.tensor(full, device=device)[None].permute(0, 3, 1, 2)
        found = shrink(planes, side)[0].permute(1, 2, 0).cpu().numpy().astype(int)
        wanted = Image.fromarray(full).resize(fitted_size(full.shape[1], full.shape[0], side), Image.Resampling.BICUBIC)
        assert np.abs(found - np.asarray(wanted)).max() <= (1 if device == "cpu" else 6)


def test_shrunk_photos_have_channels_last() -> None:
    """Else PyTorch did not see that those of its input are last, and took a slower kernel."""
    (record,) = (r for r in PhotoSet(11).records if r.key == "photo4")
    assert decode(record.image, "", 20).flags.c_contiguous


def test_memory_to_decode_into_is_used_again_but_not_given_away() -> None:
    first, second = (r.image for r in PhotoSet(11).records[4:6])
    whole = decode(first, "", 10_000)
    found, kept = decode(first, "", 20), whole.copy()
    before = found.copy()
    decode(second, "", 20)
    np.testing.assert_array_equal(found, before)
    np.testing.assert_array_equal(whole, kept)


def test_the_defaults_of_the_options_and_their_limits() -> None:
    assert Options() == Options(readers=8, decoders=0, workers=0, ahead=6, boxes=100, decoder="auto")
    least_of = {"readers": 1, "decoders": 0, "workers": 0, "ahead": 1, "boxes": 1}
    for name, least in least_of.items():
        most = 100_000 if name == "boxes" else 1024
        assert [getattr(Options(**{name: value}), name) for value in (least, most)] == [least, most]
        for value in (least - 1, most + 1):
            with pytest.raises(UsageError, match=f"{name}: expected a whole number from {least}"):
                Options(**{name: value})


def test_wrong_kinds_devices_and_decoders_are_refused() -> None:
    data = PhotoSet(4)
    with pytest.raises(UsageError, match=r"loader 'fast' is unknown.\nDo: choose one of resident, spdl-cpu"):
        make("fast", data, options=Options())
    with pytest.raises(UsageError, match="decodes on a GPU; the device is cpu"):
        make("spdl-gpu", data, options=Options())
    with pytest.raises(UsageError, match="last step: expected a whole number from 3"):
        make("resident", data, start=3, stop=2)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spdl.pipeline", None)
    sampler = StepSampler(4, 2, seed=0)
    with pytest.raises(MissingExtraError, match=r'pip install "pytrtplugins\[train\]"'):
        make_loader("spdl-cpu", PhotoSet(4), sampler, CPU, size=SIDE, stop=2)


def test_advice_for_the_dataloader(monkeypatch: pytest.MonkeyPatch) -> None:
    from training import dataloader

    monkeypatch.setattr(dataloader, "threads_for_files", lambda: 4)
    assert advice(3, True, batch_bytes=0) == ()
    assert "Do: --workers 3" in advice(0, True, batch_bytes=0)[0]
    assert "there are 4 cores" in advice(9, True, batch_bytes=0)[0]
    assert advice(3, False, batch_bytes=0) == ("pin_memory is off: the device is no GPU",)
    monkeypatch.setattr(dataloader.os.path, "isdir", lambda _: True)
    monkeypatch.setattr(dataloader.shutil, "disk_usage", lambda _: SimpleNamespace(free=64_000_000))
    (shared,) = advice(3, True, batch_bytes=20_000_000)
    assert "has 64 MB free, and the batches of 3 processes need 120 MB" in shared


def brightness(pixels):
    return (pixels.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)


NEAR = 1.5
"""Mean difference of brightness that another decoder may give.

Decoders differ most in the colours, since each has its own way to enlarge the two colour planes, which JPEG keeps in half the size: the
photos here are of noise, and differ by 2 to 4 codes of 255. Their brightness is kept in full size, and differs by the rounding of the
inverse transform only. The next test has the figures of faults.
"""


def test_the_bound_for_other_decoders_is_passed_by_other_colour_planes_and_by_no_fault() -> None:
    """Colour planes enlarged without interpolation; swapped channels; photos that are a pixel further right, or lower."""
    with make("resident", PhotoSet(11)) as loader:
        for batch in loader:
            pixels = batch.pixels
            expected, images = brightness(pixels), [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels]
            coarse = torch.stack([torch.tensor(np.array(_with_coarse_colours(image))) for image in images])
            assert (brightness(coarse.permute(0, 3, 1, 2)) - expected).abs().mean() < NEAR
            for wrong in (pixels.flip(1), pixels[:, [1, 0, 2]], pixels.roll(1, 2), pixels.roll(1, 3)):
                assert (brightness(wrong) - expected).abs().mean() > 1.5 * NEAR


def _with_coarse_colours(image: Image.Image) -> Image.Image:
    planes, half = image.convert("YCbCr").split(), (image.width // 2, image.height // 2)
    colours = [p.resize(half, Image.Resampling.BOX).resize(image.size, Image.Resampling.NEAREST) for p in planes[1:]]
    return Image.merge("YCbCr", (planes[0], *colours)).convert("RGB")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "decoder"),
    [("resident", ""), ("spdl-cpu", ""), ("spdl-gpu", "torchvision"), ("spdl-gpu", "nvimgcodec"), ("dataloader", "")],
)
def test_batches_on_a_gpu_are_those_of_the_cpu(kind: str, decoder: str) -> None:
    """To the pixel, but for those that the GPU decodes, whose brightness is compared; see `NEAR`."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    if decoder:
        pytest.importorskip({"torchvision": "torchvision.io", "nvimgcodec": "nvidia.nvimgcodec"}[decoder])
    pytest.importorskip("spdl.pipeline", reason='these loaders need spdl-core (pip install "pytrtplugins[train]")')
    data = PhotoSet(11)
    data.records[3] = PhotoSet(4, suffix="PNG").records[3]
    loader = make_loader(
        kind,
        data,
        StepSampler(11, 4, seed=1),
        torch.device("cuda"),
        size=SIDE,
        stop=6,
        options=Options(decoder=decoder or "auto"),
    )
    with make("resident", data) as expected, loader:
        for a, b in zip(expected, loader, strict=True):
            b = Batch(b.step, *(t.cpu() for t in (b.pixels, b.size, b.boxes, b.valid)), b.keys)
            assert_equal(a, b, pixels=kind != "spdl-gpu")
            assert (brightness(a.pixels) - brightness(b.pixels)).abs().mean() < NEAR
        assert loader.clock.lap().steps == 6
