"""The settings of `provisioner inspect --settings`, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from provisioner.model.machine.settings import BiosSettings, MachineSettings, Value

_SHOWN_MAX = 80  # characters of a value in a table; JSON has all


def settings_as_json(settings: MachineSettings) -> dict[str, Any]:
    """Return the object that `matrix import --settings` reads too."""
    return {
        "vendor": settings.vendor,
        "bios": [
            {
                "source": bios.source,
                "target": bios.target or None,
                "registry": bios.registry_name,
                "registry_read": bios.registry is not None,
                "apply_times": bios.apply_times,
                "attributes": [dict(row) for row in list_attributes(bios)],
            }
            for bios in settings.bios
        ],
        "secure_boot": [one.model_dump(mode="json") for one in settings.secure_boot],
        "bmcs": [one.model_dump(mode="json") for one in settings.bmcs],
        "gaps": [one.model_dump(mode="json") for one in settings.gaps],
    }


def list_attributes(bios: BiosSettings) -> Iterator[dict[str, Any]]:
    """Yield each attribute by name, with its values and the registry's description.

    An attribute that the registry alone lists has no current value: this machine does not show it.
    """
    rules = bios.registry.rules if bios.registry is not None else {}
    current = bios.current or {}
    for name in sorted({*current, *bios.pending, *rules}, key=str.lower):
        rule = rules.get(name)
        yield {
            "name": name,
            "shown": name in current,
            "current": current.get(name),
            "pending": bios.pending.get(name),
            "is_pending": name in bios.pending,
            "type": rule.kind if rule is not None and rule.kind else None,
            "values": list(rule.values) if rule is not None else [],
            "read_only": rule.read_only if rule is not None else None,
            "reset_required": rule.reset_required if rule is not None else None,
        }


def show_settings(console: Console, settings: MachineSettings) -> None:
    """Print the attributes that the machine shows, Secure Boot, and the BMCs' settings."""
    for bios in settings.bios:
        name = bios.registry_name or "none"
        read = "read" if bios.registry is not None else "not read"
        console.print(f"BIOS {bios.source}  registry {name}, {read}", markup=False)
        if bios.current is None:
            console.print("no attributes are shown: unknown, and not the defaults", markup=False)
        table = Table("attribute", "current", "pending", "type", "writable", title="BIOS")
        for row in list_attributes(bios):
            if not row["shown"] and not row["is_pending"]:
                continue
            pending = _cell(row["pending"]) if row["is_pending"] else "-"
            writable = {True: "no", False: "yes", None: "-"}[row["read_only"]]
            cells = (row["name"], _cell(row["current"]), pending, row["type"] or "-", writable)
            table.add_row(*(cell.replace("[", r"\[") for cell in cells))
        console.print(table)
    for one in settings.secure_boot:
        states = {True: "on", False: "off", None: "not shown"}
        console.print(
            f"Secure Boot {states[one.running]}, {states[one.enabled]} from the next boot, "
            f"mode {one.mode or 'not shown'}",
            markup=False,
        )
    table = Table("resource", "setting", "value", title="BMC")
    for bmc in settings.bmcs:
        path = bmc.source.removeprefix("/redfish/v1/")
        for name, value in bmc.values.items():
            table.add_row(path, name.replace("[", r"\["), _cell(value).replace("[", r"\["))
    if table.row_count:
        console.print(table)
    if settings.gaps:
        table = Table("gap", "source", "detail", title="Settings not known")
        for gap in settings.gaps:
            table.add_row(gap.reason.value, gap.source, gap.detail.replace("[", r"\["))
        console.print(table)


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"
