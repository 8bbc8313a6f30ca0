"""Run ranks on a Ray cluster: Ray Train starts them, and restarts them when a process or a machine dies."""

from __future__ import annotations

import math
import os
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from pytrtplugins.errors import ExecutionError, UsageError
from pytrtplugins.utils.optional import require
from pytrtplugins.utils.ray_cluster import connect

from ..loop import noted_signals
from ..ranks import GO_ON, Job, exchange

__all__ = ["launch_on_ray"]

_LOOK_S = 0.5  # between two looks for a signal
_GRACE_S = 30  # that ranks have to end after a signal, as under torchrun


def launch_on_ray(job: Job, address: str) -> None:
    """Run a job on a Ray cluster, and wait for its end; SIGINT and SIGTERM end all ranks between two steps.

    Args:
        job: What is run.
        address: ``"local"``: a new cluster on this machine; ``"auto"``: the cluster that this machine belongs to; or ``HOST:PORT``.

    Raises:
        UsageError: there is no such cluster.
        ExecutionError: a rank failed more often than ``restarts``.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # Ray would keep lines back that look alike
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # and print each line a second time, as a log
    ray, train = (require(name, extra="train-ray", package="ray", feature="--ray") for name in ("ray", "ray.train"))
    sys.stdout.reconfigure(line_buffering=True)  # lines of ranks appear at once, in files too
    connect(ray, address, include_dashboard=True)  # Ray Train asks it who is alive
    with noted_signals() as signals:
        try:
            _warn_of_waiting(ray.cluster_resources(), job)
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            stop = ray.remote(num_cpus=0, scheduling_strategy=here)(threading.Event).remote()
            _wait(_trainer(train, job, stop), signals, stop)
        except train.TrainingFailedError as error:
            raise _explain(error, ray.exceptions.RayActorError) from error
        finally:
            ray.shutdown()


def _trainer(train: Any, job: Job, stop: Any) -> Any:
    """Ray's description of the run."""
    torch = require("ray.train.torch", extra="train-ray", package="ray", feature="--ray")
    backend, variables = exchange(job.settings, job.device)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(job.program.parent), os.environ.get("PYTHONPATH")]))
    gpu = {"GPU": 1} if job.device == "cuda" else {}
    return torch.TorchTrainer(
        _work,
        train_loop_config={
            "program": str(job.program),
            "arguments": list(job.arguments),
            "folder": os.getcwd(),
            "stop": stop,
        },
        torch_config=torch.TorchConfig(backend=backend),
        scaling_config=train.ScalingConfig(
            num_workers=job.ranks, use_gpu=bool(gpu), resources_per_worker={"CPU": job.cores, **gpu}
        ),
        run_config=train.RunConfig(
            storage_path=str(job.out.absolute() / "ray"),
            failure_config=train.FailureConfig(max_failures=job.restarts),
            worker_runtime_env={"env_vars": variables},
            logging_config=train.LoggingConfig(log_level="WARNING"),
        ),
    )


def _wait(trainer: Any, signals: Sequence[int], stop: Any) -> None:
    """Wait for the ranks; forward a signal to them, and wait as long as torchrun does."""
    fitted: Future[Any] = Future()

    def fit() -> None:
        try:
            fitted.set_result(trainer.fit())
        except BaseException as error:
            fitted.set_exception(error)

    threading.Thread(target=fit, daemon=True).start()  # outside the main thread Ray leaves the signals to us
    signalled_at = math.inf
    while not wait([fitted], _LOOK_S).done:
        if signals and signalled_at == math.inf:
            signalled_at = time.monotonic()
            stop.set.remote()
        elif time.monotonic() - signalled_at > _GRACE_S:
            raise ExecutionError(f"the ranks did not end within {_GRACE_S} s.\nDo: run the same command with --resume")
    fitted.result()


def _work(job: Mapping[str, Any]) -> None:
    """Run one rank, in a thread of Ray's process."""
    try:
        os.chdir(job["folder"])
        main = runpy.run_path(job["program"])["main"]
    except OSError as error:
        raise UsageError(
            f"machine {socket.gethostname()}: {error.filename} is not there ({error.strerror}).\n"
            "Do: put the program, the photos and --output in a folder that all machines share, at the same path"
        ) from error
    signals = list[int]()
    threading.Thread(target=_listen, args=(job["stop"], signals), daemon=True).start()
    if status := main(job["arguments"], signals):
        raise ExecutionError(f"ended with status {status}", status=status)


def _listen(stop: Any, signals: list[int]) -> None:
    """Note the user's signal."""
    import ray

    while not ray.get(stop.is_set.remote()):
        time.sleep(_LOOK_S)
    signals.append(signal.SIGINT)


def _warn_of_waiting(there: Mapping[str, float], job: Job) -> None:
    """Warn that the cluster lacks what the ranks need: Ray waits for more machines without end."""
    needed = {"CPU": job.ranks * job.cores} | ({"GPU": job.ranks} if job.device == "cuda" else {})
    for name, count in needed.items():
        if (has := there.get(name, 0)) < count:
            print(
                f"{count} {name}s are needed, the cluster has {has:g}: waiting for more.\nDo: add machines, or give a smaller --gpus"
            )


def _explain(error: Any, died: type[Exception]) -> ExecutionError:
    """Ray's exception in this package's words: a dead rank comes before those that waited for it."""
    failures = sorted(getattr(error, "worker_failures", {}).items())
    failures.sort(key=lambda each: not isinstance(each[1], died))
    rank, cause = failures[0] if failures else (None, error)
    if isinstance(cause, died):
        what = f"rank {rank} died, or its machine"
    else:
        what = f"{'Ray Train' if rank is None else f'rank {rank}'} failed: {str(cause).strip().splitlines()[-1]}"
    return ExecutionError(
        f"{what}; what it said is above.\nDo: {GO_ON}",
        rank=rank,
    )
