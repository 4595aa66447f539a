"""Vendor differences of Redfish services: one file per vendor, listed in `ALL`. Data, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    return next((q for q in ALL.values() if q.oem and q.oem.lower() in keys), UNKNOWN)


__all__ = ["ALL", "UNKNOWN", "AcCycle", "Quirk", "identify"]
