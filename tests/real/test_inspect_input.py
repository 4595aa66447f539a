"""What people may write wrong, and what services may answer wrong: one line and an exit code."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from simulated import served
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.cli.options.checked_options import PASSWORD
from provisioner.model.input_error import InputError

PIN = "ab" * 32
WRONG: dict[str, tuple[list[str], str]] = {
    "no scheme": (["bmc.example:443"], "https://HOST:PORT"),
    "another scheme": (["ftp://bmc.example"], "https://HOST:PORT"),
    "no host": (["https://"], "https://HOST:PORT"),
    "a port that is none": (["https://bmc.example:99999"], "https://HOST:PORT"),
    "a password in the address": (["https://root:secret@bmc.example"], "--user"),
    "a path": (["https://bmc.example/redfish/v1/Systems"], "/redfish/v1"),
    "a pin that is none": (["https://bmc.example", "--pin", "abc"], "64 hexadecimal"),
    "a pin and no verification": (
        ["https://bmc.example", "--pin", PIN, "--insecure"],
        "exclude each other",
    ),
    "a file of CAs that is not there": (["https://bmc.example", "--ca", "/nowhere"], "PEM"),
    "a user without a password": (["https://bmc.example", "--user", "root"], PASSWORD),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG)
def test_bad_input_is_one_error_that_names_the_remedy(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)

    result = CliRunner().invoke(app, ["inspect", *arguments])

    assert isinstance(result.exception, InputError)  # `main` turns it into exit code 2
    assert told in str(result.exception)
    assert "secret" not in str(result.exception)


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")

    result = CliRunner().invoke(app, ["inspect", "https://bmc.example", "--ca", str(file)])

    assert isinstance(result.exception, InputError)
    assert "PEM" in str(result.exception)


def test_nobody_at_the_address_is_exit_code_1_and_one_line() -> None:
    result = CliRunner().invoke(app, ["inspect", "http://127.0.0.1:1"])

    assert result.exit_code == 1
    assert result.stderr.startswith("error: unreachable: ")
    assert result.stderr.count("\n") == 1


@contextmanager
def answering(body: Callable[[str], bytes], status: int = 200) -> Iterator[str]:
    """A service that gives the same kind of answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = body(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("body", [b"<html>It works</html>", b"[]", b"", b"{", b'{"a":' * 5000])
def test_a_service_that_is_not_redfish_is_said_to_be_none(body: bytes) -> None:
    with answering(lambda _path: body) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--json"])

    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert "this is no Redfish service" in result.stderr
    assert (found["components"], found["devices"]) == ([], [])
    assert found["gaps"] != []


def test_a_service_that_is_its_own_member_everywhere_comes_to_an_end() -> None:
    def loop(path: str) -> bytes:
        names = ("Systems", "Chassis", "Managers", "UpdateService", "FirmwareInventory")
        links = {name: {"@odata.id": path} for name in (*names, "Processors", "NetworkAdapters")}
        return json.dumps({**links, "Members": [{"@odata.id": "/redfish/v1"}]}).encode()

    with answering(loop) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--json"])

    assert result.exit_code == 0
    assert json.loads(result.stdout)["gaps"] != []


def test_a_service_that_answers_everything_with_500_is_unreachable() -> None:
    with answering(lambda _path: b"{}", status=500) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--json"])

    assert result.exit_code == 1
    assert "HTTP status 500" in result.stderr


def test_a_redfish_service_that_shows_nothing_is_no_success() -> None:
    root = {"@odata.id": "/redfish/v1", "RedfishVersion": "1.15.0", "Vendor": "AMI"}
    with answering(lambda _path: json.dumps(root).encode()) as url:
        result = CliRunner().invoke(app, ["inspect", url])

    assert result.exit_code == 1
    assert "it shows no part and no firmware" in result.stderr


def test_a_certificate_that_nobody_vouches_for_is_shown_with_the_command_that_pins_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(nodes=1) as site:
        url = site.url("su0-n00/host")
        login = site.site.build_expected()["factory_credentials"]["supermicro"]
        monkeypatch.setenv(PASSWORD, login["password"])
        user = ["--user", login["username"]]
        refused = CliRunner().invoke(app, ["inspect", url, *user])
        command = next(line for line in refused.stderr.splitlines() if "--pin" in line).split()
        shown = CliRunner().invoke(app, [*command[1:], "--json"])

    assert refused.exit_code == 1
    assert "certificate_untrusted" in refused.stderr
    assert command[:5] == ["provisioner", "inspect", url, *user]
    assert json.loads(shown.stdout)["system"]["serial"]
