"""A store for tests: remembers steps by what they depend on, in a file, and runs them in this process."""

import hashlib
import json
import os
from contextlib import contextmanager
from unittest import mock

from pytrtplugins.mlops.pipeline.folder import step_key
from pytrtplugins.mlops.pipeline.run_step import RUN, _Run
from pytrtplugins.mlops.pipeline.store import Store


class PlainStore(Store):
    """What DVC does, without a cache of earlier runs."""

    def __init__(self, folder):
        self._folder, self._file = folder, folder.path / "plain.json"
        self._known = json.loads(self._file.read_text()) if self._file.exists() else {}

    @classmethod
    @contextmanager
    def opened(cls, pipeline, folder):
        yield cls(folder)

    def _key(self, step):
        _, inputs = self._folder.read_step(step.name)
        return [step_key(step), {path: digest_of(source) for path, source in inputs.items()}]

    def changes(self, step):
        if step.name not in self._known:
            return None
        return [] if self._known[step.name]["key"] == self._key(step) else ["something"]

    def bring(self, step, *, force, environment):
        if not force and self.changes(step) == []:
            return "unchanged"
        with mock.patch.dict(os.environ, environment):
            step_read, inputs = self._folder.read_step(step.name)
            assert step_read == step
            key = self._key(step)
            code = _Run(self._folder, step_read, inputs, environment[RUN]).run()
        if code:
            return "failed"
        outputs = [digest_of(self._folder.stored(path)) for path in step.outputs]
        self._known[step.name] = {"key": key, "digest": hashlib.sha256(repr(outputs).encode()).hexdigest()}
        self._file.write_text(json.dumps(self._known))
        return "ran"

    def digest(self, step):
        return self._known.get(step.name, {}).get("digest", "")


def digest_of(path):
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    return hashlib.sha256(
        b"\0".join(str(file.relative_to(path)).encode() + file.read_bytes() for file in files)
    ).hexdigest()
