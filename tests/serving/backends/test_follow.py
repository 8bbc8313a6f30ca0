"""A server that follows a registry: every answer says truly which version it is of, and none is lost while versions change."""

import asyncio
import logging
import os

import pytest

from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.serving.backends import follow as following
from pytrtplugins.serving.batching.replica import Replica
from tests.serving.conftest import Client, until
from tests.serving.registered import OTHER, PHOTOS, registered
from tests.serving.rig import Rig, x

AT_ONCE = 0.005


class Load:
    """Requests that come whether the ones before are answered or not, until it is ended."""

    def __init__(self, service, room):
        self.service, self.room = service, room
        self.asked = []
        self.task = asyncio.ensure_future(self._ask())

    async def _ask(self):
        while True:
            if self.room():
                self.asked.append(asyncio.ensure_future(self.service.infer(x(1))))
            await asyncio.sleep(AT_ONCE)

    async def some(self):
        """The versions that answer a few requests that begin now."""
        asked = [asyncio.ensure_future(self.service.infer(x(1))) for _ in range(4)]
        self.asked += asked
        return {int(item.source.version) for item in await asyncio.gather(*asked)}

    async def versions(self):
        """Of the answers, in the order of the requests; each was compared with what the answer says of itself."""
        self.task.cancel()
        items = await asyncio.gather(*self.asked)
        assert all(item.outputs["y"][0, 0] == int(item.source.version) for item in items)
        return [int(item.source.version) for item in items]


async def change_under_load(backend, registry, room):
    """Promote and roll back while requests come; gives the versions that answered, and after each change some that were asked later."""
    service = backend.services["scale"]
    follower = asyncio.ensure_future(following.follow_registry(backend, AT_ONCE))
    load, after = Load(service, room), []
    assert await load.some() == {1}
    changes = [(2, registry.promote), (3, registry.promote), (2, registry.rollback), (1, registry.rollback)]
    for version, change in changes:
        await asyncio.to_thread(change, "scale", *([version] if change == registry.promote else []))
        await until(lambda version=version: {each.version for each in backend.sources(0)} == {str(version)})
        after.append(await load.some())
        assert service.version == str(version)
    follower.cancel()
    assert after == [{version} for version, _ in changes]
    return await load.versions()


def test_in_one_process(registry):
    with Client([registered(registry)]) as client:
        replica = lambda: client.backend._replicas[0].queue  # noqa: E731  another one after each change
        work = change_under_load(client.backend, registry, lambda: len(replica()) < 200)
        versions = client.loop.run_until_complete(asyncio.wait_for(work, 60))
    steps = [version for at, version in enumerate(versions) if at == 0 or versions[at - 1] != version]
    assert steps == [1, 2, 3, 2, 1]


def test_in_two_engine_processes(registry):
    with Rig([registered(registry)], engines=2) as rig:
        versions = rig.do(change_under_load(rig.backend, registry, lambda: rig.backend._slots.free_units))
    assert {*versions} == {1, 2, 3}
    assert versions[0] == 1


def failing(client, caplog, until_said):
    """Follow until something is logged; gives the version that answers then."""

    async def run():
        follower = asyncio.ensure_future(following.follow_registry(client.backend, AT_ONCE))
        await until(lambda: until_said in caplog.text)
        follower.cancel()
        item = await client.backend.services["scale"].infer(x(1))
        return item.outputs["y"][0, 0]

    with caplog.at_level(logging.INFO, "pytrtplugins"):
        return client.loop.run_until_complete(asyncio.wait_for(run(), 60))


def damage(registry):
    path = registry.file(registry.get("scale", 2))
    registry.promote("scale", 2)
    path.chmod(0o644)
    path.write_bytes(b"?")


def promote_other(registry):
    registry.promote("scale", OTHER)


def damage_history(registry):
    registry.folder.history_path("scale").write_bytes(b"?")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (damage, "damaged: its contents have the SHA-256"),
        (promote_other, "version 4 has other inputs or outputs than the one that is served"),
        (damage_history, "not JSON"),
    ],
)
def test_what_cannot_be_loaded_leaves_what_is_served(registry, caplog, fault, said):
    with Client([registered(registry)]) as client:
        fault(registry)
        assert failing(client, caplog, said) == 1
        assert "registry:scale@production" in caplog.text
        registry.folder.history_path("scale").unlink()
        registry.promote("scale", 3)
        assert failing(client, caplog, "version 3 is served") == 3


def test_a_model_that_a_client_unloaded_stays_so(registry):
    with Client([registered(registry)]) as client:

        async def run():
            await client.backend.unload("scale")
            registry.promote("scale", 2)
            follower = asyncio.ensure_future(following.follow_registry(client.backend, AT_ONCE))
            await asyncio.sleep(20 * AT_ONCE)
            follower.cancel()

        client.loop.run_until_complete(run())
        assert client.backend.services["scale"].state == "UNAVAILABLE"


def test_a_fixed_version_stays(registry):
    with Client([registered(registry, "registry:scale:2")]) as client:
        assert client.backend.sources(0).pop().version == "2"
        registry.promote("scale", 3)
        assert client.backend.services["scale"].version == "2"


def test_without_a_version_in_the_stage_the_server_does_not_start(registry):
    with pytest.raises(ModelRegistryError, match=r"no version is in staging.*\nDo: pytrt models promote scale:4"):
        Replica(registered(registry, "registry:scale@staging"), None, print)


def test_an_engine_process_that_starts_later_has_the_present_version(registry):
    with Rig([registered(registry)], engines=1) as rig:
        registry.promote("scale", 2)
        rig.engine()
        assert {each.version for each in rig.backend.sources(0)} == {"1", "2"}
        follower = rig.loop.create_task(following.follow_registry(rig.backend, AT_ONCE))
        rig.do(until(lambda: {each.version for each in rig.backend.sources(0)} == {"2"}))
        follower.cancel()


def test_data_and_run_are_known_of_what_is_served(registry):
    with Client([registered(registry)]) as client:
        (source,) = client.backend.sources(0)
        (found,) = registry.with_digest(source.digest)
        assert (found.data, found.run) == ({"shards": PHOTOS}, "run 7")
        assert os.path.basename(registry.file(found)) == source.digest
