"""I7b: what a SuperNIC loses at every boot is set: trust, PFC, adaptive routing, the algorithm.

The play `bluefield_runtime` sets it through DOCA's management service; this reads it with other
tools, by those that NVIDIA's documents name: `mlxreg` (register ROCE_ACCL), `mlnx_qos`, and the
service that runs the congestion control. Parameters of the algorithm are read back by the play.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.reading import END, lines_of, pci, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

ROCE_RUNTIME = Command(
    name="roce_runtime",
    line="for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d));"
    " r=$(basename ${d%/device}); echo device $p; systemctl is-active doca-spcx-cc@$r;"
    " mlxreg -d $p --reg_name ROCE_ACCL --get;"
    f" for n in $d/net/*; do mlnx_qos -i ${{n##*/}}; done; done; {END}",
    limit_s=120.0,
)
# path in the profile -> field of the register (facts: NVIDIA, "Adaptive Retransmission")
_FIELDS = {
    "nvidia/roce/config/adaptive-retransmission": "roce_adp_retrans_en",
    "nvidia/roce/config/tx-window": "roce_tx_window_en",
    "nvidia/roce/config/slow-restart": "roce_slow_restart_en",
    "nvidia/roce/config/slow-restart-idle": "roce_slow_restart_idle_en",
    "nvidia/roce/config/adaptive-routing-force": "adaptive_routing_forced_en",
}
_TRUST, _PFC = "nvidia/qos/config/trust-mode", "nvidia/qos/config/pfc"
_DEVICE = re.compile(r"device ([0-9a-fA-F:.]{7,12})")
_FIELD = re.compile(r"(\w{1,64})\s*\|\s*0x([0-9a-fA-F]{8})")
_TRUSTED = re.compile(r"Priority trust state:\s*(\w{1,16})")
_ENABLED = re.compile(r"\s*enabled((?:\s+[01]){8})\s*")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cards = _cards(text_of(evidence, ROCE_RUNTIME))
    told = [address for address in cards if address not in context.dpu_pci]
    if len(told) < context.rails:
        words = "SuperNICs that tell their run-time settings"
        yield fault("host", Severity.ISOLATE, words, len(told), context.rails)
    if not context.nic_runtime:
        return
    for address in context.rail_pci or tuple(told):
        found = cards.get(address)
        if found is None:
            yield fault(address, Severity.ISOLATE, "the card tells no run-time settings")
            continue
        yield from _card(address, found, context.nic_runtime)


def _card(
    address: str, found: Mapping[str, list[str]], wanted: Mapping[str, str]
) -> Iterator[Finding]:
    for path, what in (*_FIELDS.items(), (_TRUST, _TRUST), (_PFC, _PFC)):
        if path not in wanted:
            continue
        should = {"true": "1", "false": "0"}.get(wanted[path], wanted[path])
        values = sorted(set(found.get(what, ())))
        if values != [should]:
            shown = ", ".join(values) or "not told"
            words = "run-time setting is not as pinned (lost at a boot)"
            yield fault(f"{address} {path}", Severity.CONFIG, words, shown, should)
    state = found.get("algorithm", [])
    if state != ["active"]:
        words = "the congestion-control algorithm does not run"
        yield fault(address, Severity.CONFIG, words, ", ".join(state) or "not told", "active")


def _cards(text: str) -> dict[str, dict[str, list[str]]]:
    """PCI address -> what -> values: one of the register, one of every interface."""
    cards: dict[str, dict[str, list[str]]] = {}
    card: dict[str, list[str]] | None = None
    for line in lines_of(text):
        if match := _DEVICE.fullmatch(line.strip()):
            address = pci(match[1])
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
