"""The settings that a SuperNIC loses at every boot are set: trust, PFC, adaptive routing, ...

The play `bluefield_runtime` sets them through DOCA's management service. This check reads them with
the other tools that NVIDIA's documents name: `mlxreg` (register ROCE_ACCL), `mlnx_qos`, and the
service that runs the congestion control. The play itself reads back the algorithm's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.sysfs import INFINIBAND
from provisioner.checks.readers.tool_output import END, read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import normalize_pci

ROCE_RUNTIME = Command(
    name="roce_runtime",
    line="for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d));"
    " r=$(basename ${d%/device}); echo device $p; systemctl is-active doca-spcx-cc@$r;"
    " mlxreg -d $p --reg_name ROCE_ACCL --get;"
    f" for n in $d/net/*; do mlnx_qos -i ${{n##*/}}; done; done; {END}",
    limit_s=120.0,
)
# path in the profile -> field of the register (docs/sources/host.md#roce-accl)
_FIELDS = {
    "nvidia/roce/config/adaptive-retransmission": "roce_adp_retrans_en",
    "nvidia/roce/config/tx-window": "roce_tx_window_en",
    "nvidia/roce/config/slow-restart": "roce_slow_restart_en",
    "nvidia/roce/config/slow-restart-idle": "roce_slow_restart_idle_en",
    "nvidia/roce/config/adaptive-routing-force": "adaptive_routing_forced_en",
}
_TRUST = "nvidia/qos/config/trust-mode"
_PFC = "nvidia/qos/config/pfc"
_DEVICE = re.compile(r"device ([0-9a-fA-F:.]{7,12})")
_FIELD = re.compile(r"(\w{1,64})\s*\|\s*0x([0-9a-fA-F]{8})")
_TRUSTED = re.compile(r"Priority trust state:\s*(\w{1,16})")
_ENABLED = re.compile(r"\s*enabled((?:\s+[01]){8})\s*")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if context.link_layer == INFINIBAND and not context.nic_runtime:
        return  # RoCE is Ethernet's, and nothing is pinned
    cards = _read_cards(read_output(evidence, ROCE_RUNTIME))
    reporting = [address for address in cards if address not in context.dpu_pci]
    if len(reporting) < context.rails:
        detail = "SuperNICs that report run-time settings"
        yield fault("host", Severity.ISOLATE, detail, len(reporting), context.rails)
    if not context.nic_runtime:
        return
    for address in context.rail_pci or tuple(reporting):
        settings = cards.get(address)
        if settings is None:
            yield fault(address, Severity.ISOLATE, "the card reports no run-time settings")
            continue
        yield from _judge_card(address, settings, context.nic_runtime)


def _judge_card(
    address: str, settings: Mapping[str, list[str]], pinned: Mapping[str, str]
) -> Iterator[Finding]:
    for path, field in (*_FIELDS.items(), (_TRUST, _TRUST), (_PFC, _PFC)):
        if path not in pinned:
            continue
        expected = {"true": "1", "false": "0"}.get(pinned[path], pinned[path])
        values = sorted(set(settings.get(field, ())))
        if values != [expected]:
            shown = ", ".join(values) or "not reported"
            detail = "the run-time setting differs from its pin (lost at every boot)"
            yield fault(f"{address} {path}", Severity.CONFIG, detail, shown, expected)
    state = settings.get("algorithm", [])
    if state != ["active"]:
        detail = "the congestion-control algorithm does not run"
        yield fault(address, Severity.CONFIG, detail, ", ".join(state) or "not reported", "active")


def _read_cards(text: str) -> dict[str, dict[str, list[str]]]:
    """Return PCI address -> field -> values: one of the register, one of every interface."""
    cards: dict[str, dict[str, list[str]]] = {}
    card: dict[str, list[str]] | None = None
    for line in split_lines(text):
        if match := _DEVICE.fullmatch(line.strip()):
            address = normalize_pci(match[1])
            if address in cards:
                raise Unreadable(f"{address} is there twice")
            card = cards[address] = {}
        elif card is None:
            raise Unreadable(f"before the first device: {line[:60]!r}")
        elif "algorithm" not in card:
            card["algorithm"] = [line.strip()]
        elif match := _FIELD.fullmatch(line.strip()):
            card.setdefault(match[1], []).append(str(int(match[2], 16)))
        elif match := _TRUSTED.fullmatch(line.strip()):
            card.setdefault(_TRUST, []).append(match[1])
        elif match := _ENABLED.fullmatch(line):
            card.setdefault(_PFC, []).append("".join(match[1].split()))
    return cards


CHECK = Check("roce_runtime", Gate.A, (ROCE_RUNTIME,), _findings)
