"""The login of a tenant in the system of a node that it gets: an account with its keys. Pure.

The daemon's own login makes it at the handover, before it leaves the system itself where the site
wants that. The file of keys is written whole, so that the account opens with the tenant's keys and
no other; its digest is read back from the host.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence

from provisioner.model.node import Node
from provisioner.model.release import GateCheck, GateRow, RowVerdict
from provisioner.planning.erasure.host_metadata import ROOT
from provisioner.planning.release.ssh_key import compute_fingerprint

END = "end-of-output"
BEGINNING = "tenant_login=; "
_READ = re.compile(r"^keys ([0-9a-f]{64}) (\S{1,64})$", re.MULTILINE)
_USER = re.compile(r"[a-z][a-z0-9-]{0,30}")
SHOWN = 4  # fingerprints in the row


def build_login(user: str, keys: Sequence[str]) -> str:
    """Return the shell line that makes the account, and prints the digest of its keys.

    It runs as root. An account of this name that the image has gets these keys instead of its own.
    Where the host serves its metadata, the keys are there too. Repeating it is harmless.
    """
    assert _USER.fullmatch(user), user
    lines = " ".join(shlex.quote(key) for key in keys)
    file = '"$h/.ssh/authorized_keys"'
    shown = f"{ROOT}/latest/meta-data/public-keys"
    parts = (
        f"{BEGINNING}t={user}; getent passwd $t >/dev/null || useradd -m -s /bin/bash $t",
        "usermod -p '*' $t",  # no password opens it; sshd refuses accounts with a `!` there
        "h=$(getent passwd $t | cut -d: -f6); g=$(id -g $t)",
        'install -d -m 700 -o $t -g $g "$h/.ssh"',
        f"printf '%s\\n' {lines} > {file}",
        f"chmod 600 {file}; chown $t:$g {file}",
        'echo "$t ALL=(ALL) NOPASSWD:ALL" > /etc/sudoers.d/91-$t',
        "chmod 440 /etc/sudoers.d/91-$t",
        f"p={shown}/0",
        f"[ ! -d {ROOT} ] || {{ mkdir -p $p && install -m 644 {file} $p/openssh-key; }}",
        "sync",
        f'echo "keys $(sha256sum < {file} | cut -c1-64) $(stat -c %U:%a {file})"',
        f"echo {END}",
    )
    return "; ".join(parts)


def judge_login(node: Node, user: str, keys: Sequence[str], text: str | None) -> GateRow:
    """Return the row of the proof. `text`: the answer of `build_login`'s line; None: none came."""
    if text is None or text.rstrip().rpartition("\n")[2] != END:
        return _row(node, RowVerdict.UNKNOWN, "the tenant's login was not seen to its end")
    digest = hashlib.sha256("".join(f"{key}\n" for key in keys).encode()).hexdigest()
    if _READ.findall(text) != [(digest, f"{user}:600")]:
        return _row(node, RowVerdict.FAIL, f"the account {user} has other keys than its tenant")
    shown = ", ".join(compute_fingerprint(key) for key in keys[:SHOWN])
    return _row(node, RowVerdict.PASS, f"the account {user} opens with {len(keys)} keys: {shown}")


def refuse_login(node: Node, user: str, login: str) -> GateRow | None:
    """Return the row of a tenant whose keys cannot be written; None: they can.

    `login`: the account of the daemon's own login; "": it has none.
    """
    if not login:
        why = "the tenant has keys, and the daemon has no login (--ssh-key) to write them"
    elif login == user:
        why = f"the tenant has keys, and `tenant_user` is the daemon's own login {login}"
    else:
        return None
    return _row(node, RowVerdict.FAIL, why)


def _row(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(
        check=GateCheck.TENANT_LOGIN, subject=node.id, verdict=verdict, seen=reading[:300]
    )
