"""Send the probes of a release from hosts: one line for each source address, all at once.

An answer in any other format than this file's counts as not sent, never as silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from provisioner.checks.readers.gid_index import FIND_GID
from provisioner.execution.actions.work import Site
from provisioner.model.release import GateCheck, GateRow, RowVerdict
from provisioner.planning.release.release_probes import Errand, Ping, judge
from provisioner.ports import PortError, ShellCommand

# Two packets a second apart at most: the first may be lost to the neighbour being resolved.
_PING = "ping -n -q -c 3 -i 0.3 -W 1 -M do"
COMMAND_S = 20.0  # some twenty pings side by side, of two seconds each
# RDMA in messages of 64 KiB, some milliseconds at 400 Gbit/s. A canary serves one client at a time,
# so that it is tried again a few times; a client that waits for a missing answer is ended.
_RDMA = "-s 65536 -n 1000 -F --report_gbits"
RDMA_TRIES = 5
RDMA_S = 15
RDMA_LIMIT_S = RDMA_TRIES * (RDMA_S + RDMA_TRIES) + COMMAND_S

Answers = dict[tuple[str, Ping], int | None]


async def run_probes(site: Site, errands: Sequence[Errand]) -> tuple[GateRow, ...]:
    """Carry out every probe and return the gate's rows. RDMA comes last: alone on the wire.

    An address that must answer is probed again for as long as routes may take to follow: the way
    back, from a storage VRF to the tenant's, is often complete after the tenant's own routes. A
    packet that arrives where it must not ends the probes at once.
    """
    clock = site.clock
    settings = site.settings
    until = clock.now() + settings.release_settle_s
    while True:
        rows = judge(errands, await answers_of(site, errands), settings.release_rdma)
        if not _may_still_answer(rows) or clock.now() >= until:
            return rows
        await clock.sleep(settings.switch_poll_s)


def _may_still_answer(rows: Sequence[GateRow]) -> bool:
    """Return whether silence is all that failed."""
    failed = {r.check for r in rows if r.verdict is RowVerdict.FAIL}
    return GateCheck.REACHES in failed and failed <= {GateCheck.REACHES, GateCheck.RDMA}


async def answers_of(site: Site, errands: Sequence[Errand]) -> Answers:
    """Return the exit code of each probe; one that was not sent is not in it."""
    answers: Answers = {}
    for part in await asyncio.gather(*(_sent(site, errand) for errand in errands)):
        answers |= part
    return answers


async def _sent(site: Site, errand: Errand) -> Answers:
    lines = list(_lines(errand))
    commands = [
        ShellCommand(
            f"{check} from {source}",
            line,
            RDMA_LIMIT_S if check is GateCheck.RDMA else COMMAND_S,
        )
        for check, source, line in lines
    ]
    if not commands:
        return {}
    try:
        outputs = await site.shell.run(errand.host, errand.address, commands)
    except PortError:
        return {}
    answers: Answers = {}
    for (check, source, _), output in zip(lines, outputs, strict=False):
        codes = read_codes(output.stdout) if output.exit_code == 0 and not output.truncated else {}
        mine = [p for p in errand.pings if p.source == source and _tool(p) is check]
        answers |= {(errand.host, p): codes.get(f"{p.target},{p.size}") for p in mine}
    return answers


def _tool(ping: Ping) -> GateCheck:
    """Return the tool that sends a probe: all but two kinds are an echo."""
    own = (GateCheck.HOST_ROUTE, GateCheck.RDMA)
    return ping.check if ping.check in own else GateCheck.REACHES


def _lines(errand: Errand) -> Iterator[tuple[GateCheck, str, str]]:
    """Yield for each source one line of each tool.

    Addresses were parsed before, so that none can be an option or a shell word.
    """
    for check, line in _TOOLS.items():
        mine = [p for p in errand.pings if _tool(p) is check]
        for source in dict.fromkeys(p.source for p in mine):
            targets = dict.fromkeys(f"{p.target},{p.size}" for p in mine if p.source == source)
            text = line.replace("SOURCE", source).replace("TARGETS", " ".join(targets))
            yield check, source, text


_OWN = "set -- $(ip -o -4 addr show to SOURCE/32); i=$2; for t in TARGETS; do"
_TOOLS = {
    GateCheck.REACHES: (
        f'for t in TARGETS; do ( {_PING} -s "${{t#*,}}" -I SOURCE "${{t%,*}}" >/dev/null 2>&1;'
        ' echo "$t $?" ) & done; wait'
    ),
    GateCheck.HOST_ROUTE: (
        f'{_OWN} ip route get "${{t%,*}}" from SOURCE | grep -q " dev $i "; echo "$t $?"; done'
    ),
    GateCheck.RDMA: (
        f"{_OWN} n=0; while :; do for p in /sys/class/net/$i/device/infiniband/*; do {FIND_GID}"
        f' timeout {RDMA_S} ib_write_bw -d "${{p##*/}}" -x $g {_RDMA} -p "${{t#*,}}" "${{t%,*}}"'
        " >/dev/null 2>&1; c=$?; done; n=$((n+1));"
        f" [ $c -eq 0 ] || [ $c -eq 127 ] || [ $n -ge {RDMA_TRIES} ] && break; sleep $n; done;"
        ' echo "$t $c"; done'
    ),
}


def read_codes(output: str) -> dict[str, int]:
    """Return the exit codes of lines "ADDRESS,SIZE CODE"; other lines are ignored."""
    codes = {}
    for line in output[:65_536].splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[1].isascii() and fields[1].isdigit() and len(fields[1]) < 4:
            codes[fields[0]] = int(fields[1])
    return codes
