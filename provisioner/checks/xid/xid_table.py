"""NVIDIA's Xid catalogue as rows; the data is in `xid_catalog.csv` beside this module.

Source: the workbook "Xid-Catalog", sheet "XIDs": code, mnemonic, products, and the resolution
buckets for the immediate and for the investigatory action. Meanings are in our words. Products: A
is the A100, H the H100 and H200, B the B100 and B200, G the GB200; none: the code is not in use.
"""

from __future__ import annotations

import csv
from importlib import resources

from provisioner.checks.xid.error_codes import SEVERITY, Action
from provisioner.model.base import Record
from provisioner.model.health import Severity

SOURCE = "NVIDIA Xid catalogue, sheet XIDs"

# Listed without an action, but with texts that say no reset is needed. Code 165 (the lifetime of
# power smoothing is used up) keeps the worst severity.
_POWER_SMOOTHING = (162, 163, 164)


class XidRow(Record):
    """One row of the catalogue."""

    code: int
    mnemonic: str
    action: Action
    investigate: str
    products: str
    meaning: str

    @property
    def severity(self) -> Severity | None:
        """The severity before any decoding.

        A code that is harmless only on other products is monitored: according to the catalogue, an
        H100 or B100 cannot send it.
        """
        if self.code in _POWER_SMOOTHING:
            return Severity.MONITOR
        if self.action is Action.IGNORE and not set(self.products) & {"H", "B"}:
            return Severity.MONITOR
        return SEVERITY[self.action]


def data_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the tables that are shipped beside this module."""
    text = (resources.files("provisioner.checks.xid") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


XIDS: dict[int, XidRow] = {
    int(row["code"]): XidRow.model_validate(row) for row in data_rows("xid_catalog.csv")
}
