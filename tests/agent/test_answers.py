"""What an agent answers is harmless once it is read, or it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.adapters.agent.service import (
    ERROR_MAX,
    digest_of,
    parse_command,
    parse_commands,
    read_fault,
)
from provisioner.ports import Malformed, Reply

TOKEN = "secret-token-of-this-boot"


def reply(body: Any, status: int = 200) -> Reply:
    return Reply(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def command(**changes: Any) -> dict[str, Any]:
    return {
        "id": "0a1b",
        "command_name": "execute_clean_step",
        "command_status": "SUCCEEDED",
        "command_error": None,
        "command_result": None,
        **changes,
    }


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[" * 60_000,
        [],
        {},
        command(id=None),
        command(id=""),
        command(id="../../status"),
        command(id="x" * 65),
        command(command_name=None),
        command(command_status="DONE"),
        command(command_status=None),
        command(command_status={}),
        command(command_result=nested(40)),
        command(command_result=[0] * 200_001),
    ],
)
def test_an_answer_that_is_no_command_is_malformed(body: Any) -> None:
    with pytest.raises(Malformed):
        parse_command(reply(body), TOKEN)


@pytest.mark.parametrize("body", [[], {"commands": {}}, {"commands": [1]}, {}])
def test_a_list_that_is_none_is_malformed(body: Any) -> None:
    with pytest.raises(Malformed):
        parse_commands(reply(body), TOKEN)


def test_texts_have_neither_control_characters_nor_the_token() -> None:
    error = {"type": "X", "message": "Clean step failed", "details": f"\x1b[2J{TOKEN}\r\nboom" * 99}
    failed = parse_command(reply(command(command_status="FAILED", command_error=error)), TOKEN)
    result = {f"log of {TOKEN}": [f"line\x1b]0;x\x07\nagent_token={TOKEN}\u202e"]}
    done = parse_command(reply(command(command_result=result)), TOKEN)

    assert failed.error.startswith("Clean step failed: [2J*** boom")
    assert len(failed.error) <= ERROR_MAX
    assert done.result == {"log of ***": ["line?]0;x?\nagent_token=***?"]}


def test_a_failure_without_words_is_a_failure() -> None:
    failed = parse_command(reply(command(command_status="FAILED")), TOKEN)

    assert failed.outcome().status == "FAILED"
    assert failed.outcome().error == "no reason was given"


def test_a_name_is_read_with_and_without_its_extension() -> None:
    names = ["execute_clean_step", "clean.execute_clean_step"]
    read = [parse_command(reply(command(command_name=n)), TOKEN).name for n in names]

    assert read == ["execute_clean_step"] * 2


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"faultcode": "Client", "faultstring": f"no {TOKEN}"}, "HTTP status 404: no ***"),
        ({"faultstring": 3}, "HTTP status 404"),
        (b"<html>", "HTTP status 404"),
        ([], "HTTP status 404"),
    ],
)
def test_a_fault_is_told_in_a_line(body: Any, text: str) -> None:
    assert read_fault(reply(body, 404), TOKEN) == text


def test_a_command_is_told_apart_by_its_parameters() -> None:
    one = digest_of("clean.execute_clean_step", {"step": {"a": 1, "b": 2}})

    assert one == digest_of("clean.execute_clean_step", {"step": {"b": 2, "a": 1}})
    assert one != digest_of("clean.execute_clean_step", {"step": {"a": 1, "b": 3}})
    assert one != digest_of("service.execute_clean_step", {"step": {"a": 1, "b": 2}})
