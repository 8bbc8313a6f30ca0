"""Assign models and devices to processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UsageError
from ..model.spec import ModelSpec

__all__ = ["LOST", "Place", "place"]

LOST = 3
"""Exit code of a process whose model cannot compute any more."""


@dataclass(frozen=True)
class Place:
    """The device and the models of a process.

    Attributes:
        device: The engine's own name for a device; None: its default.
        models: Numbers of the models.
    """

    device: str | None
    models: tuple[int, ...]


def place(specs: Sequence[ModelSpec], engines: int | None = None, devices: Sequence[str] = ()) -> list[Place]:
    """Distribute engine processes over devices, and models over engine processes.

    Args:
        specs: The models, in the order of their numbers.
        engines: How many processes; None: one for each device.
        devices: Over which they are spread in turn; empty: those of the models.

    Returns:
        A place for each process. A model is in every process on its devices; if it has ``replicas``, in those that have the fewest models.

    Raises:
        UsageError: a device has no process, or a model has no place.
    """
    devices = list(devices or dict.fromkeys(str(device) for spec in specs for device in spec.devices))
    engines = max(1, len(devices)) if engines is None else engines
    if engines < len(devices):
        raise UsageError(
            f"{len(devices)} devices need as many engine processes, found {engines}.\nDo: --gpu {len(devices)}"
        )
    device_of_process = [devices[index % len(devices)] if devices else None for index in range(engines)]
    models: list[list[int]] = [[] for _ in device_of_process]
    for number, spec in enumerate(specs):
        unknown = [device for device in spec.devices if device not in devices]
        if unknown:
            raise UsageError(
                f"model {spec.name!r}: no engine process has device {unknown[0]}; they have {', '.join(devices)}"
            )
        candidates = [
            index for index, device in enumerate(device_of_process) if not spec.devices or device in spec.devices
        ]
        replica_count = len(candidates) if spec.replicas is None else spec.replicas
        if replica_count > len(candidates):
            raise UsageError(
                f"model {spec.name!r}: {replica_count} replicas need as many engine processes, and {len(candidates)} can have it.\n"
                f"Do: --gpu {engines + replica_count - len(candidates)}"
            )
        for index in sorted(candidates, key=lambda each: len(models[each]))[:replica_count]:
            models[index].append(number)
    return [Place(device, tuple(numbers)) for device, numbers in zip(device_of_process, models, strict=True)]
