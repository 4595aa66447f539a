"""What may hold a tenant's data, how each of it was erased, and the report that says so.

Rule: a record says what was done and seen, never what was hoped for. Whatever is not `done` is
named, and a device without a record is not erased.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record


class Holder(StrEnum):
    """Kinds of things that can still hold a tenant's data after it has left."""

    DISK = "disk"
    HOST_MEMORY = "host_memory"
    GPU_MEMORY = "gpu_memory"
    BLUEFIELD_STORAGE = "bluefield_storage"  # eMMC and NVMe of a BlueField
    TPM = "tpm"
    BIOS = "bios"  # its settings, and the UEFI variables that a root user may write


class Method(StrEnum):
    """How something was erased. Numbers are those of the NVMe and ATA command sets."""

    SANITIZE_CRYPTO = "nvme_sanitize_crypto"  # NVMe Sanitize, action 4: the media key changes
    SANITIZE_BLOCK = "nvme_sanitize_block"  # NVMe Sanitize, action 2: every block is erased
    FORMAT_CRYPTO = "nvme_format_crypto"  # NVMe Format, secure erase setting 2
    FORMAT_USER_DATA = "nvme_format_user_data"  # NVMe Format, secure erase setting 1
    ATA_ENHANCED = "ata_enhanced_secure_erase"
    ATA_SECURE = "ata_secure_erase"
    OVERWRITE = "overwrite"  # once, over everything that can be addressed
    POWER_REMOVED = "power_removed"  # volatile memory: off was seen for a while, then on
    TPM_CLEAR = "tpm_clear"
    NONE = "none"


class Result(StrEnum):
    """How an erasure ended. Only `done` is erased."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNSUPPORTED = "unsupported"


class Disk(Record):
    """A disk as the maintenance agent sees it. `methods`: what it says that it can, best first."""

    name: str  # "/dev/nvme0n1", of this boot only: never an identity
    serial: str
    wwn: str = ""
    model: str = ""
    size_bytes: int
    transport: str = ""  # "nvme", "sata", "sas", ...
    methods: tuple[Method, ...] = ()

    @property
    def identity(self) -> tuple[str, str, int]:
        """What tells it from every other disk, whatever the kernel calls it in this boot."""
        return (self.serial, self.wwn, self.size_bytes)


class ErasureRecord(Record):
    """One device: what was done with it. Times are seconds since the epoch."""

    holder: Holder
    device: str  # "/dev/nvme0n1" or a slot ("DPU_0", "host")
    serial: str = ""
    model: str = ""
    size_bytes: int = 0
    method: Method = Method.NONE
    result: Result
    detail: str = ""  # evidence in words: what the device said, what was tried before and failed
    started_at: float = 0.0
    ended_at: float = 0.0


class ErasurePolicy(Record):
    """What a site asks of an erasure. The stricter answer is the default."""

    required: tuple[Holder, ...] = (Holder.DISK, Holder.HOST_MEMORY, Holder.GPU_MEMORY)
    overwrite: bool = False  # a disk that has no better method may be overwritten
    same_tenant_may_skip: bool = False  # break-fix: the node goes back to the tenant it served


class ErasureReport(Record):
    """Everything of one node after one stay with a tenant.

    It is bound to the stay: `fenced_at` is when the node was proved to be in the maintenance
    network again. A report of an earlier stay says nothing about this one.
    """

    node: str
    system_serial: str = ""
    tenant: str  # whose data it was
    fenced_at: float
    started_at: float
    ended_at: float
    agent_version: str = ""
    policy: ErasurePolicy = ErasurePolicy()  # what was asked for when it was made
    expected: tuple[str, ...] = ()  # serials of drives that the node's BMC lists, sorted
    expected_count: int = 0  # disks that the profile's bill of materials has; 0: it does not say
    before: tuple[Disk, ...] = ()
    after: tuple[Disk, ...] = ()
    records: tuple[ErasureRecord, ...] = ()

    def of(self, holder: Holder) -> tuple[ErasureRecord, ...]:
        """The records of one kind, in order of device."""
        return tuple(
            sorted((r for r in self.records if r.holder is holder), key=lambda r: r.device)
        )
