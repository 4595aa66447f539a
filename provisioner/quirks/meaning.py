"""Meanings of settings, and the rows by which a vendor declares its attributes for them.

A profile pins a meaning (`iommu: on`), never an attribute: names carry suffixes that change with
the BIOS, and one word has two spellings on one machine. A row finds the attributes of a meaning by
an expression over the names that *this* machine shows, and maps our value to the vendor's. A
meaning without a row is unknown for that vendor, and is refused.
"""

from __future__ import annotations

from typing import Literal, cast

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.machine.settings import Value
from provisioner.model.shipped_tables import read_table

SUFFIX = r"(_[0-9A-F]{4})?"  # Supermicro: changes with the BIOS
ON_OFF = ("on", "off")
ATTRIBUTE_GROUPS = ("bios", "card_boot")  # their settings are attributes of a system's BIOS
# card: of the BMC of a BlueField alone; card_boot: of its start; switch: of a switch alone
Group = Literal["bios", "secure_boot", "bmc", "card", "card_boot", "switch"]


class Meaning(Record):
    """A setting in our own words. `values`: permitted ones; none: text that the row reads."""

    title: str
    group: Group
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


# password_length ends at 16: a BMC that wants more than the daemon's own have gets no other one
VOCABULARY: dict[str, Meaning] = {
    row["meaning"]: Meaning(
        title=row["title"],
        group=cast(Group, row["group"]),
        values=tuple(row["values"].split("|")) if row["values"] else (),
        pattern=row["pattern"],
    )
    for row in read_table("provisioner.quirks", "meanings.csv")
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
