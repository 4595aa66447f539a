"""Command lines of tests among nodes, for a host's shell: look, serve, measure, clean.

Whatever is started carries `PROVISIONER_FABRIC` in its environment; `CLEAN` finds it by that, and
what `mpi_door.py` opened by its folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from provisioner.checks.fabric import fabric_workloads
from provisioner.checks.readers.gid_index import FIND_GID
from provisioner.model.location import find_host_end

MARK = "PROVISIONER_FABRIC"
FOLDER = "/run/provisioner-fabric."  # the files of a test in a host, in memory
LOOK = (
    "command -v ib_write_bw; "
    f"for p in /sys/bus/pci/devices/*/infiniband/*; do {FIND_GID} echo $p gid $g; done; echo looked"
)
CLEAN = (
    f"for f in $(grep -lsz '^{MARK}=.' /proc/[0-9]*/environ); do p=${{f#/proc/}};"
    " kill -9 ${p%/environ}; done;"
    # sshd writes its title over its environment, and so over the mark: it is known by its pid
    f" for f in {FOLDER}*/pid; do p=$(cat $f 2>/dev/null) &&"
    ' [ "$(cat /proc/$p/comm 2>/dev/null)" = sshd ] && kill -9 $p; done;'
    f" rm -rf {FOLDER}*; echo cleaned"
)


def host_end(leaf_end: str) -> str:
    """Return the host's address of a cable from its leaf's, "172.0.0.1/31" -> "172.0.0.0"; "":
    none.
    """
    end = find_host_end(leaf_end)
    return "" if end is None else str(end.ip)


def serve(mark: str, tests: Sequence[fabric_workloads.FabricTest]) -> str:
    """Start the servers of all rails and say how many listen within ten seconds."""
    lines = [command.line for test in tests for command in test.servers.values()]
    ports = "|".join(str(fabric_workloads.PORT + (t.rail or 0)) for t in tests)
    started = " ".join(
        f"setsid sh -c {shlex.quote(line)} >/dev/null 2>&1 </dev/null &" for line in lines
    )
    return (
        f"export {MARK}={shlex.quote(mark)}; {started} n=0;"
        f" while [ $n -lt 20 ]; do l=$(ss -Hltn | grep -cE ':({ports}) ');"
        f" [ $l -ge {len(lines)} ] && break; sleep 0.5; n=$((n+1)); done; echo listening $l"
    )


def build_measure_line(
    mark: str,
    tests: Sequence[fabric_workloads.FabricTest],
    exports: str = "",
    *,
    together: bool = True,
) -> str:
    """Return the line that runs the clients, each one's output with its exit code behind it: rails
    `together`.

    Tests without a rail are numbered in their order. `exports`: shell words before them.
    """
    numbered = [
        (n if t.rail is None else t.rail, command.line)
        for n, t in enumerate(tests)
        for command in t.clients.values()
    ]
    started = " ".join(
        f"(sh -c {shlex.quote(line)} >$d/{n} 2>&1; echo == end {n} $? >>$d/{n})"
        f" {'&' if together else ';'}"
        for n, line in numbered
    )
    numbers = " ".join(str(n) for n, _ in numbered)
    return (
        f"export {MARK}={shlex.quote(mark)}; {exports} d=$(mktemp -d) || exit 1; {started} wait;"
        f" for r in {numbers}; do echo == rail $r; cat $d/$r; done; rm -r $d"
    )
