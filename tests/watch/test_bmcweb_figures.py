"""What is promised of events, in figures, against NVIDIA's own Redfish server's behaviour.

source: NVIDIA/bmcweb 7f3a16ae, run with real PAM and TLS. Its other rows are in
tests/recorded/test_bmcweb_rows.py, tests/watch/test_replayed_events.py, tests/sim/
test_event_streams.py and tests/real/test_watch_events.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import HOST, Serving
from test_replayed_events import XID_79, lived, requests_after

from provisioner.adapters.redfish.eventing.events import read_document

RECONNECTS = 20
LOGINS = 100
HOURS = 2  # of the day: each is like the others, and has one break
HEARD_SHARE = 0.99
# no sweeps: the figures are of events alone
CALM = {"watch_s": 1e6, "watch_parts_s": 1e6, "watch_node_s": 1200.0, "watch_told_s": 1e6}


def test_row_1_one_fault_and_twenty_reconnects_give_exactly_one_alert(tmp_path: Path) -> None:
    """source: docs/sources/redfish.md#events.

    A reconnect replays whatever fits, up to all 200 kept events.
    """

    async def story(serving: Serving) -> tuple[int, list[int]]:
        await serving.start()
        url = serving.url()
        assert await serving.until(lambda _: url in serving.streams.open_now, 1800)
        await serving.world.clock.sleep(30)
        key, args = str(XID_79["MessageId"]), list(XID_79["MessageArgs"])
        serving.events().emit(key, "", args, serving.world.clock.now())
        assert await serving.until(bool, 60)
        for _ in range(RECONNECTS):
            serving.streams.break_off(url)
            await serving.world.clock.sleep(120)
            for _, old in list(serving.events().kept):
                await serving.watcher.receive(HOST, "host", read_document(old))
        rows = await serving.world.store.journal.list()
        raised = [r for r in rows if "'id': 'Xid79'" in str(r) or '"id":"Xid79"' in str(r)]
        alerts = [a.count for a in await serving.book.list(HOST) if a.id == "Xid79"]
        return len(raised), alerts

    assert lived(tmp_path, story, **CALM) == (1, [1])


def test_row_4_a_quiet_stream_is_heard_99_percent_of_a_day(tmp_path: Path) -> None:
    """source: docs/sources/redfish.md#events: a quiet stream carries no comment at all."""

    async def story(serving: Serving) -> float:
        await serving.start()
        url, clock = serving.url(), serving.world.clock
        assert await serving.until(lambda _: url in serving.streams.open_now, 1800)
        lost_s = 0.0
        for _ in range(HOURS):
            await clock.sleep(3600.0)
            opened = [u for u, _ in serving.streams.opened].count(url)
            serving.streams.break_off(url)
            while [u for u, _ in serving.streams.opened].count(url) == opened:
                await clock.sleep(1.0)
                lost_s += 1.0
        return 1.0 - lost_s / (3600.0 * HOURS)

    assert lived(tmp_path, story, **CALM) >= HEARD_SHARE


def test_row_5_a_hundred_foreign_logins_cost_no_sweep(tmp_path: Path) -> None:
    """source: docs/sources/redfish.md#login-events: each login by anybody is an event."""
    sessions = [f"/redfish/v1/SessionService/Sessions/{n}" for n in range(LOGINS)]

    assert requests_after(tmp_path, *sessions) == 0


@pytest.mark.parametrize("context", [None, "ours"])
def test_row_2_a_document_without_a_context_is_read(context: str | None) -> None:
    """source: docs/sources/redfish.md#events: event documents have no top-level Context."""
    document = {"Events": [XID_79], **({"Context": context} if context else {})}

    read = read_document(document)

    assert (len(read.events), read.context) == (1, context or "")


@pytest.mark.parametrize("severity", ["MessageSeverity", "Severity"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_the_table_records_of_any_age_are_read_also_without_a_document(
    severity: str, *, wrapped: bool
) -> None:
    """source: docs/sources/redfish.md#bmcweb.

    Old records have Severity; some replays are bare records.
    """
    origin = "/redfish/v1/Chassis/HGX_Chassis_0"
    record = {k: v for k, v in XID_79.items() if k not in ("MessageSeverity", "Severity")}
    record |= {severity: "Critical", "OriginOfCondition": {"@odata.id": origin}}
    plain = record | {"OriginOfCondition": origin}

    read = [read_document({"Events": [r]} if wrapped else r).events for r in (record, plain)]

    assert read[0] == read[1]
    assert [(e.severity, e.origin) for e in read[0]] == [("Critical", origin)]


def test_the_table_a_buffer_that_ran_over_asks_for_a_look() -> None:
    """source: docs/sources/redfish.md#bmcweb: EventBufferExceeded comes as a bare message."""
    assert read_document({"MessageId": "Base.1.18.EventBufferExceeded"}).asks_for_a_look
