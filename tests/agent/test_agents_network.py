"""A daemon that serves agents knows who keeps their hosts apart, or does not start."""

from __future__ import annotations

import pytest

from provisioner.daemon.agents import AgentDoor, check_hosts_apart
from provisioner.model.input_error import InputError
from provisioner.settings import Settings

REACHED = [
    AgentDoor("10.0.0.2"),
    AgentDoor("0.0.0.0"),
    AgentDoor("127.0.0.1", url="https://10.0.0.2:6385"),
]


@pytest.mark.parametrize("door", REACHED, ids=lambda d: d.url or d.host)
def test_a_door_that_hosts_reach_is_refused_until_somebody_keeps_them_apart(
    door: AgentDoor,
) -> None:
    with pytest.raises(InputError, match="lookup_networks"):
        check_hosts_apart(door, Settings())

    check_hosts_apart(door, Settings(lookup_networks=("10.0.0.0/24",)))
    check_hosts_apart(door, Settings(lookup_isolation="site"))


def test_a_door_of_this_machine_alone_serves_no_hosts() -> None:
    check_hosts_apart(AgentDoor(), Settings())


@pytest.mark.parametrize("network", ["10.0.0.1/24", "fd00::/64", "hosts", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match="lookup_networks"):
        Settings(lookup_networks=(network,))
