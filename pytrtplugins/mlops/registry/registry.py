"""The registry of models: the public interface."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...errors import ModelRegistryError, UsageError
from ...utils.files import sha256_hex
from ...utils.numbers import check_int
from . import facts
from .folder import Folder
from .history import STAGES, Action, Change, History, Stage
from .integrity import RegistryCheck, check, remove_orphans
from .manifest import ENGINE, ModelVersion, now
from .reference import Reference, check_name

__all__ = ["REGISTRY", "ModelRegistry", "default_folder"]

REGISTRY = "PYTRT_MODEL_REGISTRY"
"""Environment variable: the folder of the registry, where nobody names one."""

_MOST_VERSIONS = 10**9 - 1
_TIMES = ("version", "created", "run", "parent", "hardware", "packages")  # what differs where the same is added again


def default_folder() -> Path:
    """The default registry folder: ``PYTRT_MODEL_REGISTRY``, or ``.pytrt/models``."""
    return Path(os.environ.get(REGISTRY) or ".pytrt/models")


class ModelRegistry:
    """A registry of models in a folder. Several processes may use it at once; a killed one leaves it intact.

    Args:
        folder: Where it is, or is made with the first version; None: `default_folder`.

    Example:
        >>> ModelRegistry("nowhere").get("animals")
        Traceback (most recent call last):
        ...
        pytrtplugins.errors.ModelRegistryError: nowhere: there is no registry of models.
        Do: pytrt models add FILE.engine --name NAME, or name another folder with --registry
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Folder(default_folder() if folder is None else Path(folder))

    def add(
        self,
        engine_file: str | Path,
        *,
        name: str,
        version: int | None = None,
        network: str | Path | None = None,
        cache: str | Path | None = None,
        precision_file: str | Path | None = None,
        figures: Mapping[str, float] | str | Path | Sequence[str | Path] = (),
        data: Mapping[str, str | Path] | None = None,
        licence: str = "",
        run: str = "",
        parent: int | None = None,
        note: str = "",
    ) -> ModelVersion:
        """Add an engine file as a version of a model. A version never changes.

        What has been added before, with the same files, data and figures, is given back, and not added again.

        Args:
            engine_file: What `Engine.save` or ``pytrt build`` wrote.
            name: Of the model.
            version: Its number; None: the next.
            network: File that the engine was built from; its digest is kept.
            cache: The calibration cache; it is kept, with the digests in the file beside it.
            precision_file: The precision file; it is kept.
            figures: Numbers by name, or files of JSON that have them, such as of ``pytrt evaluate --json``.
            data: By what it was used for, such as ``evaluation``: a file, a folder, or a digest.
            licence: Under which the model may be used, such as ``Apache-2.0``.
            run: The run of a pipeline that made it.
            parent: The version that it follows; None: the newest.
            note: Free text, such as what changed.

        Raises:
            EngineFileError: it is no engine file, or damaged.
            ModelRegistryError: the version exists, a file cannot be used, or the registry cannot be written.
        """
        check_name(name)
        given_paths = {ENGINE: engine_file, "calibration": cache, "precision": precision_file}
        paths = {role: Path(path) for role, path in given_paths.items() if path is not None}
        draft = facts.describe(
            paths, network, figures, data or {}, name=name, licence=licence, run=run, parent=parent, note=note
        )
        with self.folder.changing():
            files = {role: self.folder.store(path) for role, path in paths.items()}
            return self._add(replace(draft, files=files), version)

    def _add(self, draft: ModelVersion, requested: int | None) -> ModelVersion:
        """Assign a number to a version, and write its manifest."""
        history, numbers = self.folder.history(draft.name), self.folder.numbers(draft.name)
        there = [number for number in numbers if number not in history.removed()]
        if requested is None:
            same = (
                next((existing for existing in self.versions(draft.name)[::-1] if _alike(existing, draft)), None)
                if there
                else None
            )
            if same is not None:
                return same
        used_numbers = {*numbers, *history.removed()}
        number = (
            max(used_numbers, default=0) + 1
            if requested is None
            else check_int("version", requested, 1, _MOST_VERSIONS)
        )
        if number in used_numbers:
            state = "exists" if number in there else "existed, and was removed"
            raise ModelRegistryError(
                f"{draft.name}:{number} {state}: a version never changes.\n"
                f"Do: leave --version out, and it becomes {draft.name}:{max(used_numbers) + 1}",
                version=number,
            )
        if draft.parent is not None and draft.parent not in there:
            raise self._unknown(draft.name, draft.parent)
        parent = draft.parent if draft.parent is not None else max(there, default=None)
        version = replace(draft, version=number, parent=parent)
        self.folder.write_manifest(version)
        return version

    # -- what is there -----------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The models that have versions, by their names.

        Raises:
            ModelRegistryError: there is no registry.
        """
        self.folder.check()
        return tuple(name for name in self.folder.names() if self._numbers(name))

    def versions(self, name: str) -> tuple[ModelVersion, ...]:
        """The versions of a model, the oldest first.

        Raises:
            ModelRegistryError: there is no such model, or a manifest is damaged.
        """
        numbers = self._version_numbers(name)
        return tuple(self.folder.manifest(name, number) for number in numbers)

    def get(self, name: str, version: int | None = None, *, stage: Stage | None = None) -> ModelVersion:
        """A version: the one with a number, the one in a stage, or the newest.

        Raises:
            ModelRegistryError: there is none, or its manifest is damaged.
            UsageError: number and stage are given, or there is no such stage.
        """
        if version is not None and stage is not None:
            raise UsageError(f"{name}: give a version or a stage, not both")
        if stage is not None and stage not in STAGES:
            raise UsageError(f"stage {stage!r}: expected one of {', '.join(STAGES)}")
        numbers = self._version_numbers(name)
        if stage == "archived":
            raise UsageError(f"{name}@archived: several versions may be archived: name one by its number")
        if stage is not None:
            version = self.history(name).current(stage)
            if version is None:
                raise ModelRegistryError(
                    f"{name}: no version is in {stage}.\nDo: pytrt models promote {name}:{numbers[-1]} --stage {stage}",
                    name=name,
                    stage=stage,
                )
        number = numbers[-1] if version is None else version
        if number not in numbers:
            raise self._unknown(name, number)
        return self.folder.manifest(name, number)

    def find(self, reference: Reference | str) -> ModelVersion:
        """The version that ``NAME``, ``NAME:VERSION`` or ``NAME@STAGE`` names; see `get`."""
        parsed = Reference.parse(reference) if isinstance(reference, str) else reference
        return self.get(parsed.name, parsed.version, stage=parsed.stage)

    def with_digest(self, digest: str) -> tuple[ModelVersion, ...]:
        """The versions with this digest, or prefix of one, of a file, of their network or of their data.

        Raises:
            ModelRegistryError: none has it.
        """
        matches = tuple(
            version
            for name in self.names()
            for version in self.versions(name)
            if any(
                candidate.startswith(digest)
                for candidate in (
                    *(file.sha256 for file in version.files.values()),
                    *version.networks.values(),
                    *version.data.values(),
                )
            )
        )
        if not matches:
            raise ModelRegistryError(
                f"{self.folder.path}: no version has the digest {digest}.\nDo: pytrt models list", digest=digest
            )
        return matches

    def file(self, version: ModelVersion, role: str = ENGINE) -> Path:
        """The path of a file of a version, whose contents were compared with its digest. Its contents must not be changed.

        Raises:
            ModelRegistryError: the version has no such file, or it is damaged or missing.
        """
        stored = version.files.get(role)
        if stored is None:
            raise ModelRegistryError(f"{version} has no file {role!r}; it has {', '.join(version.files)}", role=role)
        path = self.folder.object(stored.sha256)
        try:
            digest = sha256_hex(path, within=self.folder.path)
        except FileNotFoundError:
            digest = ""
        if digest != stored.sha256:
            state = f"damaged: its contents have the SHA-256 {digest}" if digest else "missing"
            raise ModelRegistryError(
                f"{path}: {state}; {version} needs it as {stored.name}.\n"
                f"Do: add the file {stored.name} again, which restores it; or pytrt models rollback {version.name}",
                path=path,
                expected=stored.sha256,
                found=digest,
            )
        return path

    def history(self, name: str) -> History:
        """The history of a model's versions.

        Raises:
            ModelRegistryError: there is no such model, or its history is damaged.
        """
        self._version_numbers(name)
        return self.folder.history(name)

    # -- what changes ------------------------------------------------------------------------------------------------

    def promote(
        self, name: str, version: int | None = None, *, to: Stage = "production", why: str = "", who: str | None = None
    ) -> Change:
        """Put a version into a stage, replacing the present one. Its files are first compared with their digests.

        Args:
            name: Of the model.
            version: Its number; None: the newest.
            to: The stage.
            why: The reason, for the history.
            who: Who does it; None: this user.

        Returns:
            What was written into the history; where the version was in that stage already, what put it there.

        Raises:
            ModelRegistryError: there is no such version, a file of it is damaged, or it is in production and would leave it empty.
            UsageError: there is no such stage.
        """
        if to not in STAGES:
            raise UsageError(f"stage {to!r}: expected one of {', '.join(STAGES)}")
        with self._changing(name):
            chosen = self.get(name, version)
            history = self.folder.history(name)
            if history.stage_of(chosen.version) == to:
                return next(change for change in history.changes[::-1] if change.version == chosen.version)
            for role in chosen.files:
                self.file(chosen, role)
            return self._change(name, "promote", chosen.version, to, why, who)

    def rollback(self, name: str, *, stage: Stage = "production", why: str = "", who: str | None = None) -> Change:
        """Put the version back that was in a stage before the present one.

        Raises:
            ModelRegistryError: there was none.
        """
        with self._changing(name):
            before = self.history(name).before(stage)
            if before is None:
                raise ModelRegistryError(
                    f"{name}: no version was in {stage} before.\nDo: pytrt models promote {name}:VERSION --stage {stage}",
                    name=name,
                    stage=stage,
                )
            self.file(self.get(name, before))
            return self._change(name, "rollback", before, stage, why, who)

    def check(self, repair: bool = False) -> RegistryCheck:
        """Read everything, and compare it with its digests.

        Args:
            repair: Remove what killed processes left over, which no version needs. Nothing else is touched.

        Raises:
            ModelRegistryError: there is no registry, or with ``repair`` it cannot be written.
        """
        return check(self.folder, repair)

    def remove(self, name: str, version: int, *, why: str = "", who: str | None = None) -> Change:
        """Remove a version, and its files that no other version has. Its number is never used again.

        Raises:
            ModelRegistryError: there is no such version, or it is in a stage.
        """
        with self._changing(name):
            self.get(name, version)
            change = self._change(name, "remove", version, None, why, who)
            self.folder.forget(name, version)
            remove_orphans(self.folder)
            return change

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Lock an existing model for a change."""
        self._version_numbers(name)
        with self.folder.changing():
            yield

    def _change(
        self, name: str, action: Action, version: int, stage: Stage | None, why: str, who: str | None
    ) -> Change:
        """Make a change, and append it to the history."""
        change = Change(now(), _user_name() if who is None else who, why, action, version, stage)
        Change.from_json(vars(change))
        try:
            history = self.folder.history(name).with_change(change)
        except ModelRegistryError as error:
            raise ModelRegistryError(f"{name}: {error}.\nDo: pytrt models show {name}", name=name) from None
        self.folder.write_history(name, history)
        return change

    def _numbers(self, name: str) -> list[int]:
        removed = self.folder.history(name).removed()
        return [number for number in self.folder.numbers(name) if number not in removed]

    def _version_numbers(self, name: str) -> list[int]:
        """The numbers of a model's versions.

        Raises:
            ModelRegistryError: there is no such model.
        """
        self.folder.check()
        numbers = self._numbers(name)
        if not numbers:
            names = ", ".join(self.names()[:20]) or "none"
            raise ModelRegistryError(
                f"{self.folder.path}: no model {name!r}; it has: {names}.\nDo: pytrt models list", name=name
            )
        return numbers

    def _unknown(self, name: str, number: int) -> ModelRegistryError:
        there = ", ".join(map(str, self._numbers(name)[-20:]))
        return ModelRegistryError(
            f"{name} has no version {number}; it has {there}.\nDo: pytrt models list {name}", name=name, version=number
        )


def _alike(old: ModelVersion, new: ModelVersion) -> bool:
    """Whether two versions have the same files, data, figures and notes."""
    same = {name: getattr(old, name) for name in _TIMES}
    files = {role: replace(file, name="") for role, file in old.files.items()}
    return replace(old, files=files) == replace(
        new, **same, files={role: replace(file, name="") for role, file in new.files.items()}
    )


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # in a container a number may have no name
        return str(os.getuid()) if hasattr(os, "getuid") else ""
