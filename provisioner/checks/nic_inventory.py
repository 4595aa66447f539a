"""Every card answers and runs pinned firmware, and no burned firmware waits for a reset.

mlxfwmanager's exit code 1 is allowed (a DPU that does not open for the host): its output counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import NICS
from provisioner.checks.readers.nic_listing import ListedNic, read_cards
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.versions import is_same_version

_CONNECTX = {"ConnectX7": "nic.cx7", "ConnectX8": "nic.cx8"}
_RAIL_KINDS = (*_CONNECTX.values(), "supernic.nic")
_LOCKED = "Failed to open device"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cards = read_cards(read_output(evidence, NICS, any_exit=True))
    expected = context.rails + len(context.dpu_pci)
    if len(cards) < expected:
        yield fault("host", Severity.ISOLATE, "network cards that answer", len(cards), expected)
    for card in cards:
        part = card.pci or "a card without an address"
        if card.burned is None:
            if part in context.dpu_pci and card.status == _LOCKED:
                continue  # a DPU in restricted mode; its own BMC reports its versions
            detail = "the card reports no firmware version"
            yield fault(part, Severity.POWER_CYCLE, detail, card.status)
            continue
        if card.running is not None and card.running != card.burned:
            detail = "firmware is burned but does not run"
            yield fault(part, Severity.CONFIG, detail, card.running, card.burned)
        kind = _classify_card(card, context)
        if not kind and part in context.rail_pci and any(k in context.pins for k in _RAIL_KINDS):
            detail = "no pin is known for this type of card, which carries a rail"
            yield fault(part, Severity.CONFIG, detail, card.type or "no type")
        approved = context.pins.get(kind, ())
        grammar = context.grammars.get(kind, "dotted")
        if approved and not any(is_same_version(grammar, card.burned, pin) for pin in approved):
            yield fault(
                part,
                Severity.CONFIG,
                "the firmware differs from its pin",
                card.burned,
                " or ".join(approved),
            )


def _classify_card(card: ListedNic, context: CheckContext) -> str:
    """Return the kind whose pins apply; a BlueField in NIC mode is a SuperNIC with its own pins."""
    name = card.type.replace("-", "").replace(" ", "")
    if name in _CONNECTX:
        return _CONNECTX[name]
    if name != "BlueField3":
        return ""
    supernic = card.pci not in context.dpu_pci and "supernic.nic" in context.pins
    return "supernic.nic" if supernic else "bluefield.nic"


CHECK = Check("nic_inventory", Gate.A, (NICS,), _findings)
