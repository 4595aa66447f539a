"""The clean steps of a simulated ramdisk: those of our hardware manager and the generic one.

docs/erasure.md has the contract. Disks report the truth unless a fault is in force.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from provisioner.integrations.sim.hardware.disks import NVME_METHODS, Disk
from provisioner.integrations.sim.hardware.machine import Machine

# ------------------------------------------------------------------------------
# One command of a simulated agent: how long it takes, and its effect at the end.


Json = dict[str, Any]
Fetch = Callable[[str, Callable[[bytes | None], None]], None]  # URL, called with the bytes or None


class Failed(Exception):
    """A command ends as FAILED with {type, code, message, details} (the agent's errors.py)."""

    def __init__(self, kind: str, message: str, details: str, code: int = 500) -> None:
        super().__init__(details)
        self.error = {"type": kind, "code": code, "message": message, "details": details}


class Work(NamedTuple):
    """A command that the agent accepted."""

    takes_s: float
    finish: Callable[[float], Any]  # called with the time; its result, or raises Failed
    sync: bool = False  # answered only when it is done
    begin: Callable[[float], None] = lambda _now: None
    # whether it goes on after `takes_s`: a download takes real time, however fast the clock runs
    is_pending: Callable[[], bool] = lambda: False


@dataclass
class Ramdisk:
    """The state of one boot that commands read and change."""

    machine: Machine
    fetch: Fetch
    node: Json = field(default_factory=dict)  # from the last command that named it
    jobs: dict[str, Json] = field(default_factory=dict)  # completed erasures by job


Act = Callable[[Ramdisk, Mapping[str, Any]], Work]


# ------------------------------------------------------------------------------
# The hardware manager's reports in a simulated ramdisk: facts and first checks of its machine.
#
# The shapes are those of the maintenance image's own hardware manager (docs/maintenance-image.md);
# a bare ramdisk has no vendor's driver.


PCI_KINDS = {
    "gpu": "gpu",
    "nvswitch": "bridge",
    "nic": "ethernet",
    "dpu": "ethernet",
    "storage": "nvme",
}
SPEED = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def report_inventory(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    """`provisioner_inventory`."""
    return Work(1.0, lambda _now: _facts(ramdisk.machine))


def report_checks(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    """`provisioner_checks`."""
    expected = args.get("expected")
    expected_kinds = expected if isinstance(expected, dict) else {}
    return Work(5.0, lambda _now: {"checks": _verdicts(ramdisk.machine, expected_kinds)})


def _facts(machine: Machine) -> Json:
    present = [d for d in machine.devices.values() if d.present and d.pci and d.kind in PCI_KINDS]
    pci = [
        {
            "address": d.pci,
            "kind": PCI_KINDS[d.kind],
            "vendor": "",
            "device": "",
            "subsystem_vendor": "",
            "subsystem_device": "",
            "numa_node": "",
            "current_link_speed": SPEED.get(d.link_gen, ""),
            "current_link_width": str(d.link_width),
            "max_link_speed": SPEED.get(d.link_gen_max, ""),
            "max_link_width": str(d.link_width_max),
        }
        for d in present
    ]
    ports = [
        {
            "name": f"eth{n}",
            "mac": d.mac,
            "pci": d.pci,
            "speed_mbps": "400000",
            "carrier": "0" if d.traits.get("link_down") else "1",
        }
        for n, d in enumerate(d for d in present if d.mac)
    ]
    return {
        "boot_id": machine.host.boot_id,
        "kernel": "6.1.0-simulated",
        "image": "simulated",
        "ssh_host_key": "",
        "firmware": "uefi",
        "dmi": {"product_serial": machine.host.serial, "product_uuid": machine.host.uuid},
        "memory_kib": _memory_gib(machine) << 20,
        "cpus": "0-223",
        "numa_nodes": "0-1",
        "tpm": "2",
        "pci": pci,
        "ports": ports,
        "rdma": [],
    }


def _memory_gib(machine: Machine) -> int:
    return 64 * sum(d.kind == "memory" and d.present for d in machine.devices.values())


def _verdicts(machine: Machine, expected: Mapping[str, Any]) -> list[Json]:
    pci = _facts(machine)["pci"]
    counted = {k: sum(d["kind"] == k for d in pci) for k in {d["kind"] for d in pci}}
    counted["memory_gib"] = _memory_gib(machine)
    missing = [
        f"{counted.get(k, 0)} of {n} {k}" for k, n in expected.items() if counted.get(k, 0) < int(n)
    ]
    slow = [d["address"] for d in pci if d["current_link_width"] != d["max_link_width"]]
    xids = [d.slot for d in machine.devices.values() if d.traits.get("xids")]
    faults = {"devices": missing, "pcie_links": slow, "kernel_log": xids}
    return [
        {"check": name, "verdict": "fail" if bad else "pass", "detail": "; ".join(bad)}
        for name, bad in faults.items()
    ]


METADATA_S = 5.0
# source: the certificate in shimx64.efi.signed of Debian 12 (shim-signed 1.51), SHA-256 of its DER
_SHIM_KEY = "079646974bce09b1f04da67bd722d1fb0947ae4c4010bccdbba52d5b23cbf1a2"


def _erase_devices(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    disks = [d for d in ramdisk.machine.disks.values() if d.device.present]

    def finish(now: float) -> Json:
        for disk in disks:
            _erase(ramdisk, disk, "erase_devices", now)
        return {d.name: None for d in disks}

    return Work(NVME_METHODS["nvme_format_user_data"] * len(disks), finish)


def _erase_metadata(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    def finish(now: float) -> None:
        for slot, disk in ramdisk.machine.disks.items():
            disk.content = b""
            disk.bootable = False
            ramdisk.machine.log_event(now, "erase", slot, "metadata")

    return Work(METADATA_S, finish)


def _disks(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    machine = ramdisk.machine

    def finish(now: float) -> Json:
        listed = [d.describe() for d in machine.disks.values() if d.device.present]
        if "steps_garbled" in machine.faults:
            return {"disks": [{"name": "/dev/../sda", "serial": "\x1b[2J", "size": "large"}]}
        if "disk_unseen" in machine.faults:
            listed.pop()
        if "disks_change" in machine.faults:
            listed[0]["serial"] = f"{listed[0]['serial']}-{int(now)}"
        if "erase_unsupported" in machine.faults:
            listed[0]["nvme"] = {"sanicap": 0, "oacs": 0, "fna": 0}
        return {"disks": listed}

    return Work(1.0, finish)


def _erase_device(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    machine = ramdisk.machine
    method = str(args.get("by"))
    if "method" in args:  # collides with the dispatcher's own parameter, as in the real agent
        detail = "dispatch_to_managers() got multiple values for argument 'method'"
        raise Failed("CleaningError", "Clean step failed", f"TypeError: {detail}")
    parameters = {"method": method} | {k: str(args.get(k)) for k in ("device", "serial")}
    disk = next((d for d in machine.disks.values() if d.name == args.get("device")), None)

    job = str(args.get("job") or "")
    if job in ramdisk.jobs:  # once per boot
        answer = ramdisk.jobs[job]
        return Work(1.0, lambda _now: answer)

    def report_failure(result: str, detail: str) -> Work:
        return Work(1.0, lambda _now: {**parameters, "result": result, "detail": detail})

    if disk is None or not disk.device.present:
        return report_failure("not_done", "there is no such device")
    if disk.device.serial != parameters["serial"]:
        return report_failure("not_done", f"its serial is {disk.device.serial}")
    first = next(iter(machine.disks.values())) is disk
    if method not in NVME_METHODS or ("erase_unsupported" in machine.faults and first):
        return report_failure("unsupported", "the device does not offer it")
    breaks = {"erase_fails"} if "format" in method else {"erase_fails", "sanitize_fails"}
    if breaks & machine.faults and first:
        return report_failure("not_done", "NVMe status: Internal Error (0x6)")

    def finish(now: float) -> Json:
        if disk.device.serial != parameters["serial"]:
            return {**parameters, "result": "not_done", "detail": "the disk changed meanwhile"}
        _erase(ramdisk, disk, method, now)
        record = {**parameters, "result": "done", "detail": ""}
        if job:
            ramdisk.jobs[job] = record
        return record

    return Work(NVME_METHODS[method], finish)


def _erase(ramdisk: Ramdisk, disk: Disk, method: str, now: float) -> None:
    disk.erase()
    ramdisk.machine.log_event(now, "erase", disk.device.slot, method)


def _read_disk(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    def finish(_now: float) -> Json:
        disks = [
            d
            for d in ramdisk.machine.disks.values()
            if d.device.serial == args.get("serial") and d.device.present
        ]
        if len(disks) != 1:
            raise Failed("CleaningError", "Clean step failed", "there is no such disk")
        offset = args.get("offset", 0)
        count = args.get("bytes")
        try:
            digest = disks[0].digest(int(offset), int(count or 0))
        except (TypeError, ValueError) as error:
            raise Failed("CleaningError", "Clean step failed", str(error)) from None
        if "read_back_wrong" in ramdisk.machine.faults:
            digest = digest[::-1]
        range_read = {"serial": disks[0].device.serial, "offset": offset, "bytes": count}
        return {**range_read, "sha256": digest}

    return Work(2.0, finish)


def _clear_tpm(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    def finish(now: float) -> Json:
        ramdisk.machine.log_event(now, "tpm_clear", "host")
        return {"result": "done", "detail": ""}

    return Work(1.0, finish)


def _quote_tpm(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    machine = ramdisk.machine

    def finish(_now: float) -> Json:
        if machine.tpm is None or machine.tpm.denied:
            return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
        machine.tpm.start_boot(secure_boot=machine.host.bios.secure_boot_running)
        quote, signature = machine.tpm.quote(bytes.fromhex(str(args.get("nonce", ""))))
        content = {
            "quote": quote,
            "signature": signature,
            "key": machine.tpm.key_pem,
            "event_log": machine.tpm.write_log(),
        }
        encoded = {name: base64.b64encode(raw).decode() for name, raw in content.items()}
        return {"result": "done", "detail": "", **encoded}

    return Work(2.0, finish)


def _read_tpm_identity(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    tpm = ramdisk.machine.tpm

    def finish(_now: float) -> Json:
        if tpm is None:
            return {"result": "unsupported", "detail": "there is no TPM 2.0 device"}
        certificates = tpm.endorsement.list_certificates()
        encoded = {index: base64.b64encode(raw).decode() for index, raw in certificates.items()}
        area = base64.b64encode(tpm.area).decode()
        return {"result": "done", "detail": "", "public": area, "certificates": encoded}

    return Work(2.0, finish)


def _activate_credential(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    tpm = ramdisk.machine.tpm

    def finish(_now: float) -> Json:
        content = base64.b64decode(str(args.get("credential", "")))
        secret = tpm.endorsement.open_credential(content, tpm.area) if tpm else None
        if secret is None:
            return {
                "result": "not_done",
                "detail": "tpm2_activatecredential: integrity check failed",
            }
        return {"result": "done", "detail": "", "secret": base64.b64encode(secret).decode()}

    return Work(5.0, finish)


def _clear_boot_entries(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    def finish(now: float) -> Json:
        ramdisk.machine.log_event(now, "boot_entries_clear", "host")
        return {"result": "done", "detail": "0 boot entries of disks were removed"}

    return Work(1.0, finish)


def _read_owner_keys(ramdisk: Ramdisk, _args: Mapping[str, Any]) -> Work:
    """The image boots by Debian's shim, which shows its own certificate beside MokList."""
    faults = ramdisk.machine.faults
    keys = [_SHIM_KEY, *(["5f" * 32] if "owner_key_enrolled" in faults else [])]

    def finish(_now: float) -> Json:
        return {"result": "done", "detail": "", "keys": keys, "verifies": True}

    return Work(1.0, finish)


def _choose_boot_disk(ramdisk: Ramdisk, args: Mapping[str, Any]) -> Work:
    machine = ramdisk.machine

    def finish(now: float) -> Json:
        serial = args.get("serial")
        if "boot_entry_refused" in machine.faults:
            return {"result": "not_done", "detail": "efibootmgr --create: Operation not permitted"}
        if not any(d.device.serial == serial and d.bootable for d in machine.disks.values()):
            return {"result": "not_done", "detail": f"{serial} has no EFI system partition"}
        machine.log_event(now, "boot_entry", "host", str(serial))
        return {"result": "done", "detail": "Boot0001 provisioner is first in the boot order"}

    return Work(1.0, finish)


STEPS: dict[str, Act] = {
    "erase_devices": _erase_devices,
    "erase_devices_metadata": _erase_metadata,
    "provisioner_inventory": report_inventory,
    "provisioner_checks": report_checks,
    "provisioner_disks": _disks,
    "provisioner_erase_device": _erase_device,
    "provisioner_read_disk": _read_disk,
    "provisioner_clear_tpm": _clear_tpm,
    "provisioner_quote_tpm": _quote_tpm,
    "provisioner_read_tpm_identity": _read_tpm_identity,
    "provisioner_activate_credential": _activate_credential,
    "provisioner_clear_boot_entries": _clear_boot_entries,
    "provisioner_read_owner_keys": _read_owner_keys,
    "provisioner_choose_boot_disk": _choose_boot_disk,
}
