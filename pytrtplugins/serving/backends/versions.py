"""The served models, each in one version or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...errors import RequestError, UsageError
from ...utils.text_formats import shorten
from ..access.exchange import enter
from ..model.spec import ModelSpec
from .service import Service

__all__ = ["Services", "VersionPicker", "check_versions"]

_WHOLE = 1_000_000  # shares are counted in millionths


class VersionPicker:
    """Chooses a version for requests that name none (smooth weighted round-robin): canaries get exact shares, the default the rest.

    Args:
        default: Gets what no canary gets, and the share of a canary that is not ready.
        canaries: Versions with a share.
    """

    def __init__(self, default: Service, canaries: Sequence[Service] = ()) -> None:
        self.default = default
        shares = [round(_WHOLE * canary.spec.share) for canary in canaries]
        self._weights = [*zip(canaries, shares, strict=True), (default, _WHOLE - sum(shares))] if canaries else []
        self._owed = [0] * len(self._weights)

    def __call__(self) -> Service:
        """The version that answers the next request."""
        if not self._weights:
            return self.default
        for number, (_, weight) in enumerate(self._weights):
            self._owed[number] += weight
        most = self._owed.index(max(self._owed))
        self._owed[most] -= _WHOLE
        service = self._weights[most][0]
        return service if service.ready else self.default


class Services(Mapping[str, Service]):
    """The served models, by name: the default version, which is the newest that is neither a canary nor a shadow.

    Args:
        services: Each version of each model, in the order of their numbers.

    Attributes:
        every: The same.
    """

    def __init__(self, services: Iterable[Service]) -> None:
        self.every = tuple(services)
        self._versions: dict[str, dict[str, Service]] = {}
        for service in sorted(self.every, key=lambda service_of_version: int(service_of_version.spec.version)):
            self._versions.setdefault(service.name, {})[service.spec.version] = service
        order = dict.fromkeys(service.name for service in self.every)
        self._choices = {name: _make_picker(tuple(self._versions[name].values())) for name in order}
        for versions in self._versions.values():
            shadows = tuple(
                service_of_version for service_of_version in versions.values() if service_of_version.spec.shadow
            )
            for service in versions.values():
                service.siblings = tuple(versions.values())
                service.shadows = () if service.spec.shadow else shadows

    def __getitem__(self, name: str) -> Service:
        return self._choices[name].default

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)

    def find(self, name: str, version: str = "") -> Service:
        """The named version of a model; without a version, the default.

        Raises:
            RequestError: it is not served (404), or not for the key of this request (403).
        """
        versions = self._versions.get(name, {}).values()
        service = (
            next((candidate for candidate in versions if candidate.version == version), None)
            if version
            else self.get(name)
        )
        if service is None:
            suffix = f" version {version if version.isdecimal() else shorten(version)}"[:100] if version else ""
            available = ", ".join(candidate.version for candidate in versions) or ", ".join(self)
            raise RequestError(
                f"Request for unknown model: {shorten(name)}{suffix} is not found. The server has "
                f"{'version ' * bool(versions)}{available or 'no models'}",
                status=404,
            )
        enter(service.name)
        return service

    def find_to_load(self, name: str) -> Service:
        """The default version of a model that a client wants to load.

        Raises:
            RequestError: the name is none (400), is not served (404), or not for the key of this request (403).
        """
        trimmed = name.strip()
        if not trimmed:
            raise RequestError("Model name cannot be empty. Please enter a valid name to deploy.")
        if trimmed == ".." or "/" in trimmed:
            raise RequestError(
                f"invalid model name {shorten(name)}, model name must not contain path traversal characters: it is a name, not a path"
            )
        if name not in self:
            raise RequestError(
                f"failed to load {shorten(name)}, failed to poll from model repository: the server has {', '.join(self) or 'no models'}",
                status=404,
            )
        return self.find(name)

    def pick(self, name: str, version: str = "") -> Service:
        """The version that answers a request: the named one, else the default or a canary.

        Raises:
            RequestError: it is not served (404).
        """
        service = self.find(name, version)
        return service if version else self._choices[name]()

    def choices(self) -> dict[str, VersionPicker]:
        """The `VersionPicker` of each model, by name."""
        return dict(self._choices)

    def select(self, name: str = "", version: str = "") -> list[Service]:
        """The services that a request names: a version, all versions of a model, or of all models.

        Raises:
            RequestError: it is not served (404).
        """
        if not name:
            return list(self.every)
        service = self.find(name, version)
        return [service] if version else [candidate for candidate in self.every if candidate.name == name]

    def numbers(self, name: str) -> list[int]:
        """The numbers of a model's versions.

        Raises:
            RequestError: no such model is served (404).
        """
        self.find(name)
        return [number for number, service in enumerate(self.every) if service.name == name]


def check_versions(specs: Sequence[ModelSpec]) -> None:
    """Check that the versions of each model can be served together.

    Raises:
        UsageError: two are the same, all are canaries or shadows, or their shares are more than one.
    """
    models: dict[str, list[ModelSpec]] = {}
    for spec in specs:
        models.setdefault(spec.name, []).append(spec)
    for name, versions in models.items():
        numbers = [version.version for version in versions]
        twice = next((number for number in numbers if numbers.count(number) > 1), None)
        if twice is not None:
            raise UsageError(
                f"two models have the name {name!r}, and have version {twice}.\n"
                f"Do: pytrt serve a={versions[0].target} b={versions[-1].target}, or give one another version in the file"
            )
        if all(version.share or version.shadow for version in versions):
            raise UsageError(
                f"model {name!r}: one version must have neither share nor shadow: it gets all other requests"
            )
        if sum(version.share for version in versions) > 1:
            raise UsageError(f"model {name!r}: the shares of its versions are more than 1")


def _make_picker(versions: Sequence[Service]) -> VersionPicker:
    """The `VersionPicker` of a model's versions, which are sorted by age."""
    default = next(version for version in reversed(versions) if not (version.spec.share or version.spec.shadow))
    return VersionPicker(default, [version for version in versions if version.spec.share])
