"""A SONiC switch as its documented commands show it: CONFIG_DB, startup file, kernel, FRR, images.

`calls` are the lines that it was asked; `faults` name what goes wrong.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from provisioner.integrations.sonic import acl_rows
from provisioner.integrations.sonic import config_db as sonic
from provisioner.integrations.sonic import switch_state as sonic_state
from provisioner.ports import ShellCommand, ShellOutput

OLD, NEW = "SONiC-OS-202311.1", "SONiC-OS-202311.2"


class SonicSwitch:
    """`HostShell` with one switch behind it."""

    def __init__(self, ports: Sequence[tuple[str, str]], sku: str = "SN5600") -> None:
        rows: dict[str, Any] = {}
        for name, address in ports:
            rows |= {name: {}, f"{name}|{address}": {}}
        self.config: dict[str, Any] = {
            "DEVICE_METADATA": {"localhost": {"hwsku": sku}},
            "PORT": {name: {"lanes": str(i)} for i, (name, _) in enumerate(ports)},
            "VRF": {"VrfMAINT": {}, "VrfRED": {}},
            "INTERFACE": rows,
        }
        self.startup = copy.deepcopy(self.config)
        self.addresses = dict(ports)
        self.kernel = dict.fromkeys(self.addresses, "default")
        self.images, self.current, self.next = [OLD], OLD, OLD
        self.drained = False
        self.boots = 0
        self.bytes = 0
        self.faults: set[str] = set()
        self.calls: list[str] = []
        self.entries: list[dict[str, Any]] = []  # of ARP and neighbour discovery
        self.macs = "No.    Vlan    MacAddress    Port    Type\nTotal number of entries 0\n"

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        return [self.one(c.line) for c in commands]

    async def forget(self, host: str, known: str = "") -> None:
        pass

    async def close(self) -> None:
        pass

    def install(self, image: str) -> None:
        """As the role does it."""
        self.images.append(image)
        self.next = image

    def one(self, line: str) -> ShellOutput:
        self.calls.append(line)
        told = self._reads().get(line)
        if told is not None and "garbled" in self.faults:
            return ShellOutput(0, "[7]", "")
        if told is not None:
            text = told()
            return ShellOutput(0, text if isinstance(text, str) else json.dumps(text), "")
        return self._writes(line)

    def _reads(self) -> dict[str, Callable[[], Any]]:
        mode = "Maintenance" if self.drained else "Normal"
        listed = "\n".join(self.images)
        oids = {name: f"oid:0x{i:x}" for i, name in enumerate(self.addresses, 1)}
        answers: dict[str, Callable[[], Any]] = {
            sonic.CONFIGURATION: lambda: self.config,
            sonic.STARTUP: lambda: self.startup,
            sonic.LINKS: self._links,
            sonic.IMAGES: lambda: (
                f"Current: {self.current}\nNext: {self.next}\nAvailable:\n{listed}"
            ),
            acl_rows.STATUS: self._acl_status,
            sonic_state.HEALTH: self._health,
            sonic_state.NEIGHBOURS: lambda: self.entries,
            sonic_state.MACS: lambda: self.macs,
            sonic_state.VNIS: dict,
            sonic_state.LLDP: lambda: {"lldp": {"interface": []}},
            sonic_state.MODE: lambda: f"System Mode: {mode}\n",
            sonic_state.SERIAL: lambda: "MT2401X00001\n",
            sonic_state.PORT_IDS: lambda: str(oids),
        }
        for vrf in ("default", "mgmt", *(sonic.own_vrf(v) for v in self.config["VRF"])):
            answers[sonic_state.build_peers_query(vrf)] = lambda v=vrf: self._peers(v)
            for family in ("ipv4", "ipv6"):
                answers[sonic_state.build_leaks_query(vrf, family)] = dict
                answers[sonic_state.build_routes_query(vrf, family)] = lambda v=vrf, f=family: (
                    self._routes(v, f)
                )
        for oid in oids.values():
            answers[sonic_state.build_counters_query(oid)] = self._counters
        return answers

    def _writes(self, line: str) -> ShellOutput:
        if "refuses" in self.faults:
            return ShellOutput(2, "", "Failed to apply patch")
        if line == sonic.SAVE:
            self.startup = copy.deepcopy(self.config)
        elif line in ("TSA", "TSB"):
            self.drained = line == "TSA"
        elif line == sonic_state.REBOOT:
            self.boots, self.current = self.boots + 1, self.next
            self.config = copy.deepcopy(self.startup)
            self.kernel.clear()
            self._follow()
        elif line.startswith("sonic-installer set-default"):
            self.next = shlex.split(line)[2]
        elif "config apply-patch" in line:
            for step in json.loads(shlex.split(line)[4]):
                self._patch(step)
            self._follow()
        elif "INTERFACE_TABLE|" in line:
            ports = shlex.split(line.partition(";")[0])[3:]
            held = [f"INTERFACE_TABLE|{p}" for p in ports if p in self.kernel]
            return ShellOutput(0, "\n".join([*held, "read"]), "")
        else:
            return ShellOutput(127, "", "not found")
        return ShellOutput(0, "", "")

    def _patch(self, step: dict[str, Any]) -> None:
        place: Any = self.config
        *path, last = [k.replace("~1", "/") for k in step["path"].split("/")[1:]]
        for key in path:
            place = place[key]
        if last == "description" and len(step["value"]) > 255:
            raise ValueError("sonic-port.yang: leaf description has length 0..255")
        if step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]

    def _acl_status(self) -> str:
        """As orchagent writes it: nothing for a table that the ASIC does not have."""
        if "acl_lags" in self.faults:
            return "read\n"
        tables = [f"ACL_TABLE_TABLE|{name} Active" for name in self.config.get("ACL_TABLE", {})]
        rules = [f"ACL_RULE_TABLE|{key} Active" for key in self.config.get("ACL_RULE", {})]
        return "\n".join([*tables, *rules, "read", ""])

    def _follow(self) -> None:
        """Do as intfmgrd: an interface of STATE_DB "can not change ... directly"."""
        if not isinstance(self.config.get("INTERFACE"), dict):
            self.kernel.clear()
            return
        rows = self.config["INTERFACE"]
        for port in self.addresses:
            if port not in rows:
                self.kernel.pop(port, None)
            elif port not in self.kernel:
                self.kernel[port] = str(rows[port].get("vrf_name", "default"))

    def vrf_of(self, port: str) -> str:
        """Where the kernel has a port."""
        if "kernel_lags" in self.faults:
            return "default"
        return self.kernel.get(port, "default")

    def _links(self) -> Any:
        vrfs = [{"ifname": v, "linkinfo": {"info_kind": "vrf"}} for v in self.config["VRF"]]
        ports = []
        for name, address in self.addresses.items():
            local, _, length = address.partition("/")
            vrf = self.vrf_of(name)
            master = {} if vrf == "default" else {"master": vrf}
            held = {"local": local, "prefixlen": int(length), "scope": "global"}
            link = {"ifname": name, "operstate": "UP", "mtu": 9216, "addr_info": [held]}
            ports.append(link | master)
        return [*vrfs, *ports]

    def _routes(self, vrf: str, family: str) -> Any:
        if family == "ipv6":
            return {}
        entry = {"protocol": "connected", "selected": True, "installed": True, "offloaded": True}
        return {
            f"{a.partition('/')[0]}/31": [{**entry, "nexthops": [{"interfaceName": n, "vrf": vrf}]}]
            for n, a in self.addresses.items()
            if sonic.own_vrf(self.vrf_of(n)) == vrf
        }

    def _peers(self, vrf: str) -> Any:
        if vrf != "default":
            return {}
        state = "Active" if "session_down" in self.faults and self.boots else "Established"
        return {"ipv4Unicast": {"peers": {"spine-0": {"state": state}}}}

    def _health(self) -> str:
        word = "Not OK\n    Not Running: snmp" if "unhealthy" in self.faults else "OK"
        parts = f"  Services:\n    Status: {word}\n  Hardware:\n    Status: OK\n"
        return f"System status summary\n\n  System status LED  green\n{parts}"

    def _counters(self) -> str:
        self.bytes += 10 if self.drained and "keeps_traffic" not in self.faults else 10**12
        found = {"SAI_PORT_STAT_IF_IN_OCTETS": self.bytes, "SAI_PORT_STAT_IF_OUT_OCTETS": 0}
        errors = {"SAI_PORT_STAT_IF_IN_ERRORS": 0, "SAI_PORT_STAT_IF_OUT_ERRORS": 0}
        return str({k: str(v) for k, v in (found | errors).items()})
