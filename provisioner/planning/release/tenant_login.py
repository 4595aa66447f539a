"""The login of a tenant in the system of a node that it gets: an account with its keys. Pure.

The daemon's own login makes it at the handover, before it leaves the system itself where the site
wants that. The file of keys is written whole, so that the account opens with the tenant's keys and
no other; its digest is read back from the host.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import shlex
import struct
from collections.abc import Sequence

import yaml

from provisioner.components.kind import HOST_OS, NOTHING
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.erasure.deployment import ROOT

# ------------------------------------------------------------------------------
# The removal of the daemon's login from a system before a tenant gets its host. Pure.
#
# cloud-init put the login there: an account, its key, its rule for sudo, a copy of all of it below
# /var/lib/cloud, and the configuration drive, a partition labelled "cidata" (cloud-init, NoCloud).
# cloud-init would make the account again from any of them, and would rewrite the network without
# them, so it is switched off by its own file (cloud-init, "Disable cloud-init").


END = "end-of-output"
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_KEY = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_REMAINS = re.compile(r"^remains (.{1,200})$", re.MULTILINE)
REMAINS_MAX = 8  # shown in the row
# what lists the places of the key; "$k" and "$h" are set before
_KEY_FILES = '/root/.ssh/authorized_keys /home/*/.ssh/authorized_keys "$h"/.ssh/authorized_keys'
_SEED = " /var/lib/cloud/seed"
_CLOUD = (
    "/var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data"
    " /run/cloud-init /var/log/cloud-init.log /var/log/cloud-init-output.log"
)
_DRIVES = (
    "$(blkid -t LABEL=cidata -o device 2>/dev/null; ls -d /dev/disk/by-label/cidata 2>/dev/null)"
)
_CUT_KEY = (  # a line of these files is a key
    f'for f in {_KEY_FILES}; do [ -f "$f" ] && grep -qF "$k" "$f" || continue',
    't=$(mktemp) && { grep -vF "$k" "$f" >$t; cat $t >"$f"; rm -f $t; }',
    "done",
)
_END_PROCESSES = '"sleep 3; pkill -KILL -U $i"'  # a session of ours is among them
_SWITCH_OFF = "[ ! -d /etc/cloud ] || : >/etc/cloud/cloud-init.disabled"
_LIST_CLOUD_INIT = (
    "[ ! -d /etc/cloud ] || [ -e /etc/cloud/cloud-init.disabled ] || echo remains cloud-init"
)
_WIPE_DRIVE = (
    f"for d in {_DRIVES}; do s=$(blockdev --getsize64 $d 2>/dev/null || stat -Lc %s $d)",
    "head -c $s /dev/zero | dd of=$d bs=64k conv=notrunc,fsync 2>/dev/null",
    "done",
)


def refuse_removal(node: Node, inventory: Inventory | None, user: str) -> Blocker | None:
    """Return why the login must not be removed: the daemon could never come back.

    It comes back with the next system that it writes. A system without its stamp has the name that
    os-release gives, two words.
    """
    system = inventory.find_component(HOST_OS, "host") if inventory is not None else None
    name = (system.version if system is not None else None) or NOTHING
    if name != NOTHING and " " not in name and _USER.fullmatch(user):
        return None
    why = "the daemon did not write its system" if user else "the daemon has no --ssh-key"
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node.id}/login",
        detail=f"`handover_login` is `remove`, but {why}: it could not log in again",
        unblock=f"Pin {HOST_OS} for this profile, or set `handover_login` to `keep`.",
    )


def build_removal(user: str, authorized_key: str, *, seeded: bool = False) -> str:
    """Return the shell line that removes the login, and lists what remains of it.

    It runs as root within a session of this very login: processes of the account are ended some
    seconds later. Repeating it is harmless. `seeded`: cloud-init's seed has the tenant's own user
    data by now (`planning/release/tenant_login.py`), so that seed and cloud-init stay.
    """
    key = authorized_key.split()[1]
    assert _USER.fullmatch(user), user
    assert _KEY.fullmatch(key), key
    own = () if user == "root" else _remove_account(user)
    parts = (
        f"u={user}; k={shlex.quote(key)}; h=$(getent passwd $u | cut -d: -f6); h=${{h:-/root}}",
        *_CUT_KEY,
        *own,
        *_WIPE_DRIVE,
        f"rm -rf {_CLOUD}" + ("" if seeded else _SEED),
        "rm -f /etc/cloud/cloud-init.disabled" if seeded else _SWITCH_OFF,
        "sync",
        _list_remains(user) + ("true" if seeded else _LIST_CLOUD_INIT),
        f"echo {END}",
    )
    return "; ".join(parts)


def _remove_account(user: str) -> tuple[str, ...]:
    """Return the parts that remove account, home and sudo's rule; -f: it is logged in just now."""
    rule = f"/^(# User rules for )?{user}([[:space:]]|$)/d"
    return (
        f"sed -i -E '{rule}' /etc/sudoers.d/* 2>/dev/null",
        "i=$(id -u $u 2>/dev/null) && userdel -f -r $u >/dev/null 2>&1",
        f"[ ${{i:-0}} -eq 0 ] || setsid sh -c {_END_PROCESSES} </dev/null >/dev/null 2>&1 & true",
    )


def _list_remains(user: str) -> str:
    account = "" if user == "root" else 'getent passwd $u >/dev/null && echo "remains account $u"; '
    rule = (
        ""
        if user == "root"
        else 'grep -lsE "^$u([[:space:]]|$)" /etc/sudoers /etc/sudoers.d/*'
        ' | sed "s/^/remains rule in /"; '
    )
    return (
        f"{account}{rule}"
        'grep -rlsF "$k" /root/.ssh /home/*/.ssh /etc/ssh /var/lib/cloud /run/cloud-init'
        ' | sed "s/^/remains key in /"; '
        f"for d in {_DRIVES}; do blkid -p -o value -s LABEL $d 2>/dev/null | grep -q cidata"
        ' && echo "remains configuration drive $d"; done; '
    )


def judge_removal(
    node: Node, text: str | None, *, admitted: bool | None, refused: str = ""
) -> GateRow:
    """Return the row of the proof: what remains in the system, and whether it admits the login.

    `text`: the answer of `build_removal`'s line; None: there was none. `admitted`: whether a new
    connection was let in afterwards; None: the host did not answer it. `refused`: why it was not
    removed at all.
    """
    if refused:
        return _row(node, RowVerdict.UNKNOWN, refused)
    if remains := _REMAINS.findall(text or ""):
        return _row(node, RowVerdict.FAIL, f"left in the host: {', '.join(remains[:REMAINS_MAX])}")
    if admitted:
        return _row(node, RowVerdict.FAIL, "the host still admits the daemon's key")
    if text is None or text.rstrip().rpartition("\n")[2] != END:
        return _row(node, RowVerdict.UNKNOWN, "the removal was not seen to its end")
    if admitted is None:
        return _row(node, RowVerdict.UNKNOWN, "the host did not answer a login afterwards")
    return _row(node, RowVerdict.PASS, "nothing is left of it, and the host refused the key")


def _row(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(
        check=GateCheck.LOGIN_REMOVED, subject=node.id, verdict=verdict, seen=reading[:300]
    )


# ------------------------------------------------------------------------------
# Public keys of OpenSSH, as a person sends them: one line, without options. Pure.
#
# A line is hostile until it is parsed: it goes into a file of a host in which one more line is one
# more key. The comment is dropped, and the kind within the blob has to be the one in front of it
# (RFC 4253 section 6.6, RFC 5656, RFC 8709, OpenSSH's PROTOCOL.u2f).


LINE_MAX = 2048  # characters; RSA with 8,192 bits has some 1,400
RSA_MIN_BITS = 2048
KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)


def parse_public_key(line: str) -> str:
    """Return "KIND BASE64" of a public key. Raises ValueError with the reason."""
    parts = line.split(None, 2)
    if len(line) > LINE_MAX or "\n" in line.strip() or len(parts) < 2:
        raise ValueError("one line of OpenSSH is needed: kind, key, comment")
    kind, text = parts[:2]
    if kind not in KINDS:
        raise ValueError(f"the first word is {kind[:40]!r}; it has to be one of {', '.join(KINDS)}")
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the key is no base64") from None
    fields = _read_strings(blob)
    if len(fields) < 2 or fields[0] != kind.encode():
        raise ValueError(f"the key is none of {kind}")
    if kind == "ssh-rsa":
        bits = int.from_bytes(fields[-1], "big").bit_length()
        if bits < RSA_MIN_BITS:
            raise ValueError(f"an RSA key of {bits} bits; it needs {RSA_MIN_BITS}")
    return f"{kind} {base64.b64encode(blob).decode()}"


def compute_fingerprint(public_key: str) -> str:
    """Return the fingerprint of a parsed key, as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _read_strings(blob: bytes) -> list[bytes]:
    """Return the strings of a blob, each after its length; none if it does not end with one."""
    fields = []
    at = 0
    while at + 4 <= len(blob):
        (size,) = struct.unpack_from(">I", blob, at)
        at += 4 + size
        fields.append(blob[at - size : at])
    return fields if at == len(blob) else []


# ------------------------------------------------------------------------------
# User data of a tenant: the forms that are taken, and their way into the system of its node. Pure.
#
# cloud-init of the node's own image carries it out, as a new instance from its seed folder, at the
# first boot in the tenant's hands and not before: a release that fails takes the node back, and
# what a tenant wrote is not to run among the site's nodes. So it is placed only where the daemon's
# login leaves the system, whose way back begins with another one. The text comes on standard input:
# sudo writes command lines into the host's log.


USER_DATA_MAX = 16 * 1024  # bytes; EC2 takes as many
CLOUD_CONFIG = "cloud-config"
SCRIPT = "script"
BEGINNING = "tenant_user_data=; "
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
        return _row_user_data(node, RowVerdict.UNKNOWN, "the user data was not seen to be written")
    if "remains no cloud-init" in text.splitlines():
        return _row_user_data(
            node, RowVerdict.FAIL, "the tenant has user data, and the image no cloud-init"
        )
    digest = hashlib.sha256(content.encode()).hexdigest()
    if _READ.findall(text) != [(digest, "root:600")]:
        return _row_user_data(
            node, RowVerdict.FAIL, "the host has another user data than its tenant"
        )
    return _row_user_data(node, RowVerdict.PASS, "cloud-init carries it out at the next boot")


def refuse_placement(node: Node, problem: str) -> GateRow:
    """Return the row of a node that does not get its tenant's user data."""
    return _row_user_data(node, RowVerdict.FAIL, problem)


def _row_user_data(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(check=GateCheck.TENANT_USER_DATA, subject=node.id, verdict=verdict, seen=reading)


# ------------------------------------------------------------------------------
# The oldest versions that a tenant's libraries need, in the metadata of its node. Pure.
#
# They are for programs of the tenant: a file each, and all of them as JSON. Nothing is secret.


LIBRARIES_BEGINNING = "tenant_libraries=; "
LIBRARIES_FOLDER = f"{ROOT}/latest/meta-data/minimum-versions"
_WRITTEN = re.compile(r"^minimums ([0-9a-f]{64})$", re.MULTILINE)


def render_minimums(minimums: Sequence[LibraryMinimum]) -> dict[str, str]:
    """Return the files of the metadata by their names."""
    files = {one.library: f"{one.minimum}\n" for one in minimums}
    told = [one.model_dump(mode="json", exclude_defaults=True) for one in minimums]
    return files | {"all.json": json.dumps(told, sort_keys=True) + "\n"}


def build_minimums(minimums: Sequence[LibraryMinimum]) -> str:
    """Return the shell line that writes them as root, and prints their digest as it reads them."""
    files = render_minimums(minimums)
    writes = (f"printf '%s' {shlex.quote(text)} > {name}" for name, text in files.items())
    parts = (
        f"{LIBRARIES_BEGINNING}umask 022; rm -rf {LIBRARIES_FOLDER}; mkdir -p {LIBRARIES_FOLDER}",
        f"cd {LIBRARIES_FOLDER} && {{ {'; '.join(writes)}; sync",
        f'echo "minimums $(cat {" ".join(files)} | sha256sum | cut -c1-64)"; }}',
        f"echo {END}",
    )
    return "; ".join(parts)


def judge_minimums(node: Node, minimums: Sequence[LibraryMinimum], text: str | None) -> GateRow:
    """Return the row of the proof. `text`: the answer of `build_minimums`; None: none came."""
    if text is None or text.rstrip().rpartition("\n")[2] != END:
        problem = "the minimum versions were not seen to be written"
        return _row_libraries(node, RowVerdict.UNKNOWN, problem)
    digest = hashlib.sha256("".join(render_minimums(minimums).values()).encode()).hexdigest()
    if _WRITTEN.findall(text) != [digest]:
        problem = "its metadata has other minimum versions than its release"
        return _row_libraries(node, RowVerdict.FAIL, problem)
    return _row_libraries(node, RowVerdict.PASS, f"in its metadata: {_join(minimums)}")


def tell_minimums(node: Node, minimums: Sequence[LibraryMinimum], why: str) -> GateRow:
    """Return the row of a node that has no metadata: its tenant is told them elsewhere."""
    return _row_libraries(node, RowVerdict.NONE, f"{why}; {_join(minimums)}")


def _join(minimums: Sequence[LibraryMinimum]) -> str:
    return "; ".join(str(one) for one in minimums)


def _row_libraries(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(check=GateCheck.LIBRARIES, subject=node.id, verdict=verdict, seen=reading[:300])


LOGIN_BEGINNING = "tenant_login=; "
_TENANT_LOGIN_READ = re.compile(r"^keys ([0-9a-f]{64}) (\S{1,64})$", re.MULTILINE)
_TENANT_LOGIN_USER = re.compile(r"[a-z][a-z0-9-]{0,30}")
SHOWN = 4  # fingerprints in the row


def build_login(user: str, keys: Sequence[str]) -> str:
    """Return the shell line that makes the account, and prints the digest of its keys.

    It runs as root. An account of this name that the image has gets these keys instead of its own.
    Where the host serves its metadata, the keys are there too. Repeating it is harmless.
    """
    assert _TENANT_LOGIN_USER.fullmatch(user), user
    lines = " ".join(shlex.quote(key) for key in keys)
    file = '"$h/.ssh/authorized_keys"'
    shown = f"{ROOT}/latest/meta-data/public-keys"
    parts = (
        f"{LOGIN_BEGINNING}t={user}; getent passwd $t >/dev/null || useradd -m -s /bin/bash $t",
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
        return _row_tenant_login(
            node, RowVerdict.UNKNOWN, "the tenant's login was not seen to its end"
        )
    digest = hashlib.sha256("".join(f"{key}\n" for key in keys).encode()).hexdigest()
    if _TENANT_LOGIN_READ.findall(text) != [(digest, f"{user}:600")]:
        return _row_tenant_login(
            node, RowVerdict.FAIL, f"the account {user} has other keys than its tenant"
        )
    shown = ", ".join(compute_fingerprint(key) for key in keys[:SHOWN])
    return _row_tenant_login(
        node, RowVerdict.PASS, f"the account {user} opens with {len(keys)} keys: {shown}"
    )


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
    return _row_tenant_login(node, RowVerdict.FAIL, why)


def _row_tenant_login(node: Node, verdict: RowVerdict, reading: str) -> GateRow:
    return GateRow(
        check=GateCheck.TENANT_LOGIN, subject=node.id, verdict=verdict, seen=reading[:300]
    )
