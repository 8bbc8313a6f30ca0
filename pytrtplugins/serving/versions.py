"""The models that are served, each in one version or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..errors import RequestError
from .exchange import enter
from .service import Service

__all__ = ["Services"]


class Services(Mapping[str, Service]):
    """The models that are served: by its name the version that answers where a request names none, which is the newest.

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
        for versions in self._versions.values():
            for service in versions.values():
                service.versions = tuple(versions)
        order = dict.fromkeys(service.name for service in self.every)
        self._newest = {name: list(self._versions[name].values())[-1] for name in order}

    def __getitem__(self, name: str) -> Service:
        return self._newest[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def find(self, name: str, version: str = "") -> Service:
        """A version of a model; where none is named, the newest.

        Raises:
            RequestError: it is not served (404), or not for the key of this request (403).
        """
        versions = self._versions.get(name, {})
        found = versions.get(version) if version else self._newest.get(name)
        if found is None:
            said = f" of version {version[:80]!r}" if version else ""
            served = f"; it has {', '.join(versions)}" if versions else ""
            raise RequestError(f"no model {name[:80]!r}{said} is served{served}", status=404)
        enter(found.name)
        return found

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
