"""The engine that computes nothing."""

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.layers import Reorg
from tests.engines.networks import conv_net, image


def test_it_gives_zeros_in_the_right_dims_for_every_batch():
    engine = ptp.build(conv_net(Reorg(2), Reorg(2, reverse=True), batch="N"), engine="null")
    with engine.create_context() as context:
        for batch in (1, 3):
            y = context.run({"data": image(batch)})["y"]
            assert (y.shape, y.dtype) == ((batch, 4, 8, 8), np.float32)
            assert not y.any()


def test_it_has_every_precision_but_is_never_chosen():
    assert ptp.build(conv_net(), engine="null", precision="fp16").precision == "fp16"
    assert ptp.build(conv_net()).name != "null"
