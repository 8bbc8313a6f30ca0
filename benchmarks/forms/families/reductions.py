"""Operators that reduce, scan or normalize along axes."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit, is_float, is_whole
from .table import builds

_LOGS = {"ReduceLogSum", "ReduceLogSumExp"}


def _axes(draft: Draft, rank: int) -> list[int]:
    count = int(draft.rng.integers(1, rank + 1))
    chosen = sorted(int(axis) for axis in draft.rng.choice(rank, count, replace=False))
    if draft.has_negative_axes() and draft.chance(0.4):
        return [axis - rank for axis in chosen]
    return chosen


@builds(
    *(f"Reduce{kind}" for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
)
def reduction(draft: Draft) -> None:
    """Axes as an attribute or an input, empty ones with and without noop_with_empty_axes."""
    dims = draft.dims(0, 4)
    dtype = draft.type_of("T")
    draft.attribute("keepdims", 0, 1)
    draft.attribute("noop_with_empty_axes", 0, 1)
    if 0 in dims and draft.version < 18:
        raise Unfit("sums of nothing are not defined before 18")
    if 0 in dims and draft.name in ("ReduceMean", "ReduceMax", "ReduceMin"):
        raise Unfit("a mean or largest of nothing")
    kind = "plain"
    if draft.name == "ReduceLogSum":
        kind = "positive"
    elif draft.name in ("ReduceMax", "ReduceMin") and draft.chance():
        kind = "edges" if is_whole(dtype) else "wild"
    elif draft.name in ("ReduceSum", "ReduceL1") and is_whole(dtype) and dtype.itemsize == 8 and draft.chance(0.3):
        kind = "edges"
    elif draft.name in ("ReduceProd", "ReduceSumSquare") and dtype.itemsize == 1:
        kind = "ties"
    draft.read(draft.values(dims, dtype, kind))
    if draft.has("axes"):
        if dims and draft.chance(0.75):
            draft.set("axes", _axes(draft, len(dims)))
    elif draft.optional("axes", 0.8):
        empty = not dims or draft.chance(0.2)
        draft.read(np.array([] if empty else _axes(draft, len(dims)), np.int64))
    draft.loose = 4.0


@builds("ArgMax", "ArgMin")
def arg_extreme(draft: Draft) -> None:
    """Ties, of which the first or the last counts."""
    dims = draft.dims(1, 4, filled=True)
    dtype = draft.type_of("T")
    draft.attribute("axis", draft.axis(len(dims)))
    draft.attribute("keepdims", 0, 1)
    draft.attribute("select_last_index", 0, 1)
    draft.read(draft.values(dims, dtype, draft.one("ties", "plain", "edges" if is_whole(dtype) else "ties")))
    draft.exact = True


@builds("CumSum", "CumProd")
def scan(draft: Draft) -> None:
    """Exclusive and reversed sums."""
    dims = draft.dims(1, 4)
    dtype = draft.type_of("T")
    draft.attribute("exclusive", 0, 1)
    draft.attribute("reverse", 0, 1)
    whole = is_whole(dtype) and dtype.itemsize == 8 and draft.name == "CumSum"
    draft.read(draft.values(dims, dtype, "edges" if whole and draft.chance(0.3) else "plain"))
    draft.read(np.asarray(draft.axis(len(dims))).astype(draft.type_of("T2")).reshape(draft.one((), (), (1,))))
    draft.loose = 4.0


@builds("Softmax", "LogSoftmax", "Hardmax")
def softmax(draft: Draft) -> None:
    """Before opset 13 all axes from one on are one."""
    dims = draft.dims(1, 4, filled=True)
    draft.attribute("axis", draft.axis(len(dims)) if draft.version >= 11 else int(draft.rng.integers(len(dims))))
    if draft.version < 13 and "axis" not in draft.attributes and len(dims) < 2:
        raise Unfit("axis 1 of a vector")
    draft.tensor(dims, kind="ties" if draft.name == "Hardmax" and draft.chance() else "plain")
    draft.loose = 2.0


@builds("LpNormalization")
def lp_normalization(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    draft.attribute("axis", int(draft.rng.integers(-len(dims), len(dims))))
    draft.attribute("p", 1, 2)
    draft.tensor(dims, kind=draft.one("plain", "positive"))


@builds("MeanVarianceNormalization")
def mean_variance(draft: Draft) -> None:
    dims = draft.dims(4, 4, filled=True)
    draft.attribute("axes", [0, 2, 3], [1, 2, 3], [0, 1, 2, 3], [2, 3])
    draft.attribute("across_channels", 0, 1)
    draft.attribute("normalize_variance", 0, 1)
    draft.tensor(dims)
    draft.loose = 16.0


@builds("TopK")
def top_k(draft: Draft) -> None:
    """Ties: the lower index comes first."""
    dims = draft.dims(1, 4, filled=True)
    dtype = draft.type_of("T")
    axis = draft.attribute("axis", draft.axis(len(dims)), default=-1)
    largest, order = draft.attribute("largest", 0, 1, default=1), draft.attribute("sorted", 0, 1, default=1)
    del largest
    count = int(draft.rng.integers(1, dims[axis] + 1))
    values = draft.values(dims, dtype, draft.one("ties", "plain", "edges" if is_whole(dtype) else "plain"))
    if not order:  # in any order: where all are taken only the set is defined
        values = np.broadcast_to(np.asarray(1).astype(dtype), dims)
    draft.read(np.ascontiguousarray(values))
    if draft.version < 10:
        draft.set("k", count)
    else:
        draft.read(np.array([count], np.int64))
    draft.outputs = ["y0", "y1"]
    draft.exact = True


@builds("BatchNormalization")
def batch_normalization(draft: Draft) -> None:
    """In inference; before opset 9 also with a mean for each place."""
    dims = draft.dims(2, 5, filled=True)
    if draft.chance(0.1) and draft.version >= 9:
        dims = dims[:1]
    draft.attribute("epsilon", 1e-5, 1e-3, 0.1)
    draft.attribute("momentum", 0.9, 0.5)
    draft.attribute("consumed_inputs", [0, 0, 0, 1, 1])
    draft.attribute("is_test", 1, always=True)
    spatial = draft.attribute("spatial", 0, 1, default=1) if draft.chance(0.3) else 1
    draft.attribute("training_mode", 0)
    size = (dims[1] if len(dims) > 1 else 1,) if spatial else dims[1:]
    draft.tensor(dims, "T")
    draft.read(draft.values(size, draft.type_of_input(1)))
    draft.read(draft.values(size, draft.type_of_input(2)))
    draft.read(draft.values(size, draft.type_of_input(3)))
    draft.read(draft.values(size, draft.type_of_input(4), "positive"))
    draft.loose = 4.0


@builds("InstanceNormalization")
def instance_normalization(draft: Draft) -> None:
    dims = draft.dims(3, 5, filled=True)
    draft.attribute("epsilon", 1e-5, 1e-2)
    draft.attribute("consumed_inputs", [0])
    draft.tensor(dims)
    draft.tensor((dims[1],))
    draft.tensor((dims[1],))
    draft.loose = 16.0


@builds("GroupNormalization")
def group_normalization(draft: Draft) -> None:
    """Scales for each group in opset 18, for each channel from 21 on."""
    groups = draft.one(1, 2, 3)
    dims = (draft.one(1, 2, 3), groups * draft.one(1, 2, 4), *draft.dims(1, 3, filled=True))
    draft.set("num_groups", groups)
    draft.attribute("epsilon", 1e-5, 1e-2)
    draft.attribute("stash_type", 1)
    draft.tensor(dims)
    size = groups if draft.version < 21 else dims[1]
    draft.tensor((size,))
    draft.tensor((size,))
    draft.loose = 16.0


@builds("LayerNormalization", "RMSNormalization")
def layer_normalization(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    axis = draft.attribute("axis", int(draft.rng.integers(-len(dims), len(dims))), default=-1)
    draft.attribute("epsilon", 1e-5, 1e-2)
    draft.attribute("stash_type", 1)
    inner = dims[axis:] if axis >= 0 else dims[len(dims) + axis :]
    if draft.name == "RMSNormalization":
        draft.read(draft.values(dims, draft.type_of("T")))
        draft.read(draft.values(inner, draft.type_of("V")))
    else:
        draft.tensor(dims)
        draft.tensor(inner)
        if draft.optional("B"):
            draft.tensor(inner)
        if draft.type_of("T") in (np.float32, np.float64):
            draft.results("y1", "y2")
    draft.loose = 32.0 if is_float(draft.type_of("T")) else 1.0
