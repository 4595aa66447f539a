"""User data of a tenant: the forms that are taken, and their way into the system of its node. Pure.

cloud-init of the node's own image carries it out, as a new instance from its seed folder, at the
first boot in the tenant's hands and not before: a release that fails takes the node back, and what
a tenant wrote is not to run among the site's nodes. So it is placed only where the daemon's login
leaves the system, whose way back begins with another one. The text comes on standard input: sudo
writes command lines into the host's log.
"""

from __future__ import annotations

import hashlib
import json
import re

import yaml

from provisioner.model.node import Node
from provisioner.model.release import GateCheck, GateRow, RowVerdict

USER_DATA_MAX = 16 * 1024  # bytes; EC2 takes as many
CLOUD_CONFIG = "cloud-config"
SCRIPT = "script"
BEGINNING = "tenant_user_data=; "
END = "end-of-output"
SEED = "/var/lib/cloud/seed/nocloud"
SETTINGS = "/etc/cloud/cloud.cfg.d/99-tenant-user-data.cfg"
_HEADER = "#cloud-config"
_INTERPRETER = re.compile(r"#!/[\x21-\x7e]+( [\x20-\x7e]*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_READ = re.compile(r"^placed ([0-9a-f]{64}) (\S{1,32})$", re.MULTILINE)
# the network stays as the deployment wrote it, and the host key is the one that the daemon pinned
_CHOSEN = {
    "datasource_list": ["NoCloud"],
    "network": {"config": "disabled"},
    "ssh_deletekeys": False,
}


def parse_user_data(text: str) -> str:
    """Return the kind of a user data. Raises ValueError with the fault, and none of the text."""
    if len(text.encode()) > USER_DATA_MAX:
        raise ValueError(f"it has more than {USER_DATA_MAX} bytes")
    if _CONTROL.search(text):
        raise ValueError("it has control characters")
    first = text.partition("\n")[0].rstrip()
    if _INTERPRETER.fullmatch(first):
        return SCRIPT
    if first != _HEADER:
        raise ValueError("its first line is neither `#cloud-config` nor `#!` with a path")
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        raise ValueError(f"it is no YAML: see line {line}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise ValueError("it is no YAML") from None
    if not isinstance(content, dict):
        raise ValueError("a cloud-config is a mapping of YAML")
    return CLOUD_CONFIG


def build_placement(node: Node, version: str) -> str:
    """Return the shell line that writes the seed from its standard input, as root.

    It prints the digest of the written text. Repeating it is harmless.
    """
    file = f"{SEED}/user-data"
    meta = {"instance-id": f"{node.id}-tenant-{version}", "local-hostname": node.id}
    parts = (
        f"{BEGINNING}command -v cloud-init >/dev/null || echo 'remains no cloud-init'",
        f"umask 077; rm -rf {SEED}; mkdir -p {SEED} {SETTINGS.rpartition('/')[0]}",
        f"cat > {file}",
        f"printf '%s\\n' '{json.dumps(meta)}' > {SEED}/meta-data",
        f"printf '%s\\n' '{json.dumps(_CHOSEN)}' > {SETTINGS}; chmod 644 {SETTINGS}",
        "sync",
        f'echo "placed $(sha256sum < {file} | cut -c1-64) $(stat -c %U:%a {file})"',
        f"echo {END}",
    )
    return "; ".join(parts)


def judge_placement(node: Node, content: str, text: str | None) -> GateRow:
    """Return the row of the proof. `text`: the answer of `build_placement`; None: there was none.

    The row has neither the content nor its digest: a guess of a secret could be tried against it.
    """
    if text is None or text.rstrip().rpartition("\n")[2] != END:
        return _row(node, RowVerdict.UNKNOWN, "the user data was not seen to be written")
    if "remains no cloud-init" in text.splitlines():
        return _row(node, RowVerdict.FAIL, "the tenant has user data, and the image no cloud-init")
    digest = hashlib.sha256(content.encode()).hexdigest()
    if _READ.findall(text) != [(digest, "root:600")]:
        return _row(node, RowVerdict.FAIL, "the host has another user data than its tenant")
    return _row(node, RowVerdict.PASS, "cloud-init carries it out at the next boot")


def refuse_placement(node: Node, problem: str) -> GateRow:
    """Return the row of a node that does not get its tenant's user data."""
    return _row(node, RowVerdict.FAIL, problem)


def _row(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(check=GateCheck.TENANT_USER_DATA, subject=node.id, verdict=verdict, seen=reading)
