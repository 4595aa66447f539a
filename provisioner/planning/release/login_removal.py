"""The removal of the daemon's login from a system before a tenant gets its host. Pure.

cloud-init put the login there: an account, its key, its rule for sudo, a copy of all of it below
/var/lib/cloud, and the configuration drive, a partition labelled "cidata" (cloud-init, NoCloud).
cloud-init would make the account again from any of them, and would rewrite the network without
them, so it is switched off by its own file (cloud-init, "Disable cloud-init").
"""

from __future__ import annotations

import re
import shlex

from provisioner.components.host_os import HOST_OS, NOTHING
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.release import GateCheck, GateRow, RowVerdict

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
    data by now (`planning/release/user_data.py`), so that seed and cloud-init stay.
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


def judge_removal(node: Node, text: str | None, *, admitted: bool | None) -> GateRow:
    """Return the row of the proof: what remains in the system, and whether it admits the login.

    `text`: the answer of `build_removal`'s line; None: there was none. `admitted`: whether a new
    connection was let in afterwards; None: the host did not answer it.
    """
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
