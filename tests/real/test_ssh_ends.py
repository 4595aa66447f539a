"""A host whose command ends before its standard input arrives: its own end is told, not the pipe's.

The server is asyncssh's own: its command ends in the very segment that accepts it, as a shell's
does where `sudo` or the program refuses at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
import pytest

from provisioner.adapters.ssh import SshShell
from provisioner.ports import Remote, Secret, ShellCommand, ShellOutput, Unreachable

TIMES = 50


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


def _run(
    tmp_path: Path, code: int | str | None, out: str, err: str, sent: Secret | None, gone: str = ""
) -> list[ShellOutput]:
    """Run one command many times over one connection; `code` None: the connection ends.

    A name as `code` is a signal; `gone`: how the connection ends behind the command's own end.
    """

    def end_at_once(process: asyncssh.SSHServerProcess[str]) -> None:
        if code is None:
            process.channel.get_connection().abort()
            return
        process.stdout.write(out)
        process.stderr.write(err)
        if isinstance(code, str):
            process.exit_with_signal(code)
        else:
            process.exit(code)
        if gone:
            process.channel.get_connection().disconnect(
                asyncssh.DISC_BY_APPLICATION, "restarting now"
            )

    async def run() -> list[ShellOutput]:
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Open,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            process_factory=end_at_once,
        )
        remote = Remote("root", None, tmp_path / "known_hosts", learn=True, port=server.get_port())
        shell = SshShell(remote, 1)
        command = ShellCommand("set-password", "chpasswd", 20.0, sent=sent)
        try:
            return list(await shell.run("n01", "127.0.0.1", [command] * (1 if gone else TIMES)))
        finally:
            await shell.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(run())


@pytest.mark.parametrize("code", [0, 1, 127, 255])
@pytest.mark.parametrize("size", [0, 1, 40, 3_000_000])
def test_a_command_that_ends_at_once_keeps_its_status_and_its_words(
    tmp_path: Path, code: int, size: int
) -> None:
    told = _run(tmp_path, code, "out\n", "chpasswd: cannot lock\n", Secret("s" * size))

    assert told == [ShellOutput(code, "out\n", "chpasswd: cannot lock\n")] * TIMES


@pytest.mark.parametrize("sent", [None, Secret("s3cret")])
def test_a_command_that_a_signal_ended_has_no_status_and_keeps_its_words(
    tmp_path: Path, sent: Secret | None
) -> None:
    told = _run(tmp_path, "KILL", "", "Out of memory\n", sent)

    assert told == [ShellOutput(None, "", "Out of memory\n")] * TIMES


@pytest.mark.parametrize("sent", [None, Secret("s3cret"), Secret("s" * 3_000_000)])
def test_a_host_that_ends_the_connection_has_told_a_status_and_perhaps_not_all_words(
    tmp_path: Path, sent: Secret | None
) -> None:
    (told,) = _run(tmp_path, 1, "", "chpasswd: no such user\n", sent, gone="closed")

    assert (told.exit_code, told.truncated) == (1, True)


def test_a_command_without_a_secret_ends_likewise(tmp_path: Path) -> None:
    assert _run(tmp_path, 3, "", "no\n", None) == [ShellOutput(3, "", "no\n")] * TIMES


@pytest.mark.parametrize("sent", [None, Secret("s3cret")])
def test_a_connection_that_ends_in_a_command_is_still_unreachable(
    tmp_path: Path, sent: Secret | None
) -> None:
    with pytest.raises(Unreachable) as caught:
        _run(tmp_path, None, "", "", sent)

    assert caught.value.maybe_executed
    assert "s3cret" not in str(caught.value)
