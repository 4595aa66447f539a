"""A simulated rack behind the interfaces of real transports, its plan, and a campaign over it.

The rack is integrations/sim/racks; versions are those that NVIDIA publishes for GB200 and GB300.
A package's file holds what is inside it as JSON: the simulated BMCs write that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.sim.racks.rack import Push, Rack, Silence
from provisioner.integrations.sim.racks.shelf import Shelf
from provisioner.integrations.sim.racks.switch import DEFAULT, Switch
from provisioner.integrations.sim.racks.tray import Tray
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    Call,
    LoginRefused,
    Reply,
    Secret,
    SwitchAddress,
    Unreachable,
    Upload,
)

REST_S = 300.0  # as adapters/switch_https rests after a refusal
CHASSIS = "1820001"
OURS = "long-and-ours"
OLD = {
    "host": {
        "FW_BMC_0": "GB200Nvl-25.06",
        "FW_ERoT_BMC_0": "01.04.0026.0000_n04",
        "FW_CPLD_0": "0x00 0x0b 0x03 0x04",
    },
    "hgx": {
        "HGX_FW_BMC_0": "GB200Nvl-25.06-A",
        "HGX_FW_GPU_0": "97.00.B9.00.69",
        "HGX_FW_GPU_1": "97.00.B9.00.69",
        "HGX_FW_ERoT_CPU_0": "01.04.0026.0000_n04",
    },
    "switch": {"BMC": "88.0002.1336", "BIOS": "0ACTV_00.01.020"},
}
NEW = {
    "host": {
        "FW_BMC_0": "GB200Nvl-25.08-9",
        "FW_ERoT_BMC_0": "01.04.0031.0000_n04",
        "FW_CPLD_0": "0x00 0x0c 0x06 0x04",
    },
    "hgx": {
        "HGX_FW_BMC_0": "GB200Nvl-25.08-B",
        "HGX_FW_GPU_0": "97.00.B9.00.99",
        "HGX_FW_GPU_1": "97.00.B9.00.98",
        "HGX_FW_ERoT_CPU_0": "01.04.0031.0000_n04",
    },
    "switch": {"BMC": "88.0002.1958", "BIOS": "0ACTV_00.01.022"},
}
BEFORE_NVOS = "nvos-25.02.2553"
AFTER_NVOS = "nvos-25.02.4317"
TARGETS = {
    "compute-tray": {"host-bundle": "25.08-9", "hgx-bundle": "25.08-B"},
    "nvlink-switch": {"switch-firmware": "88.0002.1958", "nvos": "25.02.4317"},
    "power-shelf": {"pmc": "3.2.4", "psu": "0104"},
}


@dataclass
class RackWires:
    """Both transports over one simulated rack. Counts what one BMC serves at one time."""

    rack: Rack
    at_once: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    refused: dict[str, tuple[str, float]] = field(default_factory=dict)  # as SwitchHttps rests
    calls: int = 0
    before: Callable[[str, Call], None] = lambda _url, _call: None
    after: Callable[[str, Call], None] = lambda _url, _call: None

    async def request(self, address: Any, call: Call) -> Reply:
        url = address.url
        self.calls += 1
        self.before(url, call)
        self.at_once[url] += 1
        self.most[url] = max(self.most[url], self.at_once[url])
        await asyncio.sleep(0)
        try:
            login = address.secret.reveal() if address.secret is not None else ""
            answer = self._ask(url, call, login, address)
        finally:
            self.at_once[url] -= 1
        self.after(url, call)
        return answer

    def _ask(self, url: str, call: Call, login: str, address: Any) -> Reply:
        nvos = isinstance(address, SwitchAddress)
        held = self.refused.get(url) if nvos else None
        if held is not None and held[0] == login and self.rack.now - held[1] < REST_S:
            raise AccountLocked("resting", REST_S)
        try:
            answer = self.rack.request(url, call.method, call.path, _decode(call.body), login)
        except Silence as silence:
            raise Unreachable("no answer", maybe_executed=silence.executed) from None
        if nvos and answer.status == 401:
            self.refused[url] = (login, self.rack.now)
            raise LoginRefused("refused")
        return Reply(answer.status, dict(answer.headers), answer.encode())

    @asynccontextmanager
    async def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """Follow the stream of a BMC, as `EventStreams` does; a document None breaks it."""
        came: asyncio.Queue[Any] = asyncio.Queue()

        async def documents() -> AsyncIterator[tuple[str, Any]]:
            while (document := await came.get()) is not None:
                yield "", document
            raise Unreachable("the stream ended", maybe_executed=False)

        followed = self.rack.streams.setdefault(self.rack.hosts[bmc.url.rstrip("/")][0], [])
        followed.append(came.put_nowait)
        try:
            yield documents()
        finally:
            followed.remove(came.put_nowait)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return None

    async def forget(self, bmc: BmcAddress) -> None: ...

    async def close(self) -> None: ...


def _decode(body: Any) -> Any:
    """Return a body for the simulator: an upload as a push with what is inside its package."""
    if isinstance(body, bytes):
        return Push((), "raw", json.loads(body))
    if not isinstance(body, Upload):
        return body
    parameters = json.loads(body.parts[0][2])
    inside = json.loads(body.file.read_bytes())
    return Push(tuple(parameters.get("Targets", ())), body.file_name, inside)


@dataclass
class RackSite:
    """One rack, its plan and campaign, and where the update keeps its files."""

    folder: Path
    trays: int = 3
    switches: int = 2
    shelves: int = 2
    rack: Rack = field(default_factory=Rack)
    targets: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: TARGETS)
    tenants: dict[str, str | None] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wires = RackWires(self.rack)
        self.units: list[dict[str, Any]] = []
        for n in range(self.trays):
            tray = Tray(self.rack, f"t{n}", 10 + n, n, CHASSIS, {**OLD["host"], **OLD["hgx"]})
            unit = self._add(tray, "compute-tray", 11 + n, f"10.0.0.{n + 1}")
            unit.update(slot=10 + n, tray_index=n)
        for n in range(self.switches):
            switch = Switch(
                self.rack, f"s{n}", 30 + n, n, CHASSIS, dict(OLD["switch"]), BEFORE_NVOS, OURS
            )
            switch.sources = {
                "https://files.example/nvos-amd64-25.02.4317.bin": {"nvos": AFTER_NVOS},
                "https://files.example/p4978_0004.fwpkg": {"BMC": NEW["switch"]["BMC"]},
                "https://files.example/p4978_0006.fwpkg": {"BIOS": NEW["switch"]["BIOS"]},
            }
            unit = self._add(switch, "nvlink-switch", 31 + n, f"10.0.1.{n + 1}")
            unit.update(slot=30 + n, tray_index=n, nvos=f"https://10.0.2.{n + 1}")
            self.rack.hosts[unit["nvos"]] = (f"s{n}", "nvos")
        for n in range(self.shelves):
            dialect = "delta"
            shelf = Shelf(self.rack, f"p{n}", dialect, "ECD70000018", "3.2.3", "0103")
            self._add(shelf, "power-shelf", 1 + n, f"10.0.3.{n + 1}")["supplies"] = 2
        self._write_packages()

    def _add(self, unit: Any, kind: str, u: int, host: str) -> dict[str, Any]:
        self.rack.units[unit.name] = unit
        self.rack.hosts[f"https://{host}"] = (unit.name, "bmc")
        self.units.append({"name": unit.name, "kind": kind, "u": u, "bmc": f"https://{host}"})
        return self.units[-1]

    def tray(self, name: str) -> Tray:
        """Return a tray of the simulated rack."""
        found = self.rack.units[name]
        assert isinstance(found, Tray)
        return found

    def switch(self, name: str) -> Switch:
        found = self.rack.units[name]
        assert isinstance(found, Switch)
        return found

    def shelf(self, name: str) -> Shelf:
        found = self.rack.units[name]
        assert isinstance(found, Shelf)
        return found

    def _file(self, name: str, inside: Mapping[str, str]) -> dict[str, str]:
        content = json.dumps(inside).encode()
        (self.folder / name).write_bytes(content)
        return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}

    def _write_packages(self) -> None:
        def pins(versions: Mapping[str, str]) -> dict[str, list[str]]:
            return {ident: [version] for ident, version in versions.items()}

        hgx = {**pins(NEW["hgx"]), "HGX_FW_GPU_*": ["97.00.B9.00.99", "97.00.B9.00.98"]}
        hgx = {k: v for k, v in hgx.items() if not k.startswith("HGX_FW_GPU_") or "*" in k}
        site = "https://files.example"
        bmc = self._file("sw4.fwpkg", {"BMC": NEW["switch"]["BMC"]})
        bios = self._file("sw6.fwpkg", {"BIOS": NEW["switch"]["BIOS"]})
        self.packages: dict[str, Any] = {
            "compute-tray": {
                "host-bundle": {
                    "files": [self._file("host.fwpkg", NEW["host"])],
                    "versions": pins(NEW["host"]),
                },
                "hgx-bundle": {"files": [self._file("hgx.fwpkg", NEW["hgx"])], "versions": hgx},
            },
            "nvlink-switch": {
                "switch-firmware": {
                    "files": [
                        {"part": "BMC", "url": f"{site}/p4978_0004.fwpkg", **bmc},
                        {"part": "BIOS", "url": f"{site}/p4978_0006.fwpkg", **bios},
                    ],
                    "versions": pins(NEW["switch"]),
                },
                "nvos": {
                    "files": [{"url": f"{site}/nvos-amd64-25.02.4317.bin"}],
                    "versions": {"nvos": [AFTER_NVOS]},
                },
            },
            "power-shelf": {
                "pmc": {
                    "files": [self._file("pmc.tar", {"pmc": "3.2.4"})],
                    "versions": {"FW_PMC_primary": ["3.2.4"], "FW_PMC_alt": ["3.2.4"]},
                    "part_numbers": ["ECD70000018"],
                },
                "psu": {
                    "files": [self._file("psu.tar", {"psu": "0104"})],
                    "versions": {"FW_PSU_*": ["0104"]},
                },
            },
        }

    def plan(self) -> RackPlan:
        rack = {"name": "r01", "chassis_serial": CHASSIS, "domain": "d01", "units": self.units}
        return RackPlan.model_validate({"racks": [rack]})

    def campaign(self) -> CampaignFile:
        units = {f"t{n}": {"tenant": self.tenants.get(f"t{n}", "")} for n in range(self.trays)}
        asked = {"targets": self.targets, "packages": self.packages, "units": units}
        return CampaignFile.model_validate(asked)

    async def pause(self, seconds: float) -> None:
        self.rack.advance(seconds)
        await asyncio.sleep(0)

    def update(self) -> Update:
        bmcs = {u["name"]: BmcAddress(url=u["bmc"], username="a") for u in self.units}
        nvos = {
            u["name"]: SwitchAddress(url=u["nvos"], username="admin", secret=Secret(OURS))
            for u in self.units
            if "nvos" in u
        }
        factory = {
            name: SwitchAddress(url=one.url, username="admin", secret=Secret(DEFAULT))
            for name, one in nvos.items()
        }
        return Update(
            plan=self.plan(),
            asked=self.campaign(),
            folder=self.folder,
            bmcs=self.wires,
            switches=self.wires,
            addresses=bmcs,
            nvos=nvos,
            factory=factory,
            water=self.folder / "water.json",
            now=lambda: self.rack.now,
            pause=self.pause,
            say=self.said.append,
            rounds_max=500,
            poll_s=60.0,
        )
