"""The two files of an MXNet network, written as MXNet writes them."""

import json
import struct
from pathlib import Path

import numpy as np

TYPES = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3}
CPU = struct.pack("<ii", 1, 0)


def array_bytes(array, version=2):
    """An array as NDArray::Save writes it: of version 0, before 0.9, the dims have 4 bytes and nothing stands before them."""
    kind = struct.pack("<i", TYPES[array.dtype.name])
    if version == 0:
        head = struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
    else:
        storage = b"" if version == 1 else struct.pack("<i", 0)
        head = (
            struct.pack("<I", 0xF993FAC7 + version)
            + storage
            + struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape)
        )
    return head + CPU + kind + array.tobytes()


def params_bytes(arrays, version=2):
    """A list of arrays and their names."""
    held = [struct.pack("<QQQ", 0x112, 0, len(arrays)), *(array_bytes(each, version) for each in arrays.values())]
    names = [struct.pack("<Q", len(name.encode())) + name.encode() for name in arrays]
    return b"".join([*held, struct.pack("<Q", len(arrays)), *names])


class Symbol:
    """A network that gets its nodes one by one; each gives its number."""

    def __init__(self, seed=0):
        self.nodes, self.arrays, self.random = [], {}, np.random.default_rng(seed)

    def node(self, op, name, *inputs, key="attrs", **attributes):
        given = {key: {name: str(value) for name, value in attributes.items()}} if attributes else {}
        self.nodes.append({"op": op, "name": name, **given, "inputs": [[number, 0, 0] for number in inputs]})
        return len(self.nodes) - 1

    def variable(self, name, **attributes):
        return self.node("null", name, **attributes)

    def param(self, name, array, kind="arg"):
        self.arrays[f"{kind}:{name}"] = np.asarray(array, np.float32) if not hasattr(array, "dtype") else array
        return self.variable(name)

    def drawn(self, name, *dims, low=-1.0, high=1.0, kind="arg"):
        return self.param(name, self.random.uniform(low, high, dims).astype(np.float32), kind)

    def conv(self, name, x, channels, filters, kernel=(3, 3), group=1, bias=False, **attributes):
        weight = self.drawn(f"{name}_weight", filters, channels // group, *kernel)
        more = [self.drawn(f"{name}_bias", filters)] if bias else []
        return self.node(
            "Convolution", name, x, weight, *more, kernel=kernel, num_filter=filters, num_group=group,
            no_bias=not bias, **attributes,
        )  # fmt: skip

    def norm(self, name, x, channels, **attributes):
        inputs = [self.drawn(f"{name}_gamma", channels), self.drawn(f"{name}_beta", channels)]
        inputs += [
            self.drawn(f"{name}_moving_mean", channels, kind="aux"),
            self.drawn(f"{name}_moving_var", channels, low=0.5, high=2, kind="aux"),
        ]
        return self.node("BatchNorm", name, x, *inputs, **attributes)

    def prelu(self, name, x, channels):
        return self.node("LeakyReLU", name, x, self.drawn(f"{name}_gamma", channels), act_type="prelu")

    def dense(self, name, x, width, hidden, bias=True, **attributes):
        inputs = [self.drawn(f"{name}_weight", hidden, width)] + ([self.drawn(f"{name}_bias", hidden)] if bias else [])
        return self.node("FullyConnected", name, x, *inputs, num_hidden=hidden, no_bias=not bias, **attributes)

    def json(self, *heads):
        heads = heads or (len(self.nodes) - 1,)
        arguments = [number for number, node in enumerate(self.nodes) if node["op"] == "null"]
        return json.dumps(
            {
                "nodes": self.nodes,
                "arg_nodes": arguments,
                "node_row_ptr": list(range(len(self.nodes) + 1)),
                "heads": [[number, 0, 0] for number in heads],
                "attrs": {"mxnet_version": ["int", 10500]},
            }
        )

    def write(self, folder, *heads, version=2, name="model"):
        """Both files; their paths."""
        symbol, params = Path(folder) / f"{name}-symbol.json", Path(folder) / f"{name}-0000.params"
        symbol.write_text(self.json(*heads))
        params.write_bytes(params_bytes(self.arrays, version))
        return symbol, params


def face(seed=0, size=16):
    """A small network of the form of MobileFaceNet: 3 x size x size pixels of 0..255 → 8 numbers. Its dims equal its channels in places."""
    net = Symbol(seed)
    x = net.variable("data")
    x = net.node(
        "_mul_scalar", "_mulscalar0", net.node("_minus_scalar", "_minusscalar0", x, scalar=127.5), scalar=0.0078125
    )
    x = net.conv("conv_1", x, 3, 8, stride=(2, 2), pad=(1, 1))
    x = first = net.prelu("conv_1_relu", net.norm("conv_1_bn", x, 8, fix_gamma=False, momentum=0.9), 8)
    x = net.conv("conv_2_dw", x, 8, 8, pad=(1, 1), stride=(1, 1), group=8)
    x = net.prelu("conv_2_dw_relu", net.norm("conv_2_dw_bn", x, 8, fix_gamma=True, eps=2e-05), 8)
    x = net.norm("conv_3_bn", net.conv("conv_3", x, 8, 8, kernel=(1, 1)), 8, fix_gamma=False)
    x = net.node("elemwise_add", "_plus0", x, first)
    x = net.norm("conv_4_bn", net.conv("conv_4", x, 8, 8, kernel=(size // 2,) * 2, group=8), 8, fix_gamma=False)
    x = net.dense("pre_fc1", x, 8, 8)
    net.norm("fc1", x, 8, fix_gamma=True, eps=2e-05)
    return net
