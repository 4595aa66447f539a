"""The documents of a simulated switch that are only operational: routes, images, health."""

from __future__ import annotations

from provisioner.sim.switches.switch import Switch
from provisioner.sim.switches.switch_config import Tree
from provisioner.sim.switches.switch_release import build_document, list_routes

MODEL = "SN5600"


def build_operational(switch: Switch, parts: tuple[str, ...], now: float) -> Tree | None:
    """The document at this path; None for any other path."""
    match parts:
        case ("system", "image"):
            return list_images(switch)
        case ("system", "image", "files"):
            return {name: {"path": f"/var/images/{name}"} for name in switch.files}
        case ("system", "version"):
            return {
                "base-os": "Debian GNU/Linux 12",
                "build-date": "",
                "image": switch.version,
                "kernel": "6.1.0-cl-1-amd64",
            }
        case ("system", "health"):
            return report_health(switch)
        case ("platform",):
            return {
                "product-name": MODEL,
                "part-number": "920-9N42F-00RI-7C0",
                "serial-number": switch.serial,
                "system-mac": switch.mac,
                "manufacturer": "NVIDIA",
            }
        case ("vrf", vrf, "router", "rib", "ipv4", "route"):
            return list_routes(switch, vrf, now) if vrf in switch.operational["vrf"] else None
        case ("vrf", vrf, "router", "rib", "ipv4"):
            exists = vrf in switch.operational["vrf"]
            return {"route": list_routes(switch, vrf, now)} if exists else None
        case ("interface", name, "lldp"):
            return {"neighbor": list_neighbours(switch, name, now)}
        case ("interface", name, "lldp", "neighbor"):
            return list_neighbours(switch, name, now)
        case _:
            return build_document(switch, parts, now)


def list_images(switch: Switch) -> Tree:
    """Both partitions with their build ids, the running one and the next one to boot."""
    shown: Tree = {"current": str(switch.current), "next": str(switch.next)}
    for number, version in switch.partitions.items():
        if version is not None:
            shown[f"partition{number}"] = {
                "build-id": version,
                "description": f"Cumulus Linux {'.'.join(version.split('.')[:3])}",
                "disk": f"/dev/sda{number + 4}",
                "release": ".".join(version.split(".")[:3]),
            }
    return shown


def report_health(switch: Switch) -> Tree:
    """`OK`, or the issues of the faults in force."""
    issues = {}
    if "psu_failed" in switch.faults:
        issues["PSU1"] = {"issue": "not OK"}
    if "fan_missing" in switch.faults:
        issues["FAN2/1"] = {"issue": "missing"}
    issues |= {part: {"issue": text} for part, text in switch.planted.issues.items()}
    led = "amber" if issues else "green"
    return {"status": "Not OK" if issues else "OK", "status-led": led, "issues": issues}


def list_neighbours(switch: Switch, interface: str, now: float) -> Tree:
    """The LLDP neighbours of an interface, by the neighbour's system name."""
    neighbour = switch.neighbours.get(interface)
    if neighbour is None or not switch.link_up(interface, now):
        return {}
    if interface in switch.planted.silent:
        return {}
    system, port = switch.planted.lldp.get(interface, (neighbour.system, neighbour.port))
    return {
        system: {
            "age": "120",
            "chassis": {"chassis-id": neighbour.mac, "system-name": system},
            "port": {"name": port, "ttl": 120, "type": "ifname"},
        }
    }
