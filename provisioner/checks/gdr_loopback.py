"""Every rail's NIC writes from GPU memory and back to it at the speed of its port.

One loop goes through the cards by PCI address, so that the n-th rail is beside the n-th GPU; by
name, mlx5_10 would come before mlx5_2. Cards below 400 Gbit/s are not rails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.nccl_output import read_bandwidths, select_largest_message
from provisioner.checks.readers.sysfs import FIND_GID, INFINIBAND, NO_GID
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

MESSAGE_BYTES = 8 * 1024 * 1024
_TEST = (
    f"ib_write_bw -d $d $x -p 18515 -s {MESSAGE_BYTES} -n 5000 -F --report_gbits"
    " --perform_warm_up --use_cuda=$i"
)
_NO_GID_CODE = 125  # no exit code of perftest: the port has no RoCE v2 GID, nothing was run
# the server is the background half; `timeout` ends a hung one with its turn
_LINE = (  # RATE: the rate of a rail, in Gbit/s
    "i=0; export CUDA_DEVICE_ORDER=PCI_BUS_ID;"
    " for p in /sys/bus/pci/devices/*/infiniband/*; do d=${p##*/};"
    " if grep -q '^RATE ' $p/ports/1/rate && [ ! -e $p/device/physfn ]; then"
    f' echo "== rail $i $d"; {FIND_GID}'
    f' case $g in {NO_GID}) echo "== end $d {_NO_GID_CODE}"; i=$((i+1)); continue;;'
    f' {INFINIBAND}) x=;; *) x="-x $g";; esac; timeout 60 {_TEST} >/dev/null & sleep 2;'
    f' timeout 60 {_TEST} 127.0.0.1; echo "== end $d $?"; wait; i=$((i+1)); fi; done'
)


def _build_commands(context: CheckContext) -> tuple[Command, ...]:
    line = _LINE.replace("RATE", f"{require_threshold(context, 'rail_gbit_s'):.0f}")
    return (Command(name="gdr_loopback", line=line, limit_s=1200.0),)


(GDR,) = _build_commands(CheckContext())
_THRESHOLD = "gdr_loopback_gbit_s"
_BEGIN = re.compile(r"^== rail (\d{1,3}) ([A-Za-z0-9_-]{1,32})$", re.MULTILINE)
_END = re.compile(r"^== end ([A-Za-z0-9_-]{1,32}) (\d{1,3})$", re.MULTILINE)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    output = evidence.get(GDR.name)
    text = read_output(evidence, GDR)
    assert output is not None
    measured: dict[str, float] = {}
    for part, section, code in _split_sections(text):
        try:
            rows = read_bandwidths(section, output.source)
        except Unreadable as problem:
            if not code:
                raise
            if code == _NO_GID_CODE:
                detail = "the port has no RoCE v2 GID: its interface has no address"
                yield fault(part, Severity.CONFIG, detail, "none", "an index")
                continue
            yield fault(part, Severity.ISOLATE, f"the loopback gave no result: {problem}", code, 0)
            continue
        row = select_largest_message(rows)
        measured[part] = row.gbit_s
        if row.size < MESSAGE_BYTES:
            detail = "the message is not the one that the floor is for"
            yield fault(part, Severity.CONFIG, detail, row.size, MESSAGE_BYTES)
        if code:
            yield fault(part, Severity.CONFIG, "the loopback ended with an error", code, 0)
    if context.rails and len(_BEGIN.findall(text)) != context.rails:
        rails = len(_BEGIN.findall(text))
        yield fault("host", Severity.ISOLATE, "rails that were tested", rails, context.rails)
    for part, gbit_s in measured.items():
        low = check_threshold(context, _THRESHOLD, gbit_s)
        if low is not None:
            yield fault(part, Severity.ISOLATE, "the loopback is below its floor", *low)


def _split_sections(text: str) -> Iterator[tuple[str, str, int | None]]:
    """Yield (part, output, exit code) of each card; "host" and None for the output of one test."""
    begins = list(_BEGIN.finditer(text))
    if not begins:
        yield "host", text, None
        return
    names = [match[2] for match in begins]
    if len(set(names)) != len(names):
        raise Unreadable("ib_write_bw: one device is tested twice")
    for number, match in enumerate(begins):
        end = begins[number + 1].start() if number + 1 < len(begins) else len(text)
        section = text[match.end() : end]
        closing = _END.search(section)
        if closing is None or closing[1] != match[2]:
            raise Unreadable(f"ib_write_bw: the output of {match[2]} is cut short")
        yield f"rail{match[1]} {match[2]}", section[: closing.start()], int(closing[2])


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    source = evidence[GDR.name].source if GDR.name in evidence else ""
    measured = {}
    for part, section, _ in _split_sections(read_output(evidence, GDR)):
        try:
            measured[f"{_THRESHOLD}/{part}"] = select_largest_message(
                read_bandwidths(section, source)
            ).gbit_s
        except Unreadable:
            continue
    return measured


CHECK = Check(
    "gdr_loopback",
    Gate.B,
    (GDR,),
    _findings,
    load=True,
    measure=_measure,
    lines=_build_commands,
    thresholds=(_THRESHOLD, "rail_gbit_s"),
)
