"""Networks that grow layer by layer, as darknet works out their shapes (its src/*_layer.c and src/parser.c).

One function per layer type draws a layer that darknet computes; where none fits, it adds nothing, or a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import strategies as st

__all__ = ["ACTIVATIONS", "Draft", "draft"]

T = TypeVar("T")
Shape = tuple[int, int, int]

MAX_SIDE, MAX_CHANNELS, MAX_VALUES, MAX_WEIGHTS = 24, 20, 6000, 40_000
ACTIVATIONS = (
    *("linear", "leaky", "relu", "logistic", "loggy", "elu", "selu", "relie", "ramp", "tanh", "plse"),
    *("stair", "hardtan", "lhtan"),
)


@dataclass(frozen=True)
class _Output:
    """What a layer gives: darknet keeps no shape of softmax, cost, detection and others, only the number of values."""

    shape: Shape
    is_map: bool = True
    is_written: bool = True  # not by cost

    @property
    def count(self) -> int:
        return math.prod(self.shape)


class Draft:
    """A network that grows layer by layer.

    Args:
        draw: Hypothesis's function.
        image: What the first layer reads.
    """

    def __init__(self, draw: st.DrawFn, image: _Output) -> None:
        self.draw, self.image = draw, image
        self.outputs: list[_Output] = []
        self.sections: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, str] = {}
        self.keys: list[str] = []  # of the last section, those left out too

    @property
    def last(self) -> _Output:
        return self.outputs[-1] if self.outputs else self.image

    @property
    def map(self) -> Shape:
        """Channels, height and width of what the next layer reads."""
        return self.last.shape

    def pick(self, values: Sequence[T]) -> T:
        return self.draw(st.sampled_from(list(values)))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def add(self, kind: str, made: _Output, /, **options: Any) -> None:
        """Add a layer; options that are None are left out, so that darknet's default is taken."""
        self.sections.append((kind, {key: value for key, value in options.items() if value is not None}))
        self.keys = sorted(options)
        self.outputs.append(made)

    def activation(self) -> str:
        return self.pick(ACTIVATIONS)

    def reference(self, index: int) -> int:
        """A layer's number: absolute, or relative to the next layer."""
        return index if self.flag() else index - len(self.outputs)


def _map(*shape: int) -> _Output:
    c, h, w = shape
    return _Output((c, h, w))


def _flat(count: int) -> _Output:
    return _Output((count, 1, 1), is_map=False)


def _divisors(number: int, most: int) -> list[int]:
    return [divisor for divisor in range(1, most + 1) if number % divisor == 0]


def _convolutional(d: Draft) -> None:
    c, h, w = d.map
    size = d.pick([k for k in range(1, 8) if k <= min(h, w) + 2 * (k // 2)])
    stride = 1 if size == 1 else d.number(1, 3)  # darknet's CPU code reads wrong values for size 1 with a stride
    pads = [None, *(p for p in range(size + 1) if size > 1 and min(h, w) + 2 * p >= size)]
    pad = d.pick([1] if min(h, w) < size else [None, 0, 1])
    padding = d.pick(pads if pad or size <= min(h, w) else [p for p in pads if p is not None])
    groups = d.pick(_divisors(c, c))
    side = size // 2 if pad else padding or 0
    filters = groups * d.number(1, max(1, min(MAX_CHANNELS // groups, MAX_VALUES // (h * w * groups))))
    out = [(into + 2 * side - size) // stride + 1 for into in (h, w)]
    d.add(
        "convolutional",
        _map(filters, *out),
        **{"filters": filters, "size": size, "stride": stride if stride > 1 else d.pick([None, 1]), "pad": pad},
        padding=padding,
        groups=groups if groups > 1 else d.pick([None, 1]),
        activation=d.pick([None, d.activation()]),
        batch_normalize=d.pick([None, 0, 1]),
        flipped=d.pick([None, None, 1]) if groups == 1 else None,
    )


def _deconvolutional(d: Draft) -> None:
    _, h, w = d.map
    size = d.number(1, 5)
    stride = d.pick([s for s in (1, 2, 3) if s == 1 or (max(h, w) - 1) * s + size <= MAX_SIDE + 8])
    full = [(into - 1) * stride + size for into in (h, w)]
    pad = d.pick([None, 1]) if min(full) > 2 * (size // 2) else None
    padding = d.number(0, (min(full) - 1) // 2) if d.flag() else None
    cut = size // 2 if pad else padding or 0
    out = [side - 2 * cut for side in full]
    filters = d.number(1, max(1, min(8, MAX_VALUES // math.prod(out))))
    options = {"filters": filters, "size": size, "stride": stride, "pad": pad, "padding": padding}
    batch_normalize = d.pick([None, 1])
    activation = d.activation()
    d.add("deconvolutional", _map(filters, *out), **options, batch_normalize=batch_normalize, activation=activation)


def _connected(d: Draft) -> None:
    output = d.number(1, max(1, min(64, MAX_WEIGHTS // d.last.count)))
    options = {"output": output, "activation": d.pick([None, d.activation()]), "batch_normalize": d.pick([None, 0, 1])}
    d.add("connected", _map(output, 1, 1), **options)


def _local(d: Draft) -> None:
    c, h, w = d.map
    filters, size = d.number(1, 4), d.pick([k for k in range(1, 6) if k <= min(h, w) or k % 2])
    stride = d.number(1, 3)
    pads = [None, *range(size + 1)] if size <= min(h, w) else range(1, size + 1)
    pads = [pad for pad in pads if _local_fits(h, size, stride, pad) and _local_fits(w, size, stride, pad)]
    if not pads:
        size, pads = 1, [None]
    pad = d.pick(pads)
    out = [(into - (1 if pad else size)) // stride + 1 for into in (h, w)]
    filters = max(1, min(filters, MAX_WEIGHTS // (c * size**2 * math.prod(out))))
    options = {"filters": filters, "size": size, "stride": stride, "pad": pad, "activation": d.activation()}
    d.add("local", _map(filters, *out), **options)


def _local_fits(into: int, size: int, stride: int, pad: int | None) -> bool:
    """Whether the output's size, worked out from a flag, is that of the windows (local_layer.c, im2col.c)."""
    return (
        into + 2 * (pad or 0) >= size
        and (into - (1 if pad else size)) // stride == (into + 2 * (pad or 0) - size) // stride
    )


def _maxpool(d: Draft) -> None:
    c, h, w = d.map
    stride = d.number(1, 4)
    size = d.pick([None, *range(1, 7)])
    side = size or stride
    paddings = [p for p in range(2 * side) if all(_pool_fits(into, side, stride, p) for into in (h, w))]
    if not paddings:
        stride, size, side, paddings = 1, 1, 1, [0]
    default = [None] if side - 1 in paddings else []
    padding = d.pick([*default, *default, *paddings])
    total = side - 1 if padding is None else padding
    out = [(into + total - side) // stride + 1 for into in (h, w)]
    d.add("maxpool", _map(c, *out), size=size, stride=stride, padding=padding)


def _pool_fits(into: int, size: int, stride: int, padding: int) -> bool:
    """Whether each window has a value of the map (forward_maxpool_layer)."""
    if into + padding < size:
        return False
    last = (into + padding - size) // stride * stride - padding // 2
    return padding // 2 < size and last < into


def _avgpool(d: Draft) -> None:
    d.add("avgpool", _map(d.map[0], 1, 1))


def _dropout(d: Draft) -> None:
    if d.outputs:
        d.add("dropout", d.last, probability=d.pick([None, 0, 0.5]))


def _batchnorm(d: Draft) -> None:
    d.add("batchnorm", d.last)


def _crop(d: Draft) -> None:
    c, h, w = d.map
    height, width = d.number(1, h), d.number(1, w)
    options = {"crop_height": height, "crop_width": width, "flip": d.pick([None, 0, 1]), "angle": d.pick([None, 7])}
    d.add("crop", _map(c, height, width), **options, noadjust=d.pick([None, 0, 1]))


def _route(d: Draft) -> None:
    readable = [index for index, output in enumerate(d.outputs) if output.is_written]
    if not readable:
        return
    if d.flag():  # maps of one size
        sizes = {d.outputs[index].shape[1:] for index in readable if d.outputs[index].is_map}
        size = d.pick(sorted(sizes)) if sizes else None
        readable = [i for i in readable if d.outputs[i].shape[1:] == size and d.outputs[i].is_map] or readable
    chosen: list[int] = []
    for _ in range(d.number(1, 4)):
        index = d.pick(readable)
        if sum(d.outputs[i].count for i in [*chosen, index]) <= 2 * MAX_VALUES:
            chosen.append(index)
    chosen = chosen or [d.pick(readable)]
    outputs = [d.outputs[index] for index in chosen]
    sizes = {output.shape[1:] for output in outputs}
    if all(output.is_map for output in outputs) and len(sizes) == 1:
        made = _map(sum(output.shape[0] for output in outputs), *sizes.pop())
    else:
        made = _flat(sum(output.count for output in outputs))
    d.add("route", made, layers=d.pick([",", ", "]).join(str(d.reference(index)) for index in chosen))


def _shortcut(d: Draft) -> None:
    _, h, w = d.map
    fitting = [
        index
        for index, output in enumerate(d.outputs)
        if output.is_map and output.is_written and _factors(output.shape[1], h) == _factors(output.shape[2], w)
    ]
    if not fitting:
        return
    factors = [None, 1, 0.5, -0.5, 2, 0.25]
    options = {"from": d.reference(d.pick(fitting)), "alpha": d.pick(factors), "beta": d.pick(factors)}
    d.add("shortcut", d.last, **options, activation=d.pick([None, d.activation()]))


def _factors(added: int, own: int) -> tuple[int, int]:
    """``stride`` and ``sample`` of shortcut_cpu; darknet ends where those of width and height differ."""
    return added // own, own // added


def _upsample(d: Draft) -> None:
    c, h, w = d.map
    strides = [s for s in (1, 2, 3) if max(h, w) * s <= MAX_SIDE and c * h * w * s * s <= MAX_VALUES]
    strides += [-s for s in (1, 2, 3) if h % s == w % s == 0]
    stride = d.pick([*strides, *([None] if 2 in strides else [])])
    step = stride or 2
    out = (h * step, w * step) if step > 0 else (h // -step, w // -step)
    d.add("upsample", _map(c, *out), stride=stride, scale=d.pick([None, 1, 0.5, -1.5]))


def _reorg(d: Draft) -> None:
    c, h, w = d.map
    form = d.pick(["forward", "reverse", "flatten", "flatten reverse", "extra"])
    stride = d.pick(
        [
            s
            for s in (1, 2, 3)
            if (c % s**2 == 0 or form in ("flatten", "extra"))
            and (h % s == w % s == 0 or "reverse" in form or form == "extra")
        ]
    )
    shape = (c // stride**2, h * stride, w * stride) if "reverse" in form else (c * stride**2, h // stride, w // stride)
    extra = d.number(1, 9) if form == "extra" else None
    made = _map(*shape) if extra is None else _flat(c * h * w + extra)
    options = {"stride": stride, "reverse": 1 if "reverse" in form else None, "extra": extra}
    d.add("reorg", made, **options, flatten=1 if "flatten" in form else None)


def _l2norm(d: Draft) -> None:
    d.add("l2norm", d.last)


def _logistic(d: Draft) -> None:
    d.add("logistic", d.last)


def _activation(d: Draft) -> None:
    d.add("activation", d.last, activation=d.pick([None, d.activation()]))


def _normalization(d: Draft) -> None:
    sizes = list(range(1, 2 * d.map[0] + 2))
    size = d.pick([None, *sizes] if d.map[0] >= 2 else sizes)
    alpha, beta, kappa = d.pick([None, 0.001, 0.0005]), d.pick([None, 0.5, 1]), d.pick([None, 1, 2])
    d.add("normalization", d.last, size=size, alpha=alpha, beta=beta, kappa=kappa)


def _softmax(d: Draft) -> None:
    count = d.last.count
    groups, temperature = d.pick([None, *_divisors(count, 12)]), d.pick([None, 1, 0.5, 3])
    tree = None
    if 2 <= count <= 300 and d.flag():
        name = f"{len(d.outputs)}.tree"
        d.files[name], tree = _tree(d, count), f"{{folder}}/{name}"
    d.add("softmax", replace(d.last, is_map=False), groups=groups, temperature=temperature, tree=tree)


def _tree(d: Draft, count: int) -> str:
    """Classes with the numbers of their parents: siblings stand side by side, roots first."""
    lines: list[str] = []
    while len(lines) < count:
        siblings = d.number(1, min(12, count - len(lines)))
        parent = d.number(0, len(lines) - 1) if lines else -1
        lines += [f"n{len(lines) + k:03d} {parent}" for k in range(siblings)]
    return "\n".join(lines) + "\n"


def _detection(d: Draft) -> None:
    count = d.last.count
    side = d.pick([s for s in range(1, 8) if count % s**2 == 0])
    per_cell = count // side**2
    coords = d.number(1, 4)
    num = d.number(0, min(3, per_cell // (1 + coords)))
    if num == 0:
        num, coords = 1, 0
    classes = per_cell - num * (1 + coords)
    softmax = d.pick([None, 1]) if classes else None
    options = {"side": side, "num": num, "classes": classes, "coords": coords, "softmax": softmax}
    d.add("detection", replace(d.last, is_map=False), **options, sqrt=d.pick([None, 1]))


def _region(d: Draft) -> None:
    num, coords, classes = d.number(1, 3), d.pick([4, 4, 2, 3, 5]), d.number(1, 4)
    _head_convolution(d, num * (coords + 1 + classes))
    options = {"num": num, "classes": classes, "coords": d.pick([None, 4]) if coords == 4 else coords}
    anchors = d.pick([None, ",".join(str(0.5 + k) for k in range(2 * num))])
    d.add("region", d.last, **options, anchors=anchors, softmax=d.pick([None, 0, 1]), background=d.pick([None, 0, 1]))


def _yolo(d: Draft) -> None:
    num, classes = d.number(1, 4), d.number(0, 4)
    mask = d.draw(st.none() | st.lists(st.integers(0, num - 1), min_size=1, max_size=3))
    _head_convolution(d, (num if mask is None else len(mask)) * (5 + classes))
    anchors = ", ".join(f"{4 + k},{9 + k}" for k in range(num))
    d.add("yolo", d.last, num=num, classes=classes, anchors=anchors, mask=mask and ",".join(map(str, mask)))


def _head_convolution(d: Draft, filters: int) -> None:
    if d.map[0] != filters or d.flag():
        _, h, w = d.map
        d.add("convolutional", _map(filters, h, w), filters=filters, size=1, activation="linear")


def _cost(d: Draft) -> None:
    d.add("cost", replace(d.last, is_map=False, is_written=False), type=d.pick([None, "sse", "L1"]))


_ON_MAPS: Mapping[Callable[[Draft], None], int] = {
    **dict.fromkeys((_convolutional,), 6),
    **dict.fromkeys((_deconvolutional, _local, _maxpool, _batchnorm, _route, _shortcut, _upsample, _reorg), 3),
    **dict.fromkeys((_crop, _l2norm, _normalization, _activation, _connected, _region, _yolo), 2),
    **dict.fromkeys((_avgpool, _dropout, _logistic, _softmax, _detection), 1),
}
_ON_VALUES: Mapping[Callable[[Draft], None], int] = {
    **dict.fromkeys((_connected, _route), 4),
    **dict.fromkeys((_dropout, _logistic, _activation, _softmax, _detection), 1),
}


def _weighted(table: Mapping[Callable[[Draft], None], int]) -> list[Callable[[Draft], None]]:
    return [function for function, weight in table.items() for _ in range(weight)]


def draft(draw: st.DrawFn, least: int, most: int) -> Draft:
    """A network of that many layers; heads bring one more, and a cost may end it."""
    if draw(st.integers(0, 9)) == 0:
        made = Draft(draw, _flat(draw(st.integers(1, 200))))
    else:
        side = st.integers(1, MAX_SIDE) | st.sampled_from([8, 12, 16])
        made = Draft(draw, _map(draw(st.sampled_from([1, 2, 3, 3, 4, 6, 8, 9])), draw(side), draw(side)))
    on_maps, on_values = _weighted(_ON_MAPS), _weighted(_ON_VALUES)
    wanted = draw(st.integers(least, most))
    while len(made.outputs) < wanted:
        if made.last.is_written:
            made.pick(on_maps if made.last.is_map else on_values)(made)
        else:
            _route(made)  # after a cost
        if made.outputs and made.number(0, 60) == 60:
            _cost(made)
    if made.number(0, 4) == 0 and made.last.is_written:
        _cost(made)
    return made
