"""Makes a BMC's credential ours and unique, so that a crash at any point leaves one that we know.

The new password is stored as pending before the BMC hears of it; afterwards either one may be in
force. The likelier one is tried first, since a wrong one costs a failed login each time: the
pending one once the BMC answered with a yes or refused the current one, and else the current one,
which a BMC that was busy, refused the request or never got it still has.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace

from provisioner.adapters.redfish.client import Redfish
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, BmcTransport, Credentials, LoginRefused, Secret
from provisioner.quirks import Quirk

PASSWORD_LENGTH = 16  # DGX accepts 20 at most, some BMCs refuse more than 16 (facts: redfish 2.1)
_ALPHABETS = ("ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+")


def new_password() -> Secret:
    """Return a password of four classes of characters, without look-alikes."""
    chosen = [secrets.choice(alphabet) for alphabet in _ALPHABETS]
    everything = "".join(_ALPHABETS[:3])
    chosen += [secrets.choice(everything) for _ in range(PASSWORD_LENGTH - len(chosen))]
    secrets.SystemRandom().shuffle(chosen)
    return Secret("".join(chosen))


async def rotate(
    transport: BmcTransport,
    credentials: Credentials,
    quirk: Quirk,
    name: str,
    address: BmcAddress,
    proof: Callable[[Redfish], Awaitable[bool]] = Redfish.admits,
    *,
    renew: bool = False,
) -> BmcAddress | Blocker:
    """Change the password at `address` to a new one, stored under `name`; return the new login.

    `proof` reads a resource that needs a login, which may be one that the caller needs next. Raises
    `PortError` while the BMC does not answer; the next try continues from the stored state.

    `renew`: a pending password that the BMC refuses, while it accepts the current one, is given up
    for another: an earlier attempt ended, so that no request with it is under way any more.
    """
    pending = await credentials.pending(name)
    if pending is not None:
        ours = replace(address, username=pending[0], secret=pending[1])
        taken = await _find_taken(transport, credentials, quirk, name, (address, ours), proof)
        if taken is ours:
            await credentials.confirm(name)  # a crash came between the BMC's yes and our note
            return ours
        if renew:
            assert address.secret is not None
            await credentials.put(name, address.username, address.secret)
            pending = None
    new = pending[1] if pending is not None else new_password()
    await credentials.begin(name, address.username, new)
    problem = await Redfish(transport, address, quirk).set_password(address.username, new)
    if problem is not None:
        return problem
    await credentials.expect_pending(name)
    await transport.forget(address)
    ours = replace(address, secret=new)
    if not await _accepts(Redfish(transport, ours, quirk), proof):
        return Blocker(
            reason=Reason.LOGIN_REFUSED,
            subject=name,
            detail="the BMC took a new password, but does not accept it",
            unblock="Reset the BMC's account by hand, then take it in again.",
        )
    await credentials.confirm(name)
    return ours


async def _find_taken(
    transport: BmcTransport,
    credentials: Credentials,
    quirk: Quirk,
    name: str,
    logins: tuple[BmcAddress, BmcAddress],
    proof: Callable[[Redfish], Awaitable[bool]],
) -> BmcAddress:
    """Return which of the current and the pending login the BMC accepts.

    Raises `LoginRefused` if it accepts neither: a third wrong login would lock some accounts.
    """
    current, pending = logins
    likely = await credentials.is_pending_likely(name)
    for address in (pending, current) if likely else (current, pending):
        if await _opens(transport, address, quirk, proof):
            return address
        if address is current:
            await credentials.expect_pending(name)
    raise LoginRefused("it accepts neither of the two passwords that are stored")


async def _opens(
    transport: BmcTransport,
    address: BmcAddress,
    quirk: Quirk,
    proof: Callable[[Redfish], Awaitable[bool]],
) -> bool:
    """Return whether a new login with this password succeeds.

    A session that is open already proves nothing: it may outlive the password it was opened with.
    """
    await transport.forget(address)
    try:
        if await transport.password_change(address) is not None:
            return True  # the BMC knows it, and shows nothing before it is changed
        return await proof(Redfish(transport, address, quirk))
    except LoginRefused:
        return False


async def _accepts(client: Redfish, proof: Callable[[Redfish], Awaitable[bool]]) -> bool:
    try:
        return await proof(client)
    except LoginRefused:
        return False
