"""A daemon of one site that is given another site's database, as real processes."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from fleet import fleet
from postgres_server import Server

pytestmark = pytest.mark.long


@pytest.fixture
def server(monkeypatch):
    server = Server()
    try:
        server.start()
        monkeypatch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
        yield server
    finally:
        server.remove()


def test_a_daemon_of_another_site_is_refused_by_the_first_ones_database(server, tmp_path):
    """A wrong --database: its key opens no password of that site, and it says so and ends."""

    async def scenario() -> tuple[int, str, int]:
        async with fleet(server, tmp_path, hosts=1, daemons=1) as there:
            own = there.daemons[0]
            strange = tmp_path / "strange"
            strange.mkdir(mode=0o700)
            place = own.command.index("--data") + 1
            command = [*own.command]
            command[place] = str(strange)
            done = await asyncio.to_thread(
                subprocess.run, command, env=own.environment, capture_output=True, timeout=120
            )
            return done.returncode, (done.stderr + done.stdout).decode(), len(own.ends)

    code, said, ended = asyncio.run(scenario())

    assert code not in (0, 75), said
    assert "key" in said, said
    assert ended == 0
