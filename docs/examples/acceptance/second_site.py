"""A second daemon, `provisioner serve`, with services beside it that the demonstration has not.

They are an OIDC provider that demands a second factor, a receiver of OpenTelemetry, and an OpenBao
server that seals the daemon's master key. OpenBao is the real program (`bao` in PATH, or
PROVISIONER_BAO); without it its steps are skipped.
"""

from __future__ import annotations

import importlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certificate_issue import AUTHORITY, issue
from google.protobuf.json_format import Parse, ParseError
from guest_host import run_tool
from login_provider import AUDIENCE, CLIENT, MFA, LoginProvider
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

ROOT = Path(__file__).resolve().parents[3]
HELPERS = ("key_service", "real/postgres")  # of the tests: they start OpenBao
PROGRAM = (sys.executable, "-m", "provisioner")
START_S = 300.0
STOP_S = 30.0


class SecondSite:
    """The second daemon and its services."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.provider = LoginProvider()
        self.rows = directory / "collected.jsonl"  # what the receiver of OpenTelemetry got
        self.certificate = directory / "api.pem"
        self.collecting = True
        self.bao: Any = None
        self.port = _find_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the address of its API."""
        return f"https://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables from which a step takes its addresses."""
        shown = {
            "SECOND_API": self.url,
            "SECOND_CA": str(self.directory / f"{AUTHORITY}.pem"),
            "SECOND_DATA": str(self.data),
            "SECOND_CERTIFICATE": str(self.certificate),
            "SECOND_TOKEN_FILE": str(self.directory / "token"),
            "LOGIN_TOKENS": str(self.directory / "logins.json"),
            "LOGIN_ISSUER": self.provider.issuer,
            "COLLECTED": str(self.rows),
        }
        if self.bao is not None:
            shown |= {
                "BAO": self.bao.address,
                "BAO_CA": self.bao.ca_file,
                "BAO_TOKEN_FILE": str(self.bao.folder / "token"),
            }
        return {f"ACCEPTANCE_{name}": value for name, value in shown.items()}

    def run(self, *words: str) -> str:
        """Run a command of the program on its data and return the output."""
        return run_tool(*PROGRAM, *words, "--data", str(self.data), timeout_s=START_S)

    def seal(self) -> None:
        """Have OpenBao seal the master key."""
        folder = self.bao.folder
        files = ("--role-id-file", folder / "role-id", "--secret-id-file", folder / "secret-id")
        words = ("--address", self.bao.address, "--key", "provisioner", "--ca-file")
        self.run("db", "wrap-key", *words, self.bao.ca_file, *map(str, files))

    def start(self, **changes: Any) -> None:
        """Start the daemon, with changes of its settings, and wait until it answers."""
        settings = {
            "production": False,
            "site": "second",
            "api_oidc_issuer": self.provider.issuer,
            "api_oidc_audience": AUDIENCE,
            "api_oidc_client_id": CLIENT,
            "api_oidc_redirect_url": f"{self.url}/console/signed-in",
            "api_oidc_methods": [MFA],
            "audit_otlp_endpoint": f"http://127.0.0.1:{self._collector.server_port}/v1/logs",
            # one of the site's own, once there is the authority that clients trust
            **({"api_certificate": str(self.certificate)} if self.certificate.exists() else {}),
            **changes,
        }
        file = self.directory / "settings.yaml"
        file.write_text(json.dumps(settings), encoding="utf-8")  # JSON is valid YAML
        ports = ("--artifact-port", "0", "--agent-port", "0", "--api-port", str(self.port))
        files = ("--settings", str(file), "--artifacts", str(self.directory / "artifacts"))
        with (self.directory / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve", "--data", str(self.data), *ports, *files],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        until = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "daemon.log").read_text(encoding="utf-8")
                raise RuntimeError(f"the second daemon did not start:\n{text[-2000:]}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Stop the daemon."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_S)
            self._process = None

    @contextmanager
    def restarted(self, **changes: Any) -> Iterator[None]:
        """Run the daemon with changes of its settings for a while."""
        self.stop()
        self.start(**changes)
        try:
            yield
        finally:
            self.stop()
            self.start()

    @contextmanager
    def collector(self) -> Iterator[None]:
        """Take logs of OpenTelemetry by its own definitions."""
        self._collector = ThreadingHTTPServer(("127.0.0.1", 0), _make_collector(self))
        threading.Thread(target=self._collector.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            self._collector.shutdown()
            self._collector.server_close()


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _make_collector(site: SecondSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            try:
                Parse(text, ExportLogsServiceRequest())  # refuses fields that are not defined
                status = 200 if site.collecting else 503
            except ParseError:
                status = 400
            if status == 200:
                with site.rows.open("a", encoding="utf-8") as file:
                    file.write(text.replace("\n", "") + "\n")
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    return Handler


@contextmanager
def run_second_site(directory: Path) -> Iterator[SecondSite]:
    """Start the services and the daemon, and end them afterwards."""
    sys.path += [str(ROOT / "tests" / name) for name in HELPERS]
    bao_server = importlib.import_module("bao_server")
    directory.mkdir(parents=True)
    (directory / "artifacts").mkdir()
    site = SecondSite(directory)
    site.rows.touch()
    with ExitStack() as stack:
        site.provider.serve()
        stack.callback(site.provider.close)
        stack.enter_context(site.collector())
        if bao_server.find_bao() is not None:
            site.bao = stack.enter_context(bao_server.running_bao(directory / "bao"))
        site.provider.write_tokens(directory / "logins.json")
        site.start()
        stack.callback(site.stop)
        token = site.run("token", "create", "--subject", "acceptance", "--role", "operator")
        (directory / "token").touch(mode=0o600)
        (directory / "token").write_text(token, encoding="utf-8")
        issue(site.data, site.certificate)
        site.stop()
        if site.bao is not None:
            site.seal()
        site.start()
        yield site
