"""No PCIe device had an uncorrectable error; corrected ones hardly grow under load.

The kernel counts them for every device with Advanced Error Reporting (sysfs, `aer_dev_*`; totals
have lines of their own). DCGM isolates for uncorrectable ones (errors 98, 104, 107). For corrected
ones the rule is "about none under load"; no source publishes a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.sysfs import parse_files
from provisioner.checks.readers.tool_output import END, parse_whole, read_output
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_AER = "/sys/bus/pci/devices/*/aer_dev_"
PCIE_ERRORS = Command(
    name="pcie_errors",
    line=f"grep -H . {_AER}correctable {_AER}nonfatal {_AER}fatal; {END}",
    limit_s=60.0,
)

_FILE = re.compile(
    r"/sys/\S{1,400}/([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])/aer_dev_(\w{1,20})"
)
_TOTALS = {
    "correctable": "TOTAL_ERR_COR",
    "nonfatal": "TOTAL_ERR_NONFATAL",
    "fatal": "TOTAL_ERR_FATAL",
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    devices = _read_totals(read_output(evidence, PCIE_ERRORS, any_exit=True))
    for address, counted in devices.items():
        for kind in ("fatal", "nonfatal"):
            if counted[kind]:
                detail = f"uncorrectable PCIe errors ({kind})"
                yield fault(f"PCI {address}", Severity.ISOLATE, detail, counted[kind], 0)
    before = find_before_load(evidence, PCIE_ERRORS)
    if before is None:
        return
    had = _read_totals(read_output(before, PCIE_ERRORS, any_exit=True))
    for address, growth in compute_growth_per_device(had, devices, "AER").items():
        if missed := check_threshold(context, "pcie_corrected_in_a_load", growth["correctable"]):
            detail = "corrected PCIe errors during a load test"
            yield fault(f"PCI {address}", Severity.ISOLATE, detail, *missed)


def _read_totals(text: str) -> dict[str, dict[str, int]]:
    """Return PCI address -> kind of error -> total."""
    devices: dict[str, dict[str, int]] = {}
    for path, lines in parse_files(text).items():
        match = _FILE.fullmatch(path)
        if match is None or match[2] not in _TOTALS:
            continue
        totals = [line.split() for line in lines if line.startswith(_TOTALS[match[2]])]
        if len(totals) != 1 or len(totals[0]) != 2:
            raise Unreadable(f"sysfs: {path[-60:]} does not have exactly one total")
        devices.setdefault(match[1].lower(), {})[match[2]] = parse_whole(totals[0][1], path[-60:])
    if not devices:
        raise Unreadable("sysfs: no device counts PCIe errors")
    for address, counted in devices.items():
        if set(counted) != set(_TOTALS):
            raise Unreadable(f"sysfs: {address} does not count all kinds of PCIe errors")
    return devices


CHECK = Check(
    "pcie_errors",
    Gate.A,
    (PCIE_ERRORS,),
    _findings,
    after_load=True,
    thresholds=("pcie_corrected_in_a_load",),
)
