"""Pins as resources, and the totals of lists."""

from __future__ import annotations

from served import NOW, RELEASE, Served, run

from provisioner.model.integrations.audit_export import ExportOutcome
from provisioner.model.times.instant import format_instant

PIN = "/pins/node:su0-n04"


def test_a_pin_is_put_read_merged_and_deleted_by_its_id():
    async def scenario(served: Served) -> None:
        until = format_instant(NOW + 3600)
        body = {"release": RELEASE, "reason": "a pilot", "until": until}
        assert (await served.ask("viewer", "GET", PIN))[0] == 404
        assert (await served.ask("operator", "PATCH", PIN, {"reason": "x"}))[0] == 404
        for _ in range(2):
            assert (await served.ask("operator", "PUT", PIN, body))[0] == 200
        _, pin = await served.ask("viewer", "GET", PIN)
        assert (pin["scope"], pin["name"], pin["expires_at"]) == ("node", "su0-n04", until)
        assert (await served.ask("operator", "PATCH", PIN, {"reason": "a longer pilot"}))[0] == 200
        _, pin = await served.ask("viewer", "GET", PIN)
        assert (pin["reason"], pin["expires_at"]) == ("a longer pilot", until)
        status, refused = await served.ask("operator", "PATCH", PIN, {"until": None})
        assert (status, refused["title"]) == (400, "A pin of a node or a rack ends at some time")
        assert (await served.ask("operator", "DELETE", PIN))[0] == 200
        assert (await served.ask("viewer", "GET", PIN))[0] == 404

    run(scenario)


def test_the_fleets_pin_has_no_name_and_other_ids_are_missing():
    async def scenario(served: Served) -> None:
        body = {"release": RELEASE, "reason": "the baseline"}
        assert (await served.ask("operator", "PUT", "/pins/fleet", body))[0] == 200
        assert (await served.ask("viewer", "GET", "/pins/fleet"))[1]["name"] == ""
        for bad in ("fleet:x", "node", "node:", "rack:absent", "pod:0", "node:absent"):
            assert (await served.ask("operator", "PUT", f"/pins/{bad}", body))[0] in (400, 404), bad

    run(scenario)


def test_lists_have_their_total():
    async def scenario(served: Served) -> None:
        for who, path, total in (
            ("viewer", "/nodes?limit=2", 7),
            ("viewer", "/switches", 1),
            ("red", "/nodes?limit=1", 2),
            ("viewer", "/tenants?limit=1", 2),
            ("red", "/tenants", 1),
            ("viewer", "/alerts?limit=1", 2),
            ("viewer", "/campaigns", 0),
            ("viewer", "/nodes?where=state=quarantined", 1),
            ("viewer", "/nodes?where=kind=host&limit=1", None),
        ):
            status, page = await served.ask(who, "GET", path)
            assert (status, page["total"]) == (200, total), path

    run(scenario)


def test_receivers_of_the_journal_show_how_far_they_are_and_why_they_fail():
    async def scenario(served: Served) -> None:
        book = served.store.audit_exports
        assert (await served.ask("viewer", "GET", "/audit/exports")) == (200, {"items": []})
        await book.set_receivers({"syslog", "otlp"})
        rows, _ = await served.store.journal.get_head()
        await book.record_taken("otlp", 0, 5, ExportOutcome(taken=True, rejected=2), NOW)
        await book.record_failure("syslog", "ConnectionRefusedError", NOW + 9)
        _, listed = await served.ask("viewer", "GET", "/audit/exports")
        assert listed["items"] == [
            {
                "receiver": "otlp", "position": 5, "waiting": rows - 5, "rejected": 2,
                "taken_at": format_instant(NOW), "failing_since": None, "error": "",
            },
            {
                "receiver": "syslog", "position": 0, "waiting": rows, "rejected": 0,
                "taken_at": None, "failing_since": format_instant(NOW + 9),
                "error": "ConnectionRefusedError",
            },
        ]  # fmt: skip
        assert (await served.ask("red", "GET", "/audit/exports"))[0] == 403

    run(scenario)
