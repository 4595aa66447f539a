"""I7: current equals next boot for every NV-config parameter, and equals the pinned profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import NIC_CONFIG
from provisioner.checks.reading import json_of, mapping, pci, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

_CODE = re.compile(r"^.{0,64}\(((?:0x)?[0-9a-fA-F]{1,16})\)$")  # "True(1)", "ETH(2)"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    document = mapping(json_of(text_of(evidence, NIC_CONFIG), "mlxconfig"), "mlxconfig")
    compared = 0
    for name, facts in document.items():
        device = mapping(facts, name)
        address = pci(str(device.get("device", name)))
        parameters = mapping(device.get("tlv_configuration"), "tlv_configuration")
        yield from _pending(address, parameters)
        if address in context.dpu_pci:
            continue  # a card in DPU mode is configured from its own system
        compared += 1
        for parameter, wanted in sorted(context.nic_parameters.items()):
            found = mapping(parameters.get(parameter, {}), parameter).get("current_value")
            if _plain(found) != _plain(wanted):
                yield fault(
                    f"{address} {parameter}",
                    Severity.CONFIG,
                    "not as the pinned NV-config profile",
                    "not there" if found is None else found,
                    wanted,
                )
    if compared == 0 or compared < context.rails:
        yield fault(
            "host", Severity.ISOLATE, "cards that tell their config", compared, context.rails
        )


def _pending(address: str, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Parameters that change at the next reset: the card does not run what is set."""
    for parameter, facts in parameters.items():
        values = mapping(facts, parameter)
        current, following = values.get("current_value"), values.get("next_value")
        if current is None or following is None or _plain(current) != _plain(following):
            yield fault(
                f"{address} {parameter}",
                Severity.CONFIG,
                "waits for a reset, or is not told",
                current,
                following,
            )


def _plain(value: Any) -> str:
    """One form for "True(1)", True, "1" and 1."""
    if isinstance(value, bool):
        return str(int(value))
    text = str(value).strip()
    if match := _CODE.match(text):
        text = match[1]
    return str(int(text, 16)) if text.lower().startswith("0x") and len(text) > 2 else text


CHECK = Check("nic_config", Gate.A, (NIC_CONFIG,), _findings)
