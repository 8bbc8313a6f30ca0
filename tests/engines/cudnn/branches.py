"""Blocks of branches that begin with 1x1 convolutions of one tensor."""

from __future__ import annotations

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
    """A CSP block: one of two siblings is a branch by itself, at the end."""
    net = Net(channels=8)
    deep = net.conv(net.conv("data", "reduce", 8, kernel=1), "deep", 24, kernel=3)
    return joined(net, [deep, net.conv("data", "short", last, kernel=1)], 24 + last)


def stacked():
    """An ELAN block: both siblings, and what follows the second, all in one concat."""
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
