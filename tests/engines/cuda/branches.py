"""Blocks of branches that begin with 1x1 convolutions of one tensor, and networks of convolutions, splits and concats."""

import numpy as np
from hypothesis import strategies as st

from tests.passes.nets import Net


def joined(net, parts, channels):
    """A concat, and a convolution that reads it."""
    return net.model(net.conv(net.add("Concat", parts, "joined", channels, axis=1), "last", 8, kernel=1))


def inception():
    """Three branches whose first 1x1 convolutions read one tensor; the first of them is a branch by itself."""
    net = Net(channels=8)
    branches = [net.conv("data", "one", 16, kernel=1)]
    branches.append(net.conv(net.conv("data", "reduce3", 8, kernel=1), "three", 24, kernel=3))
    branches.append(net.conv(net.conv("data", "reduce5", 16, kernel=1), "five", 8, kernel=5))
    return joined(net, branches, 48)


def partial(last=16):
    """A CSP block: one of two convolutions of a tensor is a branch by itself, at the end."""
    net = Net(channels=8)
    deep = net.conv(net.conv("data", "reduce", 8, kernel=1), "deep", 24, kernel=3)
    return joined(net, [deep, net.conv("data", "short", last, kernel=1)], 24 + last)


def stacked():
    """An ELAN block: both convolutions of a tensor, and what follows the second, all in one concat."""
    net = Net(channels=8)
    one, two = net.conv("data", "one", 16, kernel=1), net.conv("data", "two", 8, kernel=1)
    three = net.conv(two, "three", 8, kernel=3)
    four = net.conv(three, "four", 8, kernel=3)
    return joined(net, [four, three, two, one], 40)


def dense():
    """A dense block: each layer reads all before it, joined."""
    net = Net(channels=8)
    x = net.conv("data", "first", 16, kernel=1)
    for index in range(3):
        new = net.conv(x, f"new{index}", 8, kernel=3)
        x = net.add("Concat", [new, x] if index == 1 else [x, new], f"joined{index}", net.channels[x] + 8, axis=1)
    return net.model(net.conv(x, "last", 8, kernel=1))


@st.composite
def networks(draw):
    """Convolutions, splits and concats of each other's tensors."""
    net = Net(channels=8, seed=draw(st.integers(0, 3)))
    tensors = ["data"]
    for index in range(draw(st.integers(3, 9))):
        kind = draw(st.sampled_from(["one", "one", "three", "split", "concat", "concat", "Neg", "rows"]))
        x = draw(st.sampled_from(tensors))
        if kind == "concat":
            parts = draw(st.lists(st.sampled_from(tensors), min_size=2, max_size=4))
            channels = sum(net.channels[part] for part in parts)
            tensors.append(net.add("Concat", parts, f"t{index}", channels, axis=1))
        elif kind == "Neg":
            tensors.append(net.add(kind, [x], f"t{index}"))
        elif kind == "rows":  # what lies there already, or is copied out of a larger tensor
            rows = net.add("Transpose", [x], f"t{index}rows", perm=[0, 2, 3, 1])
            rows = net.add("Neg", [rows], f"t{index}neg") if draw(st.booleans()) else rows
            tensors.append(net.add("Transpose", [rows], f"t{index}", net.channels[x], perm=[0, 3, 1, 2]))
        elif kind == "split" and net.channels[x] >= 16:
            cut = 8 * draw(st.integers(1, net.channels[x] // 8 - 1)) if net.channels[x] > 8 else 8
            sizes = [cut, net.channels[x] - cut]
            net.add("Split", [x, net.constant(f"t{index}s", np.array(sizes, np.int64))], f"t{index}a", cut, axis=1)
            net.nodes[-1].output.append(f"t{index}b")
            net.channels[f"t{index}b"] = sizes[1]
            tensors += [f"t{index}a", f"t{index}b"]
        else:
            channels = draw(st.sampled_from([8, 8, 16, 4]))
            tensors.append(net.conv(x, f"t{index}", channels, kernel=3 if kind == "three" else 1))
    read = {name for node in net.nodes for name in node.input}
    ends = [name for name in tensors[1:] if name not in read] or tensors[-1:]
    extra = draw(st.lists(st.sampled_from(tensors[1:]), max_size=1))
    return net.model(*dict.fromkeys([*ends, *extra]))
