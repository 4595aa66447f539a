"""The demonstration that stays: a sound simulated site that serves, until somebody has had enough.

It is what the tutorial is done on. Nothing is broken on purpose: whoever learns breaks it, with
`provisioner sim break`. Its nodes start at the older release, so that there is one to roll out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from provisioner.daemon.data import Data, held_data, open_data
from provisioner.daemon.hosts import kept_clock
from provisioner.demo import Asked, Show, drive, simulator
from provisioner.demo.settings import settings_of
from provisioner.demo.site import BASE, prepare
from provisioner.model.campaign_policy import Policy
from provisioner.model.node import Node, State
from provisioner.settings import Settings
from provisioner.store.repositories.campaign_rows import CampaignRows
from provisioner.store.repositories.case_rows import CaseRows

DATA, SETTINGS, POLICY = "data", "settings.yaml", "policy.yaml"


async def stay(
    asked: Asked,
    directory: Path,
    matrix: Path,
    show: Show,
    served: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set; `served` is called once, when every node serves."""
    async with simulator(asked, directory) as site:
        listed = {**await site.get("/expected")}
        files = prepare(directory, listed, asked.nodes)
        expected = json.loads(files.expected.read_text(encoding="utf-8"))
        files.expected.write_text(json.dumps(expected | {"release": BASE}), encoding="utf-8")
        settings = staying(asked)
        _write(directory, settings)
        told = False

        def over(nodes: Sequence[Node], running: int) -> bool:
            nonlocal told
            serve = bool(nodes) and all(n.state is State.RELEASED for n in nodes)
            if serve and running == 0 and not told:
                told = True
                served()
            return stop.is_set()

        with held_data(directory / DATA):
            clock = await kept_clock(site, directory / DATA)
            async with open_data(directory / DATA, clock.now()) as data:
                began = time.monotonic()
                forever = float("inf")
                more = _more(data)
                await drive(
                    settings, files, matrix, site, clock, data, show, over, began, forever, more
                )


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
    """What this daemon does beyond the demonstration's: campaigns and repairs."""
    return {"campaigns": CampaignRows(data.store), "cases": CaseRows(data.store)}


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
