"""Settings of a run as the command line gives them; test_modes.py has those that contradict each other."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from tests.samples.needs_torch import torch
from training.settings import Settings, add_settings


def read(*words: str, device: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    return Settings.from_options(parser.parse_args(words), device)


def test_a_command_line_without_options_has_the_defaults_of_the_device() -> None:
    assert read(device="cpu") == Settings()
    assert read(device="cuda") == replace(Settings(), precision="bf16", compile=True)
    assert read("--deterministic", device="cuda") == replace(Settings(), precision="bf16", deterministic=True)
    assert read("--no-compile", "--precision", "fp32", device="cuda") == Settings()
    by_place = ("fp32", "NHWC", False, False, "replicated", False, False, "auto")
    assert Settings() == Settings(*by_place, sync_bn=False, accumulate=1, deterministic=False)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("precision", ["fp32", "tf32", "bf16", "fp16"]),
        ("data_format", ["NCHW", "NHWC"]),
        ("variable_update", ["independent", "replicated", "parameter_server", "distributed_replicated"]),
        ("all_reduce_spec", ["auto", "nccl", "nccl/ring", "nccl/tree", "gloo"]),
    ],
)
def test_each_choice_is_taken(option: str, choices: list[str]) -> None:
    assert [getattr(read(f"--{option}", each, device="cpu"), option) for each in choices] == choices


def test_a_precision_and_a_layout_are_those_of_pytorch() -> None:
    types = [Settings(precision=name).dtype for name in ("fp32", "tf32", "bf16", "fp16")]
    assert types == [None, None, torch.bfloat16, torch.float16]
    layouts = [Settings(data_format=name).memory_format for name in ("NHWC", "NCHW")]
    assert layouts == [torch.channels_last, torch.contiguous_format]
    fused = Settings(precision="bf16")
    others = [{"precision": "tf32"}, {"data_format": "NCHW"}, {"sync_bn": True}]
    assert [replace(fused, **each).fuses for each in ({}, *others)] == [True, False, False, False]
