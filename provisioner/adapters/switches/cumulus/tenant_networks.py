"""Tenants' networks on one switch: its configuration and VRFs read, one change of them applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import quote

from provisioner.adapters.switches.cumulus import nvue_words
from provisioner.adapters.switches.cumulus.nvue_line import CONFIGURATION_S, NvueLine
from provisioner.adapters.switches.cumulus.nvue_words import PREFIX, Ask
from provisioner.adapters.switches.cumulus.revisions import Revisions
from provisioner.planning.tenancy.vrf_difference import LeafChange
from provisioner.planning.tenancy.vrf_obstacles import Path, SeenLeaf, read_subtree
from provisioner.ports import Malformed


class TenantNetworks:
    """Reads and writes VRFs. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, revisions: Revisions) -> None:
        self._line = line
        self._revisions = revisions

    async def read(self, vrfs: Collection[str]) -> SeenLeaf:
        """Return the applied configuration, the VRFs and ports in force, and VNIs of `vrfs`."""
        trees = [
            await self._line.get(nvue_words.tree_path(tree), CONFIGURATION_S)
            for tree in ("applied", "startup")
        ]
        names = nvue_words.read_names(await self._line.get(nvue_words.VRFS_PATH))
        listed = await self._line.get(nvue_words.INTERFACES_PATH)
        if not isinstance(trees[0], dict) or not names or not isinstance(listed, dict):
            raise Malformed("no readable configuration, VRFs or interfaces")
        ports = {}
        for name, entry in listed.items():
            vrf = nvue_words.read_vrf(entry)
            if vrf is None:
                raise Malformed(f"{name[:20]}: no readable operational state")
            ports[name] = vrf
        vnis = {vrf: await self._read_vnis(vrf) for vrf in sorted(set(vrfs) & set(names))}
        saved = bool(trees[0] == trees[1])
        return SeenLeaf(self._line.name, trees[0], frozenset(names), ports, vnis, saved)

    async def apply(self, change: LeafChange) -> str:
        """Apply removals, then the merge, as one revision."""

        def fill(revision: str) -> Iterable[Ask]:
            for path in change.unset:
                yield Ask("DELETE", _at_revision(path, revision))
            if change.wanted:
                yield Ask("PATCH", _at_revision((), revision), change.wanted)

        return await self._revisions.apply(fill)

    async def _read_vnis(self, vrf: str) -> frozenset[str]:
        """`nv show vrf VRF evpn`: the VNIs in force, not the configured ones."""
        path = f"{PREFIX}/vrf/{quote(vrf, safe='')}/evpn?rev=operational"
        reply = await self._line.send(Ask("GET", path))
        answer = reply.json() if reply.status == 200 else {}  # 404: no EVPN in it
        return frozenset(map(str, read_subtree(answer, ("vni",))))


def _at_revision(path: Path, revision: str) -> str:
    steps = "/".join(quote(step, safe="") for step in path)
    return f"{PREFIX}/{steps}?rev={quote(revision, safe='')}"
