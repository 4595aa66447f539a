"""Reads one SONiC switch over SSH: each path of NVUE's tree as the commands that answer it.

A command that fails, or whose answer cannot be read, is `Malformed`: nobody takes it for empty. A
path that nothing here answers is None.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from provisioner.ports import HostShell, Malformed, ShellCommand
from provisioner.switches import sonic, sonic_state

READ_S = 30.0


class SonicReading:
    """One switch; nothing is kept. Methods raise PortError."""

    def __init__(self, shell: HostShell, url: str) -> None:
        self._shell = shell
        self._url = url

    async def get(self, path: tuple[str, ...], revision: str, view: str = "") -> Any:
        """What is at a path of the tree "applied", "startup" or "operational"."""
        match path:
            case ("action", _):
                return {"state": "action_success"}
            case ("system", "image"):
                return sonic.read_images(await self.text(sonic.IMAGES))
            case ("system", "health"):
                return self._good(sonic_state.read_health(await self.text(sonic_state.HEALTH)))
            case ("platform",):
                config, serial = await self.json(sonic.CONFIGURATION), sonic_state.SERIAL
                return self._good(sonic.read_platform(config, await self.text(serial)))
            case ("router", "bgp"):
                return self._good(sonic_state.read_drained(await self.text(sonic_state.MODE)))
            case ("evpn", *rest):
                return await self._evpn(tuple(rest))
            case ("vrf", vrf, *rest) if rest and revision == "operational":
                return await self._vrf(vrf, tuple(rest))
            case ("interface",) if view == "neighbor":
                told = await self.json(sonic_state.NEIGHBOURS)
                return self._good(sonic_state.read_neighbours(told))
            case ("interface", port, "lldp", "neighbor"):
                told = await self.json(sonic_state.LLDP)
                return self._good(sonic_state.read_lldp(told, port))
            case ("interface", port, "link", "stats"):
                return await self._counters(port)
        tree = await self._tree(revision)
        for step in path:
            tree = tree.get(step) if isinstance(tree, dict) else None
        return tree

    async def _vrf(self, vrf: str, rest: tuple[str, ...]) -> Any:
        match rest:
            case ("router", "rib", family, "route"):
                told = await self.json(sonic_state.routes(vrf, family))
                return self._good(sonic_state.read_routes(told))
            case ("router", "bgp", "neighbor"):
                told = await self.json(sonic_state.peers(vrf))
                return self._good(sonic_state.read_peers(told))
            case ("router", "bgp", "address-family"):
                families = ("ipv4", "ipv6")
                answers = {f: await self.json(sonic_state.leaks(vrf, f)) for f in families}
                return self._good(sonic_state.read_leaks(answers))
            case ("evpn",):
                vnis = self._good(sonic_state.read_vnis(await self.json(sonic_state.VNIS)))
                return {"vni": {vni: {} for vni, owner in vnis.items() if owner == vrf}}
        return None

    async def _evpn(self, rest: tuple[str, ...]) -> Any:
        match rest:
            case ("vni",):
                vnis = self._good(sonic_state.read_vnis(await self.json(sonic_state.VNIS)))
                return {vni: {} for vni in vnis}
            case ("vni", vni, "bgp-info") if vni.isascii() and vni.isdigit():
                told = await self.json(sonic_state.targets(vni))
                return self._good(sonic_state.read_targets(told))
        return None

    async def _counters(self, port: str) -> Any:
        oid = sonic_state.read_port_id(await self.text(sonic_state.PORT_IDS), port)
        if oid is None:
            return None
        return self._good(sonic_state.read_counters(await self.text(sonic_state.counters(oid))))

    async def _tree(self, revision: str) -> Any:
        command = sonic.STARTUP if revision == "startup" else sonic.CONFIGURATION
        tree = sonic.read_tree(await self.json(command))
        if tree is not None and revision == "operational":
            tree = sonic.read_operational(await self.json(sonic.LINKS), tree)
        return self._good(tree)

    async def json(self, line: str) -> Any:
        """What a command answers, as JSON."""
        text = await self.text(line)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Malformed(f"{self._url}: {line}: not JSON") from None

    async def text(self, line: str) -> str:
        """What a command that reads prints."""
        address = urlsplit(self._url).hostname or ""
        command = ShellCommand(name=line.split()[0], line=line, timeout_s=READ_S)
        (output,) = await self._shell.run(address, address, [command])
        if output.exit_code != 0 or output.truncated:
            raise Malformed(f"{self._url}: {line}: ended with {output.exit_code}")
        return output.stdout

    def _good(self, read: Any) -> Any:
        if read is None:
            raise Malformed(f"{self._url}: an answer that cannot be read")
        return read
