"""Collect the evidence that a reset would destroy: logs, counters, event logs, crash dumps.

It changes nothing. Everything is stored unchanged, by SHA-256, and sources without an answer are
listed. A node that does not answer at all still gives its case the report and the alerts that
opened it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from provisioner import checks as declared
from provisioner.adapters.redfish import diagnostics
from provisioner.adapters.redfish.readings import Reading
from provisioner.adapters.redfish.service import Service
from provisioner.checks import roce_runtime
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.console_tail import read_console_text
from provisioner.execution.validate.validator import Validator
from provisioner.model.case import Fault
from provisioner.model.health import Gate, HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.repair.part_names import Names, names_of
from provisioner.ports import PortError, Store

TEXT_MAX = 8 * 1024 * 1024  # of one BMC's logs; 500 entries of 1 KB in each of 10 logs are 5 MB
REPORTS_S = 60 * 86400.0
REPORTS_MAX = 10  # a part that is gone is named as it was when it was last there
FAULTS_MAX = 40  # of event logs; a person reads the stored ones


@dataclass
class Collected:
    """`evidence`: name -> SHA-256 in the evidence table."""

    evidence: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)  # what event logs say
    report: HealthReport | None = None  # gate A as it is now, without load


class EvidenceCollector:
    """`validator` runs the looks of gate A; nothing of it is a verdict on the node."""

    def __init__(self, site: Site, store: Store, validator: Validator) -> None:
        self._site = site
        self._store = store
        self._validator = validator

    async def collect(self, node: Node, inventory: Inventory | None, *, deep: bool) -> Collected:
        """Collect the evidence of one node. `deep`: crash dumps too (minutes for each BMC)."""
        collected = Collected()
        last = await self._store.evidence.get_report(node.id)
        if last is not None:
            collected.evidence["last report"] = await self._store.evidence.put_output(
                last.model_dump_json()
            )
        if inventory is not None:
            text = inventory.model_dump_json()
            collected.evidence["inventory"] = await self._store.evidence.put_output(text)
            await self._look(node, inventory, collected)
        if console := await read_console_text(self._site, node):
            collected.evidence["console"] = await self._store.evidence.put_output(console)
        for bmc in node.bmcs:
            await self._bmc(node, bmc, collected, deep=deep)
        return collected

    async def list_names(self, node: Node, inventory: Inventory | None, now: Collected) -> Names:
        """Return the tools' names of the node's parts, from the newest reports and from this
        collection.
        """
        since = self._site.clock.now() - REPORTS_S
        reports = await self._store.evidence.list_reports(node.id, since)
        digests = [
            r.evidence
            for report in (*reversed(reports[:REPORTS_MAX]), now.report)
            if report is not None
            for r in report.results
            if r.check in ("gpu_inventory", "rdma_links") and r.evidence
        ]
        texts = [await self._store.evidence.get_output(d) or "" for d in dict.fromkeys(digests)]
        return names_of(node, inventory, texts)

    async def _look(self, node: Node, inventory: Inventory, found: Collected) -> None:
        names = [
            c.name
            for c in declared.ALL
            if c.kind is NodeKind.HOST
            and c.gate is Gate.A
            and not c.load
            and not c.on_request
            and c is not roce_runtime.CHECK  # it would write the settings that it reads
        ]
        try:
            report = await self._validator.validate(node, inventory, selected=names)
        except PortError as error:
            found.gaps.append(f"in-band: {error}"[:300])
            return
        if isinstance(report, Blocker):
            found.gaps.append(f"in-band: {report}"[:300])
            return
        found.report = report
        for result in report.results:
            if result.evidence:
                found.evidence[f"check {result.check}"] = result.evidence

    async def _bmc(self, node: Node, bmc: BmcRef, found: Collected, *, deep: bool) -> None:
        try:
            client = await self._site.reach.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                found.gaps.append(f"{bmc.name}: {client}"[:300])
                return
            reading = await diagnostics.read_logs(client.service)
            text = json.dumps(dict(reading.resources), sort_keys=True)[:TEXT_MAX]
            if reading.resources:
                found.evidence[f"logs {bmc.name}"] = await self._store.evidence.put_output(text)
            found.gaps += [f"{bmc.name}: {g.source}: {g.detail}"[:300] for g in reading.gaps[:4]]
            found.faults += _faults(bmc, reading)[: FAULTS_MAX - len(found.faults)]
            if deep:
                await self._dumps(bmc, client.service, found)
        except PortError as error:
            found.gaps.append(f"{bmc.name}: {error}"[:300])

    async def _dumps(self, bmc: BmcRef, service: Service, found: Collected) -> None:
        settings = self._site.settings
        made, gaps = await diagnostics.fetch_dumps(
            service, self._site.clock.sleep, settings.poll_s, settings.repair_dump_limit_s
        )
        for number, dump in enumerate(made):
            digest = await self._store.evidence.put_output(dump.content)
            found.evidence[f"dump {bmc.name} {number}"] = digest
        found.gaps += [f"{bmc.name}: {g.source}: {g.detail}"[:300] for g in gaps]


def _faults(bmc: BmcRef, reading: Reading) -> Sequence[Fault]:
    """Return the faults in event logs; those of a card's BMC concern that card."""
    return [
        Fault(
            source="event_log",
            id=name,
            part=origin or ("" if bmc.kind == "host" else bmc.name),
            detail=text,
        )
        for name, origin, text in diagnostics.entries_of(reading)
    ]
