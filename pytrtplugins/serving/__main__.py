"""A process of a server, as its supervisor starts it: ``python -m pytrtplugins.serving JSON``."""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
from functools import partial
from typing import Any

from ..utils.heap import collect_and_freeze, reuse_memory
from ..utils.user_module import import_user_module
from .access.access import Access
from .model.spec import Limits, ModelSpec
from .processes.placement import LOST, Place
from .shared.control import Control
from .shared.rate_limiter import RateLimiter
from .shared.settings import SharedSettings
from .shared.slots import Block
from .shared.statistics import Counts


def main(text: str) -> int:
    """Run the process that the JSON describes; gives its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor ends its processes
    reuse_memory()
    said = json.loads(text)
    specs, limits = [ModelSpec(**each) for each in said["specs"]], Limits(**said["limits"])
    control, blocks = Control.of(said["control"]), [Block(descriptor) for descriptor in said["blocks"]]
    for module in said["modules"]:
        import_user_module(module)
    memory = memoryview(mmap.mmap(said["counts"], os.fstat(said["counts"]).st_size))
    cpu, engines = said["processes"]
    counts = Counts(len(specs), cpu, engines, memory, said["role"], said["index"])
    if said["role"] == "engine":
        from ..cuda.waits import CUDA_WAIT
        from .processes.engine_process import EngineProcess

        os.environ.setdefault(CUDA_WAIT, "block")  # a thread that spins takes a core from those that speak HTTP
        device, models = said["place"]
        return EngineProcess(specs, blocks, control, counts, Place(device, tuple(models))).run(collect_and_freeze)
    from .backends.local import LocalBackend
    from .backends.read_only import OF_SEVERAL, ReadOnlyBackend
    from .backends.remote import RemoteBackend
    from .processes.cpu_process import run_cpu_process

    backend: Any
    if said["place"] is None:
        backend = RemoteBackend(specs, limits, blocks[0], counts, control, cpu)
    else:
        device, _ = said["place"]
        own = LocalBackend(specs, limits, device, counts=counts, processes=cpu, lost=partial(os._exit, LOST))
        backend = ReadOnlyBackend(own, OF_SEVERAL)
    sock, board = socket.socket(fileno=said["listening"][0]), SharedSettings(said["board"])
    meter = None if said["meter"] is None else RateLimiter(said["meter"], cpu, said["index"])
    return run_cpu_process(backend, limits, sock, control, said["grpc"], Access(**said["access"]), board, meter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
