"""I7: current equals next boot for every NV-config parameter, and equals the pinned profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import NIC_CONFIG
from provisioner.checks.readers.nic_settings import CardSettings, plain, settings_of
from provisioner.checks.readers.reading import text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    compared = 0
    for card in settings_of(text_of(evidence, NIC_CONFIG)):
        yield from _pending(card)
        if card.pci in context.dpu_pci:
            continue  # a card in DPU mode is configured from its own system
        compared += 1
        for parameter, wanted in sorted(context.nic_parameters.items()):
            found = card.values.get(parameter, (None, None))[0]
            if plain(found) != plain(wanted):
                yield fault(
                    f"{card.pci} {parameter}",
                    Severity.CONFIG,
                    "not as the pinned NV-config profile",
                    "not there" if found is None else found,
                    wanted,
                )
    if compared == 0 or compared < context.rails:
        yield fault(
            "host", Severity.ISOLATE, "cards that tell their config", compared, context.rails
        )


def _pending(card: CardSettings) -> Iterator[Finding]:
    """Parameters that change at the next reset: the card does not run what is set."""
    for parameter, (current, following) in card.values.items():
        if current is None or following is None or plain(current) != plain(following):
            yield fault(
                f"{card.pci} {parameter}",
                Severity.CONFIG,
                "waits for a reset, or is not told",
                current,
                following,
            )


CHECK = Check("nic_config", Gate.A, (NIC_CONFIG,), _findings)
