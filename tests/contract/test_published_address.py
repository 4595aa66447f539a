"""A page that a person names is fetched over TLS alone, within bounds, and refused in one line."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.integrations.published_versions import public_address
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.model.input_error import InputError


class Page(http.server.BaseHTTPRequestHandler):
    """Python's own server: a table, one without an ending, a redirect, and what is not there."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status = {"/moved": 302, "/absent": 404}.get(path, 200)
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        if status == 302:
            self.send_header("Location", "/table.csv")
        body = b"" if status != 200 else b"component,version\n" * (5000 if path == "/long" else 1)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The server's address, and the file of the CA that its certificate is of."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate("pages", "127.0.0.1")
    (folder / "ca.pem").write_bytes(certificate)
    (folder / "both.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", str(folder / "ca.pem")
    server.shutdown()
    server.server_close()


def refusal(address: str, ca: str = "") -> str:
    with pytest.raises(InputError) as caught:
        public_address.fetch(address, ca)
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"), [("/table.csv", "table.csv"), ("/notes", "notes.html"), ("/", "index.html")]
)
def test_a_page_comes_whole_with_a_name_that_says_its_form(
    site: tuple[str, str], path: str, name: str
) -> None:
    url, ca = site

    assert public_address.fetch(f"{url}{path}?session=1", ca) == (name, b"component,version\n")


def test_a_server_of_another_authority_is_not_believed(
    site: tuple[str, str], tmp_path: Path
) -> None:
    other, _ = make_certificate("other", "127.0.0.1")
    (tmp_path / "other.pem").write_bytes(other)

    for ca in ("", str(tmp_path / "other.pem")):
        assert "certificate" in refusal(f"{site[0]}/table.csv", ca).lower()


def test_a_redirect_is_told_and_not_followed(site: tuple[str, str]) -> None:
    said = refusal(f"{site[0]}/moved?token=secret", site[1])

    assert "status 302, and leads to /table.csv" in said
    assert "secret" not in said


def test_what_is_not_there_or_is_too_long_is_refused(
    site: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_address, "FETCHED_BYTES_MAX", 4096)

    assert "status 404" in refusal(f"{site[0]}/absent", site[1])
    assert "4096" in refusal(f"{site[0]}/long", site[1]).replace(",", "").replace(" ", "")


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1/x", "https://ada:secret@127.0.0.1/x", "https:///x", "ftp://127.0.0.1/x"],
)
def test_only_an_https_address_without_credentials_is_asked(address: str) -> None:
    said = refusal(address)

    assert "no https address without credentials" in said
    assert "secret" not in said
