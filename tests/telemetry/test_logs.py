"""The log: what each line says, that it breaks for nobody, and that no secret is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from provisioner.access.tokens import new_token
from provisioner.model.access import Role
from provisioner.ports import Secret
from provisioner.runtime.log_context import set_log_context
from provisioner.telemetry.logs import LINE_MAX, scrub, set_up_logging

PASSWORD = "Correct-horse-battery-9"
TOKEN, _ = new_token("a@example", Role.VIEWER, "", 1.0, 0.0)
SECRETS = {
    "our own token": f"refused {TOKEN}",
    "a bearer of somebody else": "Authorization: Bearer eyJhbGciOi.abc.def",
    "Basic": "sent Basic cm9vdDpDb3JyZWN0LWhvcnNl to it",
    "a header of Redfish": "headers {'X-Auth-Token': '5f2b0c2d9a', 'Accept': '*'}",
    "a body": '{"UserName": "root", "Password": "Correct-horse-battery-9"}',
    "a body with quotes in it": r'{"Password": "Correct-horse\"battery-9", "x": 1}',
    "a setting": "password_file_secret=Correct-horse-battery-9; next",
    "an address": "GET https://root:Correct-horse-battery-9@10.0.0.1/redfish",
    "a private key": "-----BEGIN PRIVATE KEY-----\nMIIE5f2b0c2d9a\n-----END PRIVATE KEY-----",
    "a key that was cut off": "-----BEGIN OPENSSH PRIVATE KEY-----\nMIIE5f2b0c2d9a",
}
VALUES = (PASSWORD, TOKEN, "eyJhbGciOi", "cm9vdDpDb3Jy", "5f2b0c2d9a", "battery-9")


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """A log of the kind that the test names, and the log of before at its end."""
    root = logging.getLogger()
    before, level = tuple(root.handlers), root.level
    said = io.StringIO()
    set_up_logging(request.param, said)
    yield said
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
    for handler in before:
        root.addHandler(handler)
    root.setLevel(level)


both = pytest.mark.parametrize("lines", ["text", "json"], indirect=True)
text = pytest.mark.parametrize("lines", ["text"], indirect=True)
as_json = pytest.mark.parametrize("lines", ["json"], indirect=True)


@both
@pytest.mark.parametrize("what", SECRETS)
def test_no_secret_is_in_a_line_whoever_wrote_it(lines: io.StringIO, what: str):
    logging.getLogger("a.library").warning("it said: %s", SECRETS[what])

    assert "***" in lines.getvalue()
    assert [v for v in VALUES if v in lines.getvalue()] == []


@both
def test_no_secret_is_in_a_traceback(lines: io.StringIO):
    try:
        raise ValueError(SECRETS["a body"])
    except ValueError:
        logging.getLogger("ours").exception("it failed")

    assert "ValueError" in lines.getvalue()
    assert [v for v in VALUES if v in lines.getvalue()] == []


@both
def test_a_secret_of_ours_is_told_as_stars_before_anything_is_struck_out(lines: io.StringIO):
    logging.getLogger("ours").info("logged in with %s", Secret(PASSWORD))

    assert "Secret(***)" in lines.getvalue()


@as_json
def test_a_line_is_an_object_with_node_operation_and_step(lines: io.StringIO):
    with set_log_context(node="n07", operation="n07#3"), set_log_context(step="host.bmc 1 → 2"):
        logging.getLogger("ours").info("pushed %d bytes", 7)
    logging.getLogger("ours").info("serving")

    first, second = map(json.loads, lines.getvalue().splitlines())
    about_it = {k: first[k] for k in ("node", "operation", "step", "message", "level", "logger")}
    assert about_it == {
        "node": "n07",
        "operation": "n07#3",
        "step": "host.bmc 1 → 2",
        "message": "pushed 7 bytes",
        "level": "INFO",
        "logger": "ours",
    }
    assert set(second) == {"at", "level", "logger", "message"}


@as_json
def test_tasks_that_run_side_by_side_are_told_apart(lines: io.StringIO):
    async def work(name: str) -> None:
        with set_log_context(node=name):
            await asyncio.sleep(0)
            await asyncio.gather(part(), part())

    async def part() -> None:
        await asyncio.sleep(0)
        logging.getLogger("ours").info("done")

    async def all_of_it() -> None:
        await asyncio.gather(work("n1"), work("n2"))

    asyncio.run(all_of_it())
    nodes = sorted(json.loads(line)["node"] for line in lines.getvalue().splitlines())

    assert nodes == ["n1", "n1", "n2", "n2"]


@text
def test_a_line_for_people_names_what_it_is_about(lines: io.StringIO):
    with set_log_context(node="n07", operation="n07#3"):
        logging.getLogger("ours").warning("it waits")

    assert lines.getvalue().endswith("WARNING [n07 n07#3] it waits\n")


@both
def test_what_a_device_said_makes_no_line_of_its_own_and_moves_no_cursor(lines: io.StringIO):
    logging.getLogger("ours").info("it said %s", "x\n2026-11-21 INFO all is well\r\x1b[2J")

    assert lines.getvalue().count("\n") == 1
    assert "\x1b" not in lines.getvalue()


@both
def test_a_line_has_an_end(lines: io.StringIO):
    logging.getLogger("ours").info("x" * 10 * LINE_MAX)

    assert len(lines.getvalue()) < 2 * LINE_MAX


def test_what_only_looks_like_a_secret_to_nobody_is_left_alone():
    said = "su0-n07: 7 of 8 GPUs answer; certificate cert-n07; https://10.0.0.1:443/redfish/v1"

    assert scrub(said) == said
