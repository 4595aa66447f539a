"""Meanings of settings, and the rows by which a vendor declares its attributes for them.

A profile pins a meaning (`iommu: on`), never an attribute: names carry suffixes that change with
the BIOS, and one word has two spellings on one machine. A row finds the attributes of a meaning by
an expression over the names that *this* machine shows, and maps our value to the vendor's. A
meaning without a row is unknown for that vendor, and is refused.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.machine.settings import Value

SUFFIX = r"(_[0-9A-F]{4})?"  # Supermicro: changes with the BIOS
ON_OFF = ("on", "off")
ATTRIBUTE_GROUPS = ("bios", "card_boot")  # their settings are attributes of a system's BIOS


class Meaning(Record):
    """A setting in our own words. `values`: permitted ones; none: text that the row reads."""

    title: str
    # card: of the BMC of a BlueField alone; card_boot: of its start; switch: of a switch alone
    group: Literal["bios", "secure_boot", "bmc", "card", "card_boot", "switch"]
    values: tuple[str, ...] = ON_OFF
    pattern: str = ""  # of a value that is no word of a list


class Row(Record):
    """The attributes of one meaning at one vendor: each that the expression fits is set.

    `values`: our value -> the vendor's spellings, of which the registry's or the one that the
    attribute shows now decides. `source` says where names and values were read.
    """

    meaning: str
    attribute: str
    values: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    source: str


VOCABULARY: dict[str, Meaning] = {
    "iommu": Meaning(title="DMA isolation of devices: VT-d, AMD-Vi", group="bios"),
    "sr_iov": Meaning(title="virtual functions of PCIe devices", group="bios"),
    "acs": Meaning(title="Access Control Services of PCIe bridges", group="bios"),
    "relaxed_ordering": Meaning(title="PCIe relaxed ordering", group="bios"),
    "numa_per_socket": Meaning(
        title="NUMA domains of a socket: NPS, SNC", group="bios", values=("1", "2", "4")
    ),
    "power_profile": Meaning(
        title="profile that sets power attributes together",
        group="bios",
        values=("performance", "os", "balanced", "custom"),
    ),
    "c_states": Meaning(title="idle states of cores deeper than C1", group="bios"),
    "c1e": Meaning(title="enhanced C1 of cores", group="bios"),
    "smt": Meaning(title="two threads on a core", group="bios"),
    "x2apic": Meaning(title="interrupts of more than 255 threads", group="bios"),
    "above_4g": Meaning(title="PCIe memory above 4 GiB", group="bios"),
    "mmio_base": Meaning(
        title="where PCIe memory above 4 GiB begins",
        group="bios",
        values=("56T", "40T", "32T", "24T", "16T", "12T", "4T", "2T", "1T", "512G"),
    ),
    "aspm": Meaning(title="power states of PCIe links", group="bios"),
    "boot_mode": Meaning(title="firmware interface", group="bios", values=("uefi", "legacy")),
    "http_boot": Meaning(title="UEFI HTTP boot of the first device", group="bios"),
    "pxe_boot": Meaning(title="PXE boot of the first device", group="bios"),
    "boot_retry": Meaning(title="boot sequence is tried again", group="bios"),
    "uefi_shell": Meaning(title="UEFI shell", group="bios"),
    "tpm": Meaning(title="TPM", group="bios"),
    "inband_bmc": Meaning(title="access to the BMC from inside the host", group="bios"),
    "secure_boot": Meaning(title="Secure Boot", group="secure_boot"),
    "ntp": Meaning(
        title="time servers, separated by commas; off",
        group="bmc",
        values=(),
        pattern=r"off|[A-Za-z0-9.:-]{1,253}(,[A-Za-z0-9.:-]{1,253}){0,3}",
    ),
    "syslog": Meaning(
        title="syslog servers, separated by commas; off",
        group="bmc",
        values=(),
        pattern=r"off|[A-Za-z0-9.:-]{1,253}(,[A-Za-z0-9.:-]{1,253}){0,2}",
    ),
    "ipmi": Meaning(title="IPMI over LAN", group="bmc"),
    "ssh": Meaning(title="SSH to the BMC", group="bmc"),
    "http": Meaning(title="HTTP without TLS", group="bmc"),
    "snmp": Meaning(title="SNMP", group="bmc"),
    "kvm": Meaning(title="remote console", group="bmc"),
    "virtual_media": Meaning(title="virtual media", group="bmc"),
    "host_interface": Meaning(title="Redfish host interface", group="bmc"),
    "lockout_threshold": Meaning(
        title="failed logins that lock an account", group="bmc", values=(), pattern=r"\d{1,3}"
    ),
    "lockout_duration": Meaning(
        title="seconds of a lockout", group="bmc", values=(), pattern=r"\d{1,6}"
    ),
    "lockout_reset": Meaning(
        title="seconds after which failed logins are forgotten",
        group="bmc",
        values=(),
        pattern=r"\d{1,6}",
    ),
    # the daemon's own have 16 characters: a BMC that wants more could not be given another one
    "password_length": Meaning(
        title="characters of the shortest password, at most 16",
        group="bmc",
        values=(),
        pattern=r"\d|1[0-6]",
    ),
    "power_restore": Meaning(
        title="power after a power cut", group="bmc", values=("on", "off", "last")
    ),
    "host_rshim": Meaning(title="rshim of a BlueField for its host", group="card"),
    "card_mode": Meaning(title="mode of a BlueField", group="card_boot", values=("dpu", "nic")),
    "host_privilege": Meaning(
        title="rights of a host over its BlueField",
        group="card_boot",
        values=("restricted", "unrestricted"),
    ),
    "tacacs": Meaning(
        title="TACACS+ servers, the first one first, separated by commas; off",
        group="switch",
        values=(),
        pattern=r"off|[A-Za-z0-9.:-]{1,253}(,[A-Za-z0-9.:-]{1,253}){0,7}",
    ),
    "login_order": Meaning(
        title="accounts that are asked about a login, in order",
        group="switch",
        values=("local", "tacacs,local", "local,tacacs"),
    ),
}


def switch(meaning: str, attribute: str, on: Value, off: Value, source: str) -> Row:
    return Row(
        meaning=meaning, attribute=attribute, values={"on": (on,), "off": (off,)}, source=source
    )


def enabled(meaning: str, attribute: str, source: str) -> Row:
    """Return the row of an attribute that is Enabled or Disabled, in either of the two spellings.

    source of the twins: libredfish, supermicro.rs; both are in the tree of a SYS-821GE-TNHR
    """
    values: dict[str, tuple[Value, ...]] = {
        "on": ("Enabled", "Enable"),
        "off": ("Disabled", "Disable"),
    }
    return Row(meaning=meaning, attribute=attribute, values=values, source=source)
