"""I6: every card answers, runs pinned firmware, and nothing is burned that does not run.

mlxfwmanager's exit code 1 is allowed (a DPU that does not open for the host): what it says counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import NICS
from provisioner.checks.readers.nic_listing import ListedNic, cards_of
from provisioner.checks.readers.reading import text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity
from provisioner.model.versions import equal

_CONNECTX = {"ConnectX7": "nic.cx7", "ConnectX8": "nic.cx8"}
_LOCKED = "Failed to open device"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cards = cards_of(text_of(evidence, NICS, any_exit=True))
    wanted = context.rails + len(context.dpu_pci)
    if len(cards) < wanted:
        yield fault("host", Severity.ISOLATE, "network cards that answer", len(cards), wanted)
    for card in cards:
        part = card.pci or "a card without an address"
        if card.burned is None:
            if part in context.dpu_pci and card.status == _LOCKED:
                continue  # a DPU in restricted mode; its own BMC tells its versions
            words = "the card gives no firmware version"
            yield fault(part, Severity.POWER_CYCLE, words, card.status)
            continue
        if card.running is not None and card.running != card.burned:
            words = "firmware is burned but does not run"
            yield fault(part, Severity.CONFIG, words, card.running, card.burned)
        kind = _kind(card, context)
        approved = context.pins.get(kind, ())
        grammar = context.grammars.get(kind, "dotted")
        if approved and not any(equal(grammar, card.burned, pin) for pin in approved):
            yield fault(
                part,
                Severity.CONFIG,
                "the firmware is not the pinned one",
                card.burned,
                " or ".join(approved),
            )


def _kind(card: ListedNic, context: CheckContext) -> str:
    """Which pins are a card's; a BlueField in NIC mode is a SuperNIC, with pins of its own."""
    if card.type in _CONNECTX:
        return _CONNECTX[card.type]
    if card.type != "BlueField3":
        return ""
    supernic = card.pci not in context.dpu_pci and "supernic.nic" in context.pins
    return "supernic.nic" if supernic else "bluefield.nic"


CHECK = Check("nic_inventory", Gate.A, (NICS,), _findings)
