"""Pack the stored evidence of a case into one signed archive, without the secrets on record.

It reads rows only, touches no device, and may be repeated at any time.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence

from provisioner.model.case import Case
from provisioner.model.node import Node
from provisioner.planning.repair import evidence_bundle as bundle
from provisioner.planning.repair.evidence_bundle import BundleFile
from provisioner.planning.repair.ticket_words import make_message, render_words
from provisioner.ports import Credentials, Store
from provisioner.ports.cases import CaseRepository
from provisioner.store.signing import Signer

ROWS_MAX = 2000  # of a node's journal while its case was open
ENTRIES_MAX = 500  # of its ledger, the newest
STORED = "bundle"  # name of the archive among a case's evidence


class Bundler:
    """`site` names the archive's origin."""

    def __init__(
        self,
        store: Store,
        book: CaseRepository,
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
        """Return the archive of a case as it is now."""
        node = await self._store.nodes.get(case.node)
        secrets = await self._secrets(node)
        files, left_out = await self._files(case, node, secrets)
        listed = bundle.render_manifest(case, files, left_out, self._site, now)
        signed = self._signer.seal(bundle.PAYLOAD, listed)
        return await asyncio.to_thread(bundle.pack_bundle, files, signed, listed)

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
            file = bundle.evidence_file(name, text, case.evidence[name], secrets)
            if size + len(file.content) > bundle.BYTES_MAX or len(made) >= bundle.FILES_MAX:
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
        return [bundle.text_file(p, t, secrets) for p, t in sorted(texts.items())]
