"""Channel views: inputs of a Concat and outputs of a Split that share memory with the whole, without copies."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..device.layout import Format, channels_last
from .plan import Placed, Step

__all__ = ["ChannelViews"]


@dataclass
class ChannelViews:
    """Which tensors are views of the channels of others.

    Attributes:
        formats: How each tensor lies; those that become part of another get its pitch.
        steps: The plan's so far; copies are added.
        results: The network's outputs, which are copied from tensors of their own.
        dense: What plugins read in NHWC, who want no gaps.
        in_place: Whether producers write into a concat's memory; else all its parts are copied.
        parents: Tensor → what it is part of, and the first of its channels there.
        joined: Tensors that nothing but their parts is written to.
        aliases: Tensor → one with the same values in the same memory, under other dims.
    """

    formats: dict[str, Format]
    steps: list[Step]
    results: Collection[str]
    dense: set[str]
    in_place: bool = True
    parents: dict[str, tuple[str, int]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Tensors that share memory with others, and those others."""
        return {*self.parents, *(whole for whole, _ in self.parents.values()), *self.aliases, *self.aliases.values()}

    def placed(self, name: str) -> Placed:
        """The format and place of a tensor in memory, once all tensors are known."""
        own, channel = self._storage_of(name)
        form, base = self.formats[name], self.formats[own]
        form = replace(form, pitch=base.pitch) if form.nhwc else form
        if own not in self.aliases:
            return Placed(form, own, channel * form.dtype.itemsize)
        source = self.placed(self.aliases[own])
        return Placed(form, source.storage, source.offset + channel * form.dtype.itemsize)

    def alias(self, name: str, source: str, form: Format) -> None:
        """Make a tensor an alias of a dense tensor, which stays dense from now on.

        Args:
            name: The tensor.
            source: The other one.
            form: How the tensor lies.
        """
        self.formats[name] = form
        self.aliases[name] = source
        self.dense.add(source)

    def split(self, whole: str, parts: Mapping[str, int]) -> None:
        """Make the outputs of a Split views of an NHWC tensor.

        Args:
            whole: The tensor.
            parts: Names and channels, in order.
        """
        form, first = self.formats[whole], 0
        for name, channels in parts.items():
            self.formats[name] = replace(form, dims=(form.dims[0], channels, *form.dims[2:]))
            self.parents[name] = whole, first
            first += channels

    def concat(self, name: str, whole: str, form: Format, parts: Sequence[tuple[str, int]]) -> None:
        """Make the inputs of a Concat views of its output where possible; the others are copied.

        Args:
            name: For the copies.
            whole: The tensor that is made of the parts.
            form: How it lies, if it is a tensor of its own.
            parts: Names and channels, in order.
        """
        self.formats[whole] = form
        firsts = [0, *itertools.accumulate(channels for _, channels in parts)]
        self._share_memory(whole, [(part, first) for (part, _), first in zip(parts, firsts, strict=False)])
        form = self.formats[whole]
        for index, ((part, channels), first) in enumerate(zip(parts, firsts, strict=False)):
            if self._storage_of(part) == self._storage_of(whole, first):
                continue
            place = replace(form, dims=(form.dims[0], channels, *form.dims[2:]))
            if self._writes_in_place(part, place, first):
                self._make_view(part, whole, first)
            else:
                target = f"{whole}.part{index}"
                self.formats[target] = place
                self.parents[target] = whole, first
                self.steps.append(Step("reformat", f"{name}.{index}", "Concat", {"part": True}, (part,), (target,)))
        storage = self._storage_of(whole)[0]
        if self.formats[storage].dims[1] % form.vector == 0:
            self.joined.add(storage)
        else:
            self.steps.append(Step("zero", f"{name}.padding", "Concat", {"from": firsts[-1]}, (), (whole,)))

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _storage_of(self, name: str, channel: int = 0) -> tuple[str, int]:
        """The tensor with memory of its own that contains a channel of a tensor, and the channel's number there."""
        while name in self.parents:
            name, first = self.parents[name]
            channel += first
        return name, channel

    def _make_view(self, name: str, whole: str, first: int) -> None:
        """Make a tensor, with all its views, a view of another one."""
        self.parents[name] = whole, first
        storage = self._storage_of(name)[0]
        for part in [part for part in (name, *self.parents) if self._storage_of(part)[0] == storage]:
            self.formats[part] = replace(self.formats[part], pitch=self.formats[storage].pitch)

    def _share_memory(self, whole: str, parts: Sequence[tuple[str, int]]) -> None:
        """Let a concat share memory with the tensors whose channels it joins.

        What else such a tensor has lies before the concat or behind it: a fused convolution writes one part of its channels
        into the concat, and the others, for other readers, beside it. Where both reach over each other's ends, a wider tensor
        holds them.
        """
        form = self.formats[whole]
        total, begins = form.dims[1], self._channel_offsets(form, parts)
        if not begins or total % form.vector:
            return
        low = min(0, *begins.values())
        high = max(total, *(begin + self.formats[name].dims[1] for name, begin in begins.items()))
        base = whole
        if (low, high) != (0, total):
            if whole in self.dense:
                return
            base = f"{whole}.wide"
            self.formats[base] = channels_last((form.dims[0], high - low, *form.dims[2:]), form.dtype)
            self._make_view(whole, base, -low)
        for name, begin in begins.items():
            self._make_view(name, base, begin - low)

    def _channel_offsets(self, form: Format, parts: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Tensor that a concat can share memory with → its first channel relative to the concat; it can be negative."""

        def place(part: tuple[str, int]) -> tuple[str, int]:
            storage, channel = self._storage_of(part[0])
            return storage, part[1] - channel

        offsets: dict[str, int] = {}
        for (storage, begin), group in itertools.groupby(parts, place):
            run = list(group)
            first, end = run[0][1], run[-1][1] + self.formats[run[-1][0]].dims[1]
            own = self.formats[storage]
            last = begin + own.dims[1]
            if (
                storage not in offsets
                and storage not in (name for name, _ in run)
                and (begin == first or first == 0)
                and (last == end or end == form.dims[1])
                and begin % form.vector == 0
                and self._is_movable(storage, form)
            ):
                offsets[storage] = begin
        return offsets

    def _writes_in_place(self, name: str, place: Format, first: int) -> bool:
        """Whether a tensor can be written directly into a concat's memory."""
        return (
            name not in self.parents
            and self._is_movable(name, place)
            and place.dims[1] % place.vector == 0
            and first % place.vector == 0
        )

    def _is_movable(self, name: str, form: Format) -> bool:
        """Whether the writer and all readers of a tensor accept a larger pixel pitch."""
        own = self.formats.get(name)
        writer = next((step for step in self.steps if name in step.outputs), None)
        family = {name, *(part for part in self.parents if self._storage_of(part)[0] == name)}
        return (
            self.in_place
            and own is not None
            and own.nhwc
            and own.dtype == form.dtype
            and not family & {*self.results, *self.dense}
            and (
                name in self.joined
                or (
                    writer is not None
                    and writer.kind in ("conv", "pool", "activation", "pointwise", "indexed", "generic")
                )
            )
        )
