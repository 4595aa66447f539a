"""Devices that may hold a tenant's data, how each was erased, and the report of it.

A record states what was done and observed, never an intention. Everything that is not `done` is
named, and a device without a record is not erased.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record


class Holder(StrEnum):
    """Kinds of devices that can still hold a tenant's data after the tenant has left."""

    DISK = "disk"
    HOST_MEMORY = "host_memory"
    GPU_MEMORY = "gpu_memory"
    BLUEFIELD_STORAGE = "bluefield_storage"  # eMMC and NVMe of a BlueField
    TPM = "tpm"
    BIOS = "bios"  # its settings
    BMC = "bmc"  # its accounts, event subscriptions and settings that wait for a boot
    BMC_DEFAULTS = "bmc_defaults"  # the settings and accounts of a BMC itself
    SECURE_BOOT = "secure_boot"  # its databases of keys
    FIRMWARE = "firmware"  # the flash of parts that keep their version
    BOOT_ENTRIES = "boot_entries"  # UEFI variables that name systems on disks


class Method(StrEnum):
    """Erasure methods. Numbers are those of the NVMe and ATA command sets."""

    SANITIZE_CRYPTO = "nvme_sanitize_crypto"  # NVMe Sanitize, action 4: the media key changes
    SANITIZE_BLOCK = "nvme_sanitize_block"  # NVMe Sanitize, action 2: every block is erased
    FORMAT_CRYPTO = "nvme_format_crypto"  # NVMe Format, secure erase setting 2
    FORMAT_USER_DATA = "nvme_format_user_data"  # NVMe Format, secure erase setting 1
    SCSI_SANITIZE_CRYPTO = "scsi_sanitize_crypto"  # SCSI SANITIZE, service action 3
    SCSI_SANITIZE_BLOCK = "scsi_sanitize_block"  # SCSI SANITIZE, service action 2
    SCSI_SANITIZE_OVERWRITE = "scsi_sanitize_overwrite"  # SCSI SANITIZE, service action 1
    ATA_SANITIZE_CRYPTO = "ata_sanitize_crypto"  # ATA SANITIZE DEVICE, CRYPTO SCRAMBLE EXT
    ATA_SANITIZE_BLOCK = "ata_sanitize_block"  # ATA SANITIZE DEVICE, BLOCK ERASE EXT
    ATA_ENHANCED = "ata_enhanced_secure_erase"
    ATA_SANITIZE_OVERWRITE = "ata_sanitize_overwrite"  # ATA SANITIZE DEVICE, OVERWRITE EXT
    ATA_SECURE = "ata_secure_erase"
    OVERWRITE = "overwrite"  # once, over everything that can be addressed
    POWER_REMOVED = "power_removed"  # volatile memory: power was observed off for a while, then on
    TPM_CLEAR = "tpm_clear"
    BIOS_DEFAULTS = "bios_defaults"  # reset to factory defaults, and seen after a boot
    BMC_DEFAULTS = "bmc_defaults"  # reset to factory defaults, and taken in again
    REWRITTEN = "firmware_rewritten"  # the version that runs was written over itself, and activated
    KEYS_RESTORED = "secure_boot_keys_restored"  # the factory's, read again after a boot
    CARD_WIPED = "card_wiped"  # by the card's UEFI; its former system does not start any more
    COMPARED = "compared"  # read, and compared with the things that belong there
    ENTRIES_REMOVED = "boot_entries_removed"
    NONE = "none"


class Result(StrEnum):
    """The result of an erasure. Only a `done` device is erased."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNSUPPORTED = "unsupported"


class Disk(Record):
    """A disk as the maintenance agent reports it. `methods`: those that the disk supports, best
    first.
    """

    name: str  # "/dev/nvme0n1", of this boot only: never an identity
    serial: str
    wwn: str = ""
    model: str = ""
    size_bytes: int  # of the block device; of an NVMe drive the first namespace
    capacity_bytes: int = 0  # of an NVMe drive with all its namespaces; 0: it does not report it
    transport: str = ""  # "nvme", "sata", "sas", ...
    methods: tuple[Method, ...] = ()

    @property
    def identity(self) -> tuple[str, str, int]:
        """Return the identity of the disk, which does not depend on its kernel name in this
        boot, nor on the namespaces that an NVMe drive is divided into.
        """
        if self.capacity_bytes:
            return (self.serial, "", self.capacity_bytes)
        return (self.serial, self.wwn, self.size_bytes)


class ErasureRecord(Record):
    """The erasure of one device. Times are Unix seconds."""

    holder: Holder
    device: str  # "/dev/nvme0n1" or a slot ("DPU_0", "host")
    serial: str = ""
    model: str = ""
    size_bytes: int = 0
    method: Method = Method.NONE
    result: Result
    detail: str = ""  # evidence as text: the device's answer, methods that failed before
    started_at: float = 0.0
    ended_at: float = 0.0


class ErasurePolicy(Record):
    """A site's requirements for an erasure. The defaults are the strict ones."""

    required: tuple[Holder, ...] = (Holder.DISK, Holder.HOST_MEMORY, Holder.GPU_MEMORY)
    overwrite: bool = False  # a disk without a better method may be overwritten
    rewrites: tuple[str, ...] = ()  # groups of firmware that are written once more: "bmc", "card"
    card_storage: bool = False  # cards are wiped before their bundle is written once more
    bmc_defaults: str = "off"  # which BMCs are reset: "network_kept", "addresses_reserved"
    same_tenant_may_skip: bool = False  # break-fix: the node returns to the tenant that it served


class ErasureReport(Record):
    """The erasure of one node after one stay with a tenant.

    The report is bound to the stay: `fenced_at` is when the node was proved to be in the
    maintenance network again. A report of an earlier stay is no evidence for this one.
    """

    node: str
    system_serial: str = ""
    tenant: str  # whose data it was
    fenced_at: float
    started_at: float
    ended_at: float
    agent_version: str = ""  # tenant whose data was erased
    policy: ErasurePolicy = ErasurePolicy()  # the requirements when it was made
    expected: tuple[str, ...] = ()  # serials of drives that the node's BMC lists, sorted
    expected_count: int = 0  # disks in the profile's bill of materials; 0: it has no number
    before: tuple[Disk, ...] = ()
    after: tuple[Disk, ...] = ()
    records: tuple[ErasureRecord, ...] = ()

    def select_records(self, holder: Holder) -> tuple[ErasureRecord, ...]:
        """Return the records of one kind, in order of device."""
        return tuple(
            sorted((r for r in self.records if r.holder is holder), key=lambda r: r.device)
        )
