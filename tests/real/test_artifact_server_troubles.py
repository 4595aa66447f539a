"""Servers outside that are away, break off, have something else, or answer otherwise."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nginx_server import MISSING, NGINX, Nginx, nginx
from outside_files import BODY, NAME, PINNED, half_fetched, names, reason, run, until

from provisioner.execution.artifacts.outside_artifacts import LEFT_S, PART, OutsideArtifacts
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason

pytestmark = pytest.mark.skipif(NGINX is None, reason=MISSING)


def test_an_absent_file_is_told_with_what_would_unblock_it(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer_file("gone.bin", PINNED)
        assert isinstance(told, Blocker)
        assert told.reason is Reason.MISSING_ARTIFACT
        assert f"{server.url}/gone.bin" in told.detail
        assert "put it on the server" in told.unblock

        assert await files.offer_file(NAME, PINNED) is None
        (server.files / NAME).unlink()
        assert reason(await files.confirm_offer(NAME, PINNED)) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)


def test_a_server_that_is_away_is_waited_for(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        server.stop()
        assert reason(await files.offer_file(NAME, PINNED)) is Reason.UNREACHABLE
        server.start()
        assert await files.offer_file(NAME, PINNED) is None
        server.stop()
        assert reason(await files.confirm_offer(NAME, PINNED)) is Reason.UNREACHABLE
        assert await files.resolve(NAME, PINNED) == cache / NAME
        assert await files.renew_offer(NAME, PINNED) is None

    run(scenario, cache, server.url)


def test_a_connection_that_breaks_in_the_middle_leaves_nothing_and_is_tried_again(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        asked = asyncio.create_task(files.resolve(NAME, PINNED))
        await until(lambda: half_fetched(cache) > 0)
        assert not (cache / NAME).exists()
        server.stop(signal.SIGKILL)
        assert reason(await asked) is Reason.UNREACHABLE
        assert names(cache) == set()

    run(scenario, cache, f"{server.origin}/slow")


def test_a_daemon_that_ends_in_the_middle_of_a_fetch_leaves_nothing(
    server: Nginx, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        asked = asyncio.create_task(files.resolve(NAME, PINNED))
        await until(lambda: half_fetched(cache) > 0)
        asked.cancel()

    run(scenario, cache, f"{server.origin}/slow")

    assert names(cache) == set()


def test_a_daemon_that_is_killed_in_the_middle_of_a_fetch_leaves_no_file_that_looks_whole(
    server: Nginx, cache: Path
) -> None:
    text = (
        "import asyncio, sys; from pathlib import Path; import outside_files as f\n"
        "f.run(lambda files: files.resolve(f.NAME, f.PINNED), Path(sys.argv[1]), sys.argv[2])"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    command = [sys.executable, "-c", text, str(cache), f"{server.origin}/slow"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    try:
        asyncio.run(until(lambda: half_fetched(cache) > 0))
    finally:
        process.kill()
        process.wait()

    assert len(names(cache)) == 1
    assert all(name.startswith(PART) for name in names(cache))


def test_what_a_killed_daemon_left_half_fetched_is_removed_when_nobody_can_be_at_it(
    server: Nginx, cache: Path
) -> None:
    for name, age_s in (("old", LEFT_S + 60), ("young", 60)):
        (cache / f"{PART}{name}").write_bytes(b"half")
        os.utime(cache / f"{PART}{name}", (time.time() - age_s,) * 2)

    async def scenario(files: OutsideArtifacts) -> None:
        assert names(cache) == {f"{PART}young"}
        assert reason(await files.offer_file(f"{PART}young", "")) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)


@pytest.mark.parametrize(
    ("folder", "wanted", "word"),
    [
        ("moved", Reason.NOT_OFFERED, "302"),
        ("closed", Reason.NOT_OFFERED, "403"),
        ("packed", Reason.NOT_OFFERED, "gzip"),
        ("broken", Reason.BUSY, "503"),
    ],
)
def test_an_answer_that_is_not_the_plain_file_is_refused(
    server: Nginx, cache: Path, folder: str, wanted: Reason, word: str
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer_file(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, word in told.detail) == (wanted, True)

    run(scenario, cache, f"{server.origin}/{folder}")

    assert not any("/files" in path for path in server.asked("HEAD"))


def test_a_server_without_validators_is_read_for_each_offer(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        for count in (2, 3):
            assert await files.offer_file(NAME, PINNED) is None
            assert await files.confirm_offer(NAME, PINNED) is None  # read whole just before
            assert len(server.asked("GET")) == count

    run(scenario, cache, f"{server.origin}/silent")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "..", "a\x00b", "a\nb", "x" * 300])
def test_a_name_that_is_no_plain_file_is_never_asked_for(
    server: Nginx, cache: Path, name: str
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert reason(await files.resolve(name, PINNED)) is Reason.MISSING_ARTIFACT
        assert reason(await files.offer_file(name, PINNED)) is Reason.MISSING_ARTIFACT

    run(scenario, cache, server.url)

    assert server.asked("HEAD") + server.asked("GET") == []


def test_a_cache_that_cannot_be_written_is_told(server: Nginx, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        cache.rmdir()  # noqa: ASYNC240 (of the test)
        told = await files.offer_file(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, "--artifacts" in told.unblock) == (Reason.MISSING_ARTIFACT, True)

    run(scenario, cache, server.url)


def test_a_cache_that_is_not_there_is_told_before_anything_is_asked(
    server: Nginx, tmp_path: Path
) -> None:
    async def scenario(_: OutsideArtifacts) -> None:
        pytest.fail("it was opened")

    with pytest.raises(InputError, match="--artifacts"):
        run(scenario, tmp_path / "not made", server.url)


def test_only_a_certificate_of_a_trusted_ca_is_believed(tmp_path: Path, cache: Path) -> None:
    own, foreign = make_certificate("files", "127.0.0.1"), make_certificate("files", "127.0.0.1")
    home = tmp_path / "tls"
    home.mkdir()
    (tmp_path / "own.pem").write_bytes(own[0])
    (tmp_path / "foreign.pem").write_bytes(foreign[0])

    async def good(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None

    async def bad(files: OutsideArtifacts) -> None:
        told = await files.offer_file(NAME, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, "--ca-file" in told.unblock) == (Reason.CERTIFICATE_UNTRUSTED, True)

    with nginx(home, own) as server:
        server.put(NAME, BODY)
        run(bad, cache, server.url)
        run(bad, cache, server.url, tmp_path / "foreign.pem")
        run(good, cache, server.url, tmp_path / "own.pem")


def test_the_configuration_of_the_page_is_nginxs_and_its_policy_is_json(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text()
    site, proxy = re.findall(r"^```nginx\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (policy,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    proxy = proxy.replace("s3.eu-1.example", "127.0.0.1")  # nginx looks names up at its start
    text = (
        f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} http {{ access_log off; "
        f"{site.replace('10.0.0.3:80', '127.0.0.1:8')} server {{ listen 127.0.0.1:9; {proxy} }} }}"
    )
    (tmp_path / "nginx.conf").write_text(text)
    command = [str(NGINX), "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert "[emerg] " not in done.stderr.replace("bind() to", ""), done.stderr
    assert json.loads(policy)["Statement"][0]["Action"] == "s3:GetObject"
