"""`provisioner token` and `provisioner audit`: shown once, kept as digests, proved unchanged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from program import run as ran

from provisioner.daemon.data import open_data


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
    assert [(t["subject"], t["role"], t["standing"]) for t in listed] == [
        ("ada", "operator", "good")
    ]
    assert run("token", "revoke", listed[0]["id"], "--data", str(data))[0] == 0
    listed = json.loads(run("token", "list", "--data", str(data), "--json")[1])
    assert listed[0]["standing"].startswith("revoked")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--role", "tenant"], "--tenant"),
        (["--role", "viewer", "--tenant", "red"], "--tenant"),
        (["--role", "tenant", "--tenant", "nobody"], "nobody"),
        (["--role", "viewer", "--days", "4000"], "--days"),
        (["--role", "viewer", "--subject", "a b"], "--subject"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(data, words, named):
    code, _, err = made(data, *words)

    assert (code, named in err) == (2, True)


def test_the_audit_shows_who_did_what_and_that_nobody_changed_it(data):
    made(data, "--role", "operator")
    code, out, _ = run("audit", "verify", "--data", str(data), "--json")
    found = json.loads(out)
    assert (code, found["intact"], found["rows"]) == (0, True, 1)
    known = f"{found['rows']}:{found['head']}"
    made(data, "--role", "viewer")
    code, _, _ = run("audit", "verify", "--data", str(data), "--known", known)
    assert code == 0
    rows = json.loads(run("audit", "list", "--data", str(data), "--json")[1])
    assert [r["detail"]["made"]["role"] for r in rows] == ["viewer", "operator"]

    with sqlite3.connect(data / "provisioner.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE journal SET detail = '{}' WHERE seq = 1")
    database.close()
    code, out, _ = run("audit", "verify", "--data", str(data))
    assert (code, "row 1" in out) == (1, True)
    assert run("audit", "verify", "--data", str(data), "--known", "x")[0] == 2
