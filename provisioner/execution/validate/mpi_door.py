"""A way in among hosts under test for the time of one test: `mpirun` starts its ranks through it.

Each host but the first gets an sshd of its own, beside the system's: another port, a new host key,
one login, from the first host's address only, with a key that the first host has just made. Only
public keys pass over the daemon's own pinned connections; the private one never leaves the first
host's memory (/run is a tmpfs), and is in no command line, output or evidence. Everything carries
the mark of tests, also processes started through the door: `CLEAN` ends it and removes the files,
after the test or after a crash; without a caller it ends after `DOOR_S`.

See docs/decisions/0015 for the alternatives.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shlex
from collections.abc import Sequence

from provisioner.checks.fabric.rail_port import Member
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.validate.fabric_outputs import FOLDER, MARK
from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason

PORT = 18599  # above perftest's, which are 18515 and 63 more for rails
DOOR_S = 1800.0  # longer than any collective's own limit
OPEN_S = 60.0
_PUBLIC = re.compile(r"^key (ssh-ed25519 [A-Za-z0-9+/]{68}={0,2})$", re.MULTILINE)
_FOLDER = re.compile(r"^folder (/run/provisioner-fabric\.[A-Za-z0-9]{6,16})$", re.MULTILINE)
_NETWORK = re.compile(r"^\d+: \S{1,15}\s+inet6? (\S{1,64}) ", re.MULTILINE)
_MARKED = re.compile(r"[A-Za-z0-9/_.-]{1,128}")

# the private key is made in a folder that only root may enter; its public half is printed
_KEY = (
    f"d=$(mktemp -d {FOLDER}XXXXXX) || exit 1; chmod 700 $d; echo folder $d;"
    " ssh-keygen -q -t ed25519 -N '' -C provisioner-fabric -f $d/key || exit 1;"
    " echo key $(cut -d' ' -f1,2 $d/key.pub)"
)


class Door(Record):
    """An open way: shell words that are exported before `mpirun` on the first host."""

    exports: str


async def open_door(
    site: Site, mark: str, nodes: Sequence[Node], members: Sequence[Member]
) -> Door | Blocker:
    """Open the door from the first of these to all others. The caller must always clean all of
    them.

    A Blocker: a host did not answer, or cannot be such a door; it names the host and the reason.
    """
    assert _MARKED.fullmatch(mark), mark
    first = (nodes[0], members[0])
    clients = list(zip(nodes[1:], members[1:], strict=True))
    opened = await _asked(site, first[0], f"{_marked(mark)} {_KEY}; {_network(first[1])}")
    if isinstance(opened, Blocker):
        return opened
    folder = _FOLDER.search(opened)
    key = _PUBLIC.search(opened)
    if folder is None or key is None:
        return _shut(first[0], opened)
    line = {n.id: _serve(mark, m, first[1].address, key[1]) for n, m in clients}
    answers = await asyncio.gather(*(_asked(site, n, line[n.id]) for n, _ in clients))
    host_keys = []
    texts = [opened]
    for (node, member), answer in zip(clients, answers, strict=True):
        if isinstance(answer, Blocker):
            return answer
        host_key = _PUBLIC.search(answer)
        if host_key is None or not answer.rstrip().endswith("open"):
            return _shut(node, answer)
        host_keys.append(f"[{member.address}]:{PORT} {host_key[1]}")
        texts.append(answer)
    pinned = await _asked(site, first[0], f"{_marked(mark)} {_pin(folder[1], host_keys)}")
    if isinstance(pinned, Blocker):
        return pinned
    if pinned.strip() != "pinned":
        return _shut(first[0], pinned)
    return Door(exports=_exports(folder[1], texts))


async def _asked(site: Site, node: Node, line: str) -> str | Blocker:
    outputs = await run_commands(site, node, [("mpi_door", line, OPEN_S)])
    return outputs if isinstance(outputs, Blocker) else outputs["mpi_door"].text


def _marked(mark: str) -> str:
    return f"export {MARK}={mark};"


def _network(member: Member) -> str:
    """Return which interface has the address that tests use, and in which network it is."""
    return f"ip -o addr show to {shlex.quote(member.address)} 2>/dev/null | head -n 1"


def _serve(mark: str, member: Member, client: str, key: str) -> str:
    """Return the shell line that opens one host; it ends with "open" when the sshd listens.

    The system's own answer on PAM is kept: it decides on root's limits of locked memory. Session
    variables: the mark, where programs are, and the interface for NCCL's first words.
    """
    variables = ("PATH=$PATH", "LD_LIBRARY_PATH=$LD_LIBRARY_PATH", "NCCL_SOCKET_IFNAME=${i:+=$i}")
    session_variables = " ".join(f'\\"{v}\\"' for v in variables)
    settings = (
        f"Port {PORT}",
        "HostKey $d/host",
        "AuthorizedKeysFile $d/authorized",
        "AllowUsers root",
        "PermitRootLogin prohibit-password",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM ${p:-yes}",
        "UseDNS no",
        "PidFile $d/pid",
        "DisableForwarding yes",
        "PermitTTY no",
        "PrintMotd no",
        "LogLevel ERROR",
        "LoginGraceTime 30",
        "MaxStartups 100:30:200",
        f"SetEnv {MARK}={mark} {session_variables}",
    )
    where = f"ListenAddress {member.address}" if _is_address(member.address) else ""
    body = "\\n".join((*settings, where))
    source = f'from=\\"{client}\\",' if _is_address(client) else ""
    return (
        f"{_marked(mark)} umask 077; d=$(mktemp -d {FOLDER}XXXXXX) || exit 1;"
        " ssh-keygen -q -t ed25519 -N '' -C provisioner-fabric -f $d/host || exit 1;"
        " s=$(command -v sshd || echo /usr/sbin/sshd);"
        " p=$($s -T 2>/dev/null | sed -n 's/^usepam //p');"
        f" n=$({_network(member)}); i=$(echo \"$n\" | sed -n 's/^[0-9]*: \\([^ @]*\\).*/\\1/p');"
        f' printf "{source}restrict {key}\\n" >$d/authorized;'
        f' printf "{body}\\n" >$d/config;'
        f" setsid timeout {DOOR_S:.0f} $s -D -f $d/config -E $d/log >/dev/null 2>&1 </dev/null &"
        f" c=0; while [ $c -lt 50 ] && ! ss -Hltn | grep -q ':{PORT} '; do"
        " sleep 0.2; c=$((c+1)); done;"
        " echo key $(cut -d' ' -f1,2 $d/host.pub); echo \"$n\";"
        f" if ss -Hltn | grep -q ':{PORT} '; then echo open;"
        " else tail -n 5 $d/log; fi"
    )


def _pin(folder: str, known: Sequence[str]) -> str:
    """Return the first host's ssh command: this key, these host keys, and no user's own files."""
    config = (
        "Host *",
        "User root",
        f"Port {PORT}",
        f"IdentityFile {folder}/key",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {folder}/known",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "HostKeyAlgorithms ssh-ed25519",
        "UpdateHostKeys no",
        "BatchMode yes",
        "ConnectTimeout 20",
        "LogLevel ERROR",
    )
    texts = {"known": known, "config": config}
    return " && ".join(
        (
            "umask 077",
            *(
                f"printf '%s\\n' {' '.join(shlex.quote(t) for t in lines)} >{folder}/{name}"
                for name, lines in texts.items()
            ),
            "echo pinned",
        )
    )


def _exports(folder: str, texts: Sequence[str]) -> str:
    """Return the environment for Open MPI 4 (ORTE) and 5 (PRRTE); each ignores the other's
    variables.

    The first host starts every daemon itself: it alone has the key. MPI is for nccl-tests' first
    words only, so it keeps to TCP and away from the rails; one network for all, where there is one
    (docs.open-mpi.org: plm_rsh_agent, plm_rsh_no_tree_spawn, oob_tcp_if_include,
    btl_tcp_if_include; PRRTE: plm_ssh_agent, plm_ssh_no_tree_spawn, prte_if_include).
    """
    agent = shlex.quote(f"ssh -F {folder}/config")
    exports = [
        f"OMPI_MCA_plm_rsh_agent={agent}",
        f"PRTE_MCA_plm_ssh_agent={agent}",
        "OMPI_MCA_plm_rsh_no_tree_spawn=1",
        "PRTE_MCA_plm_ssh_no_tree_spawn=1",
        "OMPI_MCA_pml=ob1",
        "OMPI_MCA_btl=tcp,self",
        "OMPI_MCA_coll_hcoll_enable=0",
    ]
    networks = {_network_of(text) for text in texts}
    network = networks.pop()
    if network and not networks:
        names = ("OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include")
        more = ("PRTE_MCA_prte_if_include", "PMIX_MCA_ptl_tcp_if_include")
        exports += [f"{name}={network}" for name in (*names, *more)]
    interface = re.search(r"^\d+: ([A-Za-z0-9._-]{1,15})(?:@\S+)?\s", texts[0], re.MULTILINE)
    if interface is not None:
        exports.append(f"NCCL_SOCKET_IFNAME=={interface[1]}")
    return f"export {' '.join(exports)};"


def _network_of(text: str) -> str:
    """Return the network as "10.0.0.0/24" from the line of `ip -o addr`; "": the line has none."""
    match = _NETWORK.search(text)
    try:
        return "" if match is None else str(ipaddress.ip_interface(match[1]).network)
    except ValueError:
        return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _shut(node: Node, said: str) -> Blocker:
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{node.id}/gate C",
        detail=f"no way in for mpirun could be opened: {said[-160:]!r}",
        unblock="Look at sshd, ssh-keygen and ss in the host; collectives need them.",
    )
