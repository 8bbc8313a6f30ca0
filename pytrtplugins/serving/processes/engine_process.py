"""An engine process: loads models, and computes the requests that CPU processes put into their slots."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from ...errors import FormatError, PytrtpluginsError, RequestError, UsageError
from ...utils.heap import refreeze
from ..batching.queue import QueuedRequest
from ..batching.replica import Replica
from ..model.registered import Source
from ..model.spec import ModelSpec
from ..shared.control import Control
from ..shared.packing import pack, packed_bytes, unpack
from ..shared.records import Kind, Reader, Record, write_record
from ..shared.slots import Block
from ..shared.statistics import Counts
from .placement import LOST, Place

__all__ = ["EngineProcess"]

_RECEIVED = 1 << 18
_ALIGNED = 64
_LOADS = 1 << 16  # different numbers of loads
_LONGEST_TICK_S = 1.0
_SILENT_S = 10.0  # in which Python may do something else, such as load a model, at the least


class _CpuPeer:
    """A CPU process: its shared memory and its stream, which two threads may write to."""

    def __init__(self, sock: socket.socket, block: Block) -> None:
        self.sock, self.block, self.reader = sock, block, Reader()
        self.told: set[int] = set()  # loads whose state it knows
        self.gone = False
        self._lock = threading.Lock()

    def waits_for(self, record: Record) -> bool:
        """Whether the slot still is that of the request: the process that replaces this one has the same memory."""
        return not self.gone and self.block.generation(record.slot) == record.generation

    def send(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # it is gone, and nobody waits for the answers
            self.sock.sendall(data)


class EngineProcess:
    """Loads models, and computes for CPU processes until the supervisor stops it or has ended.

    Args:
        specs: The models, in the order of their numbers.
        blocks: Memory of each CPU process.
        control: To the supervisor.
        counts: Where the length of queues is said.
        place: The models that this process has, and its device; None: all.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        blocks: Sequence[Block],
        control: Control,
        counts: Counts,
        place: Place | None = None,
    ) -> None:
        self._place = place or Place(None, tuple(range(len(specs))))
        self._specs, self._blocks, self._control, self._counts = specs, blocks, control, counts
        self._replicas: list[Replica | None] = [None] * len(specs)
        self._changing = [threading.Lock() for _ in specs]
        self._loads = 0
        self._sources: list[dict[int, Source | None]] = [
            {} for _ in specs
        ]  # by load, of replicas that may still answer
        self._leaving: list[Replica] = []  # replaced, but they still compute what they took
        self._peers: dict[int, _CpuPeer] = {}
        self._selector = selectors.DefaultSelector()
        shortest = min((spec.run_seconds for spec in specs), default=_LONGEST_TICK_S)
        self._tick_s, self._silent_s = min(_LONGEST_TICK_S, shortest / 4), max(_SILENT_S, shortest)
        self._next_sign = 0.0

    def run(self, loaded: Callable[[], object] | None = None) -> int:
        """Work until the end; gives the process's exit code. ``loaded`` is called once the models are there."""
        try:
            for number in self._place.models:
                self._replicas[number] = self._load(number)
        except PytrtpluginsError as error:
            self._control.send({"failed": str(error)})
            return 1
        if loaded is not None:
            loaded()
        self._control.send({"ready": True})
        self._selector.register(self._control.sock, selectors.EVENT_READ, None)
        while self._step():
            pass
        for index in list(self._peers):
            self._drop(index)
        self._selector.close()
        self._control.close()
        return 0

    def _step(self) -> bool:
        """Wait until something comes, and see to it; False at the end."""
        self._give_sign()
        for key, _ in self._selector.select(self._tick_s):
            if key.data is not None:
                self._read(*key.data)
            elif not self._handle_control_messages():
                return False
        return True

    def _give_sign(self) -> None:
        """Say until when the next sign of life comes: when the oldest run should have ended, or this thread should have come here again."""
        now = time.monotonic()
        if now < self._next_sign:
            return
        self._next_sign = now + self._tick_s / 2
        until = now + self._silent_s
        for replica in (*self._replicas, *self._leaving):
            if replica is not None and (began := replica.batcher.began):
                until = min(until, began + replica.spec.run_seconds)
        self._counts.signs.expect(self._counts.index, until)

    def _load(self, number: int, old: Replica | None = None) -> Replica:
        load = self._loads = (self._loads + 1) % _LOADS
        deliver, watch = partial(self._deliver, number, load), self._counts.statistics[number].waits
        end = partial(os._exit, LOST)
        replica = Replica(self._specs[number], self._place.device, deliver, watch, end, _begin)
        replica.check_replaces(old)
        replica.load, self._sources[number][load] = load, replica.source
        return replica

    def _handle_control_messages(self) -> bool:
        """Handle the supervisor's messages; False at the end."""
        received = self._control.receive()
        if received is None:
            os._exit(0)  # the supervisor is gone, and nobody would end this process
        message, handed = received
        if "peer" in message and handed is not None:
            peer = _CpuPeer(handed, self._blocks[message["peer"]])
            self._drop(message["peer"])
            self._peers[message["peer"]] = peer
            self._selector.register(handed, selectors.EVENT_READ, (message["peer"], peer))
            for number in self._place.models:
                self._tell(peer, number)
        if "drain" in message:
            for replica in self._replicas:
                if replica is not None:
                    replica.close()
            return False
        return True

    def _drop(self, index: int) -> None:
        peer = self._peers.pop(index, None)
        if peer is not None:
            peer.gone = True
            self._selector.unregister(peer.sock)
            peer.sock.close()

    def _read(self, index: int, peer: _CpuPeer) -> None:
        try:
            data = peer.sock.recv(_RECEIVED)
        except OSError:
            data = b""
        if not data:
            if self._peers.get(index) is peer:
                self._drop(index)
            return
        for record, _ in peer.reader.feed(data):
            if record.kind == Kind.REQUEST:
                self._take(peer, record)
            elif record.kind in (Kind.LOAD, Kind.UNLOAD) and record.model < len(self._specs):
                threading.Thread(target=self._change, args=(peer, record), daemon=True).start()

    def _take(self, peer: _CpuPeer, record: Record) -> None:
        """Put a request into the queue of its model."""
        try:
            while True:
                replica = self._replicas[record.model] if record.model < len(self._replicas) else None
                if replica is None:
                    raise RequestError("the model is not loaded", status=503, retry_after=1)
                item = _item(replica, peer, record)
                try:
                    replica.queue.put(item)
                    return
                except RequestError:
                    if replica is self._replicas[record.model]:
                        raise
                    # it was replaced since: its queue is closed, and the new one takes the request
        except (FormatError, RequestError, UsageError) as error:
            status = error.status if isinstance(error, RequestError) else 500
            peer.send(_error_record(peer, record, status, str(error)))

    def _deliver(self, number: int, load: int, items: list[QueuedRequest]) -> None:
        """Write answers into the slots of their requests, and notify the CPU processes that know which load they come from."""
        answers: dict[_CpuPeer, list[bytes]] = {}
        for item in items:
            peer, record = item.token
            answers.setdefault(peer, []).append(self._answer(peer, record._replace(load=load), item))
        for peer, parts in answers.items():
            if load not in peer.told:
                self._tell(peer, number)
            peer.send(b"".join(parts))

    def _answer(self, peer: _CpuPeer, record: Record, item: QueuedRequest) -> bytes:
        if not peer.waits_for(record):
            return b""
        if item.error is not None:
            status = item.error.status if isinstance(item.error, RequestError) else 500
            return _error_record(peer, record, status, str(item.error))
        try:
            size = packed_bytes(item.outputs)
            if size > record.room:
                return write_record(Record(Kind.ANSWER, record.model, 413, record.slot, record.generation, size))
            pack(item.outputs, peer.block.part(record.slot, _answer_offset(record.length), record.room))
        except (PytrtpluginsError, ValueError) as error:  # outputs of a type that nobody knows
            return _error_record(peer, record, 500, str(error))
        rows = item.batch_rows if item.leads else 0
        waited = min(int(1e6 * item.queued_s), 0xFFFFFFFF)
        return write_record(
            Record(
                Kind.ANSWER,
                record.model,
                0,
                record.slot,
                record.generation,
                size,
                rows,
                waited,
                item.computed_s,
                record.load,
            )
        )

    def _change(self, peer: _CpuPeer, record: Record) -> None:
        """Reload or release a model, and notify all CPU processes; the requester is notified at the end."""
        number, reason = record.model, ""
        with self._changing[number]:
            old = self._replicas[number]
            is_load = record.kind == Kind.LOAD and number in self._place.models
            try:
                self._replicas[number] = self._load(number, old) if is_load else None
            except Exception as error:  # whatever a file leads to: what served until now stays
                old, reason = None, str(error) or type(error).__name__
            for connected in list(self._peers.values()):
                self._tell(connected, number)
            if old is not None:
                self._leaving.append(old)
                old.close(None)  # however long that takes: if it hangs, the supervisor ends this process
                self._leaving.remove(old)
                self._sources[number].pop(old.load, None)
                del old
                refreeze()
        self._tell(peer, number, record.generation, reason)

    def _tell(self, peer: _CpuPeer, number: int, generation: int = 0, reason: str = "") -> None:
        """Send a model's signature, and the registry versions of its loads, to which answers refer by number."""
        replica, sources = self._replicas[number], dict(self._sources[number])
        data: dict[str, Any] = {
            "signature": replica.signature.to_json() if replica else None,
            "sources": {load: asdict(source) for load, source in sources.items() if source is not None},
            "reason": reason,
        }
        load = 0 if replica is None else replica.load
        peer.told |= sources.keys()
        peer.send(write_record(Record(Kind.STATE, number, generation=generation, load=load), data))


def _begin(items: list[QueuedRequest]) -> None:
    """Mark requests that are about to be computed: if this process dies, it may be because of one of them."""
    for item in items:
        peer, record = item.token
        peer.block.begin(record.slot, record.generation)


def _item(replica: Replica, peer: _CpuPeer, record: Record) -> QueuedRequest:
    """The request that a record speaks of."""
    if peer.block.generation(record.slot) != record.generation:
        raise FormatError(f"slot {record.slot} was given away again")
    arrays = unpack(peer.block.part(record.slot, 0, record.length))
    signature, alone = replica.signature, record.extra & 1
    key = record if alone else signature.key(arrays)
    return QueuedRequest(arrays, signature.rows(arrays), key, record.extra >> 1, record.time or None, (peer, record))


def _answer_offset(length: int) -> int:
    """The offset of the answer in a slot, after so many bytes of inputs."""
    return -(-length // _ALIGNED) * _ALIGNED


def _error_record(peer: _CpuPeer, record: Record, status: int, text: str) -> bytes:
    """An answer that carries an error."""
    data = b""
    with contextlib.suppress(FormatError):
        if peer.block.generation(record.slot) == record.generation:  # else another request is there
            room = peer.block.part(record.slot, _answer_offset(record.length), record.room)
            data = text.encode()[: len(room)]
            room[: len(data)] = data
    if status == 413:  # which between processes means that there was no room
        status = 400
    return write_record(Record(Kind.ANSWER, record.model, status, record.slot, record.generation, len(data)))
