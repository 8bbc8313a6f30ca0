"""Entry point of a server's child process: ``python -m pytrtplugins.serving JSON``."""

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
    """Run the process that the JSON describes; returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor ends its processes
    reuse_memory()
    arguments = json.loads(text)
    specs, limits = [ModelSpec(**spec) for spec in arguments["specs"]], Limits(**arguments["limits"])
    control, blocks = Control.of(arguments["control"]), [Block(descriptor) for descriptor in arguments["blocks"]]
    for module in arguments["modules"]:
        import_user_module(module)
    memory = memoryview(mmap.mmap(arguments["counts"], os.fstat(arguments["counts"]).st_size))
    cpu, engines = arguments["processes"]
    counts = Counts(len(specs), cpu, engines, memory, arguments["role"], arguments["index"])
    if arguments["role"] == "engine":
        from ..cuda.waits import CUDA_WAIT
        from .processes.engine_process import EngineProcess

        os.environ.setdefault(CUDA_WAIT, "block")  # a thread that spins takes a core from those that speak HTTP
        device, models = arguments["place"]
        return EngineProcess(specs, blocks, control, counts, Place(device, tuple(models))).run(collect_and_freeze)
    from .backends.local import LocalBackend
    from .backends.read_only import OF_SEVERAL, ReadOnlyBackend
    from .backends.remote import RemoteBackend
    from .processes.cpu_process import run_cpu_process

    backend: Any
    if arguments["place"] is None:
        backend = RemoteBackend(specs, limits, blocks[0], counts, control, cpu)
    else:
        device, _ = arguments["place"]
        own = LocalBackend(specs, limits, device, counts=counts, processes=cpu, lost=partial(os._exit, LOST))
        backend = ReadOnlyBackend(own, OF_SEVERAL)
    sock, board = socket.socket(fileno=arguments["listening"][0]), SharedSettings(arguments["board"])
    meter = None if arguments["meter"] is None else RateLimiter(arguments["meter"], cpu, arguments["index"])
    return run_cpu_process(
        backend, limits, sock, control, arguments["grpc"], Access(**arguments["access"]), board, meter
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
