"""How models write each activation that a convolution of engine `cuda` computes itself."""

import numpy as np

FILTERS = 16
SLOPES = np.linspace(-0.5, 1.5, FILTERS, dtype=np.float32)


def slopes(value):
    return np.full((FILTERS, 1, 1), value, np.float32)


WRITTEN = [
    ("linear", "Identity", [], {}),
    ("leaky", "LeakyRelu", [], {}),
    ("leaky", "LeakyRelu", [], {"alpha": 0.3}),
    ("leaky", "LeakyRelu", [], {"alpha": -0.5}),
    ("leaky", "Relu", [], {}),
    ("leaky", "PRelu", [slopes(0)], {}),
    ("leaky", "PRelu", [slopes(0.25)], {}),
    ("leaky", "PRelu", [slopes(1)], {}),
    ("prelu", "PRelu", [slopes(-0.125)], {}),
    ("prelu", "PRelu", [slopes(1.125)], {}),
    ("prelu", "PRelu", [SLOPES.reshape(-1, 1, 1)], {}),
    ("prelu", "PRelu", [abs(SLOPES).reshape(-1, 1, 1)], {}),
    ("clip", "Clip", [np.float32(0), np.float32(6)], {}),
    ("clip", "Clip", [np.float32(-0.25), np.float32(0.75)], {}),
    ("logistic", "Sigmoid", [], {}),
    ("swish", "Swish", [], {}),
    ("quick_gelu", "QuickGelu", [], {}),
    ("gelu", "Gelu", [], {}),
    ("gelu_tanh", "Gelu", [], {"approximate": "tanh"}),
    ("hard_swish", "HardSwish", [], {}),
    ("hard_sigmoid", "HardSigmoid", [], {}),
    ("hard_sigmoid", "HardSigmoid", [], {"alpha": 0.5, "beta": 0.25}),
    ("hard_sigmoid", "HardSigmoid", [], {"alpha": -0.3}),
]
"""The activation's name, the operator, its constants and attributes. Opset 20 has all of them but Swish and QuickGelu."""
IDS = [f"{kind}-{number}" for number, (kind, *_) in enumerate(WRITTEN)]


def write(net, x, output, op, constants, attributes):
    """Add the operator to a network: Swish and QuickGelu as products."""
    if op in ("Swish", "QuickGelu"):
        factor = net.constant(f"{output}_factor", np.float32(1.702))
        read = x if op == "Swish" else net.add("Mul", [x, factor], f"{output}_scaled")
        return net.add("Mul", [x, net.add("Sigmoid", [read], f"{output}_gate")], output)
    names = [net.constant(f"{output}_{index}", array) for index, array in enumerate(constants)]
    return net.add(op, [x, *names], output, **attributes)
