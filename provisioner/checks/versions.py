"""The versions that the host reports equal the pins; Fabric Manager equals the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import GPUS, PACKAGES
from provisioner.checks.readers.smi_query import read_table
from provisioner.checks.readers.tool_output import read_output, split_lines
from provisioner.model import host_packages
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.versions import is_same_version

_MIXED = "host.doca profile"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = read_table(evidence, GPUS, "driver_version")
    drivers = sorted({row["driver_version"] for row in rows})
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report a version", len(rows), context.gpus)
    versions_of = _read_packages(read_output(evidence, PACKAGES, any_exit=True))
    for driver in drivers:
        yield from _judge_version("host.driver", driver, context)
    if mixed := versions_of.pop(_MIXED, None):
        detail = "doca-host and the DOCA profile are of two releases"
        yield fault("host.doca", Severity.CONFIG, detail, ", ".join(mixed))
    for kind in (*host_packages.NEEDED, *host_packages.PER_SITE, *host_packages.READ_TOGETHER):
        if kind in context.pins and kind not in versions_of:
            yield fault(
                kind, Severity.CONFIG, f"{kind} is not installed", "", context.pins[kind][0]
            )
        for version in versions_of.get(kind, ()):
            yield from _judge_version(kind, version, context)
    # the fabric does not initialise when the two differ (NVIDIA's Fabric Manager guide)
    for version in versions_of.get("host.fabric_manager", ()):
        if not all(_is_same("host.fabric_manager", version, driver, context) for driver in drivers):
            yield fault(
                "host.fabric_manager",
                Severity.CONFIG,
                "Fabric Manager and driver differ",
                version,
                ", ".join(drivers),
            )
    if "host.fabric_manager" not in versions_of and "host.fabric_manager" not in context.pins:
        yield fault("host.fabric_manager", Severity.CONFIG, "no Fabric Manager is installed")


def _read_packages(text: str) -> dict[str, list[str]]:
    """Return component kind -> versions of installed packages, those on hold included."""
    versions_of: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for line in split_lines(text):
        cells = line.split()
        if line.startswith(("dpkg-query:", host_packages.MLNX_OFED, "OFED-")):
            continue  # "no packages found matching ...", on the error stream
        if len(cells) < 3:
            if len(cells) == 2 and line.endswith(" "):
                continue
            raise Unreadable(f"dpkg-query: cannot read {line[:80]!r}")
        if not host_packages.is_installed(cells[2]):
            continue
        names[cells[0]] = cells[1]
        if (package := host_packages.classify_package(cells[0], cells[1])) is not None:
            versions_of.setdefault(package[0], []).append(package[1])
    if packaging := host_packages.name_driver_packages(names):
        versions_of[host_packages.DRIVER_PACKAGES] = [packaging]
    for kind, version in host_packages.read_stack(names, text).items():
        versions_of[kind] = [version]
    if host_packages.is_mixed_stack(names):
        versions_of[_MIXED] = [f"{n} {names[n]}" for n in sorted(names) if n.startswith("doca-")]
    return versions_of


def _judge_version(kind: str, version: str, context: CheckContext) -> Iterator[Finding]:
    approved = context.pins.get(kind, ())
    if approved and not any(_is_same(kind, version, pin, context) for pin in approved):
        yield fault(
            kind, Severity.CONFIG, f"{kind} differs from its pin", version, " or ".join(approved)
        )


def _is_same(kind: str, installed: str, pin: str, context: CheckContext) -> bool:
    """Compare by the grammar of the kind; Debian's epoch and revision are not part of a pin."""
    grammar = context.grammars.get(kind, "opaque")
    bare = installed.split(":", 1)[-1]
    return is_same_version(grammar, bare, pin) or bare.startswith((pin + "-", pin + "+"))


CHECK = Check("versions", Gate.A, (GPUS, PACKAGES), _findings)
