"""Backend of a CPU process: sends requests to engine processes through slots and streams, and again if a process dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from ...errors import FormatError, RequestError, UsageError
from ...utils.prefetch import threads_for_files
from ..batching.queue import QueuedRequest
from ..model.registered import Source
from ..model.signature import Signature
from ..model.spec import Limits, ModelSpec
from ..shared.control import Control
from ..shared.packing import pack, packed_bytes, unpack
from ..shared.records import Kind, Reader, Record, write_record
from ..shared.slots import Block, Slots
from ..shared.statistics import Counts
from .service import Service
from .versions import Services

__all__ = ["RemoteBackend"]

_FEWEST_THREADS = 2
_log = logging.getLogger(__name__)
_ROOM = 4096  # bytes for an answer, where nothing is known of it yet
_TIMES_AGAIN = 2  # after a process died while it computed a request; once after it hung
_MOST_DEATHS = 20  # of processes in which a request waited
_WITHOUT_ENGINE_S = 60.0
_ALIGNED = 64


class _SlotRequest:
    """A request that occupies a slot."""

    __slots__ = ("again", "deaths", "first", "generation", "item", "length", "link", "model", "room", "timer", "units")

    def __init__(self, item: QueuedRequest, model: int) -> None:
        self.item, self.model = item, model
        self.first = self.units = self.generation = self.length = self.room = self.again = self.deaths = 0
        self.link: _EngineConnection | None = None
        self.timer: asyncio.TimerHandle | None = None


class _EngineConnection(asyncio.Protocol):
    """The stream to an engine process; messages of one turn of the event loop are sent together."""

    def __init__(self, backend: RemoteBackend, loop: asyncio.AbstractEventLoop, index: int, hangs: int) -> None:
        self.index, self.hangs = index, hangs  # of the process, and how often it hung until now
        self._backend, self._loop, self._reader = backend, loop, Reader()
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self.calls: dict[int, _SlotRequest] = {}
        self.ready: set[int] = set()
        self.sources: dict[int, dict[int, Source]] = {}  # by model and load
        self.loads: dict[int, int] = {}  # by model the present one

    @property
    def tries(self) -> bool:
        """Whether it has a request that was in a process that died: one at a time, so that none dies with another that is to blame."""
        return any(call.again for call in self.calls.values())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream has one that writes

    def data_received(self, data: bytes) -> None:
        try:
            for record, data_of_record in self._reader.feed(data):
                self._backend._heard(self, record, data_of_record)
        except FormatError:
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._backend._lost(self)

    def send(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._waiting))
        self._waiting.clear()


class RemoteBackend:
    """Models in engine processes.

    Args:
        specs: The models, in the order of their numbers.
        limits: Of requests.
        block: Memory of this process, which the engine processes have too.
        counts: Of this server.
        control: To the supervisor, which hands over streams to engine processes.
        processes: CPU processes of the server: they share the cores.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        limits: Limits,
        block: Block,
        counts: Counts,
        control: Control,
        processes: int = 1,
    ) -> None:
        workers = max(_FEWEST_THREADS, -(-threads_for_files() // processes))
        self._threads = ThreadPoolExecutor(workers, "request")
        self._control, self._slots = control, Slots(block, len(specs))
        self.processes, self._signs = counts.processes, counts.signs
        self.leads = counts.index == 0
        self._room: dict[tuple[int, int], int] = {}  # bytes of the largest answer, by model and size of inputs
        self._links: list[_EngineConnection] = []
        self._parked: list[_SlotRequest] = []
        self._heard_of_all = asyncio.Event()
        self._told: dict[tuple[_EngineConnection, int], asyncio.Future[str]] = {}  # by the generation of the change
        self._changes = 0
        self._changing = asyncio.Lock()
        self.services = Services(
            Service(spec, partial(self._submit, number), self._threads, workers, limits, counts.statistics[number])
            for number, spec in enumerate(specs)
        )

    async def start(self) -> None:
        """Accept streams of engine processes; models are ready once one of these reports it."""
        self._loop = asyncio.get_running_loop()

    async def heard_of_all(self) -> None:
        """Wait until engine processes have reported on each model, at most as long as a start takes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard_of_all.wait(), _WITHOUT_ENGINE_S)

    async def join(self, sock: Any, index: int = 0) -> None:
        """Use an engine process."""
        await self._loop.create_unix_connection(partial(self._link, index), sock=sock)

    async def load(self, name: str) -> None:
        """Load the versions of a model anew, in one engine process after the other; what served until then answers what it took.

        Raises:
            RequestError: one of them cannot load it; what served stays there, and in the processes that would have followed.
        """
        for number in self.services.numbers(name):
            await self.load_version(number)

    async def load_version(self, number: int) -> None:
        """Load one version, by its number in `services`."""
        await self._change(Kind.LOAD, number)

    def sources(self, number: int) -> set[Source | None]:
        """The versions of a registry that engine processes have loaded of a version."""
        return {link.sources[number].get(link.loads[number]) for link in self._links if number in link.ready}

    async def unload(self, name: str) -> None:
        """Answer what waits for a model, then release all its versions in all engine processes."""
        for number in self.services.numbers(name):
            self.services.every[number].set_not_ready("UNAVAILABLE", "unloaded")
            await self._change(Kind.UNLOAD, number)

    async def stop(self) -> None:
        """Release the threads."""
        self._threads.shutdown(wait=False)

    def _link(self, index: int) -> _EngineConnection:
        link = _EngineConnection(self, self._loop, index, self._signs.kill_count(index))
        self._links.append(link)
        return link

    async def _change(self, kind: int, number: int) -> None:
        async with self._changing:
            if not self._links:
                raise RequestError("there is no engine process", status=503, retry_after=1)
            for link in list(self._links):
                if link not in self._links:  # it died, and the process that replaces it loads all models anyway
                    continue
                self._changes += 1
                future = self._told[link, self._changes] = self._loop.create_future()
                link.send(write_record(Record(kind, number, generation=self._changes)))
                reason = await future
                if reason:
                    raise RequestError(f"model {self.services.every[number].name!r}: {reason}", status=400)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _submit(self, number: int, item: QueuedRequest) -> None:
        if self.services.every[number].spec.shadow and 2 * self._slots.free_units < self._slots.block.units:
            raise RequestError("half of the memory for requests is in use: there is no room for copies", status=503)
        self._place(_SlotRequest(item, number))

    def _place(self, call: _SlotRequest) -> None:
        """Assign a slot to a request, and send it."""
        size = packed_bytes(call.item.arrays)
        begin = -(-size // _ALIGNED) * _ALIGNED
        call.room = self._room.get(_size_class(call.model, size), _ROOM)
        call.first, call.units, call.generation = self._slots.take(begin + call.room, call.model)
        call.length = pack(call.item.arrays, self._slots.block.part(call.first, 0, begin))
        self._send(call)

    def _send(self, call: _SlotRequest) -> None:
        able = [link for link in self._links if call.model in link.ready and not (call.again and link.tries)]
        if not able:
            self._parked.append(call)
            call.timer = self._loop.call_later(_WITHOUT_ENGINE_S, self._give_up, call)
            return
        link = able[0] if len(able) == 1 else min(able, key=lambda each: len(each.calls))
        call.link, link.calls[call.first] = link, call
        item = call.item
        extra = item.priority << 1 | (call.again > 0)  # what was in a process that died is computed alone from then on
        record = Record(
            Kind.REQUEST,
            call.model,
            0,
            call.first,
            call.generation,
            call.length,
            call.room,
            extra,
            item.deadline or 0.0,
        )
        link.send(write_record(record))

    def _send_parked(self) -> None:
        parked, self._parked = self._parked, []
        for call in parked:
            if call.timer is not None:
                call.timer.cancel()
            self._send(call)

    def _give_up(self, call: _SlotRequest) -> None:
        self._parked.remove(call)
        self._fail(call, RequestError("no engine process has the model", status=503, retry_after=1))

    def _fail(self, call: _SlotRequest, error: RequestError) -> None:
        self._slots.give_back(call.first, call.units, call.model)
        call.item.error = error
        call.item.token(call.item)

    # -- what engine processes say -----------------------------------------------------------------------------------

    def _heard(self, link: _EngineConnection, record: Record, data: Any) -> None:
        if record.kind == Kind.STATE:
            self._changed(link, record, data)
            return
        call = link.calls.get(record.slot)
        if record.kind != Kind.ANSWER or call is None or call.generation != record.generation:
            return
        del link.calls[record.slot]
        if call.again and self._parked:
            self._loop.call_soon(self._send_parked)
        begin = -(-call.length // _ALIGNED) * _ALIGNED
        item = call.item
        try:
            if record.status == 413:  # the answer is larger than any before
                self._room[_size_class(call.model, call.length)] = max(call.room, record.length)
                self._slots.give_back(call.first, call.units, call.model)
                self._place(call)
                return
            answer = self._slots.block.part(call.first, begin, min(record.length, call.room))
            if record.status:
                retry_after = 1 if record.status in (429, 503) else None
                text = bytes(answer).decode("utf-8", "replace")
                item.error = RequestError(text, status=record.status, retry_after=retry_after)
            else:
                item.outputs = {name: array.copy() for name, array in unpack(answer).items()}
                item.leads, item.batch_rows = record.room > 0, record.room
                item.queued_s, item.computed_s = record.extra * 1e-6, record.time
                if sources := link.sources.get(call.model):
                    item.source = sources.get(record.load)
        except RequestError as error:
            item.error = error
            item.token(item)
            return
        except FormatError as error:
            item.error = RequestError(str(error), status=500)
        self._slots.give_back(call.first, call.units, call.model)
        item.token(item)

    def _changed(self, link: _EngineConnection, record: Record, data: dict[str, Any]) -> None:
        """Handle a message about the models that an engine process has."""
        number, service = record.model, self.services.every[record.model]
        future = self._told.pop((link, record.generation), None)
        if future is not None and not future.done():
            future.set_result(data["reason"])
        link.sources[number] = {int(load): Source(**source) for load, source in data["sources"].items()}
        link.loads[number] = record.load
        if data["signature"] is None:
            link.ready.discard(number)
            if not any(number in source.ready for source in self._links):
                service.set_not_ready("UNAVAILABLE", "unloaded")
                self._look_whether_all()
            return
        link.ready.add(number)
        signature = Signature.from_json(data["signature"])
        if not service.ready or service.signature != signature:
            try:
                service.set_ready(signature)
            except UsageError as error:  # it cannot be made here, though an engine process has it
                service.set_not_ready("UNAVAILABLE", str(error).partition("\n")[0])
                _log.error("%s", error)
            self._look_whether_all()
        service.source = link.sources[number].get(record.load)
        self._send_parked()

    def _look_whether_all(self) -> None:
        if all(service.state != "LOADING" for service in self.services.every):
            self._heard_of_all.set()

    def _lost(self, link: _EngineConnection) -> None:
        """Send again what an engine process had when it died."""
        self._links.remove(link)
        for key in [key for key in self._told if key[0] is link]:
            if not (future := self._told.pop(key)).done():  # who asked may be gone too
                future.set_result("")
        hung = self._signs.kill_count(link.index) != link.hangs
        for call in list(link.calls.values()):
            call.deaths += 1
            if self._slots.block.has_begun(call.first):  # what only waited is not to blame
                call.again += _TIMES_AGAIN if hung else 1
                self._slots.block.begin(call.first, 0)
            if self.services.every[call.model].spec.shadow:  # it may be what ends processes, and nobody waits for it
                self._fail(call, RequestError("the engine process died while it computed this copy", status=500))
            elif call.again > _TIMES_AGAIN or call.deaths > _MOST_DEATHS:
                text = f"the engine process {'hung' if hung else 'died'} {call.deaths} times while it computed this request"
                self._fail(call, RequestError(text, status=500))
            else:
                self._send(call)
        link.calls.clear()


def _size_class(model: int, size: int) -> tuple[int, int]:
    """Requests whose answers are about as large: of a model, with as many bytes of inputs up to a factor of two."""
    return model, size.bit_length()
