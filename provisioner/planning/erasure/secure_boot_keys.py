"""Whether the keys of Secure Boot are the factory's and the site's. Pure.

A key that a tenant enrolled signs what the next tenant's host boots, and a revocation that is gone
lets a broken boot loader in again. What belongs there is what the firmware shows as its factory's
set, and the fingerprints that the site names; a set that is not shown vouches for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.machine.secure_boot_keys import KeyDatabase, SecureBootKeys

SHOWN_MAX = 4  # entries in a sentence
_FORBIDDING = "dbx"  # what must not boot: more of it is no harm, less is
_OPEN = ("SetupMode", "AuditMode")  # UEFI 2.10, 32.3: keys are enrolled without a signature
_UNBLOCK = "have the factory's keys restored, or name them in `secure_boot_keys_expected`"
Verdict = tuple[str, Result, str]


def judge_keys(bmc: str, keys: SecureBootKeys | None, own: Sequence[str]) -> Iterator[Verdict]:
    """Yield (part, result, sentence). `own`: SHA-256 of the site's certificates."""
    if keys is None:
        yield f"{bmc} Secure Boot", Result.UNSUPPORTED, "the BMC shows no Secure Boot"
        return
    if keys.gaps:
        yield f"{bmc} Secure Boot", Result.NOT_DONE, f"not read: {'; '.join(keys.gaps[:3])}"
    state = {True: "on", False: "off", None: "not shown"}[keys.enabled]
    if keys.mode in _OPEN:
        why = f"{keys.mode}: whatever runs on it may enrol keys; Secure Boot is {state}"
        yield f"{bmc} mode", Result.NOT_DONE, why
    else:
        yield f"{bmc} mode", Result.DONE, f"{keys.mode or 'not shown'}; Secure Boot is {state}"
    if not keys.databases and not keys.gaps:
        yield f"{bmc} databases", Result.UNSUPPORTED, "the BMC shows no databases of keys"
    names = {name.casefold() for name in own}
    for database in keys.databases:
        judge = _judge_forbidding if database.name == _FORBIDDING else _judge_allowing
        yield f"{bmc} {database.name}", *judge(database, names)


def explain_no_restoring(
    keys: SecureBootKeys | None, verdicts: Sequence[Verdict], own: Sequence[str]
) -> str:
    """Return why the factory's keys are not asked for; "": they are.

    A site with keys of its own would lose them, and its maintenance image would not boot any more.
    """
    if keys is None or all(result is not Result.NOT_DONE for _, result, _ in verdicts):
        return "nothing differs"
    if not keys.resets:
        return "the service offers no reset of its keys to the factory's"
    names = {name.casefold() for name in own}
    if any(names & set(database.entries) for database in keys.databases):
        return "keys of this site are enrolled, and a reset would take them away"
    return ""


def record_keys(verdict: Verdict, method: Method, now: float) -> ErasureRecord:
    """Return the record of one part of a system's Secure Boot."""
    part, result, detail = verdict
    return ErasureRecord(
        holder=Holder.SECURE_BOOT,
        device=part,
        method=Method.NONE if result is Result.UNSUPPORTED else method,
        result=result,
        detail=detail,
        started_at=now,
        ended_at=now,
    )


def _judge_allowing(database: KeyDatabase, own: set[str]) -> tuple[Result, str]:
    factory = set(database.factory or ())
    strange = [e for e in database.entries if e not in factory and e not in own]
    if not strange:
        return Result.DONE, f"{len(database.entries)} keys, all of the factory or of this site"
    without = "" if factory else " (the BMC shows no factory set)"
    listed = ", ".join(_name(database, e) for e in strange[:SHOWN_MAX])
    more = f" and {len(strange) - SHOWN_MAX} more" if len(strange) > SHOWN_MAX else ""
    return (
        Result.NOT_DONE,
        f"neither the factory's nor this site's{without}: {listed}{more}; {_UNBLOCK}",
    )


def _judge_forbidding(database: KeyDatabase, _own: set[str]) -> tuple[Result, str]:
    if not database.factory:
        number = len(database.entries)
        return Result.UNSUPPORTED, f"{number} revocations, and no factory set to compare with"
    missing = set(database.factory) - set(database.entries)
    if not missing:
        return Result.DONE, f"{len(database.entries)} revocations, all of the factory among them"
    example = min(missing)[:16]
    count = f"{len(missing)} of the factory's {len(database.factory)} revocations"
    return Result.NOT_DONE, f"{count} are not in force ({example}, ...); update or restore them"


def _name(database: KeyDatabase, entry: str) -> str:
    title = database.titles.get(entry, "")
    return f"{title} ({entry[:16]})" if title else entry[:64]
