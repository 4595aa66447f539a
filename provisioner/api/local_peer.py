"""The caller behind the unix socket: the person whose process connected, as the kernel reports it.

The socket's file is for the daemon's own user and for root, who own the data directory anyway; so
such a caller has the roles of the staff without a token. Its name is the login that the session
began with, which `sudo` and `su` preserve (`/proc/PID/loginuid`, pam_loginuid(8)), else the name of
the user that the process runs as: two people who use one service account stay two people.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from pathlib import Path

from aiohttp import web

from provisioner.model.access import STAFF, Caller

CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): process, user, group
NO_LOGIN = 2**32 - 1  # the loginuid of a process that no login began


def find_local_caller(request: web.Request) -> Caller | None:
    """Return the caller of a request that came through the unix socket; None for any other."""
    transport = request.transport
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _group = CREDENTIALS.unpack(raw)
    if user not in (0, os.getuid()):  # the file's mode admits no other user: fail closed
        return None
    name = _name(_read_login(process, user))
    return Caller(subject=name, roles=STAFF, via=f"the unix socket as {_name(user)}")


def _read_login(process: int, user: int) -> int:
    """Return the user that the process's session began as, or `user` where none is recorded."""
    try:
        login = int(Path(f"/proc/{process}/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return user
    return user if login == NO_LOGIN else login


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {user}"
