"""The Redfish service of a simulated power distribution unit.

source: DMTF DSP2043 mockup `public-rackmount-pdu` and schema Outlet.v1_4_4: PowerEquipment,
RackPDUs/1/Outlets/A1, #Outlet.PowerControl. Assumed: it has no sessions and takes Basic, which
DSP0266 clause 13.3.4 lets every service do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.hardware.machine import PowerUnit
from provisioner.integrations.sim.redfish.redfish_tree import (
    GONE,
    ROOT,
    Answer,
    Json,
    make_answer,
    make_error,
)

EQUIPMENT = f"{ROOT}/PowerEquipment"
UNITS = f"{EQUIPMENT}/RackPDUs"
OUTLETS = f"{UNITS}/1/Outlets"


class PduService:
    """Answers requests as the unit's network card does; `requests` counts them."""

    def __init__(self, unit: PowerUnit, clock: SimClock, username: str, password: str) -> None:
        self.unit = unit
        self.clock = clock
        pair = f"{username}:{password}".encode()
        self._login = f"Basic {base64.b64encode(pair).decode()}"
        self.requests = 0

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str = "",
    ) -> Answer:
        """One request; header names are lowercase."""
        self.requests += 1
        if "silent" in self.unit.troubles:
            return GONE
        path = path.rstrip("/")
        if path != ROOT and headers.get("authorization") != self._login:
            return make_error(401, "ResourceAtUriUnauthorized", path, "a login is required")
        if method == "POST":
            return self._post(path, body)
        if method != "GET":
            return make_error(405, "OperationNotAllowed")
        value = self._read(path)
        if value is None:
            return make_error(404, "ResourceMissingAtURI", path)
        return make_answer(200, {"@odata.id": path, **value})

    def _read(self, path: str) -> Json | None:
        outlet = path.removeprefix(f"{OUTLETS}/")
        if outlet in self.unit.on:
            return self._outlet(outlet)
        fixed: dict[str, Json] = {
            ROOT: {"RedfishVersion": "1.15.0", "PowerEquipment": {"@odata.id": EQUIPMENT}},
            EQUIPMENT: {"RackPDUs": {"@odata.id": UNITS}},
            UNITS: {"Members": [{"@odata.id": f"{UNITS}/1"}]},
            f"{UNITS}/1": {
                "@odata.type": "#PowerDistribution.v1_3_2.PowerDistribution",
                "Id": "1",
                "EquipmentType": "RackPDU",
                "Outlets": {"@odata.id": OUTLETS},
            },
            OUTLETS: {"Members": [{"@odata.id": f"{OUTLETS}/{o}"} for o in self.unit.on]},
        }
        return fixed.get(path)

    def _outlet(self, outlet: str) -> Json:
        on = self.unit.read(outlet)
        return {
            "@odata.type": "#Outlet.v1_4_4.Outlet",
            "Id": outlet,
            "Name": f"Outlet {outlet}",
            "PowerState": "On" if on else "Off",
            "PowerEnabled": on,
            "Actions": {
                "#Outlet.PowerControl": {
                    "target": f"{OUTLETS}/{outlet}/Outlet.PowerControl",
                    "PowerState@Redfish.AllowableValues": ["On", "Off", "PowerCycle"],
                }
            },
        }

    def _post(self, path: str, body: bytes) -> Answer:
        outlet = path.removeprefix(f"{OUTLETS}/").removesuffix("/Outlet.PowerControl")
        if outlet not in self.unit.on:
            return make_error(404, "ResourceMissingAtURI", path)
        state = json.loads(body or b"{}").get("PowerState")
        if state not in ("On", "Off"):
            parameters = (str(state), "PowerState", "Outlet.PowerControl")
            return make_error(400, "ActionParameterValueNotInList", *parameters)
        self.unit.switch(outlet, self.clock.now(), on=state == "On")
        return make_answer(204)
