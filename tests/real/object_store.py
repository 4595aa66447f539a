"""A real object store on loopback for as long as a block lasts: Ceph's RADOS Gateway with S3.

One monitor, one OSD that keeps its objects in memory, one gateway; no manager, which counts and
shows only. Keys are made for it and thrown away. What is asked with a key is signed here (AWS
Signature Version 4): a library for this would be the tests' only use of some dozen packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = (*PACKAGES, "ceph", "ceph-authtool", "monmaptool", "radosgw-admin")
ABSENT = [name for name in PROGRAMS if shutil.which(name) is None]
MISSING = f"no {', '.join(ABSENT)}: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
REGION = "us-east-1"  # any: the gateway of one zone takes all
DOMAIN = "s3.test"  # a host BUCKET.DOMAIN is asked for a key alone
START_MAX_S = 120.0  # some ten seconds on a machine that does nothing else
CONFIG = """
[global]
fsid = {fsid}
mon host = {monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {home}/keyring
run dir = {home}
crash dir = {home}
admin socket =
pid file =
log file = {home}/$name.log
mon cluster log file = {home}/cluster.log
mon data = {home}/mon
osd data = {home}/osd
osd objectstore = memstore
memstore device bytes = 268435456
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon data avail crit = 1
paxos propose interval = 0.05
paxos min wait = 0.01
rgw data = {home}
rgw dns name = {domain}
rgw frontends = beast endpoint=127.0.0.1:{port}
"""
OWNERS = {  # whom the keys are of, and what they may
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *"),
    "client.rgw": ("mon", "allow rw", "osd", "allow rwx"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
}
ASKED = re.compile(r'beast: \S+: (\S+) - \S+ \[[^]]*\] "(\S+) (.*?) HTTP/1\.[01]" (\d+) ')


@dataclass(frozen=True)
class Answer:
    """Of a request; names of headers in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ObjectStore:
    """`origin` is where its buckets are: `origin/BUCKET/KEY`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        monitors, self.port = (free_port(), free_port()), free_port()
        self.monitor = f"[v2:127.0.0.1:{monitors[0]},v1:127.0.0.1:{monitors[1]}]"
        self.fsid = str(uuid.uuid4())
        self.config = home / "ceph.conf"
        self.config.write_text(
            CONFIG.format(
                home=home, fsid=self.fsid, monitor=self.monitor, port=self.port, domain=DOMAIN
            )
        )
        self.origin = f"http://127.0.0.1:{self.port}"
        self.key, self._secret = secrets.token_hex(10), secrets.token_hex(20)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Make a cluster of nothing, and a user; returns when the gateway answers."""
        home, keyring = str(self.home), str(self.home / "keyring")
        for number, (owner, caps) in enumerate(OWNERS.items()):
            words = ["ceph-authtool", keyring, "--gen-key", "-n", owner]
            for what, how in zip(caps[::2], caps[1::2], strict=True):
                words += ["--cap", what, how]
            _done(words if number else [*words, "--create-keyring"])
        (self.home / "mon").mkdir()
        (self.home / "osd").mkdir()
        map_ = f"{home}/monmap"
        _done(["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", self.monitor, map_])
        self._done("ceph-mon", "-i", "a", "--mkfs", "--monmap", map_, "--keyring", keyring)
        self._run("ceph-mon", "-i", "a", "-f")
        self._done("ceph", "osd", "create")
        self._done("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", str(uuid.uuid4()))
        self._run("ceph-osd", "-i", "0", "-f")
        user = ("--uid=site", "--display-name=site")
        keys = (f"--access-key={self.key}", f"--secret-key={self._secret}")
        self._done("radosgw-admin", "user", "create", *user, *keys)
        gateway = self._run("radosgw", "-n", "client.rgw", "-f")
        end = time.monotonic() + START_MAX_S
        while time.monotonic() < end:
            assert gateway.poll() is None, (self.home / "said").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError("the gateway does not listen")

    def stop(self) -> None:
        """End its processes, each by its own id; what they kept was in memory."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        self._processes.clear()

    def signed(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask as the user to whom the buckets belong. Asserts that it was granted."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        sent = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": digest, "x-amz-date": now}
        path = quote(path, safe="/~")
        asked = "&".join(
            f"{quote(k)}={quote(v, safe='~')}" for k, v in sorted((query or {}).items())
        )
        names = ";".join(sent)  # these are in order
        lines = "".join(f"{name}:{value}\n" for name, value in sent.items())
        request = f"{method}\n{path}\n{asked}\n{lines}\n{names}\n{digest}"
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, "
            f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
        )
        address = f"{path}?{asked}" if asked else path
        answer = ask(self.port, method, address, body, {**sent, **(headers or {})})
        assert answer.status in (200, 204), (method, address, answer)
        return answer

    def bucket(self, name: str, policy: str = "") -> str:
        """Make one; its URL. `policy`: who may read it besides us, as JSON."""
        self.signed("PUT", f"/{name}")
        if policy:
            self.signed("PUT", f"/{name}", policy.encode(), query={"policy": ""})
        return f"{self.origin}/{name}"

    def put(
        self, bucket: str, key: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Upload an object; another one of this key gives way."""
        self.signed("PUT", f"/{bucket}/{key}", body, headers)

    def put_in_parts(self, bucket: str, key: str, *parts: bytes) -> None:
        """Upload an object as clients do with large ones; each part but the last has 5 MiB."""
        path = f"/{bucket}/{key}"
        begun = self.signed("POST", path, query={"uploads": ""}).body.decode()
        upload = {"uploadId": re.findall("<UploadId>(.*)</UploadId>", begun)[0]}
        told = ""
        for number, part in enumerate(parts, start=1):
            asked = {**upload, "partNumber": str(number)}
            etag = self.signed("PUT", path, part, query=asked).headers["etag"]
            told += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        whole = f"<CompleteMultipartUpload>{told}</CompleteMultipartUpload>"
        self.signed("POST", path, whole.encode(), query=upload)

    def asked(self, method: str = "GET") -> list[tuple[str, str, int]]:
        """Where from, path and status of what was asked for with this method, in order."""
        mark = f"/-/{secrets.token_hex(8)}"  # the log is written a little later, in order
        ask(self.port, "OPTIONS", mark)
        log, text = self.home / "client.rgw.log", ""
        end = time.monotonic() + START_MAX_S
        while mark not in text:
            assert time.monotonic() < end, "the gateway writes no log"
            text = log.read_text(errors="replace")
        found = ASKED.findall(text)
        return [(peer, path, int(status)) for peer, verb, path, status in found if verb == method]

    def _done(self, program: str, *words: str) -> None:
        _done([program, "-c", str(self.config), *words])

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / "said").open("ab") as said:
            command = [program, "-c", str(self.config), *words]
            self._processes.append(subprocess.Popen(command, stdout=said, stderr=said))
        return self._processes[-1]


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    source: str = "127.0.0.1",
) -> Answer:
    """A request to a server on loopback from the address `source`; `path` is sent as it is."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    with contextlib.closing(link):
        link.request(method, path, body or None, dict(headers or {}))
        told = link.getresponse()
        said = {name.lower(): value for name, value in told.getheaders()}
        return Answer(told.status, said, told.read())


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _done(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_MAX_S, check=False)
    assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-2000:])


@contextlib.contextmanager
def object_store(home: Path) -> Iterator[ObjectStore]:
    """A store that runs, and is ended whatever happens."""
    store = ObjectStore(home)
    try:
        store.start()
        yield store
    finally:
        store.stop()
