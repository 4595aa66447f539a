"""A real nginx on loopback, with a configuration of its own, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
MISSING = "nginx is not installed: apt-get install nginx-light"
OLD = 1_700_000_000  # files are older than any request, unless a test says otherwise
CONFIG = """
daemon off;
master_process off;
pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 64; }}
http {{
  log_format plain '$request_method $request_uri $status';
  access_log {home}/access.log plain;
  client_body_temp_path {home}/t1; proxy_temp_path {home}/t2; fastcgi_temp_path {home}/t3;
  uwsgi_temp_path {home}/t4; scgi_temp_path {home}/t5;
  default_type application/octet-stream;
  server {{
    listen 127.0.0.1:{port} {tls};
    {certificate}
    root {home}/www;
    merge_slashes {merge};
    location ~ ^// {{ return 404; }}
    location /moved/ {{ return 302 /files/; }}
    location /closed/ {{ deny all; }}
    location /packed/ {{ alias {home}/www/files/; add_header Content-Encoding gzip; }}
    location /silent/ {{ alias {home}/www/files/; etag off; add_header Last-Modified ""; }}
    location /broken/ {{ return 503; }}
    location /slow/ {{ alias {home}/www/files/; limit_rate 256k; }}
    {more}
  }}
}}
"""


class Nginx:
    """Its files are in `www/files`; `url` is where they are offered."""

    def __init__(
        self,
        home: Path,
        tls: tuple[bytes, bytes] | None = None,
        merge: bool = True,
        more: str = "",
    ) -> None:
        assert NGINX is not None
        self.home, self.files = home, home / "www" / "files"
        self.files.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ""
        if tls is not None:
            (home / "cert.pem").write_bytes(tls[0])
            (home / "key.pem").write_bytes(tls[1])
            words = f"ssl_certificate {home}/cert.pem; ssl_certificate_key {home}/key.pem;"
        text = CONFIG.format(
            home=home,
            port=self.port,
            tls="ssl" if tls else "",
            certificate=words,
            merge="on" if merge else "off",
            more=more,
        )
        (home / "nginx.conf").write_text(text)
        self.origin = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.url = f"{self.origin}/files"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen; returns when it does."""
        command = [str(NGINX), "-p", str(self.home), "-c", str(self.home / "nginx.conf")]
        with (self.home / "said").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said)
        for _ in range(500):
            assert self._process.poll() is None, (self.home / "said").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise AssertionError("nginx does not listen")

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it; what it was sending breaks off."""
        if self._process is not None:
            self._process.send_signal(sign)
            self._process.wait(20)
            self._process = None

    def put(self, name: str, content: bytes, modified: float = OLD) -> None:
        """Exchange a file as an administrator should: at once."""
        new = self.files / f".{name}.new"
        new.write_bytes(content)
        os.utime(new, (modified, modified))
        new.replace(self.files / name)

    def asked(self, method: str = "GET") -> list[str]:
        """Paths that were asked for with this method, in order."""
        lines = [line.split() for line in (self.home / "access.log").read_text().splitlines()]
        return [path for verb, path, _status in lines if verb == method]


@contextlib.contextmanager
def nginx(
    home: Path, tls: tuple[bytes, bytes] | None = None, *, merge: bool = True, more: str = ""
) -> Iterator[Nginx]:
    """A server that runs, and is ended whatever happens. `merge`: two slashes are as one; `more`
    stands in its `server` block."""
    server = Nginx(home, tls, merge, more)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL)
