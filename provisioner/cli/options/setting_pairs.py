"""Settings of machines as options: `--set iommu=off --set attribute:ProcX2Apic=Enabled`."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.input_error import InputError
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    DPU,
    find_kind,
    find_setting_fault,
)

_KINDS = {"set-bios": (BIOS, DPU), "set-bmc": (BMC, CARD)}


def parse_settings(action: str, pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of an action that sets some. Raises InputError for any other text."""
    kinds = _KINDS.get(action)
    if kinds is None:
        return ()
    if not pairs:
        raise InputError("--set", "", f"{action} needs it", "Give --set NAME=VALUE.")
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InputError("--set", pair, "no name and value", "Give --set NAME=VALUE.")
        if (fault := find_setting_fault(name, value)) is not None:
            raise InputError("--set", pair, *fault)
        if (kind := find_kind(name)) not in kinds:
            other = next((word for word, several in _KINDS.items() if kind in several), "")
            remedy = f"Use {other}." if other else "It is a switch's: pin it in the matrix."
            raise InputError("--set", pair, f"no setting of {action}", remedy)
        settings[name] = value
    return tuple(settings.items())
