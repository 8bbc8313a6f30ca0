"""C++ plugins as Plugin classes."""

import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins import native
from pytrtplugins.errors import FieldError, PluginError, RegistryError, SerializationError


def test_layouts_and_scales_of_all_tensors_are_kept_for_the_kernels():
    x = ptp.TensorDesc("x", (1, 4), ptp.DType.INT8, scale=0.5)
    y = ptp.TensorDesc("y", (1, 4), ptp.DType.INT8, scale=0.25, layout="nhwc")
    configured = []
    plugin = SimpleNamespace(handle=SimpleNamespace(configure=lambda *descs: configured.append(descs)))
    native.NativePlugin.configure(plugin, [x, x], [y, ptp.TensorDesc("z", (1,))])
    assert plugin._scales == (0.5, 0.5, 0.25, 0.0)
    assert plugin._layouts == ("linear", "linear", "nhwc", "linear")
    assert configured == [([x, x], [y, ptp.TensorDesc("z", (1,))])]


@pytest.mark.parametrize("error", [None, PluginError("no")])
def test_a_run_on_a_gpu_ends_the_clones_life_also_where_it_fails(monkeypatch, error):
    """With NumPy in CuPy's place."""
    calls = []

    class Runner:
        def __init__(self, clone, allocate):
            calls.append(clone)

        def run(self, inputs, outputs, stream):
            calls.append((len(inputs), [(y.shape, y.dtype.name) for y in outputs], stream))
            if error:
                raise error

        def close(self):
            calls.append("closed")

    cuda = SimpleNamespace(get_current_stream=lambda: "stream")
    xp = SimpleNamespace(asarray=np.asarray, empty=np.empty, uint8=np.uint8, cuda=cuda)
    monkeypatch.setattr(native, "array_namespace", lambda array: xp)
    monkeypatch.setattr(native, "PluginRunner", Runner)
    plugin = SimpleNamespace(
        all_output_dims=lambda dims: [(2, 3)],
        all_output_dtypes=lambda kinds, count: kinds * count,
        clone=lambda: "clone",
    )
    with pytest.raises(PluginError) if error else nullcontext():
        native.NativePlugin.compute(plugin, np.ones(4, np.float32))
    assert calls == ["clone", (1, [((2, 3), "float32")], "stream"), "closed"]


def test_a_registered_class_is_a_plugin_with_typed_fields(acme):
    assert issubclass(acme.Scale, ptp.Plugin)
    assert acme.Scale(factor=3) == acme.Scale(3.0) != acme.Scale()
    assert repr(acme.Scale()) == "Scale(factor=2.0)"
    assert acme.Scale.__doc__ == "Multiply by a factor."
    assert ptp.lookup("acme", "PairSums") is acme.PairSums
    assert acme.PairSums.plugin_key() == ("acme", "PairSums", "2")
    assert [spec.type_name for spec in acme.Everything.field_specs()] == [
        "float", "bool", "int", "str", "tuple[bool, ...]", "tuple[int, ...]", "tuple[float, ...]", "tuple[str, ...]",
        "numpy.ndarray"]  # fmt: skip


def test_it_passes_check_plugin(acme):
    ptp.check_plugin(acme.Scale).raise_if_failed()
    ptp.check_plugin(acme.PairSums).raise_if_failed()


def test_two_outputs_of_other_types_through_a_workspace(acme):
    a, b = np.random.default_rng(0).standard_normal((2, 2, 4, 3, 5)).astype(np.float32)
    y, sign = acme.PairSums().all_outputs([a, b])
    expected = (a + b).reshape(2, 2, 2, 3, 5).sum(2)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(sign, np.sign(y).astype(np.int8))


def test_inputs_in_the_other_byte_order_are_converted(acme):
    x = np.arange(4, dtype=np.dtype(np.float32).newbyteorder())
    np.testing.assert_array_equal(acme.Scale(factor=3).compute(x), 3 * x)


def test_arrays_that_nobody_else_holds_live_as_long_as_the_run(acme):
    from pytrtplugins import _native

    y, sign = np.empty((1, 1, 1, 1 << 18), np.float32), np.empty((1, 1, 1, 1 << 18), np.int8)
    inputs = (np.full((1, 2, 1, 1 << 18), value, np.float32) for value in (1, 2))
    _native.run(acme.PairSums().handle, inputs, [y, sign])
    np.testing.assert_array_equal(y, np.full_like(y, 6))


VALUES = {
    "flag": False, "count": -(2**63), "label": "Ünïcode\n", "flags": (), "counts": (1, 2**63 - 1), "weights": (0.1, np.inf),
    "labels": ("", "ß"), "table": np.arange(6, dtype=np.int8).reshape(2, 3), "factor": -0.0,
}  # fmt: skip


@pytest.mark.parametrize("values", [{}, VALUES, {"table": np.zeros((0, 4)), "labels": ()}])
def test_bytes_are_the_same_in_both_languages(acme, values):
    plugin = acme.Everything(**values)
    data = plugin.serialize()
    assert plugin.handle.serialize() == data
    assert acme.Everything().handle.deserialize(data).serialize() == data
    assert ptp.Plugin.deserialize(data) == plugin


def test_cpp_refuses_every_damaged_byte_and_every_cut(acme):
    handle, data = acme.Everything().handle, acme.Everything(**VALUES).serialize()
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 0x10
        if index not in (6, 7):  # reserved; their checksum is still wrong
            with pytest.raises(SerializationError):
                handle.deserialize(bytes(flipped))
        with pytest.raises(SerializationError):
            handle.deserialize(data[:index])
    with pytest.raises(SerializationError):
        handle.deserialize(data + b"\0")
    with pytest.raises(SerializationError, match=r"acme::Scale version 1, expected acme::Everything"):
        handle.deserialize(acme.Scale().serialize())


def test_false_lengths_with_a_right_checksum_are_refused(acme):
    from pytrtplugins.plugin.envelope import unwrap, wrap

    payload = unwrap(acme.Everything(**VALUES).serialize(), "test")
    for offset in range(0, len(payload) - 4):
        broken = wrap(payload[:offset] + b"\xff\xff\xff\x7f" + payload[offset + 4 :])
        try:
            accepted = acme.Everything().handle.deserialize(broken)
        except SerializationError:
            with pytest.raises(SerializationError):
                acme.Everything.deserialize(broken)
        else:  # the four bytes belonged to a number
            assert accepted.serialize() == broken
            acme.Everything.deserialize(broken)


def test_a_clone_takes_the_state_of_configure_with_it_and_shares_nothing(acme):
    plugin = acme.Scale(factor=5)
    assert plugin.clone() == plugin
    assert plugin.clone().handle.address != plugin.handle.address


def test_enqueue_refuses_outputs_that_it_would_write_beyond(acme):
    handle, x = acme.Scale().handle, np.ones(4, np.float32)
    for output, text in [
        (np.empty(3, np.float32), "float32"),
        (np.empty(4, np.float16), "float16"),
        (np.empty(8, np.float32)[::2], "not contiguous"),
        (np.empty(4, np.dtype(np.float32).newbyteorder()), "output 0 is in the other byte order"),
        (np.broadcast_to(np.float32(1), 4), "read-only|not contiguous"),
    ]:
        with pytest.raises(PluginError, match=text):
            handle.enqueue([x], [output], (), 0, 0)
    with pytest.raises(PluginError, match="expected 1 outputs, found 0"):
        handle.enqueue([x], [], (), 0, 0)
    with pytest.raises(PluginError, match="no array"):
        handle.enqueue([[1.0]], [np.empty(1, np.float32)], (), 0, 0)


def test_cpp_works_without_pythons_lock(acme):
    """Another thread goes on while C++ is at work: it counts during one long call."""
    counts, running = [0], [True]

    def count():
        while running[0]:
            counts[0] += 1
            time.sleep(0)

    x = np.ones(1 << 24, np.float32)
    handle, y = acme.Scale().handle, np.empty_like(x)
    counter = threading.Thread(target=count)
    counter.start()
    time.sleep(0.02)
    before = counts[0]
    try:
        for _ in range(5):
            handle.enqueue([x], [y], (), 0, 0)
        during = counts[0] - before
    finally:
        running[0] = False
        counter.join()
    assert during > 100


def test_loading_again_gives_the_same_classes(acme, acme_path):
    assert ptp.load_library(str(acme_path)) is acme
    assert repr(acme) == "NativeLibrary(libacme.so: Scale, PairSums, Everything, Faulty)"


def test_each_library_has_its_own_classes(acme, compile_library, tmp_path):
    source = tmp_path / "other.cpp"
    source.write_text("""
        #include <pytrtplugins/plugin.h>
        namespace acme {
        struct Scale : pytrtplugins::Plugin {
            std::vector<pytrtplugins::Dims> outputDims(std::vector<pytrtplugins::Dims> const& x) const override { return x; }
            void enqueue(pytrtplugins::TensorDesc const*, pytrtplugins::TensorDesc const*, void const* const*, void* const*,
                         void*, pytrtplugins::Stream) override {}
        };
        PYTRTPLUGINS_REGISTER(Scale, "other", "1")
        }
    """)
    other = ptp.load_library(compile_library("other", source))
    assert other.Scale.plugin_key().namespace == "other"
    assert acme.Scale.plugin_key().namespace == "acme"


def test_a_taken_key_is_refused(acme, acme_path, tmp_path):
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(acme_path.read_bytes())
    with pytest.raises(RegistryError, match=r"the key belongs to libacme\.Scale"):
        ptp.load_library(copy)


def test_files_that_are_no_plugin_libraries_are_refused_with_the_reason(acme, compile_library, tmp_path):
    with pytest.raises(PluginError, match="cannot be loaded"):
        ptp.load_library(tmp_path / "missing.so")
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    with pytest.raises(PluginError, match="cannot be loaded"):
        ptp.load_library(text)
    for name, source, words in (
        ("empty", "int unused = 0;", r"Do: include <pytrtplugins/plugin\.h>"),
        ("none", "#include <pytrtplugins/plugin.h>", "PYTRTPLUGINS_REGISTER"),
        (
            "old",
            'extern "C" int* pytrtplugins_library() { static int old[4] = {99, 1}; return old; }',
            "interface version 99",
        ),
    ):
        (tmp_path / "empty.cpp").write_text(source)
        with pytest.raises(PluginError, match=words):
            ptp.load_library(compile_library(name, tmp_path / "empty.cpp"))


def test_an_unknown_class_is_an_attribute_error_with_the_known_ones(acme):
    with pytest.raises(AttributeError, match="Scale, PairSums"):
        _ = acme.Missing


@pytest.mark.parametrize(
    "method", ["validate", "output_dims", "output_dtypes", "configure", "workspace_size", "initialize", "enqueue"]
)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("plugin", "PluginError"), ("dims", "DimsError"), ("field", "FieldError"), ("registry", "RegistryError"),
     ("serialization", "SerializationError"), ("foreign", "PluginError")],
)  # fmt: skip
def test_cpp_exceptions_are_the_projects_own(acme, method, kind, expected):
    x = np.ones(2, np.float32)
    with pytest.raises(PluginError, match=f"in {method}") as caught:
        acme.Faulty(where=method, kind=kind).all_outputs([x])
    assert type(caught.value).__name__ == expected
    if kind == "dims":
        assert caught.value.expected == 7


def test_wrong_fields_are_refused_by_python_before_cpp_sees_them(acme):
    with pytest.raises(FieldError, match="expected float"):
        acme.Scale(factor="two")
    with pytest.raises(FieldError, match="factr"):
        acme.Scale(factr=2.0)


def test_a_cpp_caller_runs_a_cpp_plugin(acme, call):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(call(native.as_native(acme.Scale(factor=3)), x, (2, 3)), 3 * x)


@given(text=st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode), st.sampled_from([
    b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"])))  # fmt: skip
def test_a_text_is_utf8_for_cpp_where_it_is_for_python(acme, text):
    from pytrtplugins.plugin.envelope import unwrap, wrap

    empty, broken = unwrap(acme.Faulty().serialize(), "test"), b"\x05\0\0\0where\x04"
    size = len(text).to_bytes(4, "little")
    data = wrap(empty.replace(broken + b"\0\0\0\0", broken + size + text))
    try:
        expected = acme.Faulty.deserialize(data)
    except SerializationError:
        with pytest.raises(SerializationError, match="UTF-8"):
            acme.Faulty().handle.deserialize(data)
    else:
        assert acme.Faulty().handle.deserialize(data).serialize() == expected.serialize()


def test_without_the_native_part_the_error_says_what_to_install():
    code = """
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pytrtplugins._native" else find(name, *rest)
import pytrtplugins as ptp
try:
    ptp.load_library("libacme.so")
except ptp.errors.UnavailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("python -m pytrtplugins.native\n")


@pytest.mark.parametrize(("count", "told"), [(-1, None), (0, 0), (1, 1), (3, 3)])
def test_only_a_number_below_zero_means_any_number_of_inputs(count, told):
    read = native.NativePlugin.num_inputs.fget
    assert read(SimpleNamespace(handle=SimpleNamespace(num_inputs=count))) == told
