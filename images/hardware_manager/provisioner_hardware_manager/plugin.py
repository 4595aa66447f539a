"""The hardware manager, which ironic-python-agent finds by its entry point, and its steps.

Each step is safe to repeat, checks its arguments, and returns one JSON object; docs/erasure.md and
docs/maintenance-image.md describe arguments and answers. Steps have priority 0: none runs unless
the daemon requests it by name.
"""

from __future__ import annotations

from typing import Any

from ironic_python_agent import errors, hardware
from oslo_log import log

from provisioner_hardware_manager import (
    boot_entries,
    disk_reading,
    disks,
    erasure,
    health,
    inventory,
    owner_keys,
    redaction,
    tpm,
    tpm_identity,
    tpm_quote,
)
from provisioner_hardware_manager.results import DONE

LOG = log.getLogger(__name__)
ARGUMENTS: dict[str, dict[str, str]] = {
    "provisioner_inventory": {},
    "provisioner_checks": {"expected": "kind -> count that must be there; memory_gib"},
    "provisioner_disks": {},
    "provisioner_erase_device": {
        "device": "/dev/nvme0n1, of this boot",
        "serial": "its serial, read again before anything is done",
        # not `method`: the agent's dispatcher has a parameter of that name (hardware.py, 13.0.0)
        "by": ", ".join(erasure.METHODS),
        "job": "a repeated name returns the first record, and nothing is done twice",
    },
    "provisioner_read_disk": {
        "serial": "of the disk",
        "offset": "first byte",
        "bytes": "how many",
    },
    "provisioner_clear_tpm": {},
    "provisioner_quote_tpm": {"nonce": "64 hexadecimal digits that the TPM signs"},
    "provisioner_read_tpm_identity": {},
    "provisioner_activate_credential": {
        "credential": "Base64 of a credential as tpm2_makecredential writes it",
        "key": "rsa or ecc: the kind of endorsement key that it is encrypted to",
    },
    "provisioner_clear_boot_entries": {},
    "provisioner_read_owner_keys": {},
    "provisioner_choose_boot_disk": {"serial": "of the disk that the next system was written to"},
}
OPTIONAL = frozenset({"expected", "job"})
JOBS_MAX = 4096  # ten methods on each of 34 disks are 340


class _AgentErasure:
    """ironic-python-agent's own handling of ATA drives and of overwriting.

    These are private methods of a version that is pinned by digest; tests verify their names.
    """

    def __init__(self) -> None:
        self._generic = hardware.GenericHardwareManager()

    def erase_ata(self, device: str) -> bool:
        return bool(self._generic._ata_erase(_block_device(device)))

    def overwrite(self, device: str) -> bool:
        info = {"agent_erase_devices_iterations": 1, "agent_erase_devices_zeroize": True}
        node = {"driver_internal_info": info}
        return bool(self._generic._shred_block_device(node, _block_device(device)))


def _block_device(name: str) -> hardware.BlockDevice:
    return hardware.BlockDevice(name=name, model="", size=0, rotational=False)


class ProvisionerHardwareManager(hardware.HardwareManager):  # type: ignore[misc]
    """Our steps, beside ironic-python-agent's generic manager, which does everything else."""

    HARDWARE_MANAGER_NAME = "ProvisionerHardwareManager"
    HARDWARE_MANAGER_VERSION = "1"

    def __init__(self) -> None:
        super().__init__()
        # Completed jobs, in memory: an agent that restarts has no token and so needs a new boot.
        self._jobs: dict[str, dict[str, str]] = {}

    def evaluate_hardware_support(self) -> int:
        """Support every machine that boots our ramdisk; called once, before its API opens."""
        redaction.install()
        return int(hardware.HardwareSupport.SERVICE_PROVIDER)

    def get_clean_steps(self, node: Any, ports: Any) -> list[dict[str, Any]]:
        return _list_steps(abortable=True)

    def get_service_steps(self, node: Any, ports: Any) -> list[dict[str, Any]]:
        return _list_steps(abortable=True)

    def get_deploy_steps(self, node: Any, ports: Any) -> list[dict[str, Any]]:
        return [s for s in _list_steps() if s["step"] != "provisioner_erase_device"]

    def provisioner_inventory(self, node: Any, ports: Any) -> dict[str, Any]:
        """Return the in-band inventory, with the SSH host key of this boot."""
        return inventory.collect()

    def provisioner_checks(
        self, node: Any, ports: Any, expected: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """Return early health checks: `checks` is a list of {check, verdict, detail}."""
        return {"checks": health.run_checks(inventory.collect(), expected or {})}

    def provisioner_disks(self, node: Any, ports: Any) -> dict[str, Any]:
        """Return the disks and the abilities that each reports."""
        try:
            return {"disks": disks.list_disks()}
        except ValueError as failure:
            raise errors.CleaningError(str(failure)) from None

    def provisioner_erase_device(
        self, node: Any, ports: Any, device: str = "", serial: str = "", by: str = "", job: str = ""
    ) -> dict[str, str]:
        """Erase one disk by one method and wait for its end; a job is done once in a boot."""
        if (earlier_record := self._jobs.get(str(job))) is not None:
            return earlier_record
        LOG.info("Erasing %s by %s", device, by)
        record = erasure.erase(str(device), str(serial), str(by), agent=_AgentErasure())
        LOG.info("Erasing %s by %s: %s", device, by, record["result"])
        if job and record["result"] == DONE and len(self._jobs) < JOBS_MAX:
            self._jobs[str(job)] = record
        return record

    def provisioner_read_disk(
        self,
        node: Any,
        ports: Any,
        serial: str = "",
        offset: int = 0,
        bytes: int = 0,  # noqa: A002
    ) -> dict[str, Any]:
        """Return the SHA-256 of a range of a disk, read from the medium."""
        try:
            return disk_reading.hash_range(str(serial), int(offset), int(bytes))
        except (ValueError, OSError) as failure:
            raise errors.CleaningError(f"reading back: {failure}") from None

    def provisioner_clear_tpm(self, node: Any, ports: Any) -> dict[str, str]:
        """Clear the TPM, or request it from the firmware."""
        return tpm.clear()

    def provisioner_quote_tpm(self, node: Any, ports: Any, nonce: str = "") -> dict[str, str]:
        """Return a quote of this boot by the TPM's attestation key, with the event log."""
        return tpm_quote.quote(str(nonce))

    def provisioner_read_tpm_identity(self, node: Any, ports: Any) -> dict[str, object]:
        """Return the maker's certificates in the TPM, and the attestation key's public area."""
        return tpm_identity.read()

    def provisioner_activate_credential(
        self, node: Any, ports: Any, credential: str = "", key: str = ""
    ) -> dict[str, object]:
        """Open a credential with the TPM; return its secret."""
        return tpm_identity.activate(str(credential), str(key))

    def provisioner_clear_boot_entries(self, node: Any, ports: Any) -> dict[str, str]:
        """Remove the UEFI boot entries of systems on disks."""
        return boot_entries.clear()

    def provisioner_read_owner_keys(self, node: Any, ports: Any) -> dict[str, object]:
        """Return the machine owner keys that shim trusts, where shim started this boot."""
        return owner_keys.read()

    def provisioner_choose_boot_disk(
        self, node: Any, ports: Any, serial: str = ""
    ) -> dict[str, str]:
        """Make the disk with this serial the first UEFI boot entry, and the only one of a disk."""
        return boot_entries.choose_disk(str(serial))


def _list_steps(*, abortable: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "step": name,
            "priority": 0,
            "interface": "deploy",
            "reboot_requested": False,
            "argsinfo": {
                argument: {"description": text, "required": argument not in OPTIONAL}
                for argument, text in arguments.items()
            },
            **({"abortable": True} if abortable else {}),
        }
        for name, arguments in ARGUMENTS.items()
    ]
