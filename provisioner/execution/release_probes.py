"""Sends the probes of a release from hosts: one line for each source address, all at once.

Rule: what is not answered in this file's words counts as not sent, never as silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from provisioner.execution.work import Site
from provisioner.model.release import GateRow
from provisioner.planning.release_probes import Errand, Ping, judge
from provisioner.ports import PortError, ShellCommand

# Two packets a second apart at most: the first may be lost to the neighbour being resolved.
_PING = "ping -n -q -c 3 -i 0.3 -W 1 -M do"
COMMAND_S = 20.0  # some twenty pings side by side, of two seconds each

Answers = dict[tuple[str, Ping], int | None]


async def probed(site: Site, errands: Sequence[Errand]) -> tuple[GateRow, ...]:
    """Every probe carried out, as rows of the gate."""
    answers: Answers = {}
    for part in await asyncio.gather(*(_sent(site, errand) for errand in errands)):
        answers |= part
    return judge(errands, answers)


async def _sent(site: Site, errand: Errand) -> Answers:
    lines = list(_lines(errand))
    commands = [ShellCommand(f"probes from {source}", line, COMMAND_S) for source, line in lines]
    if not commands:
        return {}
    try:
        told = await site.shell.run(errand.host, errand.address, commands)
    except PortError:
        return {}
    answers: Answers = {}
    for (source, _), output in zip(lines, told, strict=False):
        codes = read(output.stdout) if output.exit_code == 0 and not output.truncated else {}
        mine = [p for p in errand.pings if p.source == source]
        answers |= {(errand.host, p): codes.get(f"{p.target},{p.size}") for p in mine}
    return answers


def _lines(errand: Errand) -> Iterator[tuple[str, str]]:
    """For each source one line; addresses were parsed, so that none can be an option or a word."""
    for source in dict.fromkeys(p.source for p in errand.pings):
        targets = dict.fromkeys(f"{p.target},{p.size}" for p in errand.pings if p.source == source)
        each = f'{_PING} -s "${{t#*,}}" -I {source} "${{t%,*}}" >/dev/null 2>&1; echo "$t $?"'
        yield source, f"for t in {' '.join(targets)}; do ( {each} ) & done; wait"


def read(output: str) -> dict[str, int]:
    """ "ADDRESS,SIZE CODE" a line; anything else is not in it."""
    found = {}
    for line in output[:65_536].splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isascii() and words[1].isdigit() and len(words[1]) < 4:
            found[words[0]] = int(words[1])
    return found
