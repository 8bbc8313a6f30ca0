"""An application without a network: requests are calls."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.backends import local
from pytrtplugins.serving.backends.local import LocalBackend
from pytrtplugins.serving.processes import engine_process
from pytrtplugins.serving.protocol.app import App
from tests.serving.registered import engine_files, filled_folder, registry
from tests.serving.running import Certificates
from tests.serving.served import Slow

__all__ = ["engine_files", "filled_folder", "registry"]  # fixtures


INFER = "/v2/models/double/infer"
JSON = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


class Answer:
    def __init__(self, messages):
        self.status = messages[0]["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def json(self):
        return json.loads(self.body)


class Client(AbstractContextManager):
    """Asks an application in this process."""

    def __init__(self, specs, limits=None):
        limits = limits or Limits(body_bytes=1 << 20)
        self.loop = asyncio.new_event_loop()
        self.backend = LocalBackend(specs, limits)
        self.loop.run_until_complete(self.backend.start())
        self.app: Any = App(self.backend, limits)

    def do(self, awaitable):
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, 20))

    async def call(self, method, path, body=b"", headers=None, parts=None):
        parts = [body] if parts is None else list(parts)
        path, _, query = path.partition("?")
        sent = []

        async def receive():
            if not parts:
                await asyncio.sleep(60)  # a client that sends no more
            part = parts.pop(0)
            return part if isinstance(part, dict) else {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), str(value).encode()) for name, value in (headers or {}).items()],
            "root_path": "",
            "scheme": "http",
            "server": ("test", 80),
            "client": ("test", 1),
        }
        await self.app(scope, receive, send)
        return Answer(sent)

    def ask(self, method, path, body=b"", headers=None, parts=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        return self.loop.run_until_complete(self.call(method, path, body, headers, parts))

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, body=b"", **options):
        return self.ask("POST", path, body, **options)

    def __exit__(self, *error):
        self.loop.run_until_complete(self.backend.stop())
        self.loop.close()


def spec(name, cls, **options):
    return ModelSpec(name, f"tests.serving.served:{cls}", **options)


async def until(true):
    """Wait until this is so."""
    while not true():
        await asyncio.sleep(0.001)


@pytest.fixture
def held():
    """The model `Slow` waits until the test lets it go, or ends."""
    Slow.entered.clear()
    Slow.go.clear()
    yield
    Slow.go.set()


@pytest.fixture(scope="session", autouse=True)
def no_settling():
    """The processes of a server have Python's collector go through all objects after each change; here these are pytest's too."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (local, engine_process):
            patch.setattr(module, "refreeze", lambda: None)
        yield


@pytest.fixture(scope="module")
def client():
    names = ("double", "lists", "later", "wrong", "shout", "files")
    with Client([spec(name, name.title()) for name in names]) as made:
        yield made


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))
