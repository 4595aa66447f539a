"""A TPM in software (swtpm) as the board of a machine, with Debian's tpm2-tools."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from provisioner_hardware_manager import tpm_quote
from provisioner_hardware_manager.commands import Output

NEEDS_SWTPM = pytest.mark.skipif(
    not (shutil.which("swtpm") and shutil.which("tpm2_quote")), reason="swtpm is not installed"
)


class Board:
    """A TPM in software; `run` is one command on its machine."""

    def __init__(self, state: Path) -> None:
        state.mkdir(exist_ok=True)
        options = f"--tpm2 --tpmstate dir={state} --flags not-need-init,startup-clear"
        path = state / "socket"
        sockets = f"--server type=unixio,path={path} --ctrl type=unixio,path={path}.ctrl"
        self.server = subprocess.Popen(["swtpm", "socket", *options.split(), *sockets.split()])
        # tpm2-tools 5.4 take a path for swtpm, and add ".ctrl" for its control channel
        self.environment = {**os.environ, "TPM2TOOLS_TCTI": f"swtpm:path={path}"}
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as probe:
                if path.exists() and probe.connect_ex(f"{path}.ctrl") == 0:
                    return
            time.sleep(0.1)
        raise AssertionError("swtpm does not start")

    def run(self, *arguments: str, timeout_s: float) -> Output:
        done = subprocess.run(
            arguments, env=self.environment, capture_output=True, timeout=timeout_s, check=False
        )
        # /dev/tpmrm0 does this for its users; swtpm's socket has no resource manager
        subprocess.run(["tpm2_flushcontext", "-t"], env=self.environment, check=False)
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode())

    def quote(self, nonce: bytes, folder: Path) -> dict[str, str]:
        return tpm_quote.quote(nonce.hex(), self.run, device=folder, log=folder / "no log")

    def stop(self) -> None:
        self.server.terminate()
        self.server.wait(timeout=10)


def manufacture(state: Path, authority: Path) -> Path:
    """Make a TPM with a certificate of its endorsement key; return the issuer's certificate.

    swtpm_setup does what a maker does, with swtpm_localca as the maker's authority.
    """
    for folder in (state, authority):
        folder.mkdir(exist_ok=True)
    issuer = authority / "issuercert.pem"
    local = authority / "localca.conf"
    local.write_text(
        f"statedir = {authority}\nsigningkey = {authority}/signkey.pem\nissuercert = {issuer}\n"
        f"certserial = {authority}/certserial\n"
    )
    options = authority / "options"
    options.write_text("--platform-manufacturer X\n--platform-version 1\n--platform-model m\n")
    setup = authority / "setup.conf"
    setup.write_text(
        f"create_certs_tool = {shutil.which('swtpm_localca')}\n"
        f"create_certs_tool_config = {local}\ncreate_certs_tool_options = {options}\n"
        "active_pcr_banks = sha256\n"
    )
    line = ["swtpm_setup", "--tpm2", "--tpm-state", str(state), "--config", str(setup)]
    subprocess.run([*line, "--create-ek-cert"], check=True, capture_output=True, timeout=60)
    return issuer
