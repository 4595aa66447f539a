"""Keys of Secure Boot belong to the factory or to the site; each other one is named."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.erasure import ErasurePolicy, ErasureReport, Holder, Method, Result
from provisioner.model.machine.settings import KeyDatabase, SecureBootKeys
from provisioner.planning.erasure.bmc_defaults import (
    explain_no_restoring,
    judge_keys,
    record_keys,
)
from provisioner.planning.erasure.erasure import list_unsanitized

OURS = "a" * 64
VENDOR = "b" * 64
FOREIGN = "c" * 64


def database(name: str, *entries: str, factory: tuple[str, ...] | None = (VENDOR,)) -> KeyDatabase:
    return KeyDatabase(name=name, entries=entries, factory=factory, titles={FOREIGN: "Mallory"})


def keys(*databases: KeyDatabase, **more: Any) -> SecureBootKeys:
    given = {"enabled": True, "mode": "UserMode", "resets": True, **more}
    return SecureBootKeys(databases=databases, **given)


def judged(reading: SecureBootKeys | None) -> dict[str, tuple[Result, str]]:
    return {
        part: (result, why) for part, result, why in judge_keys("host", reading, [OURS.upper()])
    }


JUDGED: dict[str, tuple[SecureBootKeys, str, Result, str]] = {
    "the factory's": (keys(database("db", VENDOR)), "host db", Result.DONE, "1 keys"),
    "the site's beside it": (keys(database("db", VENDOR, OURS)), "host db", Result.DONE, "2 keys"),
    "a key that a tenant enrolled": (
        keys(database("db", VENDOR, FOREIGN)),
        "host db",
        Result.NOT_DONE,
        "Mallory (cccccccccccccccc)",
    ),
    "an owner of the platform that is another": (
        keys(database("PK", FOREIGN)),
        "host PK",
        Result.NOT_DONE,
        "Mallory",
    ),
    "keys without a factory set": (
        keys(database("db", FOREIGN, factory=None)),
        "host db",
        Result.NOT_DONE,
        "the BMC shows no factory set",
    ),
    "an empty factory set vouches for nothing": (
        keys(database("db", VENDOR, factory=())),
        "host db",
        Result.NOT_DONE,
        "no factory set",
    ),
    "a revocation that is gone": (
        keys(database("dbx", FOREIGN)),
        "host dbx",
        Result.NOT_DONE,
        "1 of the factory's 1 revocations are not in force",
    ),
    "more revocations than the factory's": (
        keys(database("dbx", FOREIGN, VENDOR)),
        "host dbx",
        Result.DONE,
        "2 revocations",
    ),
    "revocations without a factory set": (
        keys(database("dbx", VENDOR, factory=None)),
        "host dbx",
        Result.UNSUPPORTED,
        "no factory set",
    ),
    "a mode in which any key is taken": (
        keys(mode="SetupMode", enabled=False),
        "host mode",
        Result.NOT_DONE,
        "SetupMode: whatever runs on it may enrol keys; Secure Boot is off",
    ),
    "a service without databases": (keys(), "host databases", Result.UNSUPPORTED, "no databases"),
    "a part that did not answer": (
        keys(gaps=("/redfish/v1/x: HTTP status 500",)),
        "host Secure Boot",
        Result.NOT_DONE,
        "HTTP status 500",
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_each_part_is_judged_by_the_factory_and_the_site(case: str) -> None:
    reading, part, result, why = JUDGED[case]

    verdict = judged(reading)[part]

    assert verdict[0] is result
    assert why in verdict[1]


def test_a_bmc_without_secure_boot_blocks_nothing_and_a_foreign_key_does() -> None:
    report = ErasureReport(node="n1", tenant="blue", fenced_at=1.0, started_at=1.0, ended_at=2.0)
    policy = ErasurePolicy(required=(Holder.SECURE_BOOT,))

    def blockers(reading: SecureBootKeys | None, bmc: str = "host") -> list[str]:
        verdicts = judge_keys(bmc, reading, [])
        records = tuple(record_keys(v, Method.COMPARED, 2.0) for v in verdicts)
        problems = list_unsanitized(report.model_copy(update={"records": records}), policy)
        return [b.subject for b in problems if "secure_boot" in b.subject]

    assert blockers(None) == []
    assert blockers(keys()) == []
    assert blockers(keys(database("db", FOREIGN))) == ["n1/secure_boot/host db"]
    assert blockers(keys(mode="SetupMode"), "DPU_0") == []  # as recorded cards come


def test_keys_are_not_restored_where_that_takes_the_sites_own_away() -> None:
    def explain(reading: SecureBootKeys) -> str:
        return explain_no_restoring(reading, list(judge_keys("host", reading, [OURS])), [OURS])

    assert explain(keys(database("db", VENDOR, FOREIGN))) == ""
    assert "keys of this site" in explain(keys(database("db", OURS, FOREIGN)))
    assert "offers no reset" in explain(keys(database("db", FOREIGN), resets=False))
    assert explain(keys(database("db", VENDOR))) == "nothing differs"
