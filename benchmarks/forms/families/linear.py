"""Products of matrices."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, is_float, is_whole
from .table import builds


def _matrices(draft: Draft) -> tuple[list[int], list[int]]:
    m, k, n = draft.size(), draft.one(1, 2, 3, 5, 8), draft.size()
    batch = draft.dims(0, 2, filled=True)
    first, second = [*batch, m, k], [*batch, k, n]
    for axis in range(len(batch)):
        if draft.chance(0.3):
            draft.one(first, second)[axis] = 1
    if draft.chance(0.3):
        second = second[-2:]
    if draft.chance(0.1):
        first = [k]
    elif draft.chance(0.1):
        second = [k]
    return first, second


@builds("MatMul")
def matmul(draft: Draft) -> None:
    dtype = draft.type_of("T")
    kind = "edges" if is_whole(dtype) and draft.chance(0.2) else "plain"
    for dims in _matrices(draft):
        draft.read(draft.values(dims, dtype, kind))
    draft.loose = 4.0


@builds("Gemm")
def gemm(draft: Draft) -> None:
    m, k, n = draft.one(1, 2, 3), draft.one(1, 2, 5), draft.one(1, 3, 4)
    dtype = draft.type_of("T")
    scales = (0.5, 1.0, 2.0) if is_float(dtype) else (1.0, 2.0)
    draft.attribute("alpha", *scales)
    draft.attribute("beta", *scales)
    a = draft.attribute("transA", 0, 1, default=0)
    b = draft.attribute("transB", 0, 1, default=0)
    draft.tensor((k, m) if a else (m, k))
    draft.tensor((n, k) if b else (k, n))
    if draft.version < 11 or draft.optional("C", 0.7):
        third = draft.one((m, n), (n,), (1, n), (m, 1), (1,), ())
        if draft.version < 7 and third != (m, n):
            draft.set("broadcast", 1)
            third = (n,)
        draft.tensor(third)
    draft.loose = 4.0


@builds("MatMulInteger")
def matmul_integer(draft: Draft) -> None:
    a, b = draft.type_of("T1"), draft.type_of("T2")
    first, second = _matrices(draft)
    draft.read(draft.values(first, a, "wild"))
    draft.read(draft.values(second, b, "wild"))
    rows, columns = len(first) > 1 and draft.chance(0.3), len(second) > 1 and draft.chance(0.3)
    if draft.optional("a_zero_point"):
        dims = draft.one((), (1,)) if not rows else ((first[-2],) if len(first) == 2 else (*first[:-1], 1))
        draft.read(draft.values(dims, a))
    if draft.optional("b_zero_point"):
        dims = (
            draft.one((), (1,))
            if not columns
            else ((second[-1],) if len(second) == 2 else (*second[:-2], 1, second[-1]))
        )
        draft.read(draft.values(dims, b))
    draft.exact = True


@builds("Einsum")
def einsum(draft: Draft) -> None:
    equation, *shapes = draft.one(
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
        ("...ij,...jk->...ik", (2, 2, 3), (2, 3, 2)),
        ("ij->ji", (2, 3)),
        ("ii->i", (3, 3)),
        ("ij->", (2, 3)),
        ("i,i", (4,), (4,)),
        ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 2, 4)),
        ("ij,kj->ik", (2, 3), (4, 3)),
        (" i j , j k -> i k ", (2, 3), (3, 2)),
        ("ij,ij->ij", (2, 3), (2, 3)),
    )
    draft.set("equation", equation)
    for dims in shapes:
        draft.tensor(dims)
    draft.loose = 4.0


@builds("Det")
def det(draft: Draft) -> None:
    size = draft.one(1, 2, 3)
    draft.tensor((*draft.dims(0, 2, filled=True), size, size))
    draft.loose = 16.0


@builds("AffineGrid")
def affine_grid(draft: Draft) -> None:
    draft.attribute("align_corners", 0, 1)
    n, c = draft.one(1, 2), 2
    if draft.chance():
        draft.tensor((n, 2, 3), "T1")
        draft.read(np.array([n, c, draft.one(2, 3, 4), draft.one(2, 3, 5)], np.int64))
    else:
        draft.tensor((n, 3, 4), "T1")
        draft.read(np.array([n, c, 2, draft.one(2, 3), draft.one(3, 4)], np.int64))
    draft.loose = 4.0


@builds("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(draft: Draft) -> None:
    n, classes = draft.one(1, 3), draft.one(2, 4)
    inner = draft.dims(0, 2, filled=True)
    draft.attribute("reduction", "none", "sum", "mean")
    ignored = draft.attribute("ignore_index", 0, 1, -1)
    first = draft.schema.inputs[0].type_str
    draft.tensor((n, classes, *inner), first)
    targets = draft.rng.integers(0, classes, (n, *inner))
    if ignored == -1:
        targets.reshape(-1)[0] = -1
    draft.read(targets.astype(draft.type_of("Tind")))
    if draft.optional("weight" if draft.has_input("weight") else "weights"):
        draft.tensor((classes,), first, "positive")
    if draft.name == "SoftmaxCrossEntropyLoss":
        draft.results("y1")
    draft.loose = 8.0
