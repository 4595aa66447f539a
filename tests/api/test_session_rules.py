"""Sessions of browsers without a server: whom a secret stands for, until when, what is noted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from virtual_time import VirtualClock, run

from provisioner.access.identity import Identity
from provisioner.access.sessions import (
    PREFIX,
    SECRET,
    caller_of_session,
    is_fresh,
    new_session,
    use_is_due,
)
from provisioner.access.tokens import new_token, sha256_of
from provisioner.model.access import Caller, Role, Session, SessionLimits, Token

NOW, ISSUER = 10_000.0, "https://login.example"
LIMITS = SessionLimits(whole_s=36_000.0, idle_s=1_800.0, proof_s=300.0, per_person=5)
STAFF = Caller(subject="ada", roles=frozenset({Role.OPERATOR}), issuer=ISSUER)


class Book:
    """Sessions in memory, and the uses that were noted."""

    def __init__(self, session: Session, token: Token | None = None) -> None:
        self.rows = {session.sha256: (session, token)}
        self.used: list[tuple[str, float]] = []

    async def find_session(self, digest: str) -> tuple[Session, Token | None] | None:
        return self.rows.get(digest)

    async def use_session(self, session_id: str, now: float) -> None:
        self.used.append((session_id, now))


class At(VirtualClock):
    """A clock that stands."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self._at = now

    def now(self) -> float:
        return self._at


def begun(caller: Caller = STAFF, **changes: Any) -> tuple[str, Session]:
    secret, session = new_session(caller, LIMITS, NOW)
    return secret, session.model_copy(update=changes)


def ask(secret: str, book: Book, at: float = NOW, *, attended: bool = True) -> Caller | None:
    identity = Identity(None, At(at), None, book, LIMITS, ISSUER)  # type: ignore[arg-type]
    return run(identity.identify_session(secret, attended=attended))


def of_token(role: Role = Role.OPERATOR, tenant: str = "") -> tuple[Session, Token]:
    """A session that a local token began."""
    _, token = new_token("ada", role, tenant, 1.0, NOW)
    roles = frozenset({Role.APPROVER})  # as it was once: the row of the token decides
    caller = Caller(subject="ada", roles=roles, token=token.id)
    return begun(caller)[1], token


# --- the secret


def test_a_secret_is_given_once_and_kept_as_its_digest() -> None:
    secret, session = begun()
    other, second = begun()

    assert secret.startswith(PREFIX)
    assert SECRET.fullmatch(secret)
    assert session.sha256 == sha256_of(secret)
    assert secret not in session.model_dump_json()
    assert (secret == other, session.id == second.id) == (False, False)
    assert len(session.id) == 8


def test_the_holder_of_a_secret_is_the_person_who_signed_in() -> None:
    secret, session = begun()

    assert ask(secret, Book(session), NOW + 5.0) == Caller(
        subject="ada",
        roles=frozenset({Role.OPERATOR}),
        via=f"session {session.id}",
        issuer=ISSUER,
        session=session.id,
        signed_in_at=NOW,
    )


def test_an_unknown_secret_and_what_is_no_secret_are_nobody() -> None:
    secret, session = begun()
    book = Book(session)
    book.rows[sha256_of("prs_short")] = (session, None)

    assert ask(begun()[0], book) is None
    assert ask("prs_short", book) is None
    assert ask(secret, book) is not None


@pytest.mark.parametrize("missing", ["sessions", "limits"])
def test_a_site_without_sessions_knows_nobody_by_a_secret(missing: str) -> None:
    secret, session = begun()
    given: dict[str, Any] = {"sessions": Book(session), "limits": LIMITS, "issuer": ISSUER}
    identity = Identity(None, At(NOW), **{**given, missing: None})  # type: ignore[arg-type]

    assert run(identity.identify_session(secret, attended=True)) is None


# --- its end


def test_a_session_begins_and_ends_with_what_began_it() -> None:
    whole = begun()[1]
    short = begun(STAFF.model_copy(update={"expires_at": NOW + 60.0}))[1]
    long = begun(STAFF.model_copy(update={"expires_at": NOW + 1e6}))[1]

    assert (whole.made_at, whole.used_at, whole.expires_at) == (NOW, NOW, NOW + 36_000.0)
    assert short.expires_at == NOW + 60.0
    assert long.expires_at == NOW + 36_000.0


def test_a_session_that_is_over_is_nobody() -> None:
    secret, session = begun()
    book = Book(session)

    assert ask(secret, book, NOW + 1_799.0) is not None
    assert ask(secret, book, NOW + 1_801.0) is None
    assert book.used == [(session.id, NOW + 1_799.0)]


def test_a_session_is_good_from_its_beginning_until_the_first_of_its_ends() -> None:
    session = begun()[1]
    used = session.model_copy(update={"used_at": NOW + 36_000.0})
    ended = session.model_copy(update={"ended_at": NOW + 1.0})
    shorter = LIMITS.model_copy(update={"whole_s": 60.0})  # of the site, since it began

    assert [session.is_valid(LIMITS, NOW + t) for t in (-0.5, 0.0)] == [False, True]
    assert [session.is_valid(LIMITS, NOW + t) for t in (1_799.5, 1_800.0)] == [True, False]
    assert [used.is_valid(LIMITS, NOW + t) for t in (35_999.5, 36_000.0)] == [True, False]
    assert [session.is_valid(shorter, NOW + t) for t in (59.5, 60.0)] == [True, False]
    assert not ended.is_valid(LIMITS, NOW + 2.0)


def test_a_session_begins_no_session() -> None:
    with pytest.raises(AssertionError):
        begun(STAFF.model_copy(update={"session": "81c2d07e"}))


# --- the token or the provider that began it


def test_roles_and_tenant_are_those_of_the_tokens_row() -> None:
    session, token = of_token(Role.TENANT, "red")

    caller = caller_of_session(session, token, LIMITS, "", NOW)

    assert caller is not None
    assert (caller.roles, caller.tenant) == (frozenset({Role.TENANT}), "red")
    assert (caller.token, caller.issuer) == (token.id, "")


def test_the_tenant_of_a_providers_token_is_kept() -> None:
    tenant = Caller(subject="bob", roles=frozenset({Role.TENANT}), tenant="red", issuer=ISSUER)

    caller = caller_of_session(begun(tenant)[1], None, LIMITS, ISSUER, NOW)

    assert caller is not None
    assert (caller.subject, caller.tenant) == ("bob", "red")


def test_a_session_is_over_with_its_token() -> None:
    session, token = of_token()
    revoked = token.model_copy(update={"revoked_at": NOW})
    another = token.model_copy(update={"id": "another"})

    assert caller_of_session(session, token, LIMITS, ISSUER, NOW) is not None
    for row in (None, revoked, another):
        assert caller_of_session(session, row, LIMITS, ISSUER, NOW + 1.0) is None


@pytest.mark.parametrize("issuer", ["", "https://another.example"])
def test_a_session_of_another_provider_than_todays_is_over(issuer: str) -> None:
    assert caller_of_session(begun()[1], None, LIMITS, issuer, NOW) is None


@pytest.mark.parametrize(("gone", "known"), [("ada@example.org", False), ("bert", True)])
def test_who_is_shut_out_by_another_name_has_no_session_either(gone: str, known: bool) -> None:
    secret, session = begun(STAFF.model_copy(update={"also": ("ada@example.org",)}))

    async def is_shut_out(names: Collection[str]) -> bool:
        return gone in names

    given: Any = {"sessions": Book(session), "limits": LIMITS, "issuer": ISSUER}
    identity = Identity(None, At(NOW), **given, is_shut_out=is_shut_out)  # type: ignore[arg-type]
    caller = run(identity.identify_session(secret, attended=True))

    assert (caller is not None) is known
    assert caller is None or caller.also == ("ada@example.org",)


def test_a_session_of_neither_a_token_nor_a_provider_is_nobodys() -> None:
    assert caller_of_session(begun(issuer="")[1], None, LIMITS, "", NOW) is None


# --- what needs a token, and what is written down


def test_a_token_is_fresh_and_a_session_for_a_while() -> None:
    caller = STAFF.model_copy(update={"session": "s", "signed_in_at": NOW})

    assert is_fresh(STAFF, LIMITS, NOW)
    for later, fresh in ((-1.0, False), (0.0, True), (300.0, True), (300.5, False)):
        assert is_fresh(caller, LIMITS, NOW + later) == fresh


def test_a_use_is_written_once_a_minute() -> None:
    secret, session = begun()
    book = Book(session)

    for later in (1.0, 59.0, 60.0):
        assert ask(secret, book, NOW + later) is not None
    assert book.used == [(session.id, NOW + 60.0)]
    assert ask(secret, book, NOW + 100.0, attended=False) is not None
    assert len(book.used) == 1


def test_a_use_is_written_early_enough_for_a_short_limit() -> None:
    session, short = begun()[1], LIMITS.model_copy(update={"idle_s": 100.0})

    assert not use_is_due(session, short, NOW + 9.5)
    assert use_is_due(session, short, NOW + 10.0)
