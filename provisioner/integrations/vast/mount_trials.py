"""Exports that a host mounts, or tries to: what the storage's rules do, shown by an NFS client.

The line uses the client that a host has: the kernel's (`mount.nfs`, in a mount namespace of its
own, read-only and soft, so that nothing stays behind and a silent server ends it), else libnfs'
`nfs-ls`, which needs no mount. Addresses are not bound: packets leave as those of a tenant's jobs
do. Tried against NFS-Ganesha by tests/real/test_nfs_mounts.py. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.storage import SpaceState
from provisioner.ports import ShellCommand, ShellOutput

LIMIT_S = 120.0
TOLD_MAX = 256 * 1024  # characters of an answer
# what goes into a shell's line: a server by address or name, and a plain path
_MOUNT = re.compile(
    r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9.-]{0,253}):(/[\w./-]{0,1023})", re.ASCII
)
_TOLD = re.compile(r"mount (\S+) (\d{1,3})(?: (.*))?", re.ASCII)
_MOUNTED = 3  # of our own: the mount went well, and the directory may not be listed
_LINE = (
    "storage_mounts=; c=none; if command -v mount.nfs >/dev/null && command -v unshare >/dev/null;"
    " then c=mount; elif command -v nfs-ls >/dev/null; then c=nfs-ls; fi; echo client $c;"
    " [ $c = none ] && exit 0; for m in MOUNTS; do ("
    " if [ $c = mount ]; then e=$(timeout -k 5 40 unshare -m sh -c"
    ' \'mount -t nfs -o ro,soft,timeo=50,retrans=2,retry=0,nolock,nosuid,nodev,noexec "$0" /mnt'
    f" || exit 32; ls /mnt || exit {_MOUNTED}' $m 2>&1 >/dev/null);"
    ' else u="nfs://${m%%:/*}/${m#*:/}"; e=$(timeout -k 5 40 nfs-ls "$u?version=4" 2>&1 >/dev/null'
    ' || timeout -k 5 40 nfs-ls "$u" 2>&1 >/dev/null); fi; r=$?;'
    ' echo "mount $m $r $(printf %s "$e" | tr -cd \'[:print:]\' | cut -c 1-200)" ) & done; wait'
)


def list_mounts(seen: Mapping[str, SpaceState]) -> tuple[list[str], list[str]]:
    """Return the mounts of the first space, and those of the others; without those that name a
    directory of its own, since the storage may tell tenants apart by the client alone.
    """
    of = [[e.mount for e in at.exports.values() if e.mount] for at in seen.values()]
    own = of[0] if of else []
    others = [m for mounts in of[1:] for m in mounts if _MOUNT.fullmatch(m)]
    return own, [m for m in others if not any(f"{m}/".startswith(f"{o}/") for o in own)]


def write_trial(seen: Mapping[str, SpaceState]) -> ShellCommand | None:
    """Return the line that tries all mounts, side by side; None if the space has none."""
    own, others = list_mounts(seen)
    tried = [m for m in dict.fromkeys((*own, *others)) if _MOUNT.fullmatch(m)]
    line = _LINE.replace("MOUNTS", " ".join(tried))
    return ShellCommand("exports mounted", line, LIMIT_S) if own else None


def judge_trial(
    node: str, seen: Mapping[str, SpaceState], told: ShellOutput
) -> tuple[GateRow, ...]:
    """Return a row for each mount that a host tried: its own are made, and no other."""
    return judge_mounts(node, *list_mounts(seen), read_trial(told))


def read_trial(output: ShellOutput) -> Mapping[str, tuple[bool, str]] | None:
    """Return for each mount that was tried whether it was mounted, and the client's words.

    None: the host has no NFS client. A cut-off answer shows nothing.
    """
    whole = output.exit_code == 0 and not output.truncated
    return read_words(output.stdout) if whole else {}


def read_words(text: str) -> Mapping[str, tuple[bool, str]] | None:
    """Return the same of a whole answer."""
    lines = text.split("\n")
    if len(text) > TOLD_MAX or lines.pop():  # a line that is cut may tell of another code: 3 of 32
        return {}
    if lines == ["client none"]:
        return None
    if lines[:1] not in (["client mount"], ["client nfs-ls"]):
        return {}
    twice: set[str] = set()
    tried: dict[str, tuple[bool, str]] = {}
    for line in lines[1:]:
        if (told := _TOLD.fullmatch(line)) is None:
            continue
        code = int(told[2])
        words = (told[3] or "").strip()
        mounted = code in (0, _MOUNTED) or "opendir" in words
        twice |= {told[1]} & tried.keys()
        tried[told[1]] = (mounted, words or f"the client ended with {code}")
    return {mount: seen for mount, seen in tried.items() if mount not in twice}


def judge_mounts(
    node: str,
    own: Sequence[str],
    others: Sequence[str],
    tried: Mapping[str, tuple[bool, str]] | None,
) -> tuple[GateRow, ...]:
    """Return a row for each mount that a host tried: its own are made, and no other.

    Where none of its own is, a refusal shows nothing. `tried` None: the host has no client.
    """

    def row(check: GateCheck, verdict: RowVerdict, seen: str, mount: str = "") -> GateRow:
        subject = f"{node} mounts {mount}" if mount else node
        return GateRow(check=check, subject=subject[:300], verdict=verdict, seen=seen[:300])

    if tried is None:
        why = "the host has no client for a mount: judged by the rules alone"
        return (row(GateCheck.STORAGE_OPEN, RowVerdict.NONE, why),)
    rows = []
    for mount in own:
        made, words = tried.get(mount, (None, "it was not tried"))
        verdict = RowVerdict.UNKNOWN if made is None else RowVerdict.PASS
        verdict = RowVerdict.FAIL if made is False else verdict
        rows.append(row(GateCheck.STORAGE_OPEN, verdict, "mounted" if made else words, mount))
    works = any(r.verdict is RowVerdict.PASS for r in rows)
    for mount in others:
        made, words = tried.get(mount, (None, "it was not tried"))
        verdict = RowVerdict.PASS if made is False and works else RowVerdict.UNKNOWN
        verdict = RowVerdict.FAIL if made else verdict
        seen = "mounted, and it is another tenant's" if made else f"not mounted: {words}"
        rows.append(row(GateCheck.STORAGE_SHUT, verdict, seen, mount))
    return tuple(rows)
