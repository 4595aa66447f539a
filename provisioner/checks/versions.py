"""I2: what the host itself says it runs equals the pins; Fabric Manager equals the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import GPUS, PACKAGES
from provisioner.checks.readers.reading import lines_of, text_of
from provisioner.checks.readers.smi_table import table
from provisioner.model import host_packages
from provisioner.model.health import Evidence, Finding, Gate, Severity
from provisioner.model.versions import equal


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = table(evidence, GPUS, "driver_version")
    drivers = sorted({row["driver_version"] for row in rows})
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that tell a version", len(rows), context.gpus)
    found = _packages(text_of(evidence, PACKAGES, any_exit=True))
    for driver in drivers:
        yield from _compare("host.driver", driver, context)
    for kind in (*host_packages.NEEDED, *host_packages.PER_SITE):
        if kind in context.pins and kind not in found:
            yield fault(
                kind, Severity.CONFIG, f"{kind} is not installed", "", context.pins[kind][0]
            )
        for version in found.get(kind, ()):
            yield from _compare(kind, version, context)
    # the fabric does not initialise when the two differ (NVIDIA's Fabric Manager guide)
    for version in found.get("host.fabric_manager", ()):
        if not all(_same("host.fabric_manager", version, driver, context) for driver in drivers):
            yield fault(
                "host.fabric_manager",
                Severity.CONFIG,
                "Fabric Manager and driver differ",
                version,
                ", ".join(drivers),
            )
    if "host.fabric_manager" not in found and "host.fabric_manager" not in context.pins:
        yield fault("host.fabric_manager", Severity.CONFIG, "no Fabric Manager is installed")


def _packages(text: str) -> dict[str, list[str]]:
    """Component kind -> versions of installed packages ("ii" in dpkg's status column)."""
    found: dict[str, list[str]] = {}
    for line in lines_of(text):
        cells = line.split()
        if line.startswith("dpkg-query:"):
            continue  # "no packages found matching ...", on the error stream
        if len(cells) < 3:
            if len(cells) == 2 and line.endswith(" "):
                continue
            raise Unreadable(f"dpkg-query: cannot read {line[:80]!r}")
        if cells[2] != "ii":
            continue
        if (known := host_packages.component(cells[0], cells[1])) is not None:
            found.setdefault(known[0], []).append(known[1])
    return found


def _compare(kind: str, version: str, context: CheckContext) -> Iterator[Finding]:
    approved = context.pins.get(kind, ())
    if approved and not any(_same(kind, version, pin, context) for pin in approved):
        yield fault(
            kind, Severity.CONFIG, f"{kind} is not the pinned one", version, " or ".join(approved)
        )


def _same(kind: str, installed: str, pin: str, context: CheckContext) -> bool:
    """Equal by the grammar of the kind; Debian's epoch and revision are not part of a pin."""
    grammar = context.grammars.get(kind, "opaque")
    bare = installed.split(":", 1)[-1]
    return equal(grammar, bare, pin) or bare.startswith((pin + "-", pin + "+"))


CHECK = Check("versions", Gate.A, (GPUS, PACKAGES), _findings)
