"""Which connections make room for others, and which are closed since they ask nothing; with stand-ins for connections."""

import asyncio

import pytest

from pytrtplugins.serving import Limits
from pytrtplugins.serving.http.admission import Admission, network_of


class Connection:
    """A stand-in for a transport."""

    def __init__(self, address="10.0.0.1"):
        self.address, self.aborted, self.told = address, False, b""

    def get_extra_info(self, name):
        return (self.address, 1234)

    def abort(self):
        self.aborted = True

    def write(self, data):
        self.told += data

    def close(self):
        pass


def entered(limits, connections, asked=()):
    """Let connections in, one after the other; those of some numbers then ask something at once."""

    async def enter():
        admission = Admission(limits)
        for number, each in enumerate(connections):
            admission.enter(each, number)
            if number in asked:
                admission.head_received(each)

    asyncio.run(enter())
    return [each.aborted for each in connections], [bool(each.told) for each in connections]


def test_the_one_that_was_silent_longest_makes_room():
    aborted, told = entered(Limits(connections=2), [Connection() for _ in range(4)], asked=[0])
    assert aborted == [False, True, True, False]
    assert told == 4 * [False]


def test_where_all_have_asked_the_new_one_is_told_so():
    aborted, told = entered(Limits(connections=2), [Connection() for _ in range(3)], asked=[0, 1])
    assert aborted == 3 * [False]
    assert told == [False, False, True]


def test_a_client_with_too_many_loses_its_own_and_only_one_of_them():
    addresses = ["10.0.0.9", "10.0.0.1", "10.0.0.1", "10.0.0.1"]
    limits = Limits(connections=3, connections_per_address=2)
    aborted, _ = entered(limits, [Connection(each) for each in addresses])
    assert aborted == [False, True, False, False]


def test_connections_that_are_gone_do_not_count():
    async def enter():
        admission = Admission(Limits(connections_per_address=1))
        for _ in range(3):
            each = Connection()
            network = admission.enter(each, 0)
            admission.head_received(each)
            admission.leave(each, network)
            assert not each.told

    asyncio.run(enter())


def test_all_that_stay_silent_are_closed_and_no_others():
    async def enter():
        admission = Admission(Limits(head_seconds=0.01))
        silent, asked = [Connection() for _ in range(200)], Connection()
        for each in (asked, *silent):
            admission.enter(each, 0)
        admission.head_received(asked)
        while not all(each.aborted for each in silent):
            await asyncio.sleep(0.005)
        later = Connection()
        admission.enter(later, 0)
        while not later.aborted:
            await asyncio.sleep(0.005)
        return asked.aborted

    assert asyncio.run(asyncio.wait_for(enter(), 20)) is False


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2::9", "2001:0db8:0001:0002"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_client_is_an_address_of_ipv4_or_a_network_of_ipv6(address, network):
    assert network_of(address) == network
