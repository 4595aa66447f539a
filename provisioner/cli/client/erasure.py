"""`provisioner node erasure`: what was erased of a node after its last tenant, plain or signed."""

from __future__ import annotations

from pathlib import Path

import typer

from provisioner.cli.options.data_options import DataOption, JsonOption, node_of, with_data
from provisioner.daemon.data import Data
from provisioner.model.erasure import ErasureReport
from provisioner.model.input_error import InputError
from provisioner.planning.erasure.erasure import PAYLOAD_TYPE, certificate, certificate_text


def erasure(name: str, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """The last erasure report: one line a device; with --json signed, in a DSSE envelope."""

    async def read(opened: Data) -> str:
        node = await node_of(opened, name)
        text = await opened.store.evidence(node.erasure) if node.erasure else None
        if text is None:
            remedy = "Nodes are erased when they come back from a tenant."
            raise InputError(name, "", "there is no erasure report of it", remedy)
        report = ErasureReport.model_validate_json(text)
        if as_json:
            return opened.signer.seal(PAYLOAD_TYPE, certificate(report).encode())
        return certificate_text(report)

    typer.echo(with_data(data, read).rstrip())
