"""The forms in which rows of the journal leave for a site's log systems.

Syslog is RFC 5424, framed by octets counted (RFC 5425 section 4.3). OpenTelemetry's logs are the
JSON form of OTLP/HTTP (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding": numbers of 64
bits are strings, enumerations are numbers), which every receiver of OTLP/HTTP has to take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from provisioner.model.integrations.audit_export import ExportOutcome
from provisioner.model.integrations.webhook import JournalRow
from provisioner.model.times.instant import format_instant, write_instants

# RFC 5424 section 6.2.1: facility 13 is "log audit", severity 5 "normal but significant"
PRIORITY = 13 * 8 + 5
PROGRAM = "provisioner"
HOSTNAME_MAX = 255  # RFC 5424 section 6, as are the next
MSGID_MAX = 32
ERROR_MAX = 300
SEVERITY_INFO = 9  # opentelemetry/proto/logs/v1/logs.proto, SEVERITY_NUMBER_INFO
NS = 1_000_000_000


def make_content(row: JournalRow, site: str) -> dict[str, object]:
    """Return a row as every receiver gets it, with its times as RFC 3339."""
    return {
        "site": site,
        "seq": row.seq,
        "at": format_instant(row.at),
        "kind": row.kind,
        "node": row.node,
        "detail": write_instants(row.detail),
        "sha256": row.sha256,
    }


def make_syslog_frame(row: JournalRow, site: str, hostname: str, bytes_max: int) -> bytes:
    """Return one message with its length before it.

    Of a row that is longer than the receiver takes, the detail is replaced by its length.
    """
    content = make_content(row, site)
    message = _make_message(row, hostname, content)
    if len(message) > bytes_max:
        length = len(_write(content["detail"]))
        message = _make_message(row, hostname, content | {"detail": {"omitted_bytes": length}})
    return f"{len(message)} ".encode() + message


def _make_message(row: JournalRow, hostname: str, content: Mapping[str, object]) -> bytes:
    at = datetime.fromtimestamp(row.at, UTC).isoformat(timespec="microseconds")
    header = (
        f"<{PRIORITY}>1",
        at.replace("+00:00", "Z"),
        _printable(hostname, HOSTNAME_MAX),
        PROGRAM,
        "-",  # the process id: a restart is a row of its own
        _printable(row.kind, MSGID_MAX),
        "-",  # structured data: our own would need a registered enterprise number
        _write(content),
    )
    return " ".join(header).encode("ascii")


def _printable(text: str, most: int) -> str:
    """Return a field of the header: PRINTUSASCII, and never empty (RFC 5424 section 6)."""
    return "".join(c for c in text if "!" <= c <= "~")[:most] or "-"


def _write(value: object) -> str:
    """Return JSON in ASCII, on one line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def make_otlp_request(rows: Sequence[JournalRow], site: str, version: str, now: float) -> bytes:
    """Return an `ExportLogsServiceRequest` of these rows, in JSON."""
    resource = {
        "service.name": PROGRAM,
        "service.version": version,
        "service.namespace": site,
    }
    records = [_make_record(row, now) for row in rows]
    scope = {"scope": {"name": "provisioner.journal"}, "logRecords": records}
    resource_logs = {
        "resource": {"attributes": _make_pairs(resource)},
        "scopeLogs": [scope],
    }
    return _write({"resourceLogs": [resource_logs]}).encode()


def _make_record(row: JournalRow, now: float) -> dict[str, object]:
    attributes = {
        "provisioner.seq": row.seq,
        "provisioner.node": row.node,
        "provisioner.sha256": row.sha256,
    }
    return {
        "timeUnixNano": str(int(row.at * NS)),
        "observedTimeUnixNano": str(int(now * NS)),
        "severityNumber": SEVERITY_INFO,
        "severityText": "INFO",
        "eventName": f"{PROGRAM}.{row.kind}",
        "body": _make_value(write_instants(row.detail)),
        "attributes": _make_pairs(attributes),
    }


def _make_pairs(values: Mapping[str, Any]) -> list[dict[str, object]]:
    return [{"key": str(key), "value": _make_value(value)} for key, value in values.items()]


def _make_value(value: Any) -> dict[str, object]:
    """Return an `AnyValue`; an empty one stands for null (common.proto)."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case Mapping():
            return {"kvlistValue": {"values": _make_pairs(value)}}
        case list() | tuple():
            return {"arrayValue": {"values": [_make_value(each) for each in value]}}
        case None:
            return {}
    return {"stringValue": str(value)}


def read_otlp_reply(status: int, body: bytes, sent: int) -> ExportOutcome:
    """Return the outcome of an answer: anything but 200 is tried again.

    Rows that the receiver rejected within a success must not be sent again (OTLP, "Partial
    Success"): they count as rejected, with its message; no more than were sent.
    """
    if status != 200:
        return ExportOutcome(taken=False, error=f"HTTP {status}")
    try:
        reply = json.loads(body)
        partial = reply.get("partialSuccess") or {}
        rejected = min(int(partial.get("rejectedLogRecords") or 0), sent)
        message = str(partial.get("errorMessage") or "")
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        return ExportOutcome(taken=True)  # a body that is no JSON rejects nothing
    if rejected <= 0:
        return ExportOutcome(taken=True)
    shown = "".join(c for c in " ".join(message.split()) if c.isprintable())[:ERROR_MAX]
    return ExportOutcome(taken=True, rejected=rejected, error=f"{rejected} rows rejected: {shown}")
