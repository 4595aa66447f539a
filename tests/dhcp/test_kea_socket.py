"""Leases from Kea's control socket: Debian's kea-dhcp4, and sockets that behave otherwise."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import run
from servers import serve_kea

from provisioner.integrations.dhcp import kea_socket
from provisioner.integrations.dhcp.deciding.dhcp_leases import read_leases
from provisioner.integrations.dhcp.kea_socket import read_socket
from provisioner.model.input_error import InputError

HEADER = (
    "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,"
    "user_context\n"
)
COUNT = 10_000


def write_leases(count: int) -> str:
    """Return a lease file of Kea; each seventh lease was declined, one has no end."""
    end = int(time.time()) + 86_400
    rows = [
        f"10.0.{n >> 7}.{(n & 127) + 1},02:00:00:00:{n >> 8:02x}:{n & 255:02x},,"
        f"3600,{end},1,0,0,bmc-{n},{int(n % 7 == 6)},\n"
        for n in range(count)
    ]
    rows[0] = f"10.0.0.1,02:00:00:00:00:00,,4294967295,{end + 2**32 - 1},1,0,0,,0,\n"
    return HEADER + "".join(rows)


def test_the_socket_has_the_leases_of_the_file_page_by_page(tmp_path: Path) -> None:
    text = write_leases(COUNT)
    with serve_kea(tmp_path, text) as place:
        read = read_socket(place)

    of_file = {lease.address: lease for lease in read_leases("file", text).leases}
    assert read.notes == ()
    assert len(read.leases) == COUNT
    for lease in read.leases[1:]:
        assert lease == of_file[lease.address]
    assert (read.leases[0].active, read.leases[0].ends_at) == (True, None)


def test_a_server_without_the_hook_library_names_it(tmp_path: Path) -> None:
    with (
        serve_kea(tmp_path, HEADER, hook=False) as place,
        pytest.raises(InputError, match="hooks-libraries"),
    ):
        read_socket(place)


def test_socket_and_list_are_compared_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "expected.yaml").write_text(
        'nodes: [{name: n1, kind: host, bmc: {mac: "02:00:00:00:00:01"}}]\n'
    )
    with serve_kea(tmp_path, write_leases(3)) as place:
        line = ["discover", "leases", "--kea-socket", str(place), "--file", "expected.yaml"]
        done = run([*line, "--json", "--subnet", "10.0.0.2/31"], tmp_path)
        only = run([*line, "--json", "--bmcs"], tmp_path)
        prefix = run([*line, "--json", "--bmcs", "--mac-prefix", "02:00:00"], tmp_path)

    rows = {r["mac"]: r["standing"] for r in json.loads(done.stdout)["candidates"]}
    assert rows == {"02:00:00:00:00:01": "listed", "02:00:00:00:00:02": "not listed"}
    hints = {r["mac"]: r["hint"] for r in json.loads(only.stdout)["candidates"]}
    assert set(hints.values()) == {"MAC prefix of 1 listed BMCs"}
    hints = {r["mac"]: r["hint"] for r in json.loads(prefix.stdout)["candidates"]}
    assert set(hints.values()) == {"BMC by its MAC prefix"}


@contextlib.contextmanager
def answer(folder: Path, *answers: bytes) -> Iterator[Path]:
    """Answer one connection after the other; the last answer is repeated."""
    place = folder / "foe"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(place))
        server.listen(8)

        def serve() -> None:
            rest = list(answers)
            with contextlib.suppress(OSError):
                while True:
                    client = server.accept()[0]
                    with client, contextlib.suppress(OSError):
                        client.recv(4096)
                        client.sendall(rest.pop(0) if len(rest) > 1 else rest[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield place
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)


def page(*addresses: str) -> bytes:
    rows = [
        {"ip-address": a, "hw-address": "02:00:00:00:00:01", "cltt": 1, "valid-lft": 60, "state": 0}
        for a in addresses
    ]
    return json.dumps({"result": 0, "arguments": {"leases": rows}}).encode()


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([page("10.0.0.9"), page("10.0.0.8")], "went on with 10.0.0.8"),
        ([page("10.0.0.9")], "went on with 10.0.0.9"),
        ([page("10.0.0.9"), page("fd00::1")], "went on with fd00::1"),
        ([b"hello"], "cannot be read"),
        ([b"[" * 100_000], "cannot be read"),
        ([b'{"result": true}'], "cannot be read"),
        ([b'{"result": 0, "arguments": []}'], "no leases"),
        ([b'{"result": 1, "text": "no \\u0007subnet"}'], "it refused: no .subnet"),
        ([b'{"result": 2, "text": "not supported"}'], "does not know"),
    ],
)
def test_another_answer_is_refused(tmp_path: Path, answers: list[bytes], reason: str) -> None:
    with answer(tmp_path, *answers) as place, pytest.raises(InputError, match=reason):
        read_socket(place)


def test_an_answer_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kea_socket, "ANSWER_MAX", 1000)
    with answer(tmp_path, b" " * 5000) as place, pytest.raises(InputError, match="more than 1000"):
        read_socket(place)


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    rows = [
        7,
        {"ip-address": "10.0.0.1", "cltt": "1", "valid-lft": 60},
        {"ip-address": "10.0.0.2", "cltt": 1, "valid-lft": 60, "hw-address": ""},
        {"ip-address": "10.0.0.3", "cltt": 1, "valid-lft": 0, "hw-address": "02:00:00:00:00:01"},
    ]
    first = json.dumps({"result": 0, "arguments": {"leases": rows}}).encode()
    with answer(tmp_path, first, b'{"result": 3}') as place:
        read = read_socket(place)

    assert [(lease.address, lease.active) for lease in read.leases] == [("10.0.0.3", False)]
    assert [note.partition(": ")[2] for note in read.notes] == [
        "2 left out: the row cannot be read",
        "1 left out: it has no Ethernet MAC",
    ]


def test_a_socket_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not answer"):
        read_socket(tmp_path / "none")
