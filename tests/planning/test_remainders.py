"""What belongs into a BMC: the daemon's own and what the site names; all else is named."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.erasure import ErasurePolicy, ErasureReport, Holder, Result
from provisioner.model.machine.settings import BmcAccount, BmcRemainders
from provisioner.planning.erasure.bmc_defaults import judge_remainders, record_part
from provisioner.planning.erasure.erasure import list_unsanitized

OURS = BmcAccount(name="root", role="Administrator")
CLEAN = BmcRemainders(accounts=(OURS,), destinations=("https://ours/1",), waiting={})
ACCOUNTS = ("root", "NvBluefieldUefi?")
ENDS = ("https://ours/1", "https://siem.example/*")


def judged(**changes: Any) -> dict[str, tuple[Result, str]]:
    reading = CLEAN.model_copy(update=changes)
    rows = judge_remainders("host", reading, ACCOUNTS, ENDS, ["SHA256:ours"])
    return {part: (result, detail) for part, result, detail in rows}


PLANTED = {
    "no account at all, not even ours": ({"accounts": ()}, "host accounts", "the list is empty"),
    "an SSH key of our own account": (
        {"accounts": (OURS.model_copy(update={"keys": ("SHA256:ours", "SHA256:theirs")}),)},
        "host SSH keys",
        "SHA256:theirs of root",
    ),
    "an account more": (
        {"accounts": (OURS, BmcAccount(name="svc", role="Administrator"))},
        "host accounts",
        "svc (Administrator)",
    ),
    "an account that may only read": (
        {"accounts": (OURS, BmcAccount(name="eye", role="ReadOnly"))},
        "host accounts",
        "eye (ReadOnly)",
    ),
    "an account in another case": (
        {"accounts": (BmcAccount(name="Root", role="Administrator"),)},
        "host accounts",
        "Root (Administrator)",
    ),
    "an account with a longer name": (
        {"accounts": (OURS, BmcAccount(name="NvBluefieldUefi01", role="Administrator"))},
        "host accounts",
        "NvBluefieldUefi01",
    ),
    "a receiver of events": (
        {"destinations": ("https://ours/1", "https://203.0.113.9/x")},
        "host events",
        "https://203.0.113.9/x",
    ),
    "a receiver with our name as its beginning": (
        {"destinations": ("https://ours/12",)},
        "host events",
        "https://ours/12",
    ),
    "a BIOS setting that waits": (
        {"waiting": {"SecureBoot": "Disabled"}},
        "host waiting settings",
        "SecureBoot = Disabled",
    ),
    "a collection that did not answer": (
        {"gaps": ("/redfish/v1/AccountService/Accounts/3: HTTP status 500",)},
        "host resources",
        "HTTP status 500",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_everything_that_was_planted_is_named(case: str) -> None:
    changes, part, named = PLANTED[case]
    result, detail = judged(**changes)[part]
    assert result is Result.NOT_DONE
    assert named in detail
    others = {r for p, (r, _) in judged(**changes).items() if p != part}
    assert others == {Result.DONE}


def test_a_clean_bmc_is_done_in_every_part() -> None:
    named = (OURS, BmcAccount(name="NvBluefieldUefi1", role="Administrator"))
    rows = judged(accounts=named, destinations=("https://siem.example/a",))
    assert {result for result, _ in rows.values()} == {Result.DONE}
    assert len(rows) == 3


def test_a_part_that_a_bmc_does_not_have_is_named_and_blocks_nothing() -> None:
    rows = judged(destinations=None)
    assert rows["host events"][0] is Result.UNSUPPORTED
    records = tuple(record_part(p, r, d, 1.0) for p, (r, d) in rows.items())
    report = ErasureReport(
        node="n0", tenant="red", fenced_at=1.0, started_at=1.0, ended_at=1.0, records=records
    )
    policy = ErasurePolicy(required=(Holder.BMC,))
    assert not [b for b in list_unsanitized(report, policy) if "bmc/" in b.subject]


@pytest.mark.parametrize(("required", "number"), [((Holder.BMC,), 1), ((), 0)])
def test_a_foreign_account_blocks_where_the_site_requires_it(
    required: tuple[Holder, ...], number: int
) -> None:
    rows = judged(accounts=(OURS, BmcAccount(name="svc")))
    records = tuple(record_part(p, r, d, 1.0) for p, (r, d) in rows.items())
    report = ErasureReport(
        node="n0", tenant="red", fenced_at=1.0, started_at=1.0, ended_at=1.0, records=records
    )
    named = list_unsanitized(report, ErasurePolicy(required=required))
    assert [b.subject for b in named if "bmc/" in b.subject] == ["n0/bmc/host accounts"] * number


@pytest.mark.parametrize(
    ("shown", "result"),
    [
        ("https://ours:443/1", Result.DONE),
        ("https://siem.example:443/a", Result.DONE),
        ("https://ours:4430/1", Result.NOT_DONE),
        ("http://ours:443/1", Result.NOT_DONE),
        ("https://ours:80/1", Result.NOT_DONE),
    ],
)
def test_a_destination_is_ours_with_the_default_port_of_its_scheme(
    shown: str, result: Result
) -> None:
    """NVIDIA's server adds it (NVIDIA/bmcweb 7f3a16ae, as it was run)."""
    assert judged(destinations=(shown,))["host events"][0] is result
