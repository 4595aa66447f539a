"""Follow a BMC to another address: by its pinned certificate, its login and its serial.

A lease, a MAC or a host name is the client's own claim. So the new address is asked for the
certificate that was pinned, over a connection that no other certificate would get, then for the
serial with the stored login. Only readings are sent; a login goes to the pinned certificate alone.
"""

from __future__ import annotations

from provisioner import quirks
from provisioner.adapters.redfish.discovery import probe
from provisioner.execution.observe.discover import introduce_bmcs
from provisioner.model.machine.certificate_pins import split_pins
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.ports import BmcTransport, Credentials

_NOT_IT = "Is it the same board? Compare the label; a board that was exchanged is a repair."


async def prove_move(
    transport: BmcTransport, credentials: Credentials, node: str, bmc: BmcRef, url: str
) -> Blocker | None:
    """Return why the BMC at `url` is not proved to be this one; None if it is."""
    subject = f"{node}/{bmc.name}"
    if not bmc.pin or not bmc.serial:
        lacks = "pinned certificate" if not bmc.pin else "serial"
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=subject,
            detail=f"its row has no {lacks} to know it by",
            unblock="Give it its old address again: it cannot be told from another BMC.",
        )
    probed = await probe(transport, url)
    if isinstance(probed, Gap):
        return Blocker(
            reason=probed.reason,
            subject=subject,
            detail=f"{url}: {probed.detail}",
            unblock="Check the address, and whether the BMC has it now.",
        )
    if probed.fingerprint not in split_pins(bmc.pin):
        return Blocker(
            reason=Reason.CERTIFICATE_CHANGED,
            subject=subject,
            detail=f"{url} has another certificate than the pinned one",
            unblock=_NOT_IT,
        )
    login = await credentials.current(subject)
    if login is None:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=subject,
            detail="no login of it is stored",
            unblock="Take the node in, or adopt it, with its login.",
        )
    answers, refusals = await introduce_bmcs(
        transport, None, [probed], dict.fromkeys(quirks.ALL, login)
    )
    if not answers:
        return refusals[0].model_copy(update={"subject": subject})
    serial = answers[0].endpoint.serial
    if serial != bmc.serial:
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=subject,
            detail=f"{url} reports the serial {serial[:64] or 'none'}, the row has {bmc.serial}",
            unblock=_NOT_IT,
        )
    return None
