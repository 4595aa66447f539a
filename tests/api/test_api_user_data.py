"""User data of a tenant over the API: sealed, never shown, its own requests and the operators'."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from served import Served, run

from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

PATH = "/tenants/red/user-data"
SECRET = "hunter2"
BODY = {"user_data": f"#!/bin/sh\necho {SECRET}\n"}
OTHER = {"user_data": "#cloud-config\npackages: [htop]\n"}


async def sealed_names(served: Served) -> list[str]:
    vault = served.parts.vault
    assert isinstance(vault, Vault)
    return list(await vault.names())


def with_vault(scenario: Any, **settings: Any) -> None:
    async def wrapped(served: Served) -> None:
        vault = Vault(served.store, MasterKey.generate())
        parts = replace(served.parts, vault=vault)
        async with TestClient(TestServer(build_application(parts, table.ALL))) as people:
            await scenario(Served(parts, people, served.tokens))

    run(wrapped, **settings)


def test_it_is_sealed_shown_without_its_text_replaced_and_removed():
    async def scenario(served: Served) -> None:
        foreseen = await served.ask("red", "PUT", f"{PATH}?dry_run=true", BODY)
        assert "script of 23 bytes" in foreseen[1]["result"]["lines"][0], foreseen
        assert await sealed_names(served) == []
        assert (await served.ask("red", "GET", PATH))[0] == 404

        made = await served.ask("red", "PUT", PATH, BODY)
        assert (made[0], made[1]["state"]) == (200, "done"), made
        shown = (await served.ask("red", "GET", PATH))[1]
        (name,) = await sealed_names(served)
        assert name == f"user-data/red/{shown['version']}"
        assert (shown["kind"], shown["size_bytes"]) == ("script", 23)
        kept = await served.parts.vault.current(name)
        assert kept is not None
        assert kept[1].reveal() == BODY["user_data"]

        again = await served.ask("operator", "PUT", PATH, OTHER)
        assert again[1]["state"] == "done"
        names = await sealed_names(served)
        assert len(names) == 1
        assert names != [name]
        removed = await served.ask("red", "DELETE", PATH)
        assert removed[1]["state"] == "done"
        assert await sealed_names(served) == []

        for path in ("/events", "/requests", "/operations", "/tenants/red"):
            status, answer = await served.ask("operator", "GET", path)
            assert (status, SECRET in str(answer)) == (200, False), path
        assert SECRET not in str(await served.store.journal.list(limit=1000))

    with_vault(scenario, handover_login="remove")


def test_others_and_other_forms_are_refused_and_seal_nothing():
    async def scenario(served: Served) -> None:
        foreign = [
            (await served.ask("blue", verb, PATH, BODY if verb == "PUT" else None))[0]
            for verb in ("GET", "PUT", "DELETE")
        ]
        bad = await served.ask("red", "PUT", PATH, {"user_data": f"echo {SECRET}"})
        viewer = await served.ask("viewer", "PUT", PATH, BODY)

        assert foreign == [404, 404, 404]
        assert (bad[0], viewer[0]) == (400, 403)
        assert SECRET not in str(bad)
        assert await sealed_names(served) == []

    with_vault(scenario, handover_login="remove")


def test_a_site_whose_login_stays_takes_none():
    async def scenario(served: Served) -> None:
        tried = await served.ask("red", "PUT", f"{PATH}?dry_run=true", BODY)
        refused = await served.ask("red", "PUT", PATH, BODY)

        assert "handover_login" in str(tried[1]["blockers"])
        assert (refused[0], "handover_login" in str(refused[1])) == (409, True)
        assert await sealed_names(served) == []

    with_vault(scenario)
