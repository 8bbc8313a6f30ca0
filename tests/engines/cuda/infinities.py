"""A network whose sums are infinite."""

import numpy as np

from tests.passes.nets import Net


def infinite_net(channels=16):
    """Relu behind a convolution of 3x3, and behind one to which its input is added; inputs with infinities and NaN; what must come out."""
    net = Net(channels, size=8)
    for name, bias in (("plain", 1.0), ("behind", 2.0)):
        w = net.constant(f"{name}_w", np.ones((channels, channels, 3, 3), np.float32))
        b = net.constant(f"{name}_b", np.full(channels, bias, np.float32))
        net.add("Conv", ["data", w, b], name, channels, pads=[1] * 4)
    net.add("Add", ["behind", "data"], "sum")
    outputs = [net.add("Relu", [name], f"relu_{name}") for name in ("plain", "sum")]
    x = np.zeros((1, channels, 8, 8), np.float32)
    wanted = {output: np.full_like(x, bias) for output, bias in zip(outputs, (1.0, 2.0), strict=True)}
    for (row, column), value in {(0, 0): -np.inf, (0, 7): np.inf, (7, 0): np.nan}.items():
        x[0, 1, row, column] = value
        for made in wanted.values():
            made[0, :, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = np.maximum(value, 0)
    return net.model(*outputs), {"data": x}, wanted
