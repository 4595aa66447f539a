"""After a whole journey by an unprivileged daemon no secret is anywhere but where it belongs."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from confined_site import NOBODY, Left, journey, may_run, remove

SHORT = 6  # bytes: a secret that is shorter than that would be found by chance

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    if why := may_run():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="journey"))  # others may look through pytest's own not
    try:
        yield asyncio.run(journey(folder))
    finally:
        remove(folder)


def spellings(secret: bytes) -> Iterator[bytes]:
    """As itself, and as programs write bytes: base64 at each offset, hex, URL, JSON, UTF-16."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for offset in range(3):
        # of base64 in the middle of something else only the whole groups are the secret's own
        for coded in (base64.b64encode, base64.urlsafe_b64encode):
            text = coded(b"\0" * offset + secret)
            yield text[(offset + 2) // 3 * 4 : len(text) // 4 * 4 - 4] or text
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return
    yield quote(text, safe="").encode()
    yield json.dumps(text)[1:-1].encode()
    yield text.encode("utf-16-le")


def where(secret: bytes, places: dict[str, bytes]) -> list[str]:
    wanted = set(spellings(secret))
    return [name for name, held in places.items() if any(s in held for s in wanted)]


def test_the_daemon_brings_a_node_to_a_tenant_as_nobody_with_one_directory(left: Left):
    uids = re.search(r"^Uid:\t(.*)$", left.status, re.MULTILINE)
    held = re.search(r"^CapEff:\t(.*)$", left.status, re.MULTILINE)

    assert uids is not None
    assert set(uids[1].split()) == {str(NOBODY)}
    assert held is not None
    assert int(held[1], 16) == 0
    assert left.states
    assert left.ended == 0
    assert left.outside == []


def test_it_would_leave_no_core_file_and_its_memory_is_roots(left: Left):
    limit = re.search(r"^Max core file size +(\d+) +(\d+)", left.limits, re.MULTILINE)

    assert limit is not None
    assert limit.groups() == ("0", "0")
    assert left.memory_of == 0


def test_no_secret_is_in_the_log_the_database_a_file_an_answer_or_a_process(left: Left):
    found = {
        name: seen for name, secret in left.secrets.items() if (seen := where(secret, left.places))
    }

    assert found == {}


def test_what_was_searched_is_what_there_is(left: Left):
    """The search finds what is there: keys in their files, names in the database and answers."""
    (host,) = left.states
    seen = where(host.encode(), left.places)

    assert {"provisioner.db", "GET /v1/nodes", f"GET /v1/nodes/{host}"} <= set(seen)
    assert b"serving" in left.places["the log"]
    assert "provisioner.db-wal, while it ran" in left.places
    assert "cmdline of a process" in left.places
    assert where(left.secrets["master key"], left.keys) == ["master.key"]
    assert sum(name.startswith("credential ") for name in left.secrets) > 11  # BMCs, switches
    assert all(len(secret) >= SHORT for secret in left.secrets.values()), left.secrets.keys()


@pytest.mark.parametrize("as_written", ["plain", "base64", "in base64", "hex", "json", "url"])
def test_a_secret_is_found_however_it_is_written(as_written: str):
    secret = b'pa"ss w\xc3\xb6rd/9'
    text = secret.decode()
    written = {
        "plain": secret,
        "base64": base64.b64encode(secret),
        "in base64": base64.b64encode(b"root:" + secret + b"\n"),
        "hex": secret.hex().encode(),
        "json": json.dumps({"Password": text}).encode(),
        "url": quote(text, safe="").encode(),
    }

    assert where(secret, {"here": b"...." + written[as_written] + b"...."}) == ["here"]
