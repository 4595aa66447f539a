"""Who a header stands for: local tokens, foreign roles, and all that is nobody."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import pytest
from virtual_time import VirtualClock, run

from provisioner.access.identity import HEADER_MAX, Identity, IsShutOut, caller_of
from provisioner.access.tokens import DAY_S, DAYS_MAX, TOKEN, new_token, sha256_of
from provisioner.model.access import Caller, Role, Token
from provisioner.model.input_error import InputError

NOW = 1_000.0


class Foreign:
    """A provider that knows every token, and notes what it was asked and when it was let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = False

    async def identify_caller(self, token: str) -> Caller | None:
        self.asked.append(token)
        roles = frozenset({Role.VIEWER})
        return Caller(subject="ada", roles=roles, also=("ada@example.org",), via="provider")

    async def close(self) -> None:
        self.closed = True


class FixedClock(VirtualClock):
    def now(self) -> float:
        return NOW


def token_and_record(role: Role = Role.OPERATOR, tenant: str = "") -> tuple[str, Token]:
    return new_token("ada", role, tenant, 1.0, NOW)


def asked(
    header: str,
    *records: Token,
    foreign: Foreign | None = None,
    is_shut_out: IsShutOut | None = None,
) -> tuple[Caller | None, list[str]]:
    """Who a header stands for, and what the provider was asked."""
    kept = {r.sha256: r for r in records}

    async def find(digest: str) -> Token | None:
        return kept.get(digest)

    identity = Identity(find, FixedClock(), foreign, is_shut_out=is_shut_out)
    caller = run(identity.identify_caller(header))
    return caller, foreign.asked if foreign else []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_local_token_names_its_holder(scheme: str) -> None:
    token, record = token_and_record(Role.TENANT, "red")
    caller, questions = asked(f"{scheme}  {token} ", record, foreign=Foreign())

    assert caller == Caller(
        subject="ada",
        roles=frozenset({Role.TENANT}),
        tenant="red",
        via=f"token {record.id}",
        token=record.id,
    )
    assert questions == []


def test_a_token_that_ended_or_was_revoked_or_is_unknown_is_nobody() -> None:
    token, record = token_and_record()
    header = f"Bearer {token}"

    assert asked(header, record)[0] is not None
    assert asked(header)[0] is None
    for changes in ({"expires_at": NOW}, {"revoked_at": NOW - 1}, {"made_at": NOW + 1}):
        assert asked(header, record.model_copy(update=changes))[0] is None


def test_a_token_is_good_from_when_it_was_made_until_its_end() -> None:
    _, record = token_and_record()

    assert record.is_valid(record.made_at)
    assert record.is_valid(record.expires_at - 0.001)
    assert not record.is_valid(record.expires_at)
    assert not record.is_valid(record.made_at - 0.001)


@pytest.mark.parametrize(
    ("gone", "local", "provided"),
    [("ada", False, False), ("ada@example.org", True, False), ("bert", True, True)],
)
def test_who_is_shut_out_by_any_of_its_names_is_nobody(
    gone: str, local: bool, provided: bool
) -> None:
    token, record = token_and_record()

    async def is_shut_out(names: Sequence[str]) -> bool:
        return gone in names

    known, _ = asked(f"Bearer {token}", record, is_shut_out=is_shut_out)
    foreign, _ = asked("Bearer a.b.c", foreign=Foreign(), is_shut_out=is_shut_out)

    assert (known is not None, foreign is not None) == (local, provided)
    assert asked(f"Bearer {token}", is_shut_out=is_shut_out) == (None, [])  # not known at all


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic a.b.c", "Bearer a.b", "Bearer a.b.c.d", "a.b.c"],
)
def test_a_header_that_carries_no_token_asks_nobody(header: str) -> None:
    assert asked(header, foreign=Foreign()) == (None, [])


def test_a_token_of_three_parts_is_the_providers() -> None:
    caller, questions = asked("Bearer a.b.c", foreign=Foreign())

    assert caller is not None
    assert questions == ["a.b.c"]
    assert asked("Bearer a.b.c")[0] is None  # without a provider


def test_a_token_may_be_long_and_not_longer() -> None:
    longest = "a" * (HEADER_MAX - 4) + ".b.c"

    assert asked(f"Bearer {longest}", foreign=Foreign())[1] == [longest]
    assert asked(f"Bearer a{longest}", foreign=Foreign()) == (None, [])


def test_what_looks_like_a_local_token_never_leaves_for_the_provider() -> None:
    token, _ = token_and_record()

    assert asked(f"Bearer {token}", foreign=Foreign()) == (None, [])


def test_the_provider_is_let_go_with_the_identity() -> None:
    foreign = Foreign()

    async def scenario() -> None:
        await Identity(None, VirtualClock(), foreign).close()  # type: ignore[arg-type]
        await Identity(None, VirtualClock()).close()  # type: ignore[arg-type]

    asyncio.run(scenario())

    assert foreign.closed


@pytest.mark.parametrize(
    ("words", "tenant", "expected"),
    [
        ({"viewer"}, "", ({Role.VIEWER}, "")),
        ({"operator", "approver", "cook"}, "", ({Role.OPERATOR, Role.APPROVER}, "")),
        ({"operator"}, "red", ({Role.OPERATOR}, "")),
        ({"tenant"}, "red", ({Role.TENANT}, "red")),
        ({"tenant"}, "", None),
        ({"tenant", "viewer"}, "red", None),
        ({"cook"}, "", None),
        (set(), "", None),
    ],
)
def test_foreign_roles_become_ours_or_nobodys(
    words: set[str], tenant: str, expected: tuple[set[Role], str] | None
) -> None:
    caller = caller_of("ada", frozenset(words), tenant, "issuer")

    assert (caller and (set(caller.roles), caller.tenant)) == expected
    assert caller is None or (caller.subject, caller.via) == ("ada", "issuer")


def test_somebody_without_a_name_is_nobody() -> None:
    assert caller_of("", frozenset({"operator"}), "", "issuer") is None


@pytest.mark.parametrize("role", list(Role))
def test_staff_are_all_but_tenants(role: Role) -> None:
    assert Caller(subject="a", roles=frozenset({role})).staff is (role is not Role.TENANT)


def test_a_new_token_is_kept_as_its_digest_only() -> None:
    token, record = new_token("ada@example.org", Role.TENANT, "red", DAYS_MAX, NOW)

    assert TOKEN.fullmatch(token)
    assert record.sha256 == hashlib.sha256(token.encode()).hexdigest() == sha256_of(token)
    assert token not in record.model_dump_json()
    assert (record.subject, record.role, record.tenant) == ("ada@example.org", Role.TENANT, "red")
    assert (record.made_at, record.expires_at) == (NOW, NOW + DAYS_MAX * DAY_S)
    assert len(record.id) == 8
    assert sha256_of("\ud800")  # a lone surrogate is a wrong token, not an error


@pytest.mark.parametrize(
    ("subject", "role", "tenant", "days", "where"),
    [
        ("", Role.VIEWER, "", 1.0, "--subject"),
        ("-ada", Role.VIEWER, "", 1.0, "--subject"),
        ("a" * 101, Role.VIEWER, "", 1.0, "--subject"),
        ("ada", Role.TENANT, "", 1.0, "--tenant"),
        ("ada", Role.VIEWER, "red", 1.0, "--tenant"),
        ("ada", Role.VIEWER, "", 0.0, "--days"),
        ("ada", Role.VIEWER, "", DAYS_MAX + 0.1, "--days"),
    ],
)
def test_a_token_that_cannot_be_is_refused(
    subject: str, role: Role, tenant: str, days: float, where: str
) -> None:
    with pytest.raises(InputError) as refused:
        new_token(subject, role, tenant, days, NOW)

    assert refused.value.source == where
