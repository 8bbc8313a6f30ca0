"""Fourier transforms and windows."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..draft import Draft, Unfit
from .table import builds


@builds("HannWindow", "HammingWindow", "BlackmanWindow")
def window(draft: Draft) -> None:
    draft.attribute("periodic", 0, 1)
    draft.attribute("output_datatype", TensorProto.FLOAT, TensorProto.DOUBLE)
    draft.read(np.asarray(draft.one(2, 5, 8)).astype(draft.type_of("T1")))
    draft.loose = 4.0


@builds("DFT")
def dft(draft: Draft) -> None:
    length = draft.one(3, 4, 6)
    inverse = draft.attribute("inverse", 0, 1, default=0)
    onesided = draft.attribute("onesided", 0, 1, default=0)
    parts = draft.one(1, 2)
    if onesided and not inverse:
        parts = 1
    if onesided and inverse:
        raise Unfit("one side of an inverse is not said before 20")
    dims = (draft.one(1, 2), length, draft.one(2, 3), parts)
    axis = draft.one(1, 2, -2)
    draft.tensor(dims, "T1")
    if draft.optional("dft_length", 0.3):
        draft.read(np.asarray(draft.one(3, 4, 6)).astype(draft.type_of("T2")))
    if draft.version < 20:
        if axis == 1:
            draft.attribute("axis", 1)
        else:
            draft.set("axis", 2)
    elif draft.optional("axis", 0.6):
        draft.read(np.asarray(axis, np.int64))
    draft.loose = 64.0


@builds("STFT")
def stft(draft: Draft) -> None:
    n, length, frame = draft.one(1, 2), draft.one(12, 16), draft.one(4, 6)
    draft.attribute("onesided", 0, 1)
    draft.tensor((n, length, 1), "T1")
    index = draft.type_of("T2")
    draft.read(np.asarray(draft.one(2, 3)).astype(index))
    if draft.chance(0.7):
        draft.read(draft.values((frame,), draft.type_of("T1"), "positive"))
        if draft.chance():
            draft.read(np.asarray(frame).astype(index))
    else:
        draft.skip()
        draft.read(np.asarray(frame).astype(index))
    draft.loose = 64.0
