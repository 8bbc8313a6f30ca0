"""A CPU process's backend and engine processes in threads, for tests."""

import asyncio
import os
import socket
import threading
from contextlib import AbstractContextManager

import numpy as np

from pytrtplugins.serving import Limits
from pytrtplugins.serving.backends.remote import RemoteBackend
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.serving.processes.engine_process import EngineProcess
from pytrtplugins.serving.processes.placement import Place
from pytrtplugins.serving.shared.control import Control
from pytrtplugins.serving.shared.records import Kind, Reader, Record, write_record
from pytrtplugins.serving.shared.slots import Block
from pytrtplugins.serving.shared.statistics import Counts
from tests.serving.conftest import spec, until
from tests.serving.served import Double

SPECS = [spec("double", "Double"), spec("lists", "Lists")]
UNITS = 16


def x(*firsts):
    return {"x": np.array([[first, 0] for first in firsts], np.float32)}


class Rig(AbstractContextManager):
    """A CPU process's backend, and its engines: real ones in threads, or such as a test plays."""

    def __init__(self, specs=SPECS, engines=0):
        self.specs = specs
        self.loop = asyncio.new_event_loop()
        self.descriptor = Block.create(UNITS)
        ours, self.control = Control.pair()
        self.counts = Counts(len(specs), engines=4)
        self.backend = RemoteBackend(specs, Limits(), Block(self.descriptor), self.counts, ours)
        self.do(self.backend.start())
        self.free = self.backend._slots.free_units
        self.threads = []
        self.engine_counts = []
        self.processes = []
        for _ in range(engines):
            self.engine()

    def do(self, awaitable):
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, 20))

    def stream(self, index=0):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.do(self.backend.join(ours, index))
        return theirs

    def engine(self, place=None):
        """A real engine process, in a thread; what it is told is what a supervisor says."""
        place = place or Place(None, tuple(range(len(self.specs))))
        ours, theirs = Control.pair()
        self.engine_counts.append(Counts(len(self.specs)))
        process = EngineProcess(self.specs, [Block(self.descriptor)], theirs, self.engine_counts[-1], place)
        self.processes.append(process)
        thread = threading.Thread(target=process.run)
        thread.start()
        assert ours.receive() == ({"ready": True}, None)
        with self.stream() as end:
            ours.send({"peer": 0}, end)
        self.threads.append((thread, ours))
        self.do(self.until(lambda: self.backend._links[-1].ready == {*place.models}))

    def played(self, number=0, index=0):
        """The engine's end of a stream, which says that it has one model."""
        end = self.stream(index)
        data = {"signature": Signature.of(Double(), None).to_json(), "sources": {}, "reason": ""}
        end.sendall(write_record(Record(Kind.STATE, number), data))
        ready = len([link for link in self.backend._links if number in link.ready])
        self.do(self.until(lambda: len([link for link in self.backend._links if number in link.ready]) > ready))
        return end

    def drop(self, end):
        """End a played engine process, and wait until that is known."""
        links = len(self.backend._links)
        end.close()
        self.do(self.until(lambda: len(self.backend._links) < links))

    until = staticmethod(until)

    def asked(self, end, begins=True):
        """The next request at the engine's end."""

        async def read():
            reader = Reader()
            while True:
                for record, _ in reader.feed(await self.loop.sock_recv(end, 4096)):
                    return record

        end.setblocking(False)
        record = self.do(read())
        if begins:  # what an engine process says before it computes
            self.backend._slots.block.begin(record.slot, record.generation)
        return record

    def __exit__(self, *error):
        for thread, control in self.threads:
            control.send({"drain": True})
            thread.join(20)
            control.close()
        for link in list(self.backend._links):
            link._transport.abort()
        self.do(asyncio.sleep(0))
        self.do(self.backend.stop())
        self.loop.close()
        self.control.close()
        self.backend._control.close()
        os.close(self.descriptor)


def infer(rig, arrays, name="double", **options):
    return rig.backend.services[name].infer(arrays, **options)
