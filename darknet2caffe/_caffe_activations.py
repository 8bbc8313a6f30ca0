"""Darknet's activations as caffe layers (formulas: src/activations.h of pjreddie/darknet, and the fork's own)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._caffe_writer import CaffeWriter
from ._onnx_activations import LEAKY_SLOPE, SELU_ALPHA, SELU_SCALE, chosen_activation
from .layers import Layer

__all__ = ["activate", "before_activation"]

Step = tuple[str, dict[str, Any]]


def _relu(slope: float = 0.0) -> Step:
    return "ReLU", {"negative_slope": slope} if slope else {}


def _power(scale: float = 1.0, shift: float = 0.0, power: float = 1.0) -> Step:
    return "Power", {"scale": scale, "shift": shift, "power": power}


_SIGMOID: Step = ("Sigmoid", {})
_TANH: Step = ("TanH", {})
_SOFTPLUS: Step = ("BNLL", {})
_TIMES_X: Step = ("Eltwise", {})
"""Times what the activation is applied to."""


def _clip(top: float, slope: float = 0.0) -> tuple[Step, ...]:
    """The value from 0 to ``top``; outside it goes on with the slope."""
    return _relu(slope), _power(-1, top), _relu(slope), _power(-1, top)


_STEPS: Mapping[str, tuple[Step, ...]] = {
    "linear": (),
    "leaky": (_relu(LEAKY_SLOPE),),
    "relie": (_relu(0.01),),
    "relu": (_relu(),),
    "logistic": (_SIGMOID,),
    "tanh": (_TANH,),
    "elu": (("ELU", {"alpha": 1.0}),),
    "selu": (("ELU", {"alpha": SELU_ALPHA}), _power(SELU_SCALE)),
    "loggy": (_SIGMOID, _power(2, -1)),
    "ramp": (_relu(1 / 11), _power(1.1)),
    "hardtan": (_power(1, 1), *_clip(2), _power(1, -1)),
    "lhtan": _clip(1, 0.001),
    "plse": (_power(0.125, 0.5), *_clip(1, 0.08)),
    "relu6": _clip(6),
    "mish": (_SOFTPLUS, _TANH, _TIMES_X),
    "swish": (_SIGMOID, _TIMES_X),
    "hard_mish": (_power(1, 2), *_clip(2), _power(0.5), _TIMES_X),
    "gelu": (_TIMES_X, _power(0.035677, 0.797885), _TIMES_X, _TANH, _power(0.5, 0.5), _TIMES_X),
}
"""What is applied one after the other; _clip(1, 0.08) after x/8 + 1/2 is plse, whose outer slope is 1/100."""


def before_activation(layer: Any, writer: CaffeWriter) -> str:
    """The name of the activation's input: the layer's own if the activation can be applied in place."""
    steps = _steps(layer, writer)
    return f"{layer.name}.linear" if _TIMES_X in steps else str(layer.name)


def activate(layer: Any, writer: CaffeWriter, value: str) -> None:
    """Write the layer's activation of ``value``; the result has the layer's name.

    Nothing but ``layer.name`` is changed in place.
    """
    kind, steps = chosen_activation(layer.activation, writer.options.activation), _steps(layer, writer)
    current = value
    for number, (layer_type, fields) in enumerate(steps, start=1):
        name = f"{layer.name}.{kind}" + (f".{number}" if len(steps) > 1 else "")
        if (layer_type, fields) == _TIMES_X:
            top = layer.name if number == len(steps) else name
            writer.product([value, current], top, name=name)
        else:
            inner = _TIMES_X in steps[number:]
            top = (name if current == value else current) if inner else layer.name
            if layer_type == "Power":
                writer.power(current, top, name=name, **fields)
            else:
                target = writer.layer(layer_type, [current], top, name=name)
                for field, value_of_field in fields.items():
                    setattr(getattr(target, f"{layer_type.lower()}_param"), field, value_of_field)
        current = top


def _steps(layer: Layer, writer: CaffeWriter) -> tuple[Step, ...]:
    kind = chosen_activation(layer.activation, writer.options.activation)  # type: ignore[attr-defined]
    if kind not in _STEPS:
        writer.refuse(layer, f"activation={kind} needs a function that none of caffe's layers has")
    return _STEPS[kind]
