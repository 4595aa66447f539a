"""Collect the evidence that a reset would destroy: logs, counters, event logs, crash dumps.

It changes nothing. Everything is stored unchanged, by SHA-256, and sources without an answer are
listed. A node that does not answer at all still gives its case the report and the alerts that
opened it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from provisioner import checks
from provisioner.adapters.redfish import diagnostics
from provisioner.adapters.redfish.hardware_tree import Reading
from provisioner.adapters.redfish.service import Service
from provisioner.checks import roce_runtime
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import read_console_text
from provisioner.execution.validate.validator import Validator
from provisioner.model.case import Case, Fault
from provisioner.model.cohort import Gate, HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.repair import evidence_bundle
from provisioner.planning.repair.evidence_bundle import BundleFile
from provisioner.planning.repair.part_names import Names, names_of
from provisioner.planning.repair.repair_report import make_message, render_words
from provisioner.ports import Credentials, PortError
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Pack the stored evidence of a case into one signed archive, without the secrets on record.
#
# It reads rows only, touches no device, and may be repeated at any time.


ROWS_MAX = 2000  # of a node's journal while its case was open
ENTRIES_MAX = 500  # of its ledger, the newest
STORED = "bundle"  # name of the archive among a case's evidence


class Bundler:
    """`site` names the archive's origin."""

    def __init__(
        self,
        store: SqlStore,
        book: SqlCaseRepository,
        credentials: Credentials,
        signer: Signer,
        site: str,
    ) -> None:
        self._store = store
        self._book = book
        self._credentials = credentials
        self._signer = signer
        self._site = site

    async def make_archive(self, case: Case, now: float) -> bytes:
        node = await self._store.nodes.get(case.node)
        secrets = await self._secrets(node)
        files, left_out = await self._files(case, node, secrets)
        listed = evidence_bundle.render_manifest(case, files, left_out, self._site, now)
        signed = self._signer.seal(evidence_bundle.PAYLOAD, listed)
        return await asyncio.to_thread(evidence_bundle.pack_bundle, files, signed, listed)

    async def read_archive(self, case: Case) -> bytes:
        """Return the archive that the case's ticket names; b"" if there is none."""
        text = await self._store.evidence.get_output(case.evidence.get(STORED, ""))
        return base64.b64decode(text) if text else b""

    async def store_archive(self, content: bytes) -> str:
        """Store an archive; the name of its row."""
        return await self._store.evidence.put_output(base64.b64encode(content).decode())

    async def _secrets(self, node: Node | None) -> Sequence[str]:
        """Return the passwords of the node's BMCs, in force or about to be."""
        if node is None:
            return ()
        names = [f"{node.id}/{bmc.name}" for bmc in node.bmcs]
        logins = [await self._credentials.current(name) for name in names]
        logins += [await self._credentials.pending(name) for name in names]
        return [login[1].reveal() for login in logins if login is not None]

    async def _files(
        self, case: Case, node: Node | None, secrets: Sequence[str]
    ) -> tuple[list[BundleFile], list[str]]:
        made = await self._told(case, node, secrets)
        size = sum(len(f.content) for f in made)
        left_out = []
        # dumps last: they are the large ones, and files that do not fit are listed
        names = sorted(case.evidence, key=lambda n: (n.startswith("dump "), n))
        for name in (n for n in names if n != STORED):
            text = await self._store.evidence.get_output(case.evidence[name])
            if text is None:
                left_out.append(f"{name}: it is not stored any more")
                continue
            file = evidence_bundle.evidence_file(name, text, case.evidence[name], secrets)
            if (
                size + len(file.content) > evidence_bundle.BYTES_MAX
                or len(made) >= evidence_bundle.FILES_MAX
            ):
                left_out.append(f"{name}: too large for this archive ({len(file.content)} bytes)")
                continue
            size += len(file.content)
            made.append(file)
        return made, left_out

    async def _told(
        self, case: Case, node: Node | None, secrets: Sequence[str]
    ) -> list[BundleFile]:
        """Return the daemon's records and actions, besides the raw evidence."""
        inventory = await self._store.evidence.get_inventory(case.node)
        rows = await self._book.list_journal_of(case.node, case.opened_at, ROWS_MAX)
        entries = list(await self._store.operations.list_entries(case.node))[-ENTRIES_MAX:]
        texts = {
            "case.json": case.model_dump_json(indent=2),
            "journal.jsonl": "".join(f"{json.dumps(dict(r), sort_keys=True)}\n" for r in rows),
            "ledger.jsonl": "".join(f"{e.model_dump_json()}\n" for e in entries),
        }
        if inventory is not None:
            texts["inventory.json"] = inventory.model_dump_json(indent=2)
        if node is not None and case.ticket is not None:
            texts["work.txt"] = render_words(make_message(case, node, inventory, self._site))
        return [evidence_bundle.text_file(p, t, secrets) for p, t in sorted(texts.items())]


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

    def __init__(self, site: Site, store: SqlStore, validator: Validator) -> None:
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
            for c in checks.ALL
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
