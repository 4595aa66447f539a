"""Rows of the journal in the forms of RFC 5424 and of OpenTelemetry's own message definitions."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from provisioner.integrations.audit_export.form import (
    make_otlp_request,
    make_syslog_frame,
    read_otlp_reply,
)
from provisioner.model.integrations.webhook import JournalRow

ROW = JournalRow(
    seq=7,
    at=1000.5,
    kind="state",
    node="n1",
    detail={"to": "certified", "entered_at": 1000.0, "ports": ["a"], "n": 3, "q": 0.5, "no": None},
    sha256="ab" * 32,
)


def test_a_message_of_syslog_has_its_length_before_it_and_is_one_line_of_ascii():
    row = ROW.model_copy(update={"detail": {"note": "two\nlines, ü and \u202e"}})
    frame = make_syslog_frame(row, "here", "prov-1", 8192)
    length, _, message = frame.partition(b" ")
    header, content = message[: message.index(b"{")], message[message.index(b"{") :]

    assert int(length) == len(message)
    assert header == b"<109>1 1970-01-01T00:16:40.500000Z prov-1 provisioner - state - "
    assert message.isascii()
    assert b"\n" not in message
    assert json.loads(content) == {
        "site": "here",
        "seq": 7,
        "at": "1970-01-01T00:16:40.500Z",
        "kind": "state",
        "node": "n1",
        "detail": row.detail,
        "sha256": "ab" * 32,
    }


@pytest.mark.parametrize("hostname", ["", "ü ü", "a b\n<1>c"])
def test_a_hostname_cannot_break_the_header(hostname: str):
    message = make_syslog_frame(ROW, "here", hostname, 8192).partition(b" ")[2]
    fields = message.split(b" ")

    assert fields[3] == b"provisioner"
    assert fields[2]


def test_a_row_that_is_too_long_is_sent_without_its_detail():
    row = ROW.model_copy(update={"detail": {"text": "x" * 5000}})
    frame = make_syslog_frame(row, "here", "prov-1", 2048)
    content = json.loads(frame[frame.index(b"{") :])

    assert len(frame) < 2048
    assert content["detail"] == {"omitted_bytes": 5011}
    assert content["sha256"] == row.sha256


def test_a_request_of_logs_is_read_by_opentelemetrys_own_definitions():
    body = make_otlp_request([ROW, ROW.model_copy(update={"seq": 8})], "here", "1.0", 2000.0)
    request = Parse(body, ExportLogsServiceRequest())  # refuses fields that are not defined
    (resource,) = request.resource_logs
    (scope,) = resource.scope_logs
    first, second = scope.log_records
    values = {pair.key: pair.value for pair in first.body.kvlist_value.values}

    assert {p.key: p.value.string_value for p in resource.resource.attributes} == {
        "service.name": "provisioner",
        "service.version": "1.0",
        "service.namespace": "here",
    }
    assert first.event_name == "provisioner.state"
    assert first.time_unix_nano == 1_000_500_000_000
    assert first.observed_time_unix_nano == 2_000_000_000_000
    assert first.severity_number == 9
    assert [p.value.int_value for p in second.attributes if p.key == "provisioner.seq"] == [8]
    assert values["to"].string_value == "certified"
    assert values["entered_at"].string_value == "1970-01-01T00:16:40.000Z"
    assert values["n"].int_value == 3
    assert values["q"].double_value == 0.5
    assert [v.string_value for v in values["ports"].array_value.values] == ["a"]
    assert values["no"].WhichOneof("value") is None


@pytest.mark.parametrize(
    ("status", "body", "taken", "rejected"),
    [
        (200, b"{}", True, 0),
        (200, b"", True, 0),
        (200, b'{"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "old"}}', True, 2),
        (200, b'{"partialSuccess": {"rejectedLogRecords": "99"}}', True, 5),
        (200, b'{"partialSuccess": {"errorMessage": "a warning"}}', True, 0),
        (202, b"{}", False, 0),
        (302, b"{}", False, 0),
        (400, b"{}", False, 0),
        (503, b"{}", False, 0),
    ],
)
def test_only_a_200_is_a_proof_and_refused_rows_are_counted(status, body, taken, rejected):
    outcome = read_otlp_reply(status, body, 5)

    assert (outcome.taken, outcome.rejected) == (taken, rejected)
