"""Debian's rsyslog as the syslog of some hosts and switches of the demonstration.

Each sends over TLS with a certificate of its own. Its programs are the simulator's: what the
simulated machines log is written to rsyslog's sockets. Marks are rsyslog's own, every few seconds.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin")
LOOK_S = 1.0
STOP_S = 20.0
OF_A_KIND = 3  # the daemon takes eight connections of one address
HEAD = """
global(workDirectory="{work}" defaultNetstreamDriver="ossl"
  defaultNetstreamDriverCAFile="{authority}")
module(load="imuxsock" SysSock.Use="off")
"""
MARKS = """
ruleset(name="marks") {{ {calls} }}
module(load="immark" interval="10" use.syslogcall="off" ruleset="marks")
"""
SENDER = """
ruleset(name="{node}") {{ action(type="omfwd" target="127.0.0.1" port="{port}" protocol="tcp"
  TCP_Framing="octet-counted" StreamDriver="ossl" StreamDriverMode="1"
  StreamDriverAuthMode="x509/certvalid" StreamDriver.CAFile="{authority}"
  StreamDriver.CertFile="{folder}/{node}.pem" StreamDriver.KeyFile="{folder}/{node}.key"
  template="RSYSLOG_ForwardFormat" action.resumeRetryCount="-1" action.resumeInterval="1") }}
input(type="imuxsock" Socket="{work}/{node}" RateLimit.Interval="0" ruleset="{node}")
"""


class LogSenders:
    """The rsyslog of this run, and the thread that hands it what the machines log."""

    def __init__(self, folder: Path, authority: Path, ask: Callable[..., Any]) -> None:
        """`folder`: the senders' certificates and the port; `ask`: of the simulator."""
        self._ask = ask
        self._work = Path(tempfile.mkdtemp())  # a socket's name has 108 bytes at most
        logs = ask("GET", "/logs")
        switches = [name for name in logs if name.startswith("leaf")]
        hosts = [name for name in logs if name not in switches and not name.startswith("spine")]
        self._nodes = [*switches[:OF_A_KIND], *hosts[:OF_A_KIND]]
        self._sent = dict.fromkeys(self._nodes, 0)
        words = {"work": self._work, "authority": authority, "folder": folder}
        words["port"] = (folder / "port").read_text(encoding="utf-8")
        calls = " ".join(f"call {node}" for node in self._nodes)
        senders = "".join(SENDER.format(node=node, **words) for node in self._nodes)
        text = HEAD.format(**words) + senders + MARKS.format(calls=calls)
        (self._work / "own.conf").write_text(text, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Start rsyslog."""
        if PROGRAM is None:
            raise RuntimeError("rsyslog is not installed: apt-get install rsyslog rsyslog-openssl")
        paths = ("-f", str(self._work / "own.conf"), "-i", str(self._work / "pid"))
        with (self._work / "log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "-n", *paths], stdout=log, stderr=log)

    def stop(self) -> None:
        """End rsyslog."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_S)
            self._process = None

    def follow(self) -> None:
        """Hand on what the machines log, until it is over."""
        while not self._over.wait(LOOK_S):
            logs = self._ask("GET", "/logs")
            for node in self._nodes:
                with contextlib.suppress(OSError):  # rsyslog is away: again at the next look
                    self._hand_on(node, logs[node][self._sent[node] :])

    def _hand_on(self, node: str, lines: list[str]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as programs:
            programs.connect(str(self._work / node))
            for line in lines:
                priority, _, text = line.partition(">")
                programs.send(f"{priority}>{time.strftime('%b %d %H:%M:%S')} {text}".encode())
                self._sent[node] += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send until the end."""
        self.start()
        thread = threading.Thread(target=self.follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self.stop()
            shutil.rmtree(self._work, ignore_errors=True)
