"""An NVMe drive as the ramdisk's tools show it, with its namespaces."""

from __future__ import annotations

import json
import struct
from typing import Any

from provisioner_hardware_manager import erasure
from provisioner_hardware_manager.commands import Output
from provisioner_hardware_manager.samples import Samples

SERIAL = "S4EVNF0M123456"
TOTAL = 7681501126656


class Machine:
    """Tools that print what the real ones print, for one NVMe drive; and what was asked of them.

    `namespaces` maps an id to its bytes and whether it is attached; `medium` is what reading finds.
    """

    def __init__(self, **capabilities: int) -> None:
        self.name, self.serial, self.read_only = "nvme0n1", SERIAL, False
        self.capabilities = {"sanicap": 3, "oacs": 0x1F, "fna": 4, **capabilities}
        self.sstat = [0x0101]  # what the sanitize log says, one after the other
        self.failing: dict[str, str] = {}  # command -> what it says on stderr
        self.asked: list[tuple[str, ...]] = []
        self.namespaces = {1: (TOTAL, True)}
        self.total = TOTAL
        self.discovery = Output(1, "", "NVMe status: Invalid Command Opcode")
        self.unmanaged = False  # a controller that lists no namespaces
        self.readings: list[Samples] = []  # what the samples are, one after the other

    @property
    def unallocated(self) -> int:
        return self.total - sum(size for size, _ in self.namespaces.values())

    def sampler(self, devices: list[str], seed: str) -> Samples:
        assert seed
        if self.readings:
            return self.readings.pop(0)
        before = not self.changed()
        return Samples(frozenset({b"tenant"} if before else set()), len(devices) * 9)

    def changed(self) -> bool:
        return bool(self.done("sanitize") or self.done("format"))

    def run(self, *words: str, timeout_s: float = 60.0) -> Output:
        assert timeout_s > 0
        if words[0] == "lsblk":
            return Output(0, json.dumps({"blockdevices": self.block_devices()}))
        if words[0] == "udevadm":
            return Output(0, "")
        option = dict(w.lstrip("-").partition("=")[::2] for w in words[3:])
        if words[1] == "id-ctrl":
            size = {"tnvmcap": self.total, "unvmcap": self.unallocated, "cntlid": 5}
            return Output(0, json.dumps({"sn": SERIAL, **size, **self.capabilities}))
        if words[1] == "security-recv":
            return self.discovery
        if words[1] == "list-ns":
            if self.unmanaged:
                return Output(1, "", "NVMe status: Invalid Field in Command")
            shown = [n for n, (_, on) in self.namespaces.items() if on or "all" in option]
            return Output(0, json.dumps({"nsid_list": [{"nsid": n} for n in shown]}))
        if words[1] == "id-ns":
            flbas = 0 if option["namespace-id"] == "0xffffffff" else 1
            return Output(0, json.dumps({"flbas": flbas, "lbafs": [{"ds": 9}, {"ds": 12}]}))
        self.asked.append(words)
        if words[1] in self.failing:
            return Output(1, "", self.failing[words[1]])
        return self.act(words[1], option)

    def act(self, command: str, option: dict[str, str]) -> Output:
        if command == "sanitize-log":
            status = self.sstat.pop(0) if len(self.sstat) > 1 else self.sstat[0]
            page = struct.pack("<HH", 0xFFFF, status) + bytes(508)
            return Output(0, page.decode("utf-8", "surrogateescape"))
        if command == "delete-ns":
            self.namespaces.clear()
        elif command == "create-ns":
            self.namespaces[1] = (int(option["nsze"]) * (512, 4096)[int(option["flbas"])], False)
            return Output(0, "create-ns: Success, created nsid:1\n")
        elif command == "attach-ns":
            assert option["controllers"] == "5"
            number = int(option["namespace-id"])
            self.namespaces[number] = (self.namespaces[number][0], True)
        return Output(0, "Success formatting namespace:1\n")

    def block_devices(self) -> list[dict[str, Any]]:
        names = {1: self.name} | {n: f"nvme0n{n}" for n in self.namespaces if n > 1}
        return [
            {
                "name": names[n],
                "type": "disk",
                "size": size,
                "serial": self.serial,
                "wwn": f"eui.0025385b71b0aa{n:02}",
                "model": "SAMSUNG MZQL27T6HBLA-00A07",
                "tran": "nvme",
                "ro": self.read_only,
            }
            for n, (size, attached) in self.namespaces.items()
            if attached
        ]

    def done(self, command: str) -> list[tuple[str, ...]]:
        return [words for words in self.asked if words[1] == command]


class Generic:
    """What ironic-python-agent would do."""

    def __init__(self, *, works: bool = True) -> None:
        self.works, self.asked = works, []

    def erase_ata(self, device: str) -> bool:
        self.asked.append(("ata", device))
        return self.works

    def overwrite(self, device: str) -> bool:
        self.asked.append(("overwrite", device))
        return self.works


def erase(machine: Machine, method: str, **more: Any) -> dict[str, str]:
    given: dict[str, Any] = {"device": "/dev/nvme0n1", "serial": SERIAL, "agent": Generic()}
    given["sampler"] = machine.sampler
    return erasure.erase(method=method, run=machine.run, sleep=lambda _: None, **(given | more))


def layout(*namespaces: tuple[int, bool], **capabilities: int) -> Machine:
    """A drive that a tenant divided."""
    machine = Machine(**capabilities)
    machine.namespaces = dict(enumerate(namespaces, start=1))
    return machine
