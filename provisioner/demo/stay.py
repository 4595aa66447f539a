"""The demonstration that stays: a sound simulated site that serves, until somebody has had enough.

It is what the tutorial is done on. Nothing is broken on purpose: whoever learns breaks it, with
`provisioner sim break`. Its nodes start at the older release, so that there is one to roll out.
Customers come once every host is certified: which of them serve is then a matter of place, not of
which was certified first.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.control.fabric.isolating import Fabrics
from provisioner.daemon.data import Data, held_data, open_data, read_expected
from provisioner.daemon.hosts import kept_clock
from provisioner.demo import Asked, Beside, Show, drive, simulator
from provisioner.demo.settings import settings_of
from provisioner.demo.site import BASE, prepare
from provisioner.model.campaign_policy import Policy
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Store
from provisioner.settings import Settings

DATA, SETTINGS, POLICY = "data", "settings.yaml", "policy.yaml"
RACKS = "racks.yaml"  # the expected-hardware list before there are customers
LOOK_S = 0.25  # of real time: how often is asked whether every host is certified


async def stay(
    asked: Asked,
    directory: Path,
    matrix: Path,
    show: Show,
    served: Callable[[], None],
    stop: asyncio.Event,
    beside: Beside | None = None,
) -> None:
    """Serve until `stop` is set; `served` is called once, when every node serves or is spare."""
    async with simulator(asked, directory) as site:
        files = prepare(directory, await site.get("/expected"), asked.nodes - asked.spare)
        listed = json.loads(files.expected.read_text(encoding="utf-8")) | {"release": BASE}
        racks = directory / RACKS
        racks.touch(mode=0o600)
        for file, content in ((files.expected, listed), (racks, listed | {"tenants": []})):
            file.write_text(json.dumps(content), encoding="utf-8")
        settings = staying(asked)
        _write(directory, settings)
        told = False

        def over(nodes: Sequence[Node], running: int) -> bool:
            nonlocal told
            if not told and running == 0 and is_served(nodes, asked.spare):
                told = True
                served()
            return stop.is_set()

        with held_data(directory / DATA):
            clock = await kept_clock(site, directory / DATA)
            async with open_data(directory / DATA, clock.now()) as data:
                began = time.monotonic()
                forever = float("inf")
                more = _more(data)
                taken_in = replace(files, expected=racks)
                async with asyncio.TaskGroup() as tasks:
                    customers = read_expected(files.expected).tenants
                    coming = tasks.create_task(add_customers(data.store, customers))
                    await drive(
                        *(settings, taken_in, matrix, site, clock, data, show, over),
                        *(began, forever, more, beside),
                    )
                    coming.cancel()


def is_served(nodes: Sequence[Node], spare: int) -> bool:
    """Return whether every node serves, but for so many hosts that wait for a tenant."""
    free = [n for n in nodes if n.state is State.CERTIFIED and not n.tenant]
    return (
        bool(nodes)
        and len(free) == spare
        and all(n.state is State.RELEASED for n in nodes if n not in free)
    )


async def add_customers(store: Store, customers: Sequence[Tenant]) -> None:
    """Wait until every host is certified, or in quarantine, and add the list's tenants then."""
    rest = (State.CERTIFIED, State.QUARANTINED)
    while True:
        hosts = [n for n in await store.nodes.list() if n.kind is NodeKind.HOST]
        if hosts and all(n.state in rest for n in hosts):
            break
        await asyncio.sleep(LOOK_S)
    for customer in customers:
        await store.tenants.put(customer)


def staying(asked: Asked) -> Settings:
    """The demonstration's, without tests among nodes: two nodes have not three partners.

    The site is a laboratory: nobody publishes every pin of the older release.
    """
    return settings_of(asked.nodes, asked.speed).model_copy(
        update={
            "certify_gates": "ab",
            "production": False,
            "erase_same_tenant_may_skip": True,
            "repair_pause_s": 60.0,
        }
    )


def _more(data: Data) -> dict[str, Any]:
    """Return what this daemon has beyond the demonstration's: campaigns, repairs and fabrics."""
    return {
        "campaigns": data.store.campaigns,
        "cases": data.store.cases,
        "fabrics": Fabrics(AddressPlan()),
    }


def _write(directory: Path, settings: Settings) -> None:
    """What other commands are to be given: the daemon's settings, and a policy in a hurry."""
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    policy = {
        "canary": {"size": 1, "soak_s": 600},
        "waves": [{}],
        "tenants": {"notice_s": 3600},
        "allow_irreversible": True,
    }
    Policy.model_validate(policy)
    # JSON is YAML too
    for name, content in ((SETTINGS, changed), (POLICY, policy)):
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
