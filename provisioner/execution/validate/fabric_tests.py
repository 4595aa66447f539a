"""Runs one test among hosts in the maintenance VRF: server, client, cleaning, raw outputs.

Whatever is started carries a mark in its environment and ends by itself: after a crash it is found
by that mark and ended (`fabric_outputs.py`). What hosts print is evidence; it is judged by
`checks/fabric/fabric_checks.py`. NCCL's ranks are started through a door (`mpi_door.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from provisioner.checks.check import CheckContext
from provisioner.checks.fabric import fabric_checks, fabric_workloads, nccl_path
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.checks.fabric.training_step import learn_references
from provisioner.checks.gdr_loopback import MESSAGE_BYTES
from provisioner.checks.readers.nccl_log import NcclLog
from provisioner.checks.readers.sysfs import read_gid
from provisioner.checks.threshold_data import Limits
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.cable_ends import between, look
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.validate.fabric_outputs import (
    CLEAN,
    FOLDER,
    GATHER,
    LOOK,
    MARK,
    build_measure_line,
    find_slowest,
    host_end,
    judge_collective,
    judge_way,
    nccl_rail,
    parse_sections,
    rdma_rail,
    read_logs,
    serve,
    slowest_together,
)
from provisioner.execution.validate.validator import judging_context
from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult, Evidence
from provisioner.model.fabric_session import CableEnds, FabricRun
from provisioner.model.inventory import Inventory
from provisioner.model.location import is_ip_address
from provisioner.model.matrix import Matrix
from provisioner.model.names import normalize_pci
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.cohort import MEMBERS_MAX
from provisioner.planning.fault_location import fabric_rounds
from provisioner.planning.fault_location.isolation_words import FabricTest
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# A way in among hosts under test for the time of one test: `mpirun` starts its ranks through it.
#
# Each host but the first gets an sshd of its own, beside the system's: another port, a new host
# key, one login, from the first host's address only, with a key that the first host has just made.
# Only public keys pass over the daemon's own pinned connections; the private one never leaves the
# first host's memory (/run is a tmpfs), and is in no command line, output or evidence. Everything
# carries the mark of tests, also processes started through the door: `CLEAN` ends it and removes
# the files, after the test or after a crash; without a caller it ends after `DOOR_S`.
#
# See docs/decisions/0015 for the alternatives.


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
    where = f"ListenAddress {member.address}" if is_ip_address(member.address) else ""
    body = "\\n".join((*settings, where))
    source = f'from=\\"{client}\\",' if is_ip_address(client) else ""
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


def _shut(node: Node, said: str) -> Blocker:
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{node.id}/gate C",
        detail=f"no way in for mpirun could be opened: {said[-160:]!r}",
        unblock="Look at sshd, ssh-keygen and ss in the host; collectives need them.",
    )


SHORT_S = 30.0
SERVE_S = 30.0  # servers allocate GPU memory before they listen
MEASURE_S = 120.0  # a client ends itself after 90 s
NCCL_S = 300.0
NCCL = fabric_workloads.FabricKind.NCCL_RAIL.value
_DEVICE = re.compile(
    r"/([0-9a-f:.]{7,16})/infiniband/([A-Za-z0-9][A-Za-z0-9._-]{0,62}) gid ([A-Za-z0-9]{1,16})"
)
_KIND = fabric_workloads.FabricKind.RDMA_PAIR


class FabricTests:
    """Tests among the hosts of a site. `thresholds`: the site's own."""

    def __init__(
        self,
        site: Site,
        store: SqlStore,
        matrix: Matrix,
        thresholds: Mapping[str, Limits] | None = None,
    ) -> None:
        self._site = site
        self._store = store
        self._matrix = matrix
        self._thresholds = thresholds or {}

    async def read_member(self, node: Node) -> Member | Blocker:
        """The node as its tests need it. A Blocker: it does not answer, or cannot be tested."""
        inventory = await self._store.evidence.get_inventory(node.id)
        outputs = await run_commands(self._site, node, [("devices", LOOK, SHORT_S)])
        if isinstance(outputs, Blocker):
            return outputs
        text = outputs["devices"].text
        tool, _, listed = text.partition("\n")
        is_ready = tool.endswith("/ib_write_bw") and listed.endswith("looked\n")
        if inventory is None or not is_ready:
            return _unfit(node, f"its RDMA devices or perftest are not there: {text!r:.120}")
        devices = {normalize_pci(m[1]): (m[2], m[3]) for m in _DEVICE.finditer(listed)}
        slots = {d.slot: normalize_pci(d.pci) for d in inventory.devices if d.pci}
        # a card's cables in several planes share its tests
        cards = {(p.rail, p.nic_slot): p for p in node.ports if p.rail >= 0}
        ports = sorted(cards.values(), key=lambda p: p.rail)
        if len({p.rail for p in ports}) < len(ports):
            return _unfit(node, "a rail has several cards, and a test would take only one of them")
        # the n-th card of a rail, by PCI address, is beside the n-th GPU (checks/gdr_loopback.py)
        order = sorted(slots.get(p.nic_slot, "") for p in ports)
        try:
            rails = tuple(
                RailPort(
                    rail=p.rail,
                    device=devices[slots[p.nic_slot]][0],
                    gid=read_gid(devices[slots[p.nic_slot]][1]),
                    address=host_end(p.address),
                    gpu=order.index(slots[p.nic_slot]),
                )
                for p in ports
            )
            return Member(node=node.id, address=node.address, rails=rails)
        except KeyError as missing:
            return _unfit(node, f"no RDMA device is known for {missing}")
        except ValidationError as problem:
            return _unfit(node, f"a name or address is not one: {problem.errors()[0]['loc']}")
        except ValueError as problem:
            return _unfit(node, f"a rail's RDMA device has {problem}")

    async def clean_hosts(self, nodes: Iterable[Node]) -> None:
        """End whatever tests left behind; a host that does not answer has its own time limits."""
        look = [("clean", CLEAN, SHORT_S)]
        await asyncio.gather(*(run_commands(self._site, node, look) for node in nodes))

    async def run(
        self,
        session: str,
        test: FabricTest,
        number: int,
        nodes: tuple[Node, Node],
        members: tuple[Member, Member],
        *,
        counting: bool = False,
    ) -> FabricRun:
        """Run one test with (server, client), on all its rails at once; their exceptions become its
        outcome.

        `counting`: both ends of the cables are read before and after it.
        """
        tests = [fabric_workloads.build_rdma_pair_test(*members, rail) for rail in test.rails]
        serving, measuring = (f"{session}/{test.name}/{side}" for side in ("server", "client"))
        both = list(zip(nodes, members, strict=True)) if counting else []
        before = [await look(self._site, self._store, n, m, test.rails) for n, m in both]
        try:
            begun = await self._one(nodes[0], "serve", serve(serving, tests), SERVE_S)
            if isinstance(begun, Blocker):
                return fabric_rounds.record_not_run(test, number)
            measured = await self._one(
                nodes[1], _KIND.value, build_measure_line(measuring, tests), MEASURE_S
            )
            nccl = None
            if self._site.settings.fabric_nccl:  # the same rails: it verifies what arrives
                tried = [
                    fabric_workloads.build_nccl_rail_test(members, rail) for rail in test.rails
                ]
                name = f"{session}/{test.name}/nccl"
                printed = await self._mpi(name, nodes, members, tried, NCCL_S, together=True)
                if not isinstance(printed, Blocker):
                    nccl = (tried, printed, await self._read_logs(nodes))
        finally:
            await self.clean_hosts(nodes)
        if isinstance(measured, Blocker):
            return fabric_rounds.record_not_run(test, number)
        raw = {
            "serve": begun.model_dump(mode="json"),
            _KIND.value: measured.model_dump(mode="json"),
        }
        context = await self._context(nodes[1])
        results = tuple(rdma_rail(t, measured, context) for t in tests)
        if nccl is not None:
            raw[NCCL] = nccl[1].model_dump(mode="json")
            each = zip(results, nccl[0], strict=True)
            results = tuple(
                nccl_rail(r, t, nccl[1], context, judge_way(t, nccl[2], _want(members, nodes, t)))
                for r, t in each
            )
        digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
        ends: list[CableEnds] = []
        for (node, member), first in zip(both, before, strict=True):
            after = await look(self._site, self._store, node, member, test.rails)
            ends += between(node.id, first, after)
        run = fabric_rounds.record_not_run(test, number)
        shown = {"results": results, "evidence": digest, "ends": tuple(ends)}
        return run.model_copy(update=shown)

    async def run_collective(
        self,
        session: str,
        test: FabricTest,
        number: int,
        nodes: tuple[Node, ...],
        members: tuple[Member, ...],
    ) -> FabricRun:
        """Return a collective over all GPUs of these nodes; of more than two also all-to-all."""
        wanted = _want(members, nodes)
        if len(members) == 2:
            tests = [fabric_workloads.build_nccl_pair_test(*members)]
            if wanted.rails_apart:
                tests += fabric_workloads.build_pxn_tests(*members)
        else:
            tests = [
                fabric_workloads.build_nccl_group_test(members, alltoall=a) for a in (False, True)
            ]
        if self._site.settings.fabric_training:
            tests.append(fabric_workloads.build_training_test(members))
        limit_s = sum(c.limit_s for t in tests for c in t.clients.values())
        try:
            mark = f"{session}/{test.name}"
            output = await self._mpi(mark, nodes, members, tests, limit_s, together=False)
            logs = await self._read_logs(nodes)
        finally:
            await self.clean_hosts(nodes)
        run = fabric_rounds.record_not_run(test, number)
        if isinstance(output, Blocker):
            results = (run.results[0].model_copy(update={"detail": str(output)}),)
            return run.model_copy(update={"results": results})
        raw = {t.kind.value: output.model_dump(mode="json") for t in tests[:1]}
        digest = await self._store.evidence.put_output(json.dumps(raw, sort_keys=True))
        context = await self._context(nodes[0])
        if self._site.settings.fabric_training:
            taught = await self._store.cohorts.list_samples(nodes[0].profile, None, MEMBERS_MAX)
            context = context.model_copy(update={"training": learn_references(taught)})
        result = judge_collective(tests, output, context, logs, wanted)
        return run.model_copy(update={"results": (result,), "evidence": digest})

    async def judge_runs(self, node: Node, runs: Sequence[FabricRun]) -> tuple[CheckResult, ...]:
        """The node's result, judged from all outputs of its tests that passed, as one evidence."""
        texts = []
        for run in runs:
            if run.kind == "group":
                continue
            raw = await self._store.evidence.get_output(run.evidence) if run.evidence else None
            if raw is None:
                continue
            outputs = parse_sections(json.loads(raw)[_KIND.value]["text"])
            good = [r.rail for r in run.results if r.shown == "pass"]
            texts += [f"== {run.test} rail {n}\n{outputs[n][0]}" for n in good if n in outputs]
        source = f"ib_write_bw -s {MESSAGE_BYTES} -b --report_gbits (rail by rail)"
        evidence = Evidence(source=source, exit_code=0, text="\n".join(texts))
        raw_text = json.dumps({_KIND.value: evidence.model_dump(mode="json")}, sort_keys=True)
        digest = await self._store.evidence.put_output(raw_text)
        result = fabric_checks.CHECK_RDMA.judge({_KIND.value: evidence}, await self._context(node))
        more = {**result.measured, **slowest_together(runs)}
        result = result.model_copy(update={"evidence": digest, "measured": more})
        if not self._site.settings.fabric_nccl:
            return (result,)
        busses = find_slowest(runs)
        missing = sorted({p.rail for p in node.ports if p.rail >= 0} - set(busses))
        if missing:
            why = f"NCCL gave no result on rails {missing}: see the evidence of its tests"
            return (fabric_checks.CHECK_RAIL.report_skipped(why), result)
        more = {f"nccl_rail_gb_s/rail{rail}": bus for rail, bus in sorted(busses.items())}
        return (result.model_copy(update={"measured": {**result.measured, **more}}),)

    async def _mpi(
        self,
        mark: str,
        nodes: tuple[Node, ...],
        members: tuple[Member, ...],
        tests: Sequence[fabric_workloads.FabricTest],
        limit_s: float,
        *,
        together: bool,
    ) -> Evidence | Blocker:
        """Run the tests that `mpirun` starts; the caller cleans these nodes afterwards."""
        door = await open_door(self._site, mark, nodes, members)
        if isinstance(door, Blocker):
            return door
        line = build_measure_line(mark, tests, door.exports, together=together)
        return await self._one(nodes[0], tests[0].kind.value, line, limit_s)

    async def _read_logs(self, nodes: Sequence[Node]) -> dict[str, NcclLog]:
        """Return what NCCL's ranks wrote on each of these hosts, by test."""
        look = [("nccl_log", GATHER, SHORT_S)]
        said = await asyncio.gather(*(run_commands(self._site, node, look) for node in nodes))
        return read_logs(
            {
                node.id: outputs if isinstance(outputs, Blocker) else outputs["nccl_log"]
                for node, outputs in zip(nodes, said, strict=True)
            }
        )

    async def _one(self, node: Node, name: str, line: str, limit_s: float) -> Evidence | Blocker:
        outputs = await run_commands(self._site, node, [(name, line, limit_s)])
        return outputs if isinstance(outputs, Blocker) else outputs[name]

    async def _context(self, node: Node) -> CheckContext:
        inventory = await self._store.evidence.get_inventory(node.id) or Inventory(
            node=node.id, vendor=""
        )
        site = self._site
        return await judging_context(
            self._store, self._matrix, site.settings, self._thresholds, node, inventory
        )


def _want(
    members: Sequence[Member],
    nodes: Sequence[Node],
    test: fabric_workloads.FabricTest | None = None,
) -> nccl_path.Wanted:
    """Return what logs must show: the devices of all rails, or of the one that `test` uses."""
    rail = test.rail if test is not None else None
    leaves = [{p.switch for p in node.ports if p.rail >= 0 and p.switch} for node in nodes]
    return nccl_path.Wanted(
        devices={
            m.node: frozenset(p.device for p in m.rails if rail is None or p.rail == rail)
            for m in members
        },
        rails_apart=rail is None and all(len(names) > 1 for names in leaves),
    )


def _unfit(node: Node, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{node.id}/gate C",
        detail=detail,
        unblock="Look at the host's RDMA devices and its perftest package.",
    )
