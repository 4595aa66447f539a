"""Accounts and event subscriptions of one BMC."""

from __future__ import annotations

from provisioner.adapters.redfish.messages import body_of, collect_messages, read_refusal
from provisioner.adapters.redfish.parsing import Json, link, path_of, text, truth
from provisioner.adapters.redfish.service import UNBLOCK, Service, not_offered, raise_unread
from provisioner.adapters.redfish.walk import CHANGE_FIRST
from provisioner.model.outcome import Blocker
from provisioner.ports import Reply, Secret, Unreachable


async def set_password(service: Service, username: str, new: Secret) -> Blocker | None:
    """PATCH the account's Password. A factory BMC that answers nothing else names the account."""
    own = username == service.address.username
    named = await service.transport.password_change(service.address) if own else None
    path = named or await _account(service, username)
    if isinstance(path, Blocker):
        return path
    rule = service.quirk.password_if_match
    secret = new.reveal()
    return await service.patch(path, {"Password": secret}, username, if_match=rule, hidden=secret)


# names of the factory's accounts for people; others may be the firmware's own, as NvBluefieldUefi0
# is, which a captured tree of a BlueField-3 lists before root
_PEOPLE = frozenset({"root", "admin", "administrator", "userid"})


async def find_administrator(service: Service) -> str | None:
    """Return the name of the first enabled administrator, of an account for people if there is."""
    names = []
    walk = service.walk()
    path = link(await walk.read_root(), "AccountService")
    accounts = (await walk.read(path)).data if path is not None else {}
    for account in await walk.read_linked(accounts, "Accounts"):
        name = text(account.data.get("UserName"))
        enabled = truth(account.data.get("Enabled")) is not False
        if name and enabled and text(account.data.get("RoleId")) == "Administrator":
            names.append(name)
    return next((n for n in names if n.casefold() in _PEOPLE), names[0] if names else None)


async def _account(service: Service, username: str) -> str | Blocker:
    walk = service.walk()
    path = link(await walk.read_root(), "AccountService")
    if path is None:
        raise_unread(walk.gaps)  # a BMC that restarts is no BMC without accounts
        return not_offered(username, "AccountService")
    reply = await service.call("GET", path)
    if reply.status == 401:  # also to a session just made, while sessions end early (facts S4)
        reply = await service.call("GET", path)
    if reply.status == 401:
        return read_refusal(reply, username, UNBLOCK)
    if reply.status >= 500:
        raise Unreachable(f"{path}: HTTP status {reply.status}", maybe_executed=False)
    if reply.status == 403:
        # a default password must be changed before anything else is answered (facts S10)
        return _demanded(reply) or read_refusal(reply, username, UNBLOCK)
    if reply.status != 200:
        return read_refusal(reply, username, UNBLOCK)
    accounts = await walk.read_linked(body_of(reply), "Accounts")
    for account in accounts:
        if text(account.data.get("UserName")) == username:
            return account.path
    for gap in walk.gaps:
        again = await service.call("GET", gap.source)
        if again.status == 403 and (demanded := _demanded(again)) is not None:
            return demanded
    raise_unread(walk.gaps)
    return not_offered(username, "account of this name")


def _demanded(reply: Reply) -> str | None:
    """The account that a `PasswordChangeRequired` message names."""
    for message in collect_messages(body_of(reply)):
        if message.key == CHANGE_FIRST:
            return next((p for p in map(path_of, message.args) if p is not None), None)
    return None


_DEMANDED: Json = {
    "EventFormatType": "Event",
    "SubscriptionType": "RedfishEvent",
    "EventTypes": ["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert"],
    "Name": "provisioner",
    "HttpHeaders": [],
    "RegistryPrefixes": [],
    "ResourceTypes": [],
    "MessageIds": [],
    "OriginResources": [],
}


async def subscribe(service: Service, destination: str, context: str) -> str | Blocker:
    """POST an event destination; the subscription's path."""
    events = await service.find_part("EventService")
    path = link(events.data, "Subscriptions")
    if path is None:
        return not_offered("events", "event subscriptions")
    body = {"Destination": destination, "Protocol": "Redfish", "Context": context}
    listed = events.data.get("EventTypesForSubscription")
    types = [t for t in map(text, listed) if t] if isinstance(listed, list) else []
    # what older services demand; the destination is a secret of its own, so that events are known
    # as ours without a context
    demanded = {**_DEMANDED, **({"EventTypes": types} if types else {})}
    reply = await service.post(
        path, body, "events", spare=("Protocol", "Context"), demanded=demanded
    )
    if isinstance(reply, Blocker):
        return reply
    return path_of(reply.headers.get("location", "")) or path_of(body_of(reply)) or path
