"""Steps about installations: the pinned image, its configuration, and a node installed by them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from daemon_client import Daemon, mark, pick_host
from node_steps import describe_node, give_back, order_node, reinstall_node

GROUP = "acc-install"
SOFTWARE = {"host.driver", "host.doca", "host.fabric_manager"}
Answer = dict[str, Any]


def _read_pins(daemon: Daemon, host: Answer) -> Answer:
    """Return the pins of the release of a host, for its profile."""
    profiles = daemon.get(f"/releases/{host['release']}")["profiles"]
    return dict(next(p["pins"] for p in profiles if p["name"] == host["profile"]))


def _find_file(daemon: Daemon, name: str) -> Answer:
    """Return a file of the artifact store; empty if the matrix names none of this name."""
    return dict(next((a for a in daemon.get("/artifacts")["items"] if a["name"] == name), {}))


def query_image(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the image that the hosts' release pins, and the NVIDIA software that it pins."""
    host = pick_host(daemon)
    pins = _read_pins(daemon, host)
    pin = pins["host.os"]
    image = _find_file(daemon, pin["artifact"])
    software = sorted(SOFTWARE & set(pins))
    return {
        "image_id": pin["sha256"],
        "image_name": pin["artifact"],
        "software": software,
        **mark(
            available=bool(image) and image["present"],
            as_pinned=image.get("sha256") == pin["sha256"],
            nvidia_software=len(software) == 3,
        ),
    }


def query_install_config(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Return the configuration of an installation: the release, its system, the booted image."""
    host = pick_host(daemon)
    pins = _read_pins(daemon, host)
    system = _find_file(daemon, pins["host.os"]["artifact"])
    booted = [a for a in daemon.get("/artifacts")["items"] if a["name"].endswith(".iso")]
    return {
        "config_name": host["release"],
        "boots": [a["name"] for a in booted],
        **mark(
            system=bool(system) and system["present"],
            boot_image=bool(booted) and all(a["present"] for a in booted),
            nvidia_software=set(pins) >= SOFTWARE,
        ),
    }


def crud_install_config(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Make, read, change and delete a node's pin: the release that an installation takes."""
    node = pick_host(daemon)
    now = datetime.fromisoformat(daemon.get("/me")["now"])
    path = f"/pins/node:{node['id']}"
    ends = (now + timedelta(days=30)).isoformat()
    body = {"release": node["release"], "reason": "acceptance", "until": ends}
    daemon.change("PUT", path, body)
    made = daemon.get(path)
    daemon.change("PATCH", path, {"reason": "acceptance: another reason"})
    changed = daemon.get(path)
    daemon.change("DELETE", path)
    return {
        "config_id": f"node:{node['id']}",
        "config_name": made["release"],
        **mark(
            create=made["reason"] == "acceptance",
            read=made["release"] == node["release"],
            update=changed["reason"] == "acceptance: another reason",
            delete=daemon.find(path) is None,
        ),
    }


def install_config_bm(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Order a node, pin its configuration, and have it installed by that."""
    node = order_node(daemon, GROUP)["id"]
    release = daemon.get(f"/nodes/{node}")["release"]
    now = datetime.fromisoformat(daemon.get("/me")["now"])
    body = {"release": release, "reason": "acceptance"}
    path = f"/pins/node:{node}"
    daemon.change("PUT", path, {**body, "until": (now + timedelta(days=30)).isoformat()})
    config = daemon.get(path)
    installed = reinstall_node(daemon, node, GROUP)
    row = describe_node(daemon, installed)
    runs = daemon.get(f"/nodes/{installed}/parts")["components"]
    daemon.change("DELETE", path)
    give_back(daemon, GROUP)
    return {
        **row,
        "success": next(c["met"] for c in runs if c["kind"] == "host.os") is True,
        "instance_state": row["state"],
        "config_id": f"node:{node}",
        "config_name": config["release"],
    }


STEPS = {
    "query_image": query_image,
    "query_install_config": query_install_config,
    "crud_install_config": crud_install_config,
    "install_config_bm": install_config_bm,
}
