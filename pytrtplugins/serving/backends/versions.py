"""The models that are served, each in one version or several."""

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
    """Chooses among the versions of a model for requests that name none: each canary gets its share exactly, the default the rest.

    Args:
        default: Gets what no canary gets, and the share of a canary that is not ready.
        canaries: Versions with a share.
    """

    def __init__(self, default: Service, canaries: Sequence[Service] = ()) -> None:
        self.default = default
        shares = [round(_WHOLE * each.spec.share) for each in canaries]
        self._weights = [*zip(canaries, shares, strict=True), (default, _WHOLE - sum(shares))] if canaries else []
        self._owed = [0] * len(self._weights)

    def __call__(self) -> Service:
        """The version that answers the next request: the one that is owed most of them (smooth weighted round-robin)."""
        if not self._weights:
            return self.default
        for number, (_, weight) in enumerate(self._weights):
            self._owed[number] += weight
        most = self._owed.index(max(self._owed))
        self._owed[most] -= _WHOLE
        found = self._weights[most][0]
        return found if found.ready else self.default


class Services(Mapping[str, Service]):
    """The models that are served: by its name the default version, the newest that is neither a canary nor a shadow.

    Args:
        services: Each version of each model, in the order of their numbers.

    Attributes:
        every: The same.
    """

    def __init__(self, services: Iterable[Service]) -> None:
        self.every = tuple(services)
        self._versions: dict[str, dict[str, Service]] = {}
        for service in sorted(self.every, key=lambda each: int(each.spec.version)):
            self._versions.setdefault(service.name, {})[service.spec.version] = service
        order = dict.fromkeys(service.name for service in self.every)
        self._choices = {name: _choice(tuple(self._versions[name].values())) for name in order}
        for versions in self._versions.values():
            shadows = tuple(each for each in versions.values() if each.spec.shadow)
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
        """A version of a model; where none is named, the default.

        Raises:
            RequestError: it is not served (404), or not for the key of this request (403).
        """
        versions = self._versions.get(name, {}).values()
        found = next((each for each in versions if each.version == version), None) if version else self.get(name)
        if found is None:
            suffix = f" version {version if version.isdecimal() else shorten(version)}"[:100] if version else ""
            known = ", ".join(each.version for each in versions) or ", ".join(self)
            raise RequestError(
                f"Request for unknown model: {shorten(name)}{suffix} is not found. The server has "
                f"{'version ' * bool(versions)}{known or 'no models'}",
                status=404,
            )
        enter(found.name)
        return found

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
        """The version that answers a request: where it names none, the default or a canary.

        Raises:
            RequestError: it is not served (404).
        """
        found = self.find(name, version)
        return found if version else self._choices[name]()

    def choices(self) -> dict[str, VersionPicker]:
        """By the name of each model what chooses its version."""
        return dict(self._choices)

    def asked(self, name: str = "", version: str = "") -> list[Service]:
        """What a request asks about: a version, all versions of a model, or of all models.

        Raises:
            RequestError: it is not served (404).
        """
        if not name:
            return list(self.every)
        found = self.find(name, version)
        return [found] if version else [each for each in self.every if each.name == name]

    def numbers(self, name: str) -> list[int]:
        """The numbers of a model's versions.

        Raises:
            RequestError: no such model is served (404).
        """
        self.find(name)
        return [number for number, service in enumerate(self.every) if service.name == name]


def check_versions(specs: Sequence[ModelSpec]) -> None:
    """Look whether the versions of each model can be served together.

    Raises:
        UsageError: two are the same, all are canaries or shadows, or their shares are more than one.
    """
    models: dict[str, list[ModelSpec]] = {}
    for spec in specs:
        models.setdefault(spec.name, []).append(spec)
    for name, versions in models.items():
        numbers = [each.version for each in versions]
        twice = next((number for number in numbers if numbers.count(number) > 1), None)
        if twice is not None:
            raise UsageError(
                f"two models have the name {name!r}, and have version {twice}.\n"
                f"Do: pytrt serve a={versions[0].target} b={versions[-1].target}, or give one another version in the file"
            )
        if all(each.share or each.shadow for each in versions):
            raise UsageError(
                f"model {name!r}: one version must have neither share nor shadow: it gets all other requests"
            )
        if sum(each.share for each in versions) > 1:
            raise UsageError(f"model {name!r}: the shares of its versions are more than 1")


def _choice(versions: Sequence[Service]) -> VersionPicker:
    """What chooses among the versions of a model, the oldest first."""
    default = next(each for each in reversed(versions) if not (each.spec.share or each.spec.shadow))
    return VersionPicker(default, [each for each in versions if each.spec.share])
