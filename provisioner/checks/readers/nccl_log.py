"""Reads what NCCL did from its own log (`NCCL_DEBUG=INFO`), line by line, as it comes.

A log is data of many processes: lines may be cut, mixed with another rank's, tagged by `mpirun`, or
absent. What is not understood is counted, and a rank counts as whole only if its log shows that its
communicator began and ended; a caller must take everything else for unknown.

Formats: NVIDIA/nccl v2.8 to v2.31, src/transport/net.cc (sendSetup, recvSetup), src/init.cc,
src/transport/net_ib/init.cc, src/graph/topo.cc, src/debug.cc. `via NET/IB/3(19)`: rank 19 of the
same host sends by its NIC (PXN).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

RANKS_MAX = 65_536
LINE_MAX = 4096  # NCCL cuts its own lines at 1,024 bytes
KINDS_MAX = 100_000  # different paths of one log; a whole pod has far fewer
_MARK = b" NCCL "
_CHANNEL = b" NCCL INFO Channel "
_HEAD = re.compile(rb"(?:^|[\s>:])([^\s:<>\[\]]{1,255}):(\d{1,10}):(\d{1,10}) \[(\d{1,4})\]$")
_PATH = re.compile(
    rb"Channel \d{1,4}(?:/(\d))? : (\d{1,6})\[([0-9a-f]{1,16})\] -> (\d{1,6})\[([0-9a-f]{1,16})\]"
    rb" \[(send|receive)\] via NET/([^/]{1,64})/(\d{1,3})(?:\((\d{1,6})\))?"
    rb"(/GDRDMA)?(?:\((?:PCI)\))?(?:/Shared)?\s*$"
)
_COMM = re.compile(
    rb"comm \S{1,20} rank (\d{1,6}) n[rR]anks (\d{1,6}) .*"
    rb"(Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)\s*$"
)
_USING = re.compile(rb"NET/IB : Using(.*?)\s*(?:\[RO\])?\s*;")
_HCA = re.compile(
    rb"\[(\d{1,3})\]([A-Za-z0-9][A-Za-z0-9._-]{0,62}):\d{1,2}(?:::?\d{1,5}){0,2}/(?:IB|RoCE)"
)
_MERGED = re.compile(rb"Made virtual device \[(\d{1,3})\] name=(\S{1,120})")
_GDR = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,3})")
_ENV = re.compile(rb"(NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{1,200}?)\.?\s*$")
_VERSION = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_NETWORK = re.compile(rb"Using network (.{1,64}?)\s*$")
_PLUGIN = re.compile(rb"(?:Loaded net plugin|P2P plugin|NET/Plugin: Loaded net plugin) (\S{1,64})")
_NO_IB = (b"Failed to open libibverbs", b"NET/IB : No device found")
_RING = re.compile(rb"Channel (\d{1,4})/(\d{1,4}) :((?: +\d{1,6})+)\s*$")
SOCKET = "Socket"


@dataclass(frozen=True, order=True)
class Path:
    """One way that a rank's data leaves or enters its host, to whatever ranks."""

    rank: int  # whose log it is in
    sends: bool
    network: str
    device: int  # of NCCL's own list of devices in that process
    proxy: int | None  # the rank that sends for it (PXN)
    direct: bool  # GPUDirect RDMA
    crosses: bool  # the two GPUs have different places in their hosts: another rail
    point_to_point: bool  # of send and receive (all-to-all), not of a ring or tree


@dataclass
class NcclProcess:
    """One process: one rank under `mpirun`, or several threads."""

    host: str
    pid: int
    version: str = ""
    plugin: str = ""
    network: str = ""
    devices: dict[int, str] = field(default_factory=dict)  # NCCL's number -> RDMA device
    no_direct: set[int] = field(default_factory=set)  # devices without GPUDirect RDMA
    why_no_ib: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)  # rank -> the communicator's size
    ready: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    rings: int = 0
    trees: bool = False


class NcclLog:
    """Collects from `feed`; what it knows is read afterwards."""

    def __init__(self) -> None:
        self.processes: dict[tuple[str, int], NcclProcess] = {}
        self.paths: set[Path] = set()
        self.path_of: dict[int, tuple[str, int]] = {}  # rank -> its process
        self.damaged = 0  # lines of NCCL that are cut or mixed with others
        self.warnings: list[str] = []
        self.version = ""
        self.host = ""  # where the next bytes are from; "": as they name it themselves
        self._rest = b""
        self._told: set[tuple[bytes, bytes, bytes]] = set()  # kinds of ways
        self._head = _CHANNEL  # of the way before, up to its channel
        self._channels = [b"00"]  # of the way before

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, of any length.

        A way has a line for each of up to 64 channels, one after the other, which are mostly those
        of the way before: then one comparison reads all. A way that differs from one that was told
        before in no more than its channels and the rank at its far end says nothing new.
        """
        text = self._rest + chunk
        whole = text.rfind(b"\n") + 1
        self._rest = text[whole:][: LINE_MAX + 1]
        head = self._head  # what a rank's lines cost is this loop: it looks nothing up twice
        channels = self._channels
        told = self._told
        at = 0
        while at < whole:
            end = text.index(b"\n", at) + 1
            if not text.startswith(head, at):
                begun, found, _ = text[at:end].partition(_CHANNEL)
                if not found:
                    self._take_other(text[at : end - 1])
                    at = end
                    continue
                head = begun + found
            start = at + len(head)
            tail = text[start + 2 : end]
            lines = (tail + head).join(channels) + tail
            if text.startswith(lines, start):
                at = start + len(lines)
            else:
                channels = _list_channels(text, start, tail, head)
                at += max(1, len(channels)) * (end - at)
            far = tail.find(b" -> ") + 4 if b"] [send] " in tail else tail.find(b" : ") + 3
            place = tail.find(b"[", far)
            kind = (head, tail[:far], tail[place:])
            if kind not in told or not channels or not tail[far:place].isdigit():
                if len(told) < KINDS_MAX:
                    told.add(kind)
                self._take(head + text[start : end - 1])
        self._head = head
        self._channels = channels

    def _take_other(self, line: bytes) -> None:
        if _MARK in line:
            self._take(line)
        elif line.startswith(b"NCCL version ") and (named := _VERSION.match(line)):
            self.version = named[1].decode()  # of one rank, without its name

    def end(self) -> NcclLog:
        """Take the last line. One without its end is cut."""
        if self._rest.endswith(b" COMPLETE"):
            self._take(self._rest)
        elif _MARK in self._rest:
            self.damaged += 1
        self._rest = b""
        return self

    def _take(self, line: bytes) -> None:
        head, _, said = line.partition(_MARK)
        if said.startswith(b"INFO "):
            said = said[5:]
            # most lines of a large run are ways inside a host, which say nothing here
            if b" via P2P/" in said or b" via SHM/" in said:
                self.damaged += said.count(b" via ") > 1
                return
        elif said.startswith(b"WARN "):
            if len(self.warnings) < 32:
                self.warnings.append(said[5:205].decode("utf-8", "replace"))
            return
        else:
            self.damaged += b"NCCL INFO" in line
            return
        if _MARK in said or len(line) > LINE_MAX:
            self.damaged += 1  # two processes' lines in one: neither is to be trusted
            return
        found = _HEAD.search(head)
        if found is None:
            self.damaged += 1
            return
        key = (self.host or found[1].decode("ascii", "replace"), int(found[2]))
        process = self.processes.get(key)
        if process is None:
            if len(self.processes) >= RANKS_MAX:
                self.damaged += 1
                return
            process = self.processes[key] = NcclProcess(*key)
        self._note(process, said)

    def _note(self, process: NcclProcess, said: bytes) -> None:
        if b" via NET/" in said:
            self._note_path(process, said)
        elif b"COMPLETE" in said or b"Init START" in said:
            self._note_rank(process, said)
        elif found := _NETWORK.match(said):
            process.network = found[1].decode("ascii", "replace")
        elif said.startswith((b"NET/", b"GPU Direct", b"Failed to open libibv")):
            self._note_network(process, said)
        elif b" set " in said and (found := _ENV.match(said)):
            process.environment[found[1].decode()] = found[2].decode("ascii", "replace")
        elif found := _VERSION.search(said):
            process.version = found[1].decode()
        elif found := _PLUGIN.search(said):
            process.plugin = found[1].decode("ascii", "replace")
        elif b"PXN Disabled" in said:
            process.environment["NCCL_PXN_DISABLE"] = "1"
        elif said.startswith(b"Connected all trees"):
            process.trees = True
        elif _RING.match(said):
            process.rings = max(process.rings, int(said[8:].split(b"/")[1].split()[0]))
        elif said.startswith(b"Channel ") and b" via" in said:
            self.damaged += 1

    def _note_network(self, process: NcclProcess, said: bytes) -> None:
        if found := _USING.search(said):
            for number, name in _HCA.findall(found[1]):
                process.devices[int(number)] = name.decode()
        if found := _MERGED.search(said):
            process.devices[int(found[1])] = found[2].decode("ascii", "replace")
        if found := _GDR.search(said):
            (process.no_direct.discard, process.no_direct.add)[found[1] == b"Disabled"](
                int(found[2])
            )
        if said.startswith(_NO_IB):
            process.why_no_ib = said[:80].decode("ascii", "replace").strip()
        if found := _PLUGIN.search(said):
            process.plugin = found[1].decode("ascii", "replace")

    def _note_rank(self, process: NcclProcess, said: bytes) -> None:
        found = _COMM.search(said)
        if found is None:
            return
        rank = int(found[1])
        size = int(found[2])
        if rank >= size or size > RANKS_MAX:
            self.damaged += 1
            return
        if found[3] == b"Init START":
            process.begun[rank] = size
        elif found[3] == b"Init COMPLETE":
            process.begun[rank] = size
            process.ready.add(rank)
        elif found[3] == b"Destroy COMPLETE":
            process.ended.add(rank)
        self.path_of[rank] = (process.host, process.pid)

    def _note_path(self, process: NcclProcess, said: bytes) -> None:
        found = _PATH.match(said)
        if found is None or len(self.paths) >= KINDS_MAX:
            self.damaged += 1
            return
        sends = found[6] == b"send"
        rank = int(found[2] if sends else found[4])
        self.path_of.setdefault(rank, (process.host, process.pid))
        self.paths.add(
            Path(
                rank=rank,
                sends=sends,
                network=found[7].decode("ascii", "replace"),
                device=int(found[8]),
                proxy=int(found[9]) if found[9] is not None else None,
                direct=found[10] is not None,
                crosses=found[3] != found[5],
                point_to_point=found[1] == b"1",
            )
        )


def _list_channels(text: bytes, at: int, tail: bytes, head: bytes) -> list[bytes]:
    """Return the channel at this place, and those of all lines after it that are the same but for
    their channel; []: there is none.
    """
    channels = [text[at : at + 2]]
    at += 2 + len(tail)
    while text.startswith(tail, at + len(head) + 2) and text.startswith(head, at):
        at += len(head)
        channels.append(text[at : at + 2])
        at += 2 + len(tail)
    return channels if b"".join(channels).isdigit() else []


def read_log(chunks: Iterable[bytes]) -> NcclLog:
    """Return what a whole log says."""
    log = NcclLog()
    for chunk in chunks:
        log.feed(chunk)
    return log.end()
