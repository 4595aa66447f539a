"""Commands inside a host that ask its devices for signed reports: a fresh nonce each time.

The output is stored with the nonce, the time, and the manifests and OCSP answers at hand, so that
an auditor judges by the same ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from provisioner.checks.check import CheckContext, Command
from provisioner.checks.collected_reports import (
    KINDS,
    NONCE,
    find_answer,
    read_evidences,
    select_admitted,
    wrap_output,
)
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import TEXT_MAX, run_commands
from provisioner.execution.observe.reference_files import select_answers, select_manifests
from provisioner.model.health import Evidence
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker


async def ask_host(
    site: Site, node: Node, commands: Sequence[Command], context: CheckContext
) -> Mapping[str, Evidence] | Blocker:
    """Run commands on a host, those that ask devices with a nonce of ours; outputs by name."""
    nonces = {c.name: secrets.token_hex(32) for c in commands if c.asks}
    asked_at = site.clock.now()
    listed = [
        (c.name, c.line.replace(NONCE, nonces.get(c.name, NONCE)), c.limit_s) for c in commands
    ]
    outputs = await run_commands(site, node, listed)
    if isinstance(outputs, Blocker):
        return outputs
    directory = site.settings.attestation_references
    return {
        name: _attach(output, nonces[name], asked_at, directory, context)
        if name in nonces
        else output
        for name, output in outputs.items()
    }


def _attach(
    output: Evidence, nonce: str, asked_at: float, directory: str, context: CheckContext
) -> Evidence:
    """Return the output with everything that it is judged by."""
    if output.exit_code is None or output.truncated:
        return output
    admitted = {digest for kind in KINDS for digest in select_admitted(kind, context).manifests}
    text = wrap_output(
        output.text,
        output.exit_code,
        nonce,
        asked_at,
        select_manifests(directory, admitted),
        select_answers(directory, _list_serials(output.text)),
    )
    return output.model_copy(
        update={"text": text[:TEXT_MAX], "exit_code": 0, "truncated": len(text) > TEXT_MAX}
    )


def _list_serials(printed: str) -> Iterable[int]:
    """Return the serial numbers of the certificates that came with the reports."""
    answer = find_answer(printed)
    if answer is None:
        return ()
    return [c.serial_number for report in read_evidences(answer) for c in report.certificates]
