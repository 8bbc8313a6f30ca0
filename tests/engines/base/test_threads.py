"""Threads that build, run, load and register at the same time, and streams that are left in the middle."""

import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import EngineFileError, RegistryError
from pytrtplugins.plugin.registry import lookup, registered
from tests.engines.base.world import in_threads
from tests.engines.networks import Affine, conv_net, image

THREADS = 4


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    """Makes a race show: by default a thread keeps Python's lock for 5 ms."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def test_engines_are_built_and_run_side_by_side(engine_name):
    def build_and_run(number):
        engine = ptp.build(conv_net(Affine(factor=number), seed=number), engine=engine_name, threads=1)
        with engine.create_context() as context:
            return [context.run({"data": image(seed=seed)})["y"] for seed in range(3)]

    alone = [build_and_run(number) for number in range(THREADS)]
    for found, expected in zip(in_threads(build_and_run), alone, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("threads", [1, None])
def test_contexts_of_one_engine_run_again_and_again(engine_name, threads):
    engine = ptp.build(conv_net(Affine()), engine=engine_name, threads=threads)
    images = [image(seed=seed) for seed in range(5)]
    with engine.create_context() as context:
        expected = [context.run({"data": each})["y"] for each in images]

    def run(number):
        with engine.create_context() as context:
            return [context.run({"data": each})["y"] for _ in range(4) for each in images]

    for found in in_threads(run):
        np.testing.assert_array_equal(found, expected * 4)


def test_a_file_that_others_write_is_whole_whenever_it_is_loaded(tmp_path):
    path, x = tmp_path / "net.engine", image()
    engines = [ptp.build(conv_net(seed=seed), engine="reference") for seed in range(2)]
    expected, replaced = [], []
    for engine in engines:
        with engine.create_context() as context:
            expected.append(context.run({"data": x})["y"])
    engines[0].save(path)

    def save_or_load(number):
        for _ in range(15):
            if number < 2:
                engines[number].save(path)
                continue
            try:
                engine = ptp.load_engine(path)
            except EngineFileError as error:
                replaced.append(
                    str(error).endswith("another file has taken its place since it was opened.\nDo: load it again")
                )
                continue
            with engine.create_context() as context:
                found = context.run({"data": x})["y"]
            assert any(np.array_equal(found, each) for each in expected)

    in_threads(save_or_load)
    assert all(replaced)
    assert [item.name for item in tmp_path.iterdir()] == ["net.engine"]


def test_one_of_several_classes_gets_a_key():
    def register(number):
        body = {"output_dims": lambda self, x: x, "compute": lambda self, x: x, "__module__": f"module{number}"}
        with suppress(RegistryError):
            return ptp.plugin(namespace="test.race")(type("Contested", (ptp.Plugin,), body))

    winners = [cls for cls in in_threads(register, 8) if cls is not None]
    assert winners == [lookup("test.race", "Contested")]


def test_the_registry_is_read_while_others_register():
    done = threading.Event()

    def register_or_read(number):
        if number:
            while not done.is_set():
                assert lookup("test.engines", "Affine") is Affine
                assert registered()
            return
        try:
            for count in range(300):
                body = {"output_dims": lambda self, x: x, "compute": lambda self, x: x}
                ptp.plugin(namespace="test.crowd")(type(f"Member{count}", (ptp.Plugin,), body))
        finally:
            done.set()

    in_threads(register_or_read)


class LeftInTheMiddleError(Exception):
    """What a user's own code raises."""


def close_it(engine):
    results = engine.stream(range(100), prepare=lambda seed: {"data": image(seed=seed)})
    next(results)
    results.close()


def leave_the_loop(engine):
    def consume():
        for _ in engine.stream(({"data": image(seed=seed)} for seed in range(100)), slots=3):
            raise LeftInTheMiddleError

    with pytest.raises(LeftInTheMiddleError):
        consume()


def fail_to_prepare(engine):
    def prepare(seed):
        if seed == 3:
            raise LeftInTheMiddleError
        return {"data": image(seed=seed)}

    with pytest.raises(LeftInTheMiddleError):
        list(engine.stream(range(100), prepare=prepare, slots=3))


def fail_to_give(engine):
    def source():
        yield {"data": image()}
        raise LeftInTheMiddleError

    with pytest.raises(LeftInTheMiddleError):
        list(engine.stream(source()))


@pytest.mark.parametrize("leave", [close_it, leave_the_loop, fail_to_prepare, fail_to_give])
def test_a_stream_that_is_left_leaves_no_thread_and_no_lock(engine_name, leave):
    engine = ptp.build(conv_net(Affine()), engine=engine_name, threads=1)

    def threads():
        return {each for each in threading.enumerate() if each.name.startswith((engine_name, "pytrtplugins"))}

    before = threads()
    leave(engine)
    assert threads() <= before
    assert len(list(engine.stream(({"data": image(seed=seed)} for seed in range(5)), slots=3))) == 5
