"""`provisioner token` and `provisioner audit`: shown once, kept as digests, proved unchanged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest
from program import run as ran

from provisioner.access.sessions import new_session
from provisioner.access.tokens import sha256_of
from provisioner.daemon.data import open_data
from provisioner.model.access import Caller, Role
from provisioner.settings import Settings
from provisioner.store.rows import request_rows as session_rows


def run(*words: str) -> tuple[int, str, str]:
    done = ran(list(words), Path.cwd())
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make() -> None:
        async with open_data(tmp_path / "data", 1.0):
            pass

    asyncio.run(make())
    return tmp_path / "data"


def made(data: Path, *words: str) -> tuple[int, str, str]:
    return run("token", "create", "--data", str(data), "--subject", "ada", *words)


def test_a_token_is_shown_once_and_only_its_digest_is_kept(data):
    code, out, _ = made(data, "--role", "operator")
    token = out.split()[0]

    assert (code, token[:4], len(token)) == (0, "prv_", 47)
    assert all(token.encode() not in p.read_bytes() for p in data.rglob("*") if p.is_file())
    listed = json.loads(run("token", "list", "--data", str(data), "--json")[1])
    assert [(t["subject"], t["role"], t["good"]) for t in listed] == [("ada", "operator", True)]
    assert run("token", "revoke", listed[0]["id"], "--yes", "--data", str(data))[0] == 0
    listed = json.loads(run("token", "list", "--data", str(data), "--json")[1])
    assert (listed[0]["good"], bool(listed[0]["revoked_at"])) == (False, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--role", "tenant"], "--tenant"),
        (["--role", "viewer", "--tenant", "red"], "--tenant"),
        (["--role", "tenant", "--tenant", "nobody"], "no such tenant"),
        (["--role", "viewer", "--days", "4000"], "days"),
        (["--role", "viewer", "--subject", "a b"], "--subject"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(data, words, named):
    code, _, err = made(data, *words)

    assert (code, named in err) == (4 if named == "no such tenant" else 2, True)


def test_an_administrator_sees_browsers_sessions_and_ends_them(data):
    limits = Settings().session_limits()
    now = time.time() - 60.0
    secrets = []

    async def sign_in() -> None:
        async with open_data(data, 1.0) as opened:
            for subject in ("ada", "Ada", "bob"):
                who = Caller(subject=subject, roles=frozenset({Role.VIEWER}), issuer="https://id")
                secret, session = new_session(who, limits, now)
                secrets.append(secret)
                begin = partial(session_rows.begin_session, session=session, limits=limits)
                assert await opened.store.write(begin)

    asyncio.run(sign_in())
    place = ("--data", str(data))
    out = run("session", "list", *place, "--json")[1]
    listed = json.loads(out)
    assert sorted(s["subject"] for s in listed) == ["Ada", "ada", "bob"]
    assert not any(secret in out or sha256_of(secret) in out for secret in secrets)
    assert "https://id" in out
    assert "sessions: 2" in run("session", "end-all", "ADA", "--yes", *place)[1]
    (bob,) = json.loads(run("session", "list", *place, "--json")[1])
    assert run("session", "end", *place)[0] == 2
    assert run("session", "end", "ffffffff", "--yes", *place)[0] == 4
    assert run("session", "end", bob["id"], "--yes", *place)[0] == 0
    assert "There is none" in "".join(run("session", "list", *place)[1:])
    rows = json.loads(run("audit", "list", *place, "--json")[1])
    (ended,) = [r["detail"] for r in rows if r["detail"].get("ended") == bob["id"]]
    assert ended["why"].endswith(" ended it")


def test_the_audit_shows_who_did_what_and_that_nobody_changed_it(data):
    made(data, "--role", "operator")
    code, out, _ = run("audit", "verify", "--data", str(data), "--json")
    found = json.loads(out)
    assert (code, found["intact"]) == (0, True)
    known = f"{found['rows']}:{found['head']}"
    made(data, "--role", "viewer")
    code, _, _ = run("audit", "verify", "--data", str(data), "--known", known)
    assert code == 0
    rows = json.loads(run("audit", "list", "--data", str(data), "--json")[1])
    made_roles = [r["detail"]["made"]["role"] for r in rows if "made" in r["detail"]]
    assert made_roles == ["viewer", "operator"]

    with sqlite3.connect(data / "provisioner.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE journal SET detail = '{}' WHERE seq = 1")
    database.close()
    code, out, _ = run("audit", "verify", "--data", str(data))
    assert (code, "row 1" in out) == (1, True)
    assert run("audit", "verify", "--data", str(data), "--known", "x")[0] == 2
