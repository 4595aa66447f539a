"""The journal names the address and the program from which a change was asked for."""

from __future__ import annotations

from typing import Any

from served import Served, run


async def read_change(served: Served) -> dict[str, Any]:
    """Return the oldest row about a change of a node's tags."""
    _, page = await served.ask("operator", "GET", "/audit?limit=50")
    rows = [r["detail"] for r in page["items"] if r["detail"].get("kind") == "node.tag"]
    return dict(rows[-1])


def test_a_row_has_the_clients_address_and_the_program_that_it_claims_to_be() -> None:
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n01/tags"
        body = {"tags": {"stage:test": True}}
        await served.ask("operator", "PATCH", path, body, User_Agent="robot/2 (ci)")

        row = await read_change(served)
        assert (row["source"], row["agent"]) == ("127.0.0.1", "robot/2 (ci)")
        assert row["asked_by"] == "operator@example"

    run(scenario)


def test_a_programs_name_is_short_printable_and_no_address_is_taken_from_a_header() -> None:
    async def scenario(served: Served) -> None:
        path = "/nodes/su0-n01/tags"
        hostile = "\u202e" + "x" * 999
        headers = {"User_Agent": hostile, "X_Forwarded_For": "203.0.113.9"}
        await served.ask("operator", "PATCH", path, {"tags": {"stage:test": True}}, **headers)

        row = await read_change(served)
        assert row["source"] == "127.0.0.1"
        assert 0 < len(row["agent"]) <= 200
        assert row["agent"].isprintable()

    run(scenario)
