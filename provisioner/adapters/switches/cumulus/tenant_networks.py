"""Tenants' networks on one switch: its configuration and VRFs read, one change of them applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import quote

from provisioner.adapters.switches.cumulus import nvue_calls, port_filter
from provisioner.adapters.switches.cumulus.network_tree import (
    Path,
    encode_change,
    read_bound,
    read_networks,
    read_vnis,
)
from provisioner.adapters.switches.cumulus.nvue_calls import PREFIX, Ask
from provisioner.adapters.switches.cumulus.nvue_line import CONFIGURATION_S, NvueLine
from provisioner.adapters.switches.cumulus.revisions import Revisions
from provisioner.model.tenant_network import NetworkChange, NetworkState, PortFilter
from provisioner.ports import Malformed


class TenantNetworks:
    """Reads and writes VRFs. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, revisions: Revisions) -> None:
        self._line = line
        self._revisions = revisions

    async def read(self, vrfs: Collection[str]) -> NetworkState:
        """Return the applied configuration, the VRFs and ports in force, and VNIs of `vrfs`."""
        applied, startup = [
            await self._line.get(nvue_calls.tree_path(tree), CONFIGURATION_S)
            for tree in ("applied", "startup")
        ]
        names = nvue_calls.read_names(await self._line.get(nvue_calls.VRFS_PATH))
        listed = await self._line.get(nvue_calls.INTERFACES_PATH)
        if not isinstance(applied, dict) or not names or not isinstance(listed, dict):
            raise Malformed("no readable configuration, VRFs or interfaces")
        ports = {}
        for name, entry in listed.items():
            vrf = nvue_calls.read_vrf(entry)
            if vrf is None:
                raise Malformed(f"{name[:20]}: no readable operational state")
            ports[name] = vrf
        networks = read_networks(applied)
        return NetworkState(
            switch=self._line.name,
            vrfs=networks.vrfs,
            policies=networks.policies,
            ports_applied=networks.ports,
            asn=networks.asn,
            has_evpn=networks.has_evpn,
            has_vxlan=networks.has_vxlan,
            vrfs_in_force=frozenset(names),
            ports=ports,
            vnis_in_force={v: await self._read_vnis(v) for v in sorted(set(vrfs) & set(names))},
            saved=bool(applied == startup),
            filters=networks.filters,
            bound=networks.bound,
            filters_in_force=await self._read_filters() if networks.filters else {},
            bound_in_force=read_bound(listed),
        )

    async def apply(self, change: NetworkChange) -> str:
        """Apply removals, then the merge, as one revision."""
        images = nvue_calls.read_images(await self._line.get(nvue_calls.IMAGES_PATH))
        if isinstance(images, str):
            raise Malformed(images)
        applied = await self._line.get(nvue_calls.tree_path("applied"), CONFIGURATION_S)
        encoded = encode_change(change, applied, images.running)

        def fill(revision: str) -> Iterable[Ask]:
            for path in encoded.unset:
                yield Ask("DELETE", _at_revision(path, revision))
            if encoded.tree:
                yield Ask("PATCH", _at_revision((), revision), encoded.tree)

        return await self._revisions.apply(fill)

    async def _read_filters(self) -> dict[str, PortFilter | None]:
        """Return the filters of tenants that are in force."""
        return port_filter.read_filters(await self._line.find(nvue_calls.acls_path()))

    async def _read_vnis(self, vrf: str) -> frozenset[int]:
        """Return the VNIs in force, not the configured ones (`nv show vrf VRF evpn`)."""
        path = f"{PREFIX}/vrf/{quote(vrf, safe='')}/evpn?rev=operational"
        reply = await self._line.send(Ask("GET", path))
        answer = reply.json() if reply.status == 200 else {}  # 404: no EVPN in it
        return read_vnis(vrf, answer)


def _at_revision(path: Path, revision: str) -> str:
    steps = "/".join(quote(step, safe="") for step in path)
    return f"{PREFIX}/{steps}?rev={quote(revision, safe='')}"
