"""What a plan does to each byte of its memory, told from formats and places alone, without the planner's own rules."""

from itertools import combinations
from typing import Any

import numpy as np

VECTOR = 16  # bytes that one access of a convolution or pool reads or writes


def touched(plan, name, rounded=True):
    """The bytes of the arena that a tensor's values lie in, those that fill the last 16 of a pixel included."""
    placed = plan.tensors[name]
    form, size = placed.format, placed.format.dtype.itemsize
    found = np.zeros(plan.memory.bytes, bool)
    begin = plan.memory.offsets[placed.storage] + placed.offset
    if not form.nhwc:
        found[begin : begin + int(np.prod(form.dims)) * size] = True
        return found
    n, c, h, w = form.dims
    run = c * size
    if rounded:
        run = min(-(-run // VECTOR) * VECTOR, form.pitch * size)
    for pixel in range(n * h * w):
        at = begin + pixel * form.pitch * size
        found[at : at + run] = True
    return found


def accesses(plan):
    """Bytes that each step reads, and bytes that it writes."""
    known, found = {}, []

    def bytes_of(name, rounded):
        if (name, rounded) not in known:
            known[name, rounded] = touched(plan, name, rounded)
        return known[name, rounded]

    for step in plan.steps:
        rounded = "part" not in step.attributes  # a copy into a part of a tensor writes value by value
        sides = []
        for names in (step.inputs, step.outputs):
            side = np.zeros(plan.memory.bytes, bool)
            for name in names:
                if name in plan.tensors:
                    side |= bytes_of(name, rounded)
            sides.append(side)
        found.append(tuple(sides))
    return found


def enforced(schedule):
    """What streams and waits by themselves put before each step, as sets."""
    found = list[Any]()
    for index, (stream, waits) in enumerate(zip(schedule.streams, schedule.waits, strict=True)):
        direct = {*waits, *(earlier for earlier in range(index) if schedule.streams[earlier] == stream)}
        found.append(direct.union(*(found[earlier] for earlier in direct)))
    return found


def races(plan):
    """Pairs of steps that touch one byte, one of them writing it, and that may run side by side."""
    before, steps = enforced(plan.schedule), accesses(plan)
    return [
        (plan.steps[first].name, plan.steps[second].name)
        for first, second in combinations(range(len(steps)), 2)
        if first not in before[second]
        and (
            (steps[first][1] & (steps[second][0] | steps[second][1])).any()
            or (steps[first][0] & steps[second][1]).any()
        )
    ]


def clobbered(plan):
    """Tensors of which a step, or the caller at the end, reads bytes that another tensor's step has written over."""
    storages = {name: index for index, name in enumerate(plan.memory.offsets)}
    owner = np.full(plan.memory.bytes, -1)
    for name in plan.inputs:
        owner[touched(plan, name)] = storages[plan.tensors[name].storage]
    lost = []

    def read(reader, name):
        if name in plan.tensors:
            found = owner[touched(plan, name, rounded=False)]
            if (found != storages[plan.tensors[name].storage]).any():
                lost.append((reader, name))

    for step in plan.steps:
        for name in step.inputs:
            read(step.name, name)
        for name in step.outputs:
            if name in plan.tensors:
                owner[touched(plan, name, "part" not in step.attributes)] = storages[plan.tensors[name].storage]
    for name in plan.outputs.values():
        read("the caller", name)
    return lost


def misaligned(plan):
    """Tensors in NHWC that a kernel reads or writes 16 bytes at a time, and that do not begin and go on at multiples of them."""
    found = []
    for step in plan.steps:
        for place, names in (("reads", step.inputs), ("writes", step.outputs)):
            if place == "writes" and "part" in step.attributes:
                continue
            for placed, name in ((plan.tensors[name], name) for name in names if name in plan.tensors):
                begin, pitch = placed.offset, placed.format.pitch * placed.format.dtype.itemsize
                if placed.format.nhwc and step.kind != "plugin" and (begin % VECTOR or pitch % VECTOR):
                    found.append((step.name, place, name, begin, pitch))
    return found
