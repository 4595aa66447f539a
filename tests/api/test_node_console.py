"""The console and the system log of a node: the staff reads all, its tenant those of its stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer
from served import NOW, Served, run

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.machine_logs import MachineLogs, encode
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.model.integrations.audit_export import SyslogMessage
from provisioner.model.node import State

EARLIER = "login of the tenant before"
OWN = "[    0.000000] Linux version 6.8.0"


def run_with_lines(folder: Path, scenario: Callable[[Served], Awaitable[None]]) -> None:
    """One scenario on an API that reads the lines of a data directory."""

    async def served_with(served: Served) -> None:
        parts = replace(served.parts, directory=folder)
        async with TestClient(TestServer(build_application(parts, table.ALL))) as client:
            await scenario(Served(parts, client, served.tokens))

    run(served_with)


def test_a_tenant_reads_no_line_from_before_its_stay(tmp_path: Path):
    async def scenario(served: Served) -> None:
        book = ConsoleFiles(tmp_path, 10**6)
        await book.append("su0-n01", [EARLIER], NOW - 101.0)
        await book.append("su0-n01", [OWN], NOW - 100.0)
        await book.append("su0-n04", [EARLIER], NOW)

        for who, lines in (("viewer", [EARLIER, OWN]), ("red", [OWN])):
            status, page = await served.ask(who, "GET", "/nodes/su0-n01/console")
            assert (status, [line["text"] for line in page["lines"]]) == (200, lines), who
            assert page["last"] == 1
        for node in ("su0-n01", "su0-n04"):
            assert (await served.ask("blue", "GET", f"/nodes/{node}/console"))[0] == 404

    run_with_lines(tmp_path, scenario)


def test_a_tenant_reads_nothing_while_its_node_is_taken_back(tmp_path: Path):
    async def scenario(served: Served) -> None:
        await ConsoleFiles(tmp_path, 10**6).append("su0-n01", [OWN], NOW)
        row = await served.store.nodes.get("su0-n01")
        assert row is not None
        await served.store.nodes.save(row.model_copy(update={"state": State.DRAINING}))

        status, page = await served.ask("red", "GET", "/nodes/su0-n01/console")
        assert (status, page["lines"]) == (200, [])

    run_with_lines(tmp_path, scenario)


def test_a_system_log_is_read_by_facility_and_of_the_own_stay_alone(tmp_path: Path):
    def make_row(facility: str, text: str) -> str:
        return encode(SyslogMessage(facility=facility, severity="info", program="p", text=text))

    async def scenario(served: Served) -> None:
        book = MachineLogs(tmp_path, 10**6)
        await book.append("su0-n01", [make_row("kern", EARLIER)], NOW - 101.0)
        await book.append("su0-n01", [make_row("kern", OWN), make_row("auth", "a")], NOW - 100.0)
        await book.append("leaf-su0-r0", [make_row("kern", "link down")], NOW)
        path = "/nodes/su0-n01/syslog"

        for who, query, texts, last in (
            ("viewer", "", [EARLIER, OWN, "a"], 2),
            ("viewer", "?facility=kern", [EARLIER, OWN], 2),
            ("viewer", "?program=other", [], 2),
            ("viewer", "?limit=1", ["a"], 2),
            ("viewer", "?after=0&limit=1", [OWN], 1),
            ("red", "", [OWN, "a"], 2),
        ):
            status, page = await served.ask(who, "GET", path + query)
            assert (status, [line["text"] for line in page["lines"]]) == (200, texts), query
            assert page["last"] == last, query
        assert page["lines"][0]["sent_at"] is None
        assert (await served.ask("blue", "GET", path))[0] == 404
        assert (await served.ask("red", "GET", "/nodes/leaf-su0-r0/syslog"))[0] == 404
        status, page = await served.ask("viewer", "GET", "/nodes/leaf-su0-r0/syslog")
        assert (status, page["lines"][0]["text"]) == (200, "link down")

    run_with_lines(tmp_path, scenario)
