"""The API of a daemon that observes: every answer says so, and no device is changed through it."""

from __future__ import annotations

import asyncio

import pytest
from served import Served, StillClock, run

from provisioner.api.changes import WHILE_OBSERVING
from provisioner.daemon.telemetry import open_telemetry
from provisioner.integrations.prometheus.metrics import Metrics
from provisioner.model.access import ChangeKind
from provisioner.ports import LookOnly
from provisioner.runtime import permit
from provisioner.settings import Settings

RECLAIM = "/nodes/su0-n01/reclaim"


def test_every_answer_names_the_mode_and_a_change_is_refused_but_for_its_dry_run() -> None:
    async def scenario(served: Served) -> None:
        before = await served.store.nodes.get("su0-n01")
        with permit.observe():
            headers = []
            for path in ("/nodes", "/mode", "/no-such-path"):
                answer = await served.client.get("/v1" + path, headers=served.key("viewer"))
                headers.append(answer.headers.get("Provisioner-Mode"))
            _, mode = await served.ask("viewer", "GET", "/mode")
            refused, why = await served.ask("operator", "POST", RECLAIM, {})
            shown, _ = await served.ask("operator", "POST", f"{RECLAIM}?dry_run=true", {})
        _, acting = await served.ask("viewer", "GET", "/mode")

        assert headers == ["observe"] * 3
        assert (mode["mode"], mode["why"]) == ("observe", "it was started with --observe")
        assert (refused, why["title"]) == (409, "This daemon only observes: nothing is changed")
        assert "--dry-run" in why["unblock"]
        assert shown == 200
        assert acting["mode"] == "act"
        assert await served.store.nodes.get("su0-n01") == before
        assert await served.store.operations.list_active() == ()

    run(scenario)


def test_only_changes_of_the_daemon_s_own_rows_are_allowed_while_it_observes() -> None:
    """A kind that is added to them has to be judged here: does it lead to a device?"""
    own = ("alert.", "audit.", "capability.", "clock.", "key.", "pin.", "policy.", "session.")
    others = {k for k in WHILE_OBSERVING if not k.startswith((*own, "token.", "webhook."))}
    assert others == {ChangeKind.NODE_ADOPT, ChangeKind.NODE_DETACH, ChangeKind.NODE_BMC_ADDRESS}


def test_the_metrics_name_the_mode_and_count_what_was_withheld() -> None:
    async def read() -> tuple[float | None, float | None]:
        async with open_telemetry(Settings(metrics_port=0), StillClock()) as measured:
            assert isinstance(measured.metrics, Metrics)
            read = measured.metrics.registry.get_sample_value
            return read("provisioner_observing"), read("provisioner_withheld_total")

    acting, before = asyncio.run(read())
    with permit.observe():
        with pytest.raises(LookOnly):
            permit.ask()
        observing, after = asyncio.run(read())
    assert (acting, observing) == (0.0, 1.0)
    assert before is not None
    assert after == before + 1
