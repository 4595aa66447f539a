"""No row of the journal is lost on its way to a receiver: rsyslog over TLS, and OTLP over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from exporting import DRIVERS, RSYSLOG, Rsyslog, exporting, tls_server
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from provisioner.integrations.audit_export.opening import open_audit_sinks
from provisioner.model.input_error import InputError
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.rows.journal_prune import read_needs

needs_rsyslog = pytest.mark.skipif(
    RSYSLOG is None or len(DRIVERS) < 2,
    reason="rsyslog is not installed: apt-get install rsyslog rsyslog-openssl rsyslog-gnutls",
)


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[Rsyslog]:
    server = Rsyslog(tmp_path / "rsyslog")
    yield server
    server.stop()


def settings_of(server: Rsyslog) -> dict[str, Any]:
    trusted = str(server.folder / "cert.pem")
    return {"audit_syslog": f"127.0.0.1:{server.port}", "audit_syslog_ca_file": trusted}


@needs_rsyslog
def test_rsyslog_gets_every_row_in_order_also_over_its_own_absence(
    tmp_path: Path, rsyslog: Rsyslog
):
    async def main() -> tuple[list[int], float, float]:
        async with exporting(tmp_path, audit_export_rows=20, **settings_of(rsyslog)) as site:
            (sink,) = site.sinks
            await rsyslog.start()
            await site.happens(50)
            await site.hand_over()
            await rsyslog.receive(50)
            rsyslog.stop()
            await site.happens(30)
            assert await site.export.export(sink) == 1
            (away,) = await site.book.list()
            await rsyslog.start()
            await site.hand_over(failures=1)
            (back,) = await site.book.list()
            await rsyslog.receive(80)
            assert (away.waiting, back.waiting) == (30, 0)
            return await site.sequence(), away.failing_since, back.failing_since

    sequence, away, back = asyncio.run(main())
    rsyslog.stop()
    rows = rsyslog.read()
    header, content = rows[-1]

    assert list(dict.fromkeys(row["seq"] for _, row in rows)) == sequence
    assert header == ["109", "1970-01-01T00:16:40.500000Z", "provisioner", "state"]
    assert content["detail"] == {"to": "certified"}
    assert away > 0.0
    assert back == 0.0


@needs_rsyslog
def test_a_daemon_that_dies_before_it_recorded_the_receipt_sends_the_rows_again(
    tmp_path: Path, rsyslog: Rsyslog
):
    async def main() -> list[int]:
        async with exporting(tmp_path, **settings_of(rsyslog)) as site:
            await rsyslog.start()
            await site.happens(10)
            (sink,) = site.sinks
            _, rows = await site.book.list_rows(sink.receiver, 5)
            while not (await sink.send(rows, 20.0)).taken:  # noqa: ASYNC110 (a try)
                await asyncio.sleep(0.05)
            # and here the daemon dies
        async with exporting(tmp_path, **settings_of(rsyslog)) as site:
            await site.hand_over()
            await rsyslog.receive(10)
            return await site.sequence()

    sequence = asyncio.run(main())
    rsyslog.stop()
    arrived = [row["seq"] for _, row in rsyslog.read()]

    assert all(arrived.count(seq) > 1 for seq in sequence[:5])
    assert list(dict.fromkeys(arrived)) == sequence


@needs_rsyslog
def test_a_server_that_is_not_trusted_gets_nothing(tmp_path: Path, rsyslog: Rsyslog):
    async def main() -> str:
        settings = settings_of(rsyslog) | {"audit_syslog_ca_file": ""}
        async with exporting(tmp_path, **settings) as site:
            await rsyslog.start()
            await site.happens(1)
            assert await site.export.export(site.sinks[0]) == 1
            (status,) = await site.book.list()
            return status.error

    error = asyncio.run(main())
    rsyslog.stop()

    assert "CERTIFICATE_VERIFY_FAILED" in error
    assert rsyslog.read() == []


@needs_rsyslog
@pytest.mark.parametrize(("receipt", "failures"), [("close_notify", 1), ("end", 0)])
def test_a_connection_that_only_ends_proves_nothing_unless_the_site_says_so(
    tmp_path: Path, receipt: str, failures: int
):
    # rsyslog's other driver reads everything, and ends the connection without a close_notify
    server = Rsyslog(tmp_path / "rsyslog", "gtls")

    async def main() -> tuple[int, int]:
        settings = settings_of(server) | {"audit_syslog_receipt": receipt}
        async with exporting(tmp_path, **settings) as site:
            await server.start()
            await site.happens(3)
            failed = await site.export.export(site.sinks[0])
            await server.receive(3)
            return failed, (await site.book.list())[0].waiting

    try:
        assert asyncio.run(main()) == (failures, 3 * failures)
    finally:
        server.stop()
    assert [row["seq"] for _, row in server.read()] == [1, 2, 3]


@pytest.mark.parametrize("receipt", ["close_notify", "end"])
def test_a_connection_that_is_reset_proves_nothing(tmp_path: Path, receipt: str):
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.transport.abort()

    async def main() -> int:
        async with (
            tls_server(tmp_path, take) as settings,
            exporting(tmp_path, audit_syslog_receipt=receipt, **settings) as site,
        ):
            await site.happens(300, {"to": "x" * 4000})
            return await site.export.export(site.sinks[0])

    assert asyncio.run(main()) == 1


class Collector:
    """A receiver of OTLP/HTTP that reads requests by OpenTelemetry's own definitions."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.headers: list[str] = []
        self.answers: list[int | None] = []  # None: the request is taken, and the answer is lost
        self.partial: dict[str, Any] = {}

    async def take(self, request: web.Request) -> web.StreamResponse:
        parsed = Parse(await request.read(), ExportLogsServiceRequest())
        status = self.answers.pop(0) if self.answers else 200
        if status in (200, None):
            records = parsed.resource_logs[0].scope_logs[0].log_records
            pairs = (pair for record in records for pair in record.attributes)
            self.got += [p.value.int_value for p in pairs if p.key == "provisioner.seq"]
        self.headers.append(request.headers.get("api-key", ""))
        if status is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return web.json_response(self.partial, status=status)


async def collected(tmp_path: Path, collector: Collector, rows: int) -> tuple[list[int], Any]:
    """Export until nothing waits; return the journal's numbers and the last status."""
    app = web.Application()
    app.router.add_post("/v1/logs", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    headers = tmp_path / "headers"
    headers.write_text("api-key: hidden-value\n")
    settings = {
        "audit_otlp_endpoint": f"http://127.0.0.1:{runner.addresses[0][1]}/v1/logs",
        "audit_otlp_headers_file": str(headers),
        "audit_export_rows": 8,
    }
    try:
        async with exporting(tmp_path, **settings) as site, asyncio.timeout(20):
            await site.happens(rows)
            running = asyncio.create_task(site.export.run())
            while (await site.book.list())[0].waiting:  # noqa: ASYNC110 (a row of the database)
                await asyncio.sleep(0.02)
            running.cancel()
            return await site.sequence(), (await site.book.list())[0]
    finally:
        await runner.cleanup()


def test_a_collector_gets_every_row_at_least_once_whatever_answers_are_lost(tmp_path: Path):
    collector = Collector()
    collector.answers = [200, 503, None, 429, 200, 400, None]
    sequence, status = asyncio.run(collected(tmp_path, collector, 40))

    assert sorted(set(collector.got)) == sequence
    assert len(collector.got) > len(sequence)  # the answers that were lost
    assert status.error == "HTTP 400" or "Disconnected" in status.error
    assert status.failing_since == 0.0
    assert set(collector.headers) == {"hidden-value"}


def test_rows_that_a_collector_refuses_are_counted_and_not_sent_again(tmp_path: Path):
    collector = Collector()
    collector.partial = {"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "too old"}}
    sequence, status = asyncio.run(collected(tmp_path, collector, 8))

    assert collector.got == sequence
    assert status.rejected == 3
    assert status.error == "3 rows rejected: too old"


def test_rows_that_a_receiver_has_not_taken_are_not_pruned(tmp_path: Path):
    async def main() -> list[str]:
        async with exporting(tmp_path, audit_syslog="127.0.0.1:9") as site:
            await site.happens(1)
            row = (await site.data.store.journal.list())[0]
            reasons = [(await site.data.store.read(partial(read_needs, now=1e9))).explain(row)]
            await site.book.set_receivers([])  # the site has taken the setting out
            reasons += [(await site.data.store.read(partial(read_needs, now=1e9))).explain(row)]
            return reasons

    assert asyncio.run(main()) == ["audit export", ""]


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"audit_otlp_endpoint": "http://192.0.2.1:4318/v1/logs"}, "audit_otlp_endpoint"),
        ({"audit_syslog": "a:6514", "audit_syslog_ca_file": "/nowhere"}, "audit_syslog_ca_file"),
        (
            {"audit_syslog": "a:6514", "audit_syslog_identity_file": "/nowhere"},
            "audit_syslog_identity_file",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_daemon_starts(settings, source):
    async def main() -> None:
        async with open_audit_sinks(Settings.model_validate(settings), WallClock()):
            pass

    with pytest.raises(InputError) as refused:
        asyncio.run(main())

    assert refused.value.source == source
    assert json.dumps(refused.value.remedy) != '""'
