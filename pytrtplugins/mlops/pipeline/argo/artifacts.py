"""Map files of a pipeline to Argo's artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from ..pipeline import Pipeline
from ..step import Step, is_inside
from .resource import make
from .target import ArgoTarget

__all__ = ["Artifacts"]

_INPUTS = "/inputs"
"""Where containers find their inputs."""
_SHOWN = {".json", ".yaml", ".txt", ".md", ".html", ".csv", ".png", ".svg"}
"""Suffixes of files that Argo's page shows, if they are not in an archive."""


class Artifacts:
    """Names and keys of a pipeline's artifacts."""

    def __init__(self, pipeline: Pipeline, target: ArgoTarget) -> None:
        self._pipeline, self._target = pipeline, target
        steps = [*pipeline.steps, *([pipeline.on_exit] if pipeline.on_exit else [])]
        self._names = _argo_names(path for step in steps for path in (*step.outputs, *step.inputs))
        paths = dict.fromkeys(path for step in steps for path in step.inputs)
        self.given = tuple(path for path in paths if not pipeline.maker(path) and not self._is_in_image(path))
        """The user's files and folders, which are in the bucket before a run."""

    def arguments(self) -> list[Any]:
        """The user's files, as a workflow's arguments."""
        return [self._located(path, self.given_key(path)) for path in self.given]

    def parameters(self) -> list[Any]:
        """The user's files as input artifacts of the template with the steps."""
        return [make("Artifact", name=self._names[path]) for path in self.given]

    def given_key(self, path: str) -> str:
        """Key of a user's file in the bucket."""
        return f"{self._prefix}/inputs/{path.strip('/')}"

    def sources(self, step: Step) -> list[Any]:
        """Artifact arguments of a task: outputs of other steps, and the user's files."""
        return [
            make("Artifact", name=self._names[path], from_=f"{{{{{self._source(path)}}}}}")
            for path in self._input_paths(step)
        ]

    def inputs(self, step: Step) -> list[Any]:
        """A step's inputs: each artifact with the path at which the container finds it."""
        return [make("Artifact", name=self._names[path], path=self._mount(path)) for path in self._input_paths(step)]

    def links(self, step: Step) -> dict[str, str]:
        """Path of each input in the step's folder → path in the container.

        They are not mounted into the folder: the folders above a mount belong to root, and a step could write nothing beside it.
        """
        return {path: self._mount(path) for path in self._input_paths(step) if not PurePosixPath(path).is_absolute()}

    def outputs(self, step: Step) -> list[Any]:
        """Output artifacts of a step; optional for gates, which write one only if they pass."""
        return [self._output(path, optional=bool(step.gate)) for path in step.outputs]

    def logs(self) -> Any:
        """Location of logs; None for the cluster's artifact repository."""
        if not self._target.bucket:
            return None
        return make("ArtifactLocation", archive_logs=True, **{self._target.store: self._location(self._run_key)})

    def place(self, path: str) -> str:
        """A path in the container."""
        return str(PurePosixPath(self._target.folder) / path)

    def _input_paths(self, step: Step) -> list[str]:
        """The input artifacts of a step; an input inside another step's output, or inside a folder, is that artifact."""
        paths: dict[str, None] = {}
        for path in step.inputs:
            if maker := self._pipeline.maker(path):
                paths[next(output for output in maker.outputs if is_inside(path, output))] = None
            elif path in self.given:
                paths[path] = None
        return [path for path in paths if not any(path != other and is_inside(path, other) for other in paths)]

    def _source(self, path: str) -> str:
        maker = self._pipeline.maker(path)
        place = f"tasks.{maker.name}.outputs" if maker else "inputs"
        return f"{place}.artifacts.{self._names[path]}"

    def _mount(self, path: str) -> str:
        return path if PurePosixPath(path).is_absolute() else f"{_INPUTS}/{self._names[path]}"

    @property
    def _prefix(self) -> str:
        return self._target.prefix or self._pipeline.name

    @property
    def _run_key(self) -> str:
        """The folder in the bucket of what a pod writes."""
        return f"{self._prefix}/runs/{{{{workflow.name}}}}/{{{{pod.name}}}}"

    def _is_in_image(self, path: str) -> bool:
        return path.endswith(".py") or any(is_inside(path, image_path) for image_path in self._target.in_image)

    def _output(self, path: str, optional: bool) -> Any:
        shown = PurePosixPath(path).suffix in _SHOWN
        archive = (
            make("ArchiveStrategy", none=make("NoneStrategy"))
            if shown
            else make(
                "ArchiveStrategy", tar=make("TarStrategy", compression_level=0)
            )  # photos and weights do not shrink
        )
        name = f"{self._names[path]}{PurePosixPath(path).suffix if shown else '.tgz'}"
        key = f"{self._run_key}/{name}" if self._target.bucket else ""
        return self._located(path, key, path=self.place(path), archive=archive, optional=optional or None)

    def _located(self, file: str, key: str, **facts: Any) -> Any:
        """An artifact at a key of the store; without a store, in the cluster's artifact repository."""
        store = {self._target.store: self._location(key)} if key else {}
        return make("Artifact", name=self._names[file], **facts, **store)

    def _location(self, key: str) -> Any:
        target = self._target
        bucket = target.bucket or None
        if target.store == "gcs":
            account = self._credential("serviceAccountKey")
            return make("GCSArtifact", bucket=bucket, key=key, service_account_key_secret=account)
        keys = {
            "access_key_secret": self._credential("accessKey"),
            "secret_key_secret": self._credential("secretKey"),
            "use_sdk_creds": True if bucket and not target.store_secret else None,
        }
        if target.store == "oss":
            return make("OSSArtifact", bucket=bucket, endpoint=target.endpoint or None, key=key, **keys)
        endpoint = (target.endpoint or "s3.amazonaws.com") if bucket else None
        return make("S3Artifact", bucket=bucket, endpoint=endpoint, insecure=target.insecure or None, key=key, **keys)

    def _credential(self, key: str) -> Any:
        return make("SecretKeySelector", name=self._target.store_secret, key=key) if self._target.store_secret else None


def _argo_names(paths: Iterable[str]) -> dict[str, str]:
    """A unique name for each path that Argo accepts: letters, digits and dashes."""
    names: dict[str, str] = {}
    used_names: set[str] = set()
    for path in paths:
        if path not in names:
            base = name = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-") or "file"
            number = 1
            while name in used_names:
                number += 1
                name = f"{base}-{number}"
            used_names.add(name)
            names[path] = name
    return names
