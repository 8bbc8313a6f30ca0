"""Field numbers and types as BVLC/caffe has them in src/caffe/proto/caffe.proto."""

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe.caffe_schema import messages, parameter_name
from pytrtplugins.errors import FieldError
from pytrtplugins.layers import Region, Reorg
from tests.user_plugins import Copy


@ptp.plugin(namespace="test.caffe")
class PRelu(Copy):
    slope: np.ndarray


# message → the names that files use, by caffe's number
NUMBERS = {
    "BlobShape": {1: "dim"},
    "BlobProto": {5: "data", 7: "shape"},
    "NetParameter": {1: "name", 100: "layer"},
    "InputParameter": {1: "shape"},
    "ConvolutionParameter": {
        1: "num_output", 2: "bias_term", 3: "pad", 4: "kernel_size", 5: "group", 6: "stride", 11: "kernel_h", 12: "kernel_w",
    },
    "PoolingParameter": {
        1: "pool", 2: "kernel_size", 3: "stride", 4: "pad", 9: "pad_h", 10: "pad_w", 12: "global_pooling",
    },
    "ConcatParameter": {2: "axis"},
    "EltwiseParameter": {1: "operation", 2: "coeff"},
    "ELUParameter": {1: "alpha"},
    "InnerProductParameter": {1: "num_output", 2: "bias_term"},
    "PowerParameter": {1: "power", 2: "scale", 3: "shift"},
    "ReshapeParameter": {1: "shape"},
    "SliceParameter": {2: "slice_point", 3: "axis"},
    "ReLUParameter": {1: "negative_slope"},
    "SoftmaxParameter": {2: "axis"},
    "BatchNormParameter": {1: "use_global_stats", 3: "eps"},
    "ScaleParameter": {1: "axis", 4: "bias_term"},
    "LayerParameter": {
        1: "name", 2: "type", 3: "bottom", 4: "top", 7: "blobs", 104: "concat_param", 106: "convolution_param",
        110: "eltwise_param", 117: "inner_product_param", 121: "pooling_param", 122: "power_param", 123: "relu_param",
        125: "softmax_param", 126: "slice_param", 133: "reshape_param", 139: "batch_norm_param", 140: "elu_param",
        142: "scale_param", 143: "input_param",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_fields_have_caffes_numbers(name):
    fields = messages(())[name].DESCRIPTOR.fields
    assert {field.number: field.name for field in fields} == NUMBERS[name]


def test_values_lie_in_the_file_as_caffe_reads_them():
    known = messages(())
    shape = known["BlobShape"](dim=[2, 300])
    assert shape.SerializeToString() == b"\x0a\x03\x02\xac\x02"  # packed
    assert known["BlobProto"](shape=shape, data=b"\0\0\x80\x3f").SerializeToString(deterministic=True) == (
        b"\x2a\x04\0\0\x80\x3f" + b"\x3a\x05" + shape.SerializeToString()
    )
    convolution = known["ConvolutionParameter"](num_output=3, bias_term=False, pad=[1, 2], kernel_h=5)
    assert convolution.SerializeToString() == b"\x08\x03\x10\0\x18\x01\x18\x02\x58\x05"
    assert known["ScaleParameter"](axis=-1).SerializeToString() == b"\x08" + b"\xff" * 9 + b"\x01"
    assert known["EltwiseParameter"](operation=2, coeff=[1.0]).SerializeToString() == b"\x08\x02\x15\0\0\x80\x3f"
    layer = known["LayerParameter"](name="a", bottom=["b", "c"], relu_param={"negative_slope": 0.5})
    assert layer.SerializeToString() == b"\x0a\x01a\x1a\x01b\x1a\x01c" + b"\xda\x07\x05\x0d\0\0\0\x3f"


def test_enumerations_have_caffes_values():
    known = messages(())
    found = {
        name: {value.name: value.number for value in known[name].DESCRIPTOR.fields[0].enum_type.values}
        for name in ("PoolingParameter", "EltwiseParameter")
    }
    assert found == {
        "PoolingParameter": {"MAX": 0, "AVE": 1, "STOCHASTIC": 2},
        "EltwiseParameter": {"PROD": 0, "SUM": 1, "EltwiseOp_MAX": 2},
    }


def test_plugins_have_numbers_from_1001_on_and_their_fields_from_1():
    known = messages((Reorg, Region))
    layer = known["LayerParameter"].DESCRIPTOR.fields_by_name
    assert [(layer[name].number, layer[name].message_type.name) for name in ("reorg_param", "region_param")] == [
        (1001, "ReorgParameter"),
        (1002, "RegionParameter"),
    ]
    assert [parameter_name(plugin) for plugin in (Reorg, Region)] == ["reorg_param", "region_param"]
    for plugin, name in ((Reorg, "ReorgParameter"), (Region, "RegionParameter")):
        fields = known[name].DESCRIPTOR.fields
        assert [field.name for field in fields] == [spec.name for spec in plugin.field_specs()]
        assert [field.number for field in fields] == list(range(1, len(fields) + 1))
    assert "reorg_param" not in messages(())["LayerParameter"].DESCRIPTOR.fields_by_name


def test_a_field_that_caffe_cannot_hold_is_named():
    with pytest.raises(FieldError, match=r"PRelu\.slope is of type numpy\.ndarray, which no parameter") as caught:
        messages((PRelu,))
    assert caught.value.name == "slope"
    assert "Do: convert the network to ONNX" in str(caught.value)
