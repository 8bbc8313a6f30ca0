"""The cache of step outputs, on DVC: a DVC repository without version control in the pipeline's private folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import FormatError, StepError
from ...utils.inside import holder
from ...utils.optional import require
from ...utils.override import override
from ...utils.text_formats import read_yaml
from .folder import PipelineFolder, changed_keys, step_key
from .full_disk import is_disk_full, tell_full_disk
from .pipeline import Pipeline
from .step import Step
from .store import Outcome, Store

__all__ = ["DvcStore"]

_PYTHON = "PYTRT_PYTHON"
_COMMAND = f'"${_PYTHON}" -m pytrtplugins.mlops.pipeline.run_step'
_REMOTE = "shared"
_CONFIG = """\
[core]
    no_scm = True
    analytics = False
    check_update = False
    site_cache_dir = {folder}/.dvc/site
"""


class DvcStore(Store):
    """A pipeline's steps as stages of DVC; see `opened`."""

    def __init__(self, repo: Any, pipeline: Pipeline, folder: PipelineFolder) -> None:
        self._repo, self._pipeline, self._folder = repo, pipeline, folder
        self._stages = {stage.name: stage for stage in repo.stage.load_all("dvc.yaml")}  # once: that takes long
        self._errors = require("dvc.exceptions", extra="pipeline", feature="running pipelines")

    @classmethod
    @contextmanager
    def opened(cls, pipeline: Pipeline, folder: PipelineFolder) -> Iterator[DvcStore]:
        """Write the steps for DVC and open its repository, which stays the working directory until the end, as DVC requires.

        The caller holds the folder's lock.

        Raises:
            StepError: DVC refuses the folder.
        """
        dvc = require("dvc.repo", extra="pipeline", feature="running pipelines")
        for name in ("dvc", "dvc_data", "dvc_objects"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # its errors are raised too, and become ours
        _write(pipeline, folder)
        with (
            contextlib.chdir(folder.path),
            _environment({"DVC_NO_ANALYTICS": "1", "SHELL": "/bin/sh", _PYTHON: sys.executable}),
        ):
            try:
                repo = dvc.Repo(str(folder.path))
            except Exception as error:
                if is_disk_full(error, folder.path):
                    what = f"pipeline {pipeline.name}"
                    raise StepError(tell_full_disk(what, folder.path), path=folder.path) from error
                raise StepError(f"pipeline {pipeline.name}: DVC cannot use {folder.path}: {error}") from error
            try:
                with dvc.lock_repo(repo):
                    store = cls(repo, pipeline, folder)
                    store._take_shared()
                    yield store
                if pipeline.remote:
                    store._share()
            finally:
                repo.close()

    @override
    def changes(self, step: Step) -> list[str] | None:
        if not self.digest(step):
            return None
        return sorted(
            {word for change in self._stage(step).status().values() for word in self._change_texts(step, change)}
        )

    @override
    def bring(self, step: Step, *, force: bool, environment: Mapping[str, str]) -> Outcome:
        with _environment(environment):
            before, stage = self._folder.attempt(step.name), self._stage(step)
            try:
                has_outputs = stage.reproduce(force=force, pull=bool(self._pipeline.remote), run_cache=step.restorable)
                if has_outputs:
                    stage.dump(update_pipeline=False)
            except self._errors.DvcException as error:
                if self._folder.attempt(step.name) == before or self._done(step):
                    raise StepError(
                        f"step {step.name}: {_causes(error)}", step=step.name
                    ) from error  # not the step, but DVC
                return "failed"
            ran = self._folder.attempt(step.name) != before
        return "ran" if ran else "restored" if has_outputs else "unchanged"

    @override
    def digest(self, step: Step) -> str:
        hashes = [(out.def_path, out.hash_info.value) for out in self._stage(step).outs if out.hash_info]
        if not hashes:
            return ""
        return str(hashes[0][1]) if len(hashes) == 1 else hashlib.sha256(repr(sorted(hashes)).encode()).hexdigest()

    def _take_shared(self) -> None:
        """Fetch the run cache of the pipeline's remote, if it has one; outputs are fetched when they are needed."""
        if self._pipeline.remote:
            try:
                self._repo.stage_cache.pull(_REMOTE)
            except Exception as error:  # of whichever storage
                raise self._step_error(error) from error

    def _share(self) -> None:
        try:
            self._repo.push(remote=_REMOTE, run_cache=True)
        except Exception as error:  # of whichever storage
            raise self._step_error(error) from error

    def _step_error(self, error: Exception) -> StepError:
        what = f"pipeline {self._pipeline.name}: the remote {self._pipeline.remote} cannot be used: {_causes(error)}"
        return StepError(f"{what}\nDo: correct `remote`, or install DVC's package for it, such as dvc-s3")

    def _done(self, step: Step) -> bool:
        attempt = self._folder.attempt(step.name)
        return attempt is not None and attempt.state == "done"

    def _stage(self, step: Step) -> Any:
        return self._stages[step.name]

    def _known_key(self, step: Step) -> dict[str, Any]:
        """The key that the existing outputs depend on, besides inputs."""
        for dependency in self._stage(step).deps:
            if dependency.def_path == "params.json" and isinstance(dependency.hash_info.value, dict):
                key = dependency.hash_info.value.get(step.name)
                return key if isinstance(key, dict) else {}
        return {}

    def _change_texts(self, step: Step, changes: Any) -> Iterator[str]:
        """DVC's status of a stage, in words."""
        for change in changes:
            if isinstance(change, str):  # "changed command"
                yield "what it runs"
                continue
            for kind, changed in change.items():
                for path, how in changed.items():
                    name = _user_path(path, self._folder)
                    if path == "params.json":
                        yield from changed_keys(self._known_key(step), step_key(step))
                    elif kind == "changed outs":
                        yield f"output {name} {'is missing' if how == 'deleted' else 'was changed'}"
                    else:
                        yield f"input {name} {'is missing' if how == 'deleted' else 'has changed'}"


def _write(pipeline: Pipeline, folder: PipelineFolder) -> None:
    """Write dvc.yaml and DVC's settings; remove files that a killed process left half written."""
    with holder(folder.path / ".dvc" / "tmp" / "rwlock", folder.root, error=StepError, make=True):
        pass
    config = _CONFIG.format(folder=folder.path)
    if pipeline.remote:
        url = pipeline.remote if "://" in pipeline.remote else os.path.abspath(pipeline.folder / pipeline.remote)
        config += f"    remote = {_REMOTE}\n['remote \"{_REMOTE}\"']\n    url = {url}\n"
    folder.put(folder.path / ".dvc" / "config", config.encode())
    stages = {step.name: _stage(pipeline, folder, step) for step in pipeline.steps}
    folder.put(folder.path / "dvc.yaml", json.dumps({"stages": stages}, indent=1).encode())
    (folder.path / ".dvc" / "tmp" / "rwlock").unlink(missing_ok=True)  # of other runs, of which there is none
    lock = folder.path / "dvc.lock"
    with contextlib.suppress(FileNotFoundError):
        try:
            lock_data = read_yaml(lock, within=folder.root)
            if not isinstance(lock_data, dict) or not isinstance(lock_data.get("stages"), dict):
                raise FormatError(f"{lock}: no stages")
        except FormatError:
            lock.unlink()  # half written; the cache of runs knows the rest


def _stage(pipeline: Pipeline, folder: PipelineFolder, step: Step) -> dict[str, Any]:
    deps: list[str] = []
    for path in step.inputs:
        if pipeline.maker(path):
            deps.append(f"files/{path}")
        else:
            deps += (
                own_file if os.path.isabs(path) else os.path.relpath(own_file, folder.path)
                for own_file in _own_files(folder.base / path)
            )
    return {
        "cmd": f"{_COMMAND} {step.name}",
        **({"deps": deps} if deps else {}),
        "params": [{"params.json": [step.name]}],
        "outs": [f"files/{path}" for path in step.outputs],
    }


def _own_files(path: Path) -> list[str]:
    """Files of a user's input: itself; for a folder with Python code, all files except Python's caches."""
    if not path.is_dir() or not any(path.glob("*.py")):
        return [str(path)]
    files = (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return sorted(map(str, files))


def _user_path(path: str, folder: PipelineFolder) -> str:
    """A path as the user wrote it; DVC's are relative to its repository."""
    full = Path(os.path.normpath(folder.path / path))
    for root in (folder.stored(""), folder.base):
        if full.is_relative_to(root):
            return full.relative_to(root).as_posix()
    return str(full)


def _causes(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return ": ".join(dict.fromkeys(filter(None, texts)))


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
