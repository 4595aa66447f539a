"""Vendor differences of Redfish services: one file per vendor, listed in `ALL`. Data, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.quirks import (
    ami_megarac,
    dell_idrac,
    generic,
    hpe_ilo,
    lenovo_xcc,
    nvidia_openbmc,
    supermicro,
)
from provisioner.quirks.quirk import AcCycle, Quirk

UNKNOWN = generic.QUIRK
_MANAGERS_MAX = 16  # a tray of eight GPUs with its cards has under ten
_OPENBMC = "openbmc"

# in order of recognition: a vendor's own field takes precedence over an OEM key in a licensed stack
ALL: dict[str, Quirk] = {
    module.QUIRK.name: module.QUIRK
    for module in (
        nvidia_openbmc,
        dell_idrac,
        hpe_ilo,
        lenovo_xcc,
        supermicro,
        ami_megarac,
        generic,
    )
}


def identify(root: Mapping[str, Any]) -> Quirk:
    """Return the declaration that matches a service root; the one named "unknown" if none does.

    A `Product` of NVIDIA's software decides first, then the root's `Vendor`, `Product` and OEM
    keys: a manufacturer's name further down the tree often belongs to the board maker (sushy).
    """
    product = root.get("Product")
    stack = nvidia_openbmc.QUIRK
    # trays of other makers run NVIDIA's BMC software (libredfish#90, #92, #140: Supermicro, Lenovo)
    if isinstance(product, str) and re.search(stack.product, product, re.IGNORECASE):
        return stack
    for field, expression in (("Vendor", "vendor"), ("Product", "product")):
        value = root.get(field)
        for quirk in ALL.values():
            pattern = getattr(quirk, expression)
            if pattern and isinstance(value, str) and re.search(pattern, value, re.IGNORECASE):
                return quirk
    oem = root.get("Oem")
    keys = {str(key).lower() for key in oem} if isinstance(oem, Mapping) else set()
    named = [q for q in ALL.values() if q.oem and q.oem.lower() in keys]
    # a licensed stack may show the GPU maker's namespace too
    return next((q for q in sorted(named, key=lambda q: q.is_openbmc)), UNKNOWN)


def is_stated(root: Mapping[str, Any], quirk: Quirk) -> bool:
    """Return whether the root names the software itself, and not only who made the machine.

    Its `Product`, or the namespace of its Oem, is the software's; its `Vendor` may be the maker.
    """
    product = root.get("Product")
    named = isinstance(product, str) and quirk.product
    if named and re.search(quirk.product, str(product), re.IGNORECASE):
        return True
    oem = root.get("Oem")
    keys = {str(key).lower() for key in oem} if isinstance(oem, Mapping) else set()
    known = {q.oem.lower() for q in ALL.values() if q.oem} & keys
    return known == {quirk.oem.lower()}  # of two, one may be the board's or a licensed stack's


def identify_managers(managers: Sequence[Mapping[str, Any]]) -> Quirk | None:
    """Return the software of the BMC whose managers these are; None if they do not tell.

    The namespaces of their Oem and of their own actions tell it, on every captured tree
    (NVIDIA/libredfish, tests/mockups; a DGX H100; a BlueField-3). A BMC that aggregates an HGX
    baseboard lists that one's manager too, which says nothing of its own. OpenBMC of nobody in
    particular is driven by the standard, whoever made the machine.
    """
    own = [one for one in managers[:_MANAGERS_MAX] if not _is_baseboard(one)]
    shown = own or managers[:_MANAGERS_MAX]
    names = {name for one in shown for name in _list_namespaces(one)}
    says_so = _OPENBMC in names
    open_bmc = says_so or any(str(one.get("Model", "")).lower() == _OPENBMC for one in shown)
    for quirk in ALL.values():
        if quirk.oem and quirk.oem.lower() in names and quirk.is_openbmc is open_bmc:
            return quirk
    return UNKNOWN if says_so else None


def _is_baseboard(manager: Mapping[str, Any]) -> bool:
    shown = (manager.get("Id"), manager.get("FirmwareVersion"))
    return any(isinstance(one, str) and one.startswith(("HGX_", "HGX-")) for one in shown)


def _list_namespaces(manager: Mapping[str, Any]) -> set[str]:
    """Return the vendors of a manager's Oem and of its actions, in lower case."""
    oem = manager.get("Oem")
    names = {str(key).lower() for key in oem} if isinstance(oem, Mapping) else set()
    actions = manager.get("Actions")
    own = actions.get("Oem") if isinstance(actions, Mapping) else None
    for key in list(own)[:64] if isinstance(own, Mapping) else ():
        for quirk in ALL.values():
            if quirk.oem and re.match(rf"#?{quirk.oem}(Manager|iLO)?\b", str(key), re.IGNORECASE):
                names.add(quirk.oem.lower())
    return names


__all__ = ["ALL", "UNKNOWN", "AcCycle", "Quirk", "identify", "identify_managers", "is_stated"]
