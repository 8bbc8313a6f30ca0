"""Changes of type, layout and scale on a GPU give the host's bytes, padding and what lies between included."""

import itertools

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.device import CudaDevice, HostDevice, tensor_at
from pytrtplugins.engines.cuda.device.layout import FP8, Format, channels_last, linear
from pytrtplugins.engines.cuda.device.reformat import reformat
from pytrtplugins.tensor import DType
from tests.engines.cuda.device.test_reformat import DIMS, filled
from tests.engines.cuda.host import copied

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
FLOAT, HALF, INT8 = DType.FLOAT32, DType.FLOAT16, DType.INT8
SIZES = {**DIMS, "a network's": (1, 64, 56, 56), "one dimension": (2, 80, 1, 1000), "an odd image": (1, 24, 75, 75)}
MAKES = pytest.mark.parametrize(
    "makes", [(linear, channels_last), (channels_last, linear)], ids=["to pixels", "to planes"]
)


def convert_on_both(x, y, offsets=(0, 0), **options):
    """The bytes of y on the GPU and on the host; tensors begin so many values behind their memory."""
    device, results = CudaDevice(), []
    for place in (device, HostDevice()):
        with place.current():
            tensors = []
            for tensor, offset in zip((x, y), offsets, strict=True):
                begin, size = offset * tensor.format.dtype.itemsize, tensor.flat.nbytes
                memory = np.full(size + begin + 64, 0x3F, np.uint8)
                memory[begin : begin + size] = np.ascontiguousarray(tensor.flat).view(np.uint8)
                on_place = device.upload(memory) if place is device else memory
                tensors.append((on_place, tensor_at(place.xp, on_place, begin, tensor.format)))
            stream = device.new_streams(1)[0] if place is device else None
            reformat(place, x.format, y.format, **options)(tensors[0][1], tensors[1][1], stream)
            if stream is not None:
                stream.synchronize()
            memory = tensors[1][0]
            results.append(device.download(memory) if place is device else memory)
    return results


@MAKES
@pytest.mark.parametrize("kind", [FLOAT, HALF, INT8, DType.UINT8])
@pytest.mark.parametrize("dims", SIZES.values(), ids=SIZES)
def test_every_size(dims, kind, makes):
    x, y = filled(makes[0](dims, kind)), filled(makes[1](dims, kind), 1)
    np.testing.assert_array_equal(*convert_on_both(x, y))


@MAKES
@pytest.mark.parametrize("dims", [(2, 40, 6, 10), (2, 3, 6, 10)])
@pytest.mark.parametrize(
    ("kind", "to"), list(itertools.product([FLOAT, HALF, INT8, DType.UINT8], [FLOAT, HALF, INT8, FP8]))
)
def test_every_pair_of_types(kind, to, dims, makes):
    x, y = filled(makes[0](dims, kind)), filled(makes[1](dims, to), 1)
    np.testing.assert_array_equal(*convert_on_both(x, y, x_scale=0.5, y_scale=0.25))


@pytest.mark.parametrize("kind", [FLOAT, HALF, INT8])
@pytest.mark.parametrize("offset", [1, 2, 4, 8, 16])
def test_tensors_may_begin_anywhere(kind, offset):
    x, part = filled(linear((2, 24, 6, 8), kind)), filled(Format((2, 24, 6, 8), kind, 48), 1)
    np.testing.assert_array_equal(*convert_on_both(x, part, (offset, offset), alone=False))
    np.testing.assert_array_equal(*convert_on_both(part, x, (offset, offset)))


@pytest.mark.parametrize("offset", [0, 1, 16])
@pytest.mark.parametrize("pitches", [(24, 32), (48, 24), (21, 23), (0, 0)])
@pytest.mark.parametrize(("kind", "to"), [(FLOAT, HALF), (HALF, INT8), (INT8, FLOAT), (INT8, INT8), (DType.UINT8, FP8)])
def test_types_and_pitches_change_within_a_layout(kind, to, pitches, offset):
    dims = (2, 21, 9, 7)
    x, y = (filled(Format(dims, dtype, pitch)) for dtype, pitch in zip((kind, to), pitches, strict=True))
    for alone in (False, True):
        options = {"alone": alone, "x_scale": 0.5, "y_scale": 0.25}
        np.testing.assert_array_equal(*convert_on_both(x, y, (offset, offset), **options))


def test_a_change_of_layout_follows_what_is_queued_before_it():
    """Its kernels may begin before the one in front of them has ended."""
    device = CudaDevice()
    forms = [make((4, 64, 40, 40), HALF) for make in (linear, channels_last)]
    x = filled(forms[0])
    with device.current():
        first, second, last = (copied(device, filled(form, 1)) for form in (*forms, forms[0]))
        given = copied(device, x)
        there, back = reformat(device, *forms), reformat(device, *forms[::-1])
        copy = reformat(device, forms[0], forms[0])
        stream = device.new_streams(1)[0]
        for _ in range(50):
            copy(given, first, stream)
            there(first, second, stream)
            back(second, last, stream)
            copy(last, given, stream)
        stream.synchronize()
        np.testing.assert_array_equal(device.download(last.view), x.view)
