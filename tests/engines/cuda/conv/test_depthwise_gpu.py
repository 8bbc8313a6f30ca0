"""The depthwise kernel on a GPU: every tile, captured too, beside the definition."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.depthwise import DepthwiseProvider, depthwise_tiles
from pytrtplugins.engines.cuda.conv.problem import Scratch
from pytrtplugins.engines.cuda.device.device import CudaDevice, tensor_at
from pytrtplugins.engines.cuda.device.layout import Format, channels_last
from tests.engines.cuda.conv.test_depthwise import (
    CODES,
    HALF,
    ROOM,
    SINGLE,
    UNTOUCHED,
    assert_written,
    defined,
    given,
    problem,
)
from tests.engines.cuda.host import copied

pytestmark = pytest.mark.gpu
CASES = [
    *(problem(kind, activation="swish", stride=stride) for kind in (SINGLE, HALF, CODES) for stride in (1, 2)),
    *(
        problem(kind, kernel=(5, 5), activation="hard_swish", stride=stride)
        for kind in (HALF, CODES)
        for stride in (1, 2)
    ),
    problem(c=96, kernel=(7, 7), size=(20, 17)),
    problem(c=13, kernel=(5, 5), dilation=2, activation="clip", bounds=(0.0, 6.0)),
    problem(CODES, kernel=(5, 5), dilation=2, activation="hard_swish"),
    problem(CODES, c=13, dilation=3, stride=2, to=HALF),
    problem(CODES, c=24, residual=channels_last((2, 24, 9, 11), CODES), activation="gelu"),
    *(problem(kind, c=c, activation="prelu") for kind in (SINGLE, HALF, CODES) for c in (24, 13)),
    *(
        problem(kind, residual=channels_last((2, 24, 9, 11), kind), residual_activation="prelu")
        for kind in (SINGLE, HALF, CODES)
    ),
    problem(c=24, x=Format((2, 24, 9, 11), HALF, 40), y=Format((2, 24, 9, 11), HALF, 64), to=HALF),
    problem(c=960, n=1, size=(7, 7), kernel=(5, 5), activation="hard_sigmoid", bounds=(1 / 6, 0.5)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_every_tile_gives_the_definitions_numbers(gpu, case):
    operands, x, residual = given(case)
    expected, device = defined(case, operands, x, residual), CudaDevice()
    tiles = {(tile.h, tile.w, tile.slices): tile for tile in depthwise_tiles(case, device.multiprocessors)}
    provider, stream = DepthwiseProvider(device, device.multiprocessors), device.new_streams(1)[0]
    with device.current():
        inputs = [None if each is None else copied(device, each) for each in (x, residual)]
        for tile in tiles.values():
            y = tensor_at(device.xp, device.allocate(case.y.bytes + 256), 0, case.y)
            y.flat.fill(UNTOUCHED)
            launch = provider.prepare(case, tile.name, operands, Scratch())
            device.xp.cuda.get_current_stream().synchronize()
            stream.begin_capture()
            for _ in range(2):
                launch(inputs[0], y, inputs[1], stream)
            graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            host = tensor_at(np, device.download(y.flat).view(np.uint8), 0, case.y)
            assert_written(case, host, expected, ROOM.get(case.y.dtype), tile)
