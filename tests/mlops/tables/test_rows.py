"""Columns and cells of a table."""

from pytrtplugins.mlops.tables import Table, TableRow, Variant


def table(*rows):
    return Table(rows, (), (), "verification", "net", "data", {"processor": "cpu"}, "today")


def row(engine, **memory):
    return TableRow(Variant(engine, "fp32"), host_mib=9.0, file_mib=2.0, build_s=1.0, **memory)


def test_parts_of_the_memory_have_columns_only_where_a_row_knows_them():
    unknown = row("reference")
    assert table(unknown).columns() == ["", "host MiB", "file MiB", "build s"]
    found = table(unknown, row("cpu", weights_mib=3.25, activations_mib=11.5))
    assert found.columns() == ["", "host MiB", "weights MiB", "activations MiB", "file MiB", "build s"]
    assert [found.cells(each) for each in found.rows] == [
        ["reference fp32", "9", "–", "–", "2.0", "1.0"],
        ["cpu fp32", "9", "3.2", "11.5", "2.0", "1.0"],
    ]
    some = table(row("tensorrt", gpu_mib=50.0), row("cpu", activations_mib=1.0))
    assert some.columns() == ["", "host MiB", "GPU MiB", "activations MiB", "file MiB", "build s"]
