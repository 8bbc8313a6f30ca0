"""Memory by liveness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.engines.cuda.plan.arena import ALIGNMENT, Block, place

BLOCK = st.builds(
    lambda size, first, length: Block(size, first, first + length),
    st.integers(0, 5000),
    st.integers(0, 12),
    st.integers(0, 6),
)
BLOCKS = st.lists(BLOCK, max_size=14).map(lambda blocks: {f"b{index}": block for index, block in enumerate(blocks)})


def alive(block):
    """The steps during which it is needed."""
    return set(range(block.first, block.last + 1))


def apart(layout, blocks, one, other):
    (a, b), (c, d) = ((layout.offsets[name], layout.offsets[name] + blocks[name].bytes) for name in (one, other))
    return b <= c or d <= a


@given(BLOCKS, st.booleans())
def test_blocks_needed_at_the_same_time_lie_apart_and_inside(blocks, reuse):
    layout = place(blocks, reuse)
    assert layout.offsets.keys() == blocks.keys()
    for name, block in blocks.items():
        assert layout.offsets[name] % ALIGNMENT == 0
        assert layout.offsets[name] + block.bytes <= layout.bytes
    for one in blocks:
        for other in blocks:
            if one < other and (not reuse or alive(blocks[one]) & alive(blocks[other])):
                assert apart(layout, blocks, one, other)


@given(BLOCKS)
def test_sharing_never_needs_more_than_separate_places(blocks):
    assert place(blocks).bytes <= place(blocks, reuse=False).bytes


@given(BLOCKS)
def test_the_arena_is_at_least_as_large_as_what_is_alive_at_once(blocks):
    layout = place(blocks)
    for moment in range(20):
        alive = sum(block.bytes for block in blocks.values() if block.first <= moment <= block.last)
        assert layout.bytes >= alive


def test_a_chain_of_equal_tensors_takes_two_places():
    chain = {f"t{index}": Block(1024, index, index + 1) for index in range(10)}
    assert place(chain).bytes == 2 * 1024


@pytest.mark.parametrize("size", [1, 255, 256, 257])
def test_places_are_rounded_to_the_alignment(size):
    assert place({"a": Block(size, 0, 0)}).bytes == -(-size // 256) * 256
