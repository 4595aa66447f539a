"""Commands over SSH against a real sshd: pinned keys, limits, lost hosts, one kept connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, hosts, why_not

from provisioner.adapters.ssh import OUTPUT_MAX, SshShell
from provisioner.execution.observe.inband import PROBE
from provisioner.model.outcome import Reason
from provisioner.ports import (
    CertificateChanged,
    LoginRefused,
    PortError,
    Remote,
    Secret,
    ShellCommand,
    ShellOutput,
    Unreachable,
)
from provisioner.runtime import permit

Work = Callable[[SshShell], Awaitable[Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(2, tmp_path_factory.mktemp("hosts")) as two:
        yield two


@pytest.fixture
def remote(made: list[Host], tmp_path: Path) -> Remote:
    return Remote("root", made[0].key, tmp_path / "known_hosts", learn=True)


def with_shell(remote: Remote, work: Work, connections_max: int = 4) -> Any:
    async def run() -> Any:
        shell = SshShell(remote, connections_max)
        try:
            return await work(shell)
        finally:
            await shell.close()

    return asyncio.run(run())


def lines(*texts: str, limit_s: float = 20.0) -> list[ShellCommand]:
    return [ShellCommand(text, text, limit_s) for text in texts]


def ask(host: Host, *texts: str, limit_s: float = 20.0) -> Work:
    return lambda shell: shell.run(host.name, host.address, lines(*texts, limit_s=limit_s))


def refusal(remote: Remote, work: Work) -> PortError:
    with pytest.raises(PortError) as caught:
        with_shell(remote, work)
    return caught.value


def test_commands_run_in_order_and_each_says_its_own(made: list[Host], remote: Remote) -> None:
    told: Sequence[ShellOutput] = with_shell(
        remote, ask(made[0], "echo one", "echo oops >&2; exit 3", "kill -9 $$", "cat; id -u")
    )

    assert told[0] == ShellOutput(0, "one\n", "")
    assert told[1] == ShellOutput(3, "", "oops\n")
    assert told[2].exit_code is None
    assert told[3] == ShellOutput(0, "0\n", "")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("exit 5", ShellOutput(5, "", "")),
        ("echo not wanted >&2; exit 3", ShellOutput(3, "", "not wanted\n")),
        ("echo done", ShellOutput(0, "done\n", "")),
        ("exec <&-; echo closed; exit 4", ShellOutput(4, "closed\n", "")),
        ("no-such-command-here 2>/dev/null", ShellOutput(127, "", "")),
        ("head -c 1 >/dev/null; exit 6", ShellOutput(6, "", "")),
        ("kill -9 $$", ShellOutput(None, "", "")),
    ],
)
@pytest.mark.parametrize("size", [1, 40, 300_000, 3_000_000])  # within, and beyond, the window
def test_a_command_that_ends_without_reading_its_secret_keeps_its_own_end(
    made: list[Host], remote: Remote, line: str, wanted: ShellOutput, size: int
) -> None:
    command = ShellCommand("set", line, 20.0, sent=Secret("x" * size))

    async def often(shell: SshShell) -> Sequence[ShellOutput]:
        return await shell.run(made[0].name, made[0].address, [command] * 8)

    told: Sequence[ShellOutput] = with_shell(remote, often)

    assert [(t.exit_code, t.stdout, t.stderr) for t in told] == [
        (wanted.exit_code, wanted.stdout, wanted.stderr)
    ] * 8


def test_a_secret_that_is_read_arrives_whole(made: list[Host], remote: Remote) -> None:
    command = ShellCommand("count", "wc -c", 20.0, sent=Secret("x" * 3_000_000))

    (told,) = with_shell(remote, lambda shell: shell.run(made[0].name, made[0].address, [command]))

    assert told == ShellOutput(0, "3000000\n", "")


def test_a_command_that_does_not_end_is_ended_in_the_host(made: list[Host], remote: Remote) -> None:
    began = time.monotonic()
    told = with_shell(remote, ask(made[0], "trap '' TERM; echo on; sleep 300.25", limit_s=1.0))
    left = made[0].run("grep -lsz 300.25 /proc/[0-9]*/cmdline | grep -v self", check=False)

    assert told == [ShellOutput(None, "on\n", "")]
    assert time.monotonic() - began < 60.0
    assert "300.25" not in left.stdout


def test_an_endless_output_is_cut_and_bytes_that_are_no_text_are_read(
    made: list[Host], remote: Remote
) -> None:
    long, odd = with_shell(
        remote,
        ask(made[0], f"head -c {OUTPUT_MAX + 5} /dev/zero | tr '\\0' x; exit 7", "printf '\\377a'"),
    )
    (endless,) = with_shell(remote, ask(made[0], "yes", limit_s=30.0))

    assert (len(long.stdout), long.exit_code, long.truncated) == (OUTPUT_MAX, 7, True)
    assert odd.stdout == "\ufffda"
    assert len(endless.stdout) == OUTPUT_MAX
    assert endless.exit_code != 0
    assert endless.truncated


def test_a_host_without_an_address_is_no_other_machine_and_says_what_the_list_lacks(
    remote: Remote,
) -> None:
    error = refusal(remote, lambda shell: shell.run("n7", "", lines("true")))

    assert (error.reason, error.maybe_executed) == (Reason.UNREACHABLE, False)
    assert "names no address of n7's system" in str(error)


def test_a_host_key_is_learned_once_and_another_is_refused(
    made: list[Host], remote: Remote
) -> None:
    first, second = made
    with_shell(remote, ask(first, "true"))
    assert remote.known_hosts is not None
    pinned = remote.known_hosts.read_text()

    async def impostor(shell: SshShell) -> None:
        await shell.run(first.name, second.address, lines("true"))

    error = refusal(remote, impostor)

    assert pinned.startswith(f"{first.name} ssh-ed25519 ")
    assert pinned.count("\n") == 1
    assert remote.known_hosts.stat().st_mode & 0o77 == 0
    assert isinstance(error, CertificateChanged)
    assert error.reason is Reason.CERTIFICATE_CHANGED
    assert remote.known_hosts.read_text() == pinned


def test_a_forgotten_host_may_have_another_key(made: list[Host], remote: Remote) -> None:
    first, second = made

    async def reinstalled(shell: SshShell) -> Sequence[ShellOutput]:
        await shell.run(first.name, first.address, lines("true"))
        await shell.forget(first.name)
        return await shell.run(first.name, second.address, lines("hostname"))

    assert with_shell(remote, reinstalled)[0].stdout == f"{second.name}\n"


def test_only_the_key_that_a_new_system_was_given_is_believed(
    made: list[Host], remote: Remote
) -> None:
    first, second = made
    lines_of = {line.split()[0]: line for line in first.known_hosts.read_text().splitlines()}
    known = next(
        line
        for name, line in lines_of.items()
        if name.split(",")[0] in (second.name, second.address)
    )

    async def reinstalled(shell: SshShell) -> Sequence[ShellOutput]:
        await shell.run(first.name, first.address, lines("true"))
        await shell.forget(first.name, " ".join(known.split()[1:3]))
        with pytest.raises(CertificateChanged):  # the ramdisk, say, under the same name
            await shell.run(first.name, first.address, lines("true"))
        return await shell.run(first.name, second.address, lines("hostname"))

    assert with_shell(remote, reinstalled)[0].stdout == f"{second.name}\n"


def test_only_the_given_keys_are_believed_where_a_file_is_given(
    made: list[Host], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    given = Remote("root", made[0].key, made[0].known_hosts)
    nobody = Remote("root", made[0].key, empty)

    assert with_shell(given, ask(made[0], "echo in"))[0].stdout == "in\n"
    first_contact = refusal(nobody, ask(made[0], "echo in"))
    assert isinstance(first_contact, PortError)
    assert first_contact.reason is Reason.HOST_KEY_UNKNOWN
    assert "no SSH host key" in str(first_contact)
    assert empty.read_text() == ""


def test_a_login_that_is_refused_and_a_host_that_is_silent_are_told_apart(
    made: list[Host], remote: Remote, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger"
    stranger.write_text("no key at all")
    refused = refusal(Remote("root", stranger, remote.known_hosts, learn=True), ask(made[0], "id"))
    closed = refusal(Remote("root", remote.private_key, port=9, learn=True), ask(made[0], "id"))

    assert isinstance(refused, LoginRefused)
    assert isinstance(closed, Unreachable)
    assert not closed.maybe_executed


def test_a_host_that_goes_away_in_the_middle_may_have_done_it(
    made: list[Host], remote: Remote
) -> None:
    host = made[1]

    async def lose(shell: SshShell) -> tuple[PortError, str]:
        boot = "cat /proc/sys/kernel/random/boot_id"
        await shell.run(host.name, host.address, lines("true"))
        work = asyncio.create_task(shell.run(host.name, host.address, lines("sleep 60")))
        await asyncio.sleep(0.5)
        old = host.boot_id
        await asyncio.to_thread(host.run, "shutdown -r now", check=False)
        (error,) = await asyncio.gather(work, return_exceptions=True)
        await asyncio.to_thread(host.wait, old)
        told = await shell.run(host.name, host.address, lines(boot))
        assert old not in told[0].stdout
        return error, told[0].stdout

    error, boot = with_shell(remote, lose)

    assert isinstance(error, Unreachable)
    assert error.maybe_executed
    assert boot.strip() == host.boot_id


def test_more_hosts_than_connections_are_served_by_closing_the_longest_idle(
    made: list[Host], remote: Remote
) -> None:
    async def turns(shell: SshShell) -> list[str]:
        names = []
        for host in (*made, *made):
            told = await shell.run(host.name, host.address, lines("hostname"))
            names.append(told[0].stdout.strip())
        return names

    assert with_shell(remote, turns, connections_max=1) == [h.name for h in (*made, *made)]


def test_the_probe_sees_a_held_lock_and_what_a_play_left(made: list[Host], remote: Remote) -> None:
    host = made[0]
    hold = "setsid flock /run/lock/provisioner-tools sleep 4 >/dev/null 2>&1 &"
    mark = "PROVISIONER_RUN=abc setsid sleep 4 >/dev/null 2>&1 &"

    def probe() -> str:
        told: str = with_shell(remote, ask(host, PROBE))[0].stdout
        return told

    quiet = probe()
    host.run(hold)
    held = probe()
    host.run(mark)
    marked = probe()

    assert quiet == "looked\n"
    assert held == "/run/lock/provisioner-tools is held\nlooked\n"
    assert "/environ" in marked


def test_a_daemon_that_lost_its_seat_sends_no_command(made: list[Host], remote: Remote) -> None:
    """The shell had its connection before; the process that asked may not act any more."""

    class Lost(BaseException):
        """Stands for the end of the process."""

    def lost() -> None:
        raise Lost

    async def act(shell: SshShell) -> bool:
        await shell.run(made[0].name, made[0].address, lines("rm -f /tmp/seatless"))
        with permit.require_check(lost), pytest.raises(Lost):
            await shell.run(made[0].name, made[0].address, lines("touch /tmp/seatless"))
        (seen,) = await shell.run(made[0].name, made[0].address, lines("ls /tmp/seatless"))
        return seen.exit_code == 0

    assert with_shell(remote, act) is False
