"""A `BmcTransport` and a clock over one simulated BMC in memory, and clients of it."""

from __future__ import annotations

from bmc_client import Client

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.power import Pace
from provisioner.ports import BmcAddress, Call, Reply, Unreachable

VENDORS = {
    "supermicro": "supermicro",
    "ami_dgx": "ami_megarac",
    "dell": "dell_idrac",
    "hpe": "hpe_ilo",
    "lenovo": "lenovo_xcc",
}
# one more, whose virtual drives boot no image and whose BMC speaks as NVIDIA's own
QUIRKS = VENDORS | {"nvidia_gb200": "nvidia_openbmc"}


class Wire:
    """A `BmcTransport` and a clock over one simulated BMC in memory."""

    def __init__(self, vendor: str) -> None:
        self.client = Client(vendor=vendor)

    async def request(self, _: BmcAddress, call: Call) -> Reply:
        headers = {name.lower(): value for name, value in call.headers.items()}
        answer = self.client.ask(call.method, call.path, call.body, **headers)
        if not answer.status:
            raise Unreachable("no answer", maybe_executed=True)
        return Reply(
            answer.status, {k.lower(): str(v) for k, v in answer.headers.items()}, answer.body
        )

    def now(self) -> float:
        return self.client.clock.now()

    async def sleep(self, seconds: float) -> None:
        self.client.later(seconds)

    async def fingerprint(self, _: BmcAddress) -> str:
        return ""

    async def password_change(self, _: BmcAddress) -> str | None:
        return None

    async def forget(self, _: BmcAddress) -> None:
        return

    async def close(self) -> None:
        return


def host_of(vendor: str) -> tuple[Wire, Redfish, Pace]:
    wire = Wire(vendor)
    quirk = quirks.ALL[QUIRKS[vendor]]
    host = Redfish(wire, BmcAddress("https://bmc.example"), quirk, wire.sleep)
    return wire, host, Pace(wire, poll_s=4.0, limit_s=600.0, subject="n0/host")
