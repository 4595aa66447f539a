"""A simulated manager of NVLink partitions, by NMX Manager's REST API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.racks.rack import Answer

PREFIX = "/nmx/v1"
DEFAULT = 32766
GROUPS_STEP = 4  # a partition's limit of multicast groups is 0 or a multiple (NICo#2681)
Json = dict[str, Any]


@dataclass
class NmxFaults:
    """What goes wrong. `forgets`: it restarts after it took a change, and knows no operation."""

    forgets: bool = False
    fails: bool = False  # an operation ends as failed, and changes nothing
    lies: bool = False  # it ends as completed, and changes nothing
    cut: bool = False  # an answer is a 500 after the change was taken
    late_s: float = 0.0  # from the end of an operation until what it made is listed (NICo#572)


@dataclass
class Nmx:
    """GPUs, partitions and operations. `polls`: looks until an operation ends."""

    gpus: list[Json] = field(default_factory=list)
    partitions: dict[str, Json] = field(default_factory=dict)
    switches: list[Json] = field(default_factory=list)  # its switch nodes
    polls: int = 1
    managed: dict[str, bytes] = field(default_factory=dict)  # switches, each with its bundle
    maintenance: bool = True  # its own mode, in which it replaces certificates
    unmanaged: bool = False  # it knows none of the switches any more
    faults: NmxFaults = field(default_factory=NmxFaults)
    log: list[str] = field(default_factory=list)
    now: float = 0.0
    groups: int = 0  # multicast groups that it asks the controller for with each partition
    _listed_at: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)  # operation: why
    _waiting: dict[str, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    _made: int = 0

    def add_tray(self, domain: str, serial: str, slot: int, gpus: int = 4) -> None:
        for device in range(1, gpus + 1):
            at = {"ChassisID": 1, "ChassisSerialNumber": serial, "SlotID": slot, "HostID": 1}
            one = {"ID": f"g{len(self.gpus)}", "DomainUUID": domain, "DeviceID": device}
            self.gpus.append({**one, "LocationInfo": at, "Health": "HEALTHY"})

    def add_switch(self, serial: str, slot: int) -> None:
        at = {"ChassisID": 1, "ChassisSerialNumber": serial, "SlotID": slot, "HostID": 1}
        self.switches.append({"ID": f"s{slot}", "LocationInfo": at, "Health": "HEALTHY"})

    def add_default(self) -> None:
        """Have the factory's partition hold every GPU."""
        self._store("default", DEFAULT, "Default", [self.place(one) for one in self.gpus])

    @staticmethod
    def place(gpu: Json) -> Json:
        at = gpu["LocationInfo"]
        kept = {name: at[name] for name in ("ChassisID", "SlotID", "HostID")}
        return {"DomainUUID": gpu["DomainUUID"], **kept, "DeviceID": gpu["DeviceID"]}

    def _store(self, ident: str, number: int, name: str, members: list[Json]) -> None:
        body = {"ID": ident, "PartitionID": number, "Name": name, "Type": "LOCATION_BASED"}
        self.partitions[ident] = {**body, "Health": "HEALTHY", "Members": members}

    def find_owner(self, place: Json) -> Json | None:
        return next((p for p in self.partitions.values() if place in p["Members"]), None)

    def request(self, method: str, path: str, body: Any) -> Answer:
        """Answer one request with the right login."""
        what, _, ident = path.removeprefix(f"{PREFIX}/").partition("/")
        if method == "GET" and what == "gpus":
            return Answer(200, [self._show(one) for one in self.gpus])
        if method == "GET" and what == "partitions":
            listed = [p for p in self.partitions.values() if self._is_listed(p["ID"])]
            return Answer(200, listed)
        if method == "GET" and what == "switch-nodes":
            return Answer(200, self.switches)
        if method == "GET" and what == "operations":
            return self._operation(ident) if ident else Answer(200, self._list_operations())
        if method == "PUT" and (what, ident) == ("certificates", "switches"):
            return self._replace(body)
        if what != "partitions":
            return Answer(404)
        return self._change(method, ident, body)

    def _is_listed(self, ident: str) -> bool:
        return self.now >= self._listed_at.get(ident, 0.0)

    def _show(self, gpu: Json) -> Json:
        owner = self.find_owner(self.place(gpu))
        known = owner is not None and self._is_listed(owner["ID"])
        return {**gpu, "PartitionID": owner["PartitionID"] if owner and known else 0}

    def _change(self, method: str, ident: str, body: Any) -> Answer:
        members = body["Members"] if body else []
        for place in members:
            owner = self.find_owner(place)
            if owner is not None and owner["ID"] != ident:
                self.log.append(f"violation: {place} is in {owner['Name']}")
                return Answer(409, {"Error": "a GPU is in another partition"})
        if method != "POST" and ident not in self.partitions:
            return Answer(404)
        self._made += 1
        name = body["Name"] if method == "POST" else self.partitions[ident]["Name"]
        self.log.append(f"{method} {name} {len(members)}")

        def done() -> None:
            if method == "DELETE":
                del self.partitions[ident]
            elif method == "PUT":
                self.partitions[ident]["Members"] = members
            else:
                self._store(made, number, name, members)
                self._listed_at[made] = self.now + self.faults.late_s

        number = self._made
        made = f"p{number}"
        operation = f"op{number}"
        if method == "POST" and self.groups % GROUPS_STEP:
            self._refused[operation] = f"the controller refused a limit of {self.groups} groups"
            return self._take(operation, lambda: None)
        return self._take(operation, done)

    def _replace(self, form: dict[str, list[bytes]]) -> Answer:
        """Take a new bundle for switches, by a form of their addresses."""
        bundle = form["CertP12"][0]
        addresses = [json.loads(one)["Address"] for one in form["Switches"]]
        if not self.maintenance:
            return Answer(409, {"Error": "the maintenance mode is not on"})
        if self.unmanaged or any(one not in self.managed for one in addresses):
            return Answer(422, {"Error": "a switch is not managed"})
        self._made += 1
        self.log += [f"certificate {one}" for one in addresses]
        new = {**self.managed, **dict.fromkeys(addresses, bundle)}
        return self._take(f"op{self._made}", lambda: self.managed.update(new))

    def _take(self, operation: str, done: Callable[[], None]) -> Answer:
        faults = self.faults
        if faults.fails or faults.lies:
            self._waiting[operation] = (self.polls, lambda: None)
        elif faults.forgets or faults.cut:
            done()
        else:
            self._waiting[operation] = (self.polls, done)
        return Answer(500) if faults.cut else Answer(202, {"operationId": operation})

    def _list_operations(self) -> list[Json]:
        """Show each operation, which goes on by it as by a look at it alone."""
        return [self._operation(one).body for one in list(self._waiting)]

    def _operation(self, ident: str) -> Answer:
        if ident not in self._waiting:
            return Answer(404)
        left, done = self._waiting[ident]
        if left > 0:
            self._waiting[ident] = (left - 1, done)
            return Answer(200, {"ID": ident, "Status": "in-progress"})
        done()
        self._waiting[ident] = (0, lambda: None)
        why = "no room" if self.faults.fails else self._refused.get(ident, "")
        status = "failed" if why else "completed"
        return Answer(200, {"ID": ident, "Status": status, "Result": {"Details": why}})
