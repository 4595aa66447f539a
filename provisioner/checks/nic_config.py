"""Every NV-config parameter equals its next-boot value and that of the pinned profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import NIC_CONFIG
from provisioner.checks.readers.nic_listing import CardSettings, normalize_value, read_settings
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    compared = 0
    for card in read_settings(read_output(evidence, NIC_CONFIG)):
        yield from _find_pending(card)
        if card.pci in context.dpu_pci:
            continue  # a card in DPU mode is configured from its own operating system
        compared += 1
        for parameter, pinned in sorted(context.nic_parameters.items()):
            current = card.values.get(parameter, (None, None))[0]
            if normalize_value(current) != normalize_value(pinned):
                yield fault(
                    f"{card.pci} {parameter}",
                    Severity.CONFIG,
                    "differs from the pinned NV-config profile",
                    "not there" if current is None else current,
                    pinned,
                )
    if compared == 0 or compared < context.rails:
        yield fault(
            "host",
            Severity.ISOLATE,
            "cards that report their configuration",
            compared,
            context.rails,
        )


def _find_pending(card: CardSettings) -> Iterator[Finding]:
    """Yield the parameters that change at the next reset: the card does not run what is set."""
    for parameter, (current, following) in card.values.items():
        if (
            current is None
            or following is None
            or normalize_value(current) != normalize_value(following)
        ):
            yield fault(
                f"{card.pci} {parameter}",
                Severity.CONFIG,
                "changes at the next reset, or is not reported",
                current,
                following,
            )


CHECK = Check("nic_config", Gate.A, (NIC_CONFIG,), _findings)
