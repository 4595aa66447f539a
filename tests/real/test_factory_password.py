"""A factory password that is expired, changed over SSH: a real sshd on a throw-away host."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not

from provisioner.integrations.cumulus.services import SshPasswords
from provisioner.ports import CertificateChanged, LoginRefused, Malformed, PortError, Secret

PORT = 2222
FACTORY, OURS = Secret("cumulus"), Secret("Kx7-mQ2_vR9.tB4+")
SSHD = f"""
Port {PORT}
HostKey /etc/provisioner-test/host_key
UsePAM yes
UseDNS no
PasswordAuthentication yes
PidFile none
"""


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Host]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path) as (host,):
        host.run("useradd -m -s /bin/bash cumulus && chpasswd", stdin="cumulus:cumulus\n")
        host.run("chage -d 0 cumulus")
        host.run("cat > /run/expired_sshd", stdin=SSHD)
        host.run("/usr/sbin/sshd -f /run/expired_sshd")
        yield host


def change(switch: Host, folder: Path, old: Secret = FACTORY, new: Secret = OURS) -> None:
    passwords = SshPasswords(folder / "ours", PORT)
    asyncio.run(passwords.change("leaf-1", switch.address, "cumulus", old, new))


def refusal(*given: object) -> PortError:
    with pytest.raises(PortError) as caught:
        change(*given)  # type: ignore[arg-type]
    return caught.value


def accepts(host: Host, password: Secret) -> bool:
    """Whether the account has this password, by the host's own files."""
    script = (
        "import crypt,spwd,sys; h=spwd.getspnam('cumulus').sp_pwdp;"
        "sys.exit(crypt.crypt(sys.stdin.read(),h)!=h)"
    )
    done: subprocess.CompletedProcess[str] = host.run(
        f'python3 -W ignore -c "{script}"', check=False, stdin=password.reveal()
    )
    return done.returncode == 0


def test_an_expired_password_is_changed_once_and_the_host_is_known_from_then_on(
    switch: Host, tmp_path: Path
):
    change(switch, tmp_path)

    assert accepts(switch, OURS)
    assert not accepts(switch, FACTORY)
    assert (tmp_path / "ours").read_text().startswith("leaf-1 ssh-")
    again = refusal(switch, tmp_path)
    assert isinstance(again, LoginRefused)
    assert "cumulus@" in str(again)


def test_what_is_no_such_dialogue_or_another_host_changes_nothing(switch: Host, tmp_path: Path):
    weak = refusal(switch, tmp_path, FACTORY, FACTORY)
    assert isinstance(weak, LoginRefused)
    assert accepts(switch, FACTORY)

    (tmp_path / "ours").write_text(f"leaf-1 {other_key(tmp_path)}\n")
    assert isinstance(refusal(switch, tmp_path), CertificateChanged)

    (tmp_path / "ours").unlink()
    switch.run("chage -d 2020-01-01 cumulus")  # not expired: a shell, and no question
    switch.run("printf 'exit 0\\n' > /home/cumulus/.bash_profile")
    plain = refusal(switch, tmp_path)
    assert isinstance(plain, Malformed)
    assert OURS.reveal() not in str(plain)
    assert accepts(switch, FACTORY)


def other_key(folder: Path) -> str:
    file = folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return " ".join(file.with_suffix(".pub").read_text().split()[:2])
