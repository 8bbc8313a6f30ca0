"""Overlapping runs on a GPU."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.networks import Affine, conv_net, image

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_stream_gives_the_bits_of_one_run_after_the_other_in_order(slots):
    engine = ptp.build(conv_net(Affine(3.0)), engine="cuda", precision="fp16")
    images = [image() * np.float32(0.1 * index) for index in range(12)]
    with engine.create_context() as context:
        wanted = [context.run({"data": each})["y"] for each in images]
    found = list(engine.stream(({"data": each} for each in images), slots=slots))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one["y"], other)
