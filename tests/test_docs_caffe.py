"""The program in docs/how-to/caffe.md runs as it stands, and its table's claims hold."""

import pytest

from darknet2caffe import to_caffe
from tests.darknet2caffe.caffe import read_prototxt, write_caffe
from tests.darknet2caffe.test_to_caffe import small
from tests.pages import Reader, texts

SHUFFLENET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 6 dim: 2 dim: 2 } } }
layer { name: "shuffle" type: "ShuffleChannel" bottom: "data" top: "shuffle" shuffle_channel_param { group: 3 } }
"""


def test_the_program_reads_a_network_with_a_layer_of_its_own(tmp_path):
    (program,) = texts("docs/how-to/caffe.md", "python")
    prototxt, caffemodel = write_caffe(tmp_path, SHUFFLENET)
    prototxt.rename(tmp_path / "shufflenet.prototxt")
    caffemodel.rename(tmp_path / "shufflenet.caffemodel")
    program += "print([(node.op_type, node.attribute[0].i) for node in model.graph.node])"
    assert Reader(tmp_path).python(program) == "[('ChannelShuffle', 3)]\n"


TYPES = {
    "[conv]\nbatch_normalize=1\n[logistic]\n": {"Convolution", "Sigmoid"},
    "[batchnorm]\n": {"BatchNorm", "Scale"},
    "[maxpool]\nsize=2\nstride=2\n[avgpool]\n": {"Pooling"},
    "[local]\nsize=3\nactivation=linear\n": {"Slice", "Convolution", "Reshape", "Concat"},
    "[upsample]\n": {"Deconvolution"},
    "[upsample]\nstride=-2\n": {"Pooling", "Power"},
    "[reorg]\nflatten=1\n": {"Slice", "Concat", "Reshape"},
    "[reorg]\nstride=2\n": {"Reorg"},
    "[l2norm]\n": {"Power", "Convolution", "Eltwise"},
    "[conv]\nactivation=leaky\n": {"Convolution", "ReLU"},
    "[conv]\nactivation=hardtan\n": {"Convolution", "Power", "ReLU"},
    "[conv]\nactivation=selu\n": {"Convolution", "ELU", "Power"},
}
FORK_TYPES = {
    "[reorg3d]\nstride=2\n": {"Convolution", "Concat"},
    "[conv]\nactivation=swish\n": {"Convolution", "Sigmoid", "Eltwise"},
    "[conv]\nactivation=mish\n": {"Convolution", "BNLL", "TanH", "Eltwise"},
}


@pytest.mark.parametrize("layers", [*TYPES, *FORK_TYPES])
def test_layers_take_the_types_that_the_table_names(tmp_path, layers):
    net = small(layers, "alexeyab" if layers in FORK_TYPES else "pjreddie")
    types = {layer.type for layer in read_prototxt(to_caffe(net, tmp_path / "a")[0]).layer}
    assert types == {"Input"} | (TYPES | FORK_TYPES)[layers]
