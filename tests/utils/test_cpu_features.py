"""What the processor can do, and what it may do."""

from pathlib import Path

import pytest

from pytrtplugins.engines.host.int8 import safe_weight_levels
from pytrtplugins.utils.cpu_features import cpu_features, describe_cpu

SERVER = "avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_int8 avx_vnni sse4_1"
ALL = {"avx2", "avx512", "vnni", "bf16", "amx-bf16", "amx-int8"}
LIMITS = [
    ("", ALL),
    ("ALL", ALL),
    ("AVX512_CORE_AMX", ALL),
    ("AVX512_CORE_BF16", {"avx2", "avx512", "vnni", "bf16"}),
    ("avx512_core_vnni", {"avx2", "avx512", "vnni"}),
    ("AVX512_CORE", {"avx2", "avx512"}),
    ("AVX2_VNNI", {"avx2", "vnni"}),
    ("AVX2", {"avx2"}),
    ("SSE41", set()),
]


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: Some Server\nflags\t\t: fpu {SERVER}\n\n" * 2)
    return str(tmp_path / "cpuinfo")


@pytest.mark.parametrize(("limit", "expected"), LIMITS)
@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_features_that_onednn_may_not_use_are_not_there(cpuinfo, monkeypatch, name, limit, expected):
    monkeypatch.setenv(name, limit)
    assert cpu_features(cpuinfo) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags : avx512_vnni", {"vnni"}),
        ("flags : avx_vnni", {"vnni"}),
        ("Features : asimd", {"neon"}),
        ("Features : asimddp", {"dotprod"}),
        ("Features : i8mm", {"i8mm"}),
    ],
)
def test_each_of_linuxs_words_alone_is_known(cpuinfo, line, expected):
    Path(cpuinfo).write_text(f"{line}\n")
    assert cpu_features(cpuinfo) == expected


def test_a_limit_adds_nothing(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("flags : avx2\n")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    assert cpu_features(str(tmp_path / "cpuinfo")) == {"avx2"}


def test_the_description_says_what_limits_it(cpuinfo, monkeypatch):
    assert "limited" not in describe_cpu(cpuinfo)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert describe_cpu(cpuinfo).startswith("Some Server (avx2, limited to AVX2 by ONEDNN_MAX_CPU_ISA), ")


@pytest.mark.parametrize("limit", ["AVX2", "AVX512_CORE"])
def test_weights_are_small_where_openvino_may_not_use_vnni(monkeypatch, limit):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert safe_weight_levels() == 64


def test_no_file_no_features(tmp_path):
    assert cpu_features(str(tmp_path / "missing")) == frozenset()
