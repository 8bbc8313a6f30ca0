"""A plugin whose tensors differ in element type is told the method that it lacks."""

import textwrap

import numpy as np

import pytrtplugins as ptp

DTYPES = ["ptp.DType.FLOAT32", "ptp.DType.INT64"]


class Largest(ptp.Plugin):
    """The place of the largest value along the last axis."""

    def output_dims(self, x):
        return x[:-1]

    def output_dtypes(self, x):
        return ptp.DType.INT64

    def compute(self, x):
        return x.argmax(-1).astype(np.int64)


class Rows(ptp.Plugin):
    """Rows of a table, by their numbers."""

    def output_dims(self, table, index):
        if len(table) != 2 or len(index) != 1:
            raise ptp.errors.DimsError("a table and numbers")
        return index[0], table[1]

    def compute(self, table, index):
        return table[index]


def with_method(cls, detail, namespace):
    """The class with the method that a message shows."""
    lines = detail[detail.index("    def supports_format") :].splitlines()[:3]
    scope = {"ptp": ptp}
    exec(
        textwrap.dedent(
            "\n".join(line.removeprefix("    ") if line.startswith("        def") else line for line in lines)
        ),
        scope,
    )
    return ptp.plugin(namespace=namespace)(type(cls.__name__, (cls,), {"supports_format": scope["supports_format"]}))


def test_outputs_of_another_type_are_answered_with_a_method_that_passes():
    lacking = ptp.plugin(namespace="tests.formats")(type("Largest", (Largest,), {}))
    detail = ptp.check_plugin(lacking, engines=[])["formats"].detail
    assert "dtypes = (ptp.DType.FLOAT32, ptp.DType.INT64)  # of the inputs, then of the outputs" in detail
    report = ptp.check_plugin(with_method(Largest, detail, "tests.formats2"), engines=["reference"])
    assert report.ok, report


def test_inputs_of_several_types_are_answered_with_a_method_that_passes():
    lacking = ptp.plugin(namespace="tests.formats")(type("Rows", (Rows,), {}))
    table, index = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, 0], np.int32)
    detail = ptp.check_plugin(lacking, engines=[])["dims"].detail
    assert "dtypes = (ptp.DType.FLOAT32, ptp.DType.INT32, ptp.DType.FLOAT32)" in detail
    assert "inputs= with your own arrays" in detail
    detail = ptp.check_plugin(lacking, inputs=[table, index], engines=[])["formats"].detail
    assert "does not accept the types of the given inputs: float32, int32" in detail
    report = ptp.check_plugin(with_method(Rows, detail, "tests.formats2"), inputs=[table, index], engines=["reference"])
    assert report.ok, report


def test_a_method_of_its_own_that_accepts_nothing_is_not_told_of_the_default():
    def nothing(self, position, descs):
        return False

    cls = ptp.plugin(namespace="tests.formats3")(type("Largest", (Largest,), {"supports_format": nothing}))
    assert ptp.check_plugin(cls, engines=[])["formats"].detail.endswith("accepts no element type in linear layout")


def test_the_types_of_own_inputs_stand_in_the_method():
    class Looked(ptp.Plugin):
        def output_dims(self, index, table):
            if len(table) != 2 or len(index) != 1:
                raise ptp.errors.DimsError("numbers and a table")
            return index[0], table[1]

        def compute(self, index, table):
            return table[index]

    lacking = ptp.plugin(namespace="tests.formats3")(Looked)
    detail = ptp.check_plugin(lacking, inputs={"index": (0, 3), "table": np.eye(4)}, engines=[])["dims"].detail
    assert "dtypes = (ptp.DType.INT64, ptp.DType.FLOAT32, ptp.DType.FLOAT32)  # of the inputs" in detail


def test_methods_that_differ_in_their_number_of_inputs_are_named():
    @ptp.plugin(namespace="tests.formats4")
    class Sum(ptp.Plugin):
        def output_dims(self, x):
            return x

        def compute(self, x, y):
            return x + y

    detail = ptp.check_plugin(Sum, engines=[])["dims"].detail
    assert "\nCauses: output_dims has 1 parameters, compute 2.\nDo: " in detail
    assert "supports_format" not in detail
