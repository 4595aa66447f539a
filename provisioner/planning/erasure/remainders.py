"""Whether a BMC has accounts, subscriptions or waiting settings that the site did not make. Pure.

What belongs there is the daemon's own and what the site names; everything else is foreign, also
where it came with the machine: a list of "usual" accounts would hide the one that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.machine.remainders import BmcRemainders

SHOWN_MAX = 8  # names in a sentence
_DEFAULT_PORT = re.compile(r"^(?:(https://[^/]*):443|(http://[^/]*):80)(?=/|$)")


def judge_remainders(
    bmc: str,
    reading: BmcRemainders,
    accounts: Sequence[str],
    destinations: Sequence[str],
    keys: Sequence[str] = (),
) -> Iterator[tuple[str, Result, str]]:
    """Yield (part, result, sentence) for each part of a BMC.

    `accounts` and `destinations` are patterns of those that belong there, `keys` fingerprints.
    """
    if reading.gaps:
        yield f"{bmc} resources", Result.NOT_DONE, f"not read: {'; '.join(reading.gaps[:3])}"
    if reading.accounts is None:
        yield f"{bmc} accounts", Result.UNSUPPORTED, "the BMC lists no accounts"
    else:
        strange = [f"{a.name} ({a.role})" for a in reading.accounts if not _fits(a.name, accounts)]
        unblock = "remove them, or name them in `bmc_accounts_expected`"
        yield f"{bmc} accounts", *_judge(strange, len(reading.accounts), unblock)
    if shown := [a for a in reading.accounts or () if a.keys is not None]:
        listed = [(a.name, key) for a in shown for key in a.keys or ()]
        strange = [f"{key} of {name}" for name, key in listed if key not in keys]
        unblock = "remove them, or name them in `bmc_ssh_keys_expected`"
        yield f"{bmc} SSH keys", *_judge(strange, len(listed), unblock)
    if reading.destinations is None:
        yield f"{bmc} events", Result.UNSUPPORTED, "the BMC lists no event subscriptions"
    else:
        strange = [d for d in reading.destinations if not _leads_there(d, destinations)]
        unblock = "remove them, or name them in `bmc_destinations_expected`"
        yield f"{bmc} events", *_judge(strange, len(reading.destinations), unblock)
    if reading.waiting is not None:
        waiting = [f"{name} = {value}" for name, value in reading.waiting.items()]
        unblock = "look which job keeps them, and take them back in the BMC"
        yield f"{bmc} waiting settings", *_judge(waiting, 0, unblock)


def _judge(strange: Sequence[str], number: int, unblock: str) -> tuple[Result, str]:
    if not strange:
        return Result.DONE, f"{number} are there, and all belong there" if number else "none"
    more = f" and {len(strange) - SHOWN_MAX} more" if len(strange) > SHOWN_MAX else ""
    listed = ", ".join(strange[:SHOWN_MAX])[:300]
    return Result.NOT_DONE, f"not of this site: {listed}{more}; {unblock}"


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _leads_there(destination: str, patterns: Sequence[str]) -> bool:
    """NVIDIA's server shows a destination with the default port of its scheme (bmcweb.md)."""
    bare = _DEFAULT_PORT.sub(lambda match: match[1] or match[2], destination)
    return _fits(destination, patterns) or _fits(bare, patterns)


def record_part(part: str, result: Result, detail: str, now: float) -> ErasureRecord:
    """Return the record of one part of a BMC, which was read and compared."""
    return ErasureRecord(
        holder=Holder.BMC,
        device=part,
        method=Method.NONE if result is Result.UNSUPPORTED else Method.COMPARED,
        result=result,
        detail=detail,
        started_at=now,
        ended_at=now,
    )
