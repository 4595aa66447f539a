"""Metadata of a host at 169.254.169.254, served by its own system. Pure.

A host in a tenant's network reaches no server of ours, and a server in each of them would be one
more way in. So the configuration drive brings a small service: it answers at a link-local address
of the loopback interface, with files that the same drive wrote. The paths are those that cloud
images ask for (`latest/meta-data/`, EC2's); nothing in it is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROOT = "/var/lib/provisioner-metadata"
ADDRESS = "169.254.169.254"
UNIT = "provisioner-metadata.service"
_PROGRAM = "/usr/local/lib/provisioner-metadata.py"
_CODE = f'''\
"""Serves the files below {ROOT} as text; a folder is the list of its names."""
import http.server
import pathlib

ROOT = pathlib.Path("{ROOT}").resolve()


class Answer(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self):
        place = (ROOT / self.path.split("?")[0].lstrip("/")).resolve()
        if place != ROOT and ROOT not in place.parents or not place.exists():
            self.send_error(404)
            return
        if place.is_dir():
            names = sorted(p.name + "/" * p.is_dir() for p in place.iterdir())
            content = "\\n".join(names).encode()
        else:
            content = place.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


http.server.ThreadingHTTPServer(("{ADDRESS}", 80), Answer).serve_forever()
'''
_UNIT_TEXT = f"""\
[Unit]
Description=Metadata of this host at {ADDRESS}
After=network-pre.target

[Service]
ExecStartPre=+/bin/sh -c "ip address replace {ADDRESS}/32 dev lo"
ExecStart=/usr/bin/python3 {_PROGRAM}
Restart=on-failure
RestartSec=5
DynamicUser=yes
AmbientCapabilities=CAP_NET_BIND_SERVICE
ProtectSystem=strict
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""


def build_metadata(facts: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a cloud-config that serve `facts`: content by path below meta-data."""
    files = {f"{ROOT}/latest/meta-data/{path}": text for path, text in sorted(facts.items())}
    files |= {_PROGRAM: _CODE, f"/etc/systemd/system/{UNIT}": _UNIT_TEXT}
    return {
        "write_files": [
            {"path": path, "permissions": "0644", "content": text} for path, text in files.items()
        ],
        "runcmd": [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", UNIT]],
    }
