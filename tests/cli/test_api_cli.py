"""`provisioner api` beside a daemon on one SQLite file: refused before it writes anything."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.daemon.data import DATABASE, open_data
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.input_error import InputError
from provisioner.store.database.data_directory import lock_api
from provisioner.store.rows import request_rows

ASKED = ChangeRequest(
    id=0,
    kind=ChangeKind.NODE_RETRY,
    subject="su0-n01",
    asked_by="ada",
    asked_at=1.0,
    state=RequestState.RUNNING,
)


async def change_under_way(data: Path) -> None:
    async with open_data(data, 1.0) as opened:
        await opened.store.write(partial(request_rows.add_request, asked=ASKED))


async def state(data: Path) -> str:
    async with open_data(data, 1.0) as opened:
        (asked,) = await opened.store.read(request_rows.read_requests)
        return asked.state.value


def test_the_daemons_changes_are_not_taken_for_lost(tmp_path: Path) -> None:
    asyncio.run(change_under_way(tmp_path))
    with lock_api(tmp_path / DATABASE):  # as `serve` holds it while it serves the API
        told = CliRunner().invoke(app, ["api", "--data", str(tmp_path), "--port", "0"])
        after = asyncio.run(state(tmp_path))

    assert isinstance(told.exception, InputError)
    assert "serves the API of this database already" in str(told.exception)
    assert after == "running"


def test_a_server_that_ended_leaves_its_place(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    with lock_api(tmp_path / DATABASE):
        pass
    with lock_api(tmp_path / DATABASE), pytest.raises(InputError):
        lock_api(tmp_path / DATABASE)
