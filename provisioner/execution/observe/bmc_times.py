"""Gives the BMCs of a new host the site's time servers; one that refuses does not hold it up."""

from __future__ import annotations

import logging

from provisioner.adapters.redfish.upkeep.bmc_time import set_clock
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError

_LOG = logging.getLogger(__name__)


async def set_times(site: Site, node: Node) -> tuple[Blocker, ...]:
    """Set the time of every BMC of a node; return why it was not set at some.

    Their skew is an alert while the host serves, so that a refusal here is not lost.
    """
    refusals = []
    for bmc in node.bmcs:
        name = f"{node.id}/{bmc.name}"
        try:
            client = await site.reach.redfish(node, bmc.name)
            if not isinstance(client, Blocker):
                servers = site.settings.bmc_ntp_servers
                refused = await set_clock(client.service, servers, site.clock.now)
            else:
                refused = client
        except PortError as error:
            refused = blocked(error, name)
        if refused is not None:
            _LOG.warning("the time of %s was not set: %s", name, refused)
            refusals.append(refused)
    return tuple(refusals)
