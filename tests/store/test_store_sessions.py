"""Rows of browsers' sessions, on every kind of store."""

from __future__ import annotations

from functools import partial

from sqlalchemy import update

from provisioner.access.sessions import new_session
from provisioner.access.tokens import new_token
from provisioner.model.access import Caller, Role, Session, SessionLimits
from provisioner.store import SqlStore
from provisioner.store.rows import request_rows as session_rows
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.schema.schema import console_sessions

LIMITS = SessionLimits(whole_s=1000.0, idle_s=100.0, proof_s=10.0, per_person=2)
NOW = 50_000.0


def session_of(subject: str, now: float = NOW, token: str = "", issuer: str = "https://id"):
    who = Caller(subject=subject, roles=frozenset({Role.VIEWER}), token=token, issuer=issuer)
    return new_session(who, LIMITS, now)[1]


async def begin(store: SqlStore, session: Session, replaces: str = "") -> bool:
    work = partial(session_rows.begin_session, session=session, limits=LIMITS, replaces=replaces)
    return await store.write(work)


async def living(store: SqlStore, now: float = NOW) -> list[str]:
    read = partial(session_rows.read_sessions, limits=LIMITS, now=now)
    return [s.id for s in await store.read(read)]


def test_a_session_is_read_back_with_its_last_use_and_its_end(run):
    async def scenario(store: SqlStore) -> None:
        book, session = store.sessions, session_of("ada\x00")
        assert await begin(store, session)
        await book.use_session(session.id, NOW + 9.0)
        await book.use_session(session.id, NOW + 5.0)  # of a daemon whose write came late
        used = await book.find_session(session.sha256)
        end = partial(session_rows.end_session, session_id=session.id, why="tried", now=NOW + 10.0)
        assert await store.write(end)
        await book.use_session(session.id, NOW + 11.0)
        ended = await book.find_session(session.sha256)

        assert used == (session.model_copy(update={"used_at": NOW + 9.0}), None)
        assert ended is not None
        assert ended[0].ended_at == NOW + 10.0
        assert await book.find_session("0" * 64) is None

    run(scenario)


def test_a_further_session_ends_the_one_that_was_used_least(run):
    async def scenario(store: SqlStore) -> None:
        first, second = session_of("ada"), session_of("ADA", NOW + 1.0)
        for session in (first, second):
            await begin(store, session)
        await store.sessions.use_session(first.id, NOW + 2.0)
        third = session_of("ada", NOW + 3.0)
        await begin(store, third)
        assert await living(store, NOW + 3.0) == [third.id, first.id]
        await begin(store, session_of("bob", NOW + 3.0))
        assert len(await living(store, NOW + 3.0)) == 3

        replacing = session_of("ada", NOW + 4.0)
        await begin(store, replacing, replaces=first.id)
        assert third.id in await living(store, NOW + 4.0)
        assert first.id not in await living(store, NOW + 4.0)

    run(scenario)


def test_a_session_does_not_end_that_of_another_person_in_its_place(run):
    async def scenario(store: SqlStore) -> None:
        ada = session_of("ada")
        await begin(store, ada)
        await begin(store, session_of("bob"), replaces=ada.id)
        assert ada.id in await living(store)

    run(scenario)


def test_rows_that_are_over_are_cleared_away_and_sign_ins_are_counted(run):
    async def scenario(store: SqlStore) -> None:
        answers = [await begin(store, session_of("ada")) for _ in range(21)]
        assert answers == [True] * session_rows.BEGUN_MAX + [False]
        later = NOW + session_rows.KEPT_S + 1.0
        assert await begin(store, session_of("ada", later))

        def count(connection) -> int:
            return len(connection.execute(console_sessions.select()).all())

        assert await store.read(count) == 1

    run(scenario)


def test_all_sessions_of_a_person_or_of_a_token_end_at_once(run):
    async def scenario(store: SqlStore) -> None:
        _, record = new_token("ada", Role.VIEWER, "", 1.0, NOW)
        await store.write(partial(token_rows.add_token, token=record, now=NOW))
        local, foreign = session_of("ada", token=record.id, issuer=""), session_of("Ada")
        bob = session_of("bob")
        for session in (local, foreign, bob):
            await begin(store, session)
        revoke = partial(token_rows.revoke_token, token_id=record.id, now=NOW)
        await store.write(revoke)
        assert set(await living(store)) == {foreign.id, bob.id}
        end = partial(session_rows.end_sessions_of_subject, subject="aDa", why="she left", now=NOW)
        assert await store.write(end) == [foreign.id]
        assert await living(store) == [bob.id]

    run(scenario)


def test_a_session_whose_row_is_damaged_opens_nothing_and_stops_nothing(run):
    async def scenario(store: SqlStore) -> None:
        damaged, sound = session_of("ada"), session_of("bob")
        for session in (damaged, sound):
            await begin(store, session)
        spoil = update(console_sessions).where(console_sessions.c.id == damaged.id)
        await store.write(lambda c: c.execute(spoil.values(body="{")))
        assert await store.sessions.find_session(damaged.sha256) is None
        assert await living(store) == [sound.id]

    run(scenario)
