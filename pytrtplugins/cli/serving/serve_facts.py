"""Results of ``pytrt serve``, at its end and with ``--check``; the fields are keys of the JSON (docs/how-to/shell.md)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Checked", "CheckedModel", "Served", "ServedModel"]


@dataclass(frozen=True)
class ServedModel:
    """Request counts of a version of a model.

    Attributes:
        name: In addresses.
        version: In addresses.
        succeeded: Requests that were answered with outputs.
        failed: Requests that were wrong, or that the model failed at.
        refused: Requests for which there was no room.
        late: Requests whose deadline passed before they could be computed.
        batches: Runs of the model.
    """

    name: str
    version: str
    succeeded: int
    failed: int
    refused: int
    late: int
    batches: int


@dataclass(frozen=True)
class Served:
    """Request counts of a server that has ended.

    Attributes:
        models: In the order in which they were named.
    """

    models: tuple[ServedModel, ...]


@dataclass(frozen=True)
class CheckedModel:
    """A version of a model that can be served.

    Attributes:
        name: In addresses.
        version: In addresses.
        target: A file, or ``module:Class``.
        share: Of the requests that name no version.
        shadow: Whether it gets copies of requests.
    """

    name: str
    version: str
    target: str
    share: float
    shadow: bool


@dataclass(frozen=True)
class Checked:
    """All models that a server would serve.

    Attributes:
        models: In the order of the file or the command line.
    """

    models: tuple[CheckedModel, ...]
