"""Attributes that change the training or the speed are passed over; an unknown one is refused."""

from pathlib import Path

import pytest

from pytrtplugins.errors import ModelError
from pytrtplugins.mxnet.attributes import Attributes
from pytrtplugins.mxnet.symbol import Node

WITHOUT_EFFECT = {
    "Convolution": "workspace cudnn_tune cudnn_off",
    "BatchNorm": "momentum use_global_stats cudnn_off",
    "SoftmaxOutput": "grad_scale normalization out_grad smooth_alpha ignore_label use_ignore",
    "null": "lr_mult wd_mult weight_lr_mult mirror_stage force_mirroring ctx_group profiler_scope __init__",
    "_contrib_quantize_v2": "min_calib_range max_calib_range",
}


def attributes(op, names):
    return Attributes(Node(Path("x.json"), op, "node", dict.fromkeys(names, "1"), ()))


@pytest.mark.parametrize("op", WITHOUT_EFFECT)
def test_what_training_and_speed_alone_need_is_passed_over(op):
    attributes(op, WITHOUT_EFFECT[op].split()).finish()


def test_an_attribute_that_nobody_read_is_refused():
    with pytest.raises(ModelError, match="the attribute 'dilation' = '1' is unknown"):
        attributes("Convolution", ["dilation", "workspace"]).finish()
