"""Bodies of requests: what has its value is not sent, and a refused property is left out once.

The refusals are in the forms of the reports and schemas named beside them; the BMC is our own, and
carries out what it accepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_bmc import V1, Bmc, reply, run
from tree_transport import ADDRESS

from provisioner.adapters.redfish import messages
from provisioner.adapters.redfish.accounts import subscribe
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing.subscriptions import submit_test
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.bmc_time import set_clock
from provisioner.model.outcome import Blocker
from provisioner.ports import Call, Reply, Secret
from provisioner.quirks import Quirk

SYSTEM = f"{V1}/Systems/1"
MANAGER = f"{V1}/Managers/1"
NETWORK = f"{MANAGER}/NetworkProtocol"
CD = f"{MANAGER}/VirtualMedia/1"
HOOKS = f"{V1}/EventService/Subscriptions"
TEST = f"{V1}/EventService/Actions/EventService.SubmitTestEvent"
ACCOUNT = f"{V1}/AccountService/Accounts/1"
MODE = "BootSourceOverrideMode"
FULL = Quirk(name="x", title="x", full_override=True)
BOOT = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", MODE: "UEFI"}
OURS = "https://192.0.2.9:8443/events/x"


def to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def tree() -> dict[str, Any]:
    actions = {f"#VirtualMedia.{v}": {"target": f"{CD}/{v}"} for v in ("InsertMedia", "EjectMedia")}
    services = ("EventService", "AccountService", "Systems", "Managers")
    return {
        V1: {name: to(f"{V1}/{name}") for name in services},
        f"{V1}/Systems": {"Members": [to(SYSTEM)]},
        SYSTEM: {"Id": "1", "@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem", "Boot": BOOT},
        f"{V1}/Managers": {"Members": [to(MANAGER)]},
        MANAGER: {
            "Id": "1",
            "@odata.type": "#Manager.v1_10_0.Manager",
            "NetworkProtocol": to(NETWORK),
            "VirtualMedia": to(f"{MANAGER}/VirtualMedia"),
        },
        NETWORK: {"NTP": {"ProtocolEnabled": True, "NTPServers": []}},
        f"{MANAGER}/VirtualMedia": {"Members": [to(CD)]},
        CD: {"MediaTypes": ["CD"], "Inserted": False, "Image": None, "Actions": actions},
        f"{V1}/EventService": {
            "Subscriptions": to(HOOKS),
            "Actions": {"#EventService.SubmitTestEvent": {"target": TEST}},
        },
        f"{V1}/AccountService": {"Accounts": to(f"{V1}/AccountService/Accounts")},
        f"{V1}/AccountService/Accounts": {"Members": [to(ACCOUNT)]},
        ACCOUNT: {"UserName": "root", "Password": None},
    }


def info(key: str, words: str = "", **more: Any) -> dict[str, Any]:
    message = {"MessageId": key, "Message": words, "Severity": "Warning", **more}
    return {"error": {"@Message.ExtendedInfo": [message]}}


class Careful(Bmc):
    """Keeps what a PATCH sets; `refuse` answers a write first, if it returns something."""

    def __init__(self, refuse: Callable[[str, Any], Reply | None]) -> None:
        super().__init__(tree(), {})
        self.refuse = refuse

    async def request(self, bmc: Any, call: Call) -> Reply:
        if call.method == "GET":
            return await super().request(bmc, call)
        self.sent.append(call)
        refused = self.refuse(call.path, call.body)
        if refused is not None and refused.status >= 300:
            return refused
        if call.method == "PATCH" and refused is None:
            before = self.tree[call.path]
            after = {k: {**before.get(k, {}), **v} if isinstance(v, dict) else v
                     for k, v in call.body.items()}  # fmt: skip
            self.tree = {**self.tree, call.path: {**before, **after}}
        return refused or reply(204)

    @property
    def last(self) -> Any:
        """The body that was sent last."""
        return self.sent[-1].body


def has(body: Any, name: str) -> bool:
    return any(path[-1] == name for path, _ in messages.list_leaves(body))


def refusing(name: str, answer: Reply) -> Careful:
    return Careful(lambda _path, body: answer if has(body, name) else None)


def open_client(bmc: Bmc, quirk: Quirk | None = None) -> Redfish:
    return Redfish(bmc, ADDRESS, quirk or Quirk(name="x", title="x"))


def open_service(bmc: Bmc, **quirk: Any) -> Service:
    return open_client(bmc, Quirk(name="x", title="x", **quirk)).service


REFUSALS = {
    "names it as an argument (HPE, community.general#3509)": reply(
        400, info("iLO.2.14.PropertyNotWritableOrUnknown", MessageArgs=[MODE])
    ),
    "names it as its second argument": reply(
        400, info("Base.1.8.PropertyValueNotInList", MessageArgs=["UEFI", MODE])
    ),
    "points at it (DSP0266)": reply(
        400, info("Base.1.8.PropertyNotWritable", RelatedProperties=[f"#/Boot/{MODE}"])
    ),
    "relates it without a pointer (Dell, community.general#5091)": reply(
        400, info("IDRAC.1.6.SYS410", MessageArgs=[], RelatedProperties=[MODE])
    ),
    "names its path": reply(
        403, info("Base.1.8.PropertyNotWritable", MessageArgs=[f"Boot/{MODE}"])
    ),
    "annotates it": reply(
        400,
        {f"{MODE}@Message.ExtendedInfo": [{"MessageId": "Base.1.8.PropertyNotWritable"}]},
    ),
    "annotates it inside of its object": reply(
        400,
        {"Boot": {f"{MODE}@Message.ExtendedInfo": [{"MessageId": "Base.1.8.PropertyNotWritable"}]}},
    ),
    "names it in its words alone": reply(
        405, info("Oem.1.0.ReadOnly", f"The property {MODE} is read only.")
    ),
    "names it in quotes": reply(
        400, info("Base.1.8.PropertyNotWritable", MessageArgs=[f"'{MODE}'"])
    ),
    "names its dotted path": reply(
        400, info("Base.1.8.PropertyNotWritable", MessageArgs=[f"Boot.{MODE}"])
    ),
    "names it in another case": reply(
        409, info("Base.1.8.PropertyNotWritable", MessageArgs=[MODE.lower()])
    ),
    "points at it in its resource": reply(
        422, info("Base.1.8.PropertyNotWritable", RelatedProperties=[f"{SYSTEM}#/Boot/{MODE}"])
    ),
    "points at an element of it": reply(
        400, info("Base.1.8.PropertyNotWritable", RelatedProperties=[f"#/Boot/{MODE}/0/Name"])
    ),
    "relates one and no list": reply(
        400, info("Base.1.8.PropertyNotWritable", RelatedProperties=f"/Boot/{MODE}")
    ),
    "names its dotted path in words": reply(
        400, info("Oem.1.0.General", f"'Boot.{MODE}' cannot be changed.")
    ),
    "gives one message and no list": reply(
        400,
        {
            "error": {
                "@Message.ExtendedInfo": {
                    "MessageId": "Base.1.8.PropertyNotWritable",
                    "MessageArgs": [MODE],
                }
            }
        },
    ),
    "gives its messages without an error": reply(
        400,
        {
            "@Message.ExtendedInfo": [
                {"MessageId": "Base.1.8.PropertyNotWritable", "MessageArgs": [MODE]}
            ]
        },
    ),
    "names it beside another that depends on it": reply(
        400,
        {
            "error": {
                "@Message.ExtendedInfo": [
                    {"MessageId": "S.1.SYS444", "RelatedProperties": ["BootSourceOverrideEnabled"]},
                    {"MessageId": "S.1.SYS410", "RelatedProperties": [MODE]},
                ]
            }
        },
    ),
}


@pytest.mark.parametrize("target", ["Pxe", "Hdd", "UefiHttp"])
def test_a_mode_that_is_uefi_already_is_not_sent(target: str) -> None:
    bmc = refusing(MODE, reply(400))

    assert run(open_client(bmc).boot_override(target)) is None
    assert bmc.sent[0].body == {
        "Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target}
    }


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
def test_an_override_is_sent_once_more_without_a_mode_whose_refusal(answer: Reply) -> None:
    bmc = refusing(MODE, answer)

    assert run(open_client(bmc, FULL).boot_override("Pxe")) is None
    assert [has(call.body, MODE) for call in bmc.sent] == [True, False]


def test_a_mode_that_is_another_one_is_not_spared() -> None:
    bmc = refusing(MODE, next(iter(REFUSALS.values())))
    bmc.tree = {**bmc.tree, SYSTEM: {**bmc.tree[SYSTEM], "Boot": {**BOOT, MODE: "Legacy"}}}

    assert isinstance(run(open_client(bmc).boot_override("Pxe")), Blocker)
    assert len(bmc.sent) == 1


@pytest.mark.parametrize("name", ["BootSourceOverrideTarget", "BootSourceOverrideEnabled"])
def test_the_target_itself_is_never_left_out(name: str) -> None:
    bmc = refusing(name, reply(400, info("Base.1.8.PropertyNotWritable", MessageArgs=[name])))

    assert isinstance(run(open_client(bmc).boot_override("Pxe")), Blocker)
    assert len(bmc.sent) == 1


def test_a_bmc_that_resets_the_mode_with_the_target_is_sent_it_again() -> None:
    bmc = Careful(lambda _path, _body: None)

    class Resets(Careful):
        async def request(self, bmc: Any, call: Call) -> Reply:
            answer = await super().request(bmc, call)
            if call.method == "PATCH" and not has(call.body, MODE):
                shown = self.tree[SYSTEM]
                boot = {**shown["Boot"], MODE: "Legacy"}
                self.tree = {**self.tree, SYSTEM: {**shown, "Boot": boot}}
            return answer

    bmc = Resets(lambda _path, _body: None)

    assert run(open_client(bmc).boot_override("Pxe")) is None
    assert bmc.tree[SYSTEM]["Boot"][MODE] == "UEFI"
    assert bmc.last["Boot"]["BootSourceOverrideTarget"] == "Pxe"


@pytest.mark.parametrize(
    ("status", "is_set"), [(400, True), (200, True), (400, False), (200, False)]
)
def test_an_override_that_is_refused_or_accepted_in_part_is_what_the_bmc_shows(
    status: int, *, is_set: bool
) -> None:
    said = info("IDRAC.1.6.SYS444", RelatedProperties=["BootSourceOverrideEnabled"])

    def answer(_path: str, body: Any) -> Reply:
        if is_set:
            shown = bmc.tree[SYSTEM]
            boot = {**shown["Boot"], **body["Boot"]}
            bmc.tree = {**bmc.tree, SYSTEM: {**shown, "Boot": boot}}
        return reply(status, said)

    bmc = Careful(answer)

    assert (run(open_client(bmc).boot_override("Pxe")) is None) is is_set


def test_settings_that_stand_already_are_not_sent() -> None:
    bmc = refusing(
        "ProtocolEnabled",
        reply(400, info("Base.1.8.PropertyNotWritable", MessageArgs=["NTP/ProtocolEnabled"])),
    )

    assert run(set_clock(open_service(bmc), ("192.0.2.1",), lambda: 0.0)) is None
    assert bmc.last == {"NTP": {"NTPServers": ["192.0.2.1"]}}


def test_a_setting_that_is_to_change_is_not_left_out() -> None:
    bmc = refusing(
        "ProtocolEnabled",
        reply(400, info("Base.1.8.PropertyNotWritable", MessageArgs=["NTP/ProtocolEnabled"])),
    )
    bmc.tree = {**bmc.tree, NETWORK: {"NTP": {"ProtocolEnabled": False, "NTPServers": []}}}

    assert isinstance(run(set_clock(open_service(bmc), ("192.0.2.1",), lambda: 0.0)), Blocker)
    assert len(bmc.sent) == 1


def test_a_password_is_never_left_out_and_never_shown() -> None:
    bmc = refusing(
        "Password",
        reply(400, info("Base.1.8.PropertyValueFormatError", MessageArgs=["hunter2!", "Password"])),
    )

    refused = run(open_client(bmc).set_password("root", Secret("hunter2!")))

    assert isinstance(refused, Blocker)
    assert "hunter2!" not in str(refused)
    assert [call.body for call in bmc.sent] == [{"Password": "hunter2!"}]


@pytest.mark.parametrize("name", ["Context", "Protocol"])
def test_a_subscription_is_made_without_a_property_that_the_service_does_not_know(
    name: str,
) -> None:
    bmc = refusing(name, reply(400, info("Base.1.8.PropertyUnknown", MessageArgs=[name])))

    assert not isinstance(run(subscribe(open_service(bmc), OURS, "secret")), Blocker)
    assert bmc.last["Destination"] == OURS
    assert name not in bmc.last


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("Base.1.8.PropertyMissing", "EventTypes"),
        ("Base.1.0.CreateFailedMissingReqProperties", "EventFormatType"),
        ("Base.1.8.PropertyMissing", "SubscriptionType"),
        ("Base.1.8.PropertyMissing", "RegistryPrefixes"),
    ],
)
def test_a_subscription_has_what_the_service_demands(key: str, name: str) -> None:
    answer = reply(400, info(key, MessageArgs=[name]))
    bmc = Careful(lambda _path, body: None if name in body else answer)

    assert not isinstance(run(subscribe(open_service(bmc), OURS, "secret")), Blocker)
    assert {"Destination", "Protocol", "Context", name} == set(bmc.last)


def test_the_event_types_of_a_subscription_are_those_that_the_service_lists() -> None:
    answer = reply(400, info("Base.1.8.PropertyMissing", MessageArgs=["EventTypes"]))
    bmc = Careful(lambda _path, body: None if "EventTypes" in body else answer)
    events = {**bmc.tree[f"{V1}/EventService"], "EventTypesForSubscription": ["Alert", "Other"]}
    bmc.tree = {**bmc.tree, f"{V1}/EventService": events}

    run(subscribe(open_service(bmc), OURS, "secret"))

    assert bmc.last["EventTypes"] == ["Alert", "Other"]


def test_a_subscription_without_its_destination_is_none() -> None:
    bmc = refusing(
        "Destination",
        reply(400, info("Base.1.8.PropertyValueFormatError", MessageArgs=["x", "Destination"])),
    )

    assert isinstance(run(subscribe(open_service(bmc), OURS, "secret")), Blocker)
    assert len(bmc.sent) == 1


def test_a_service_that_refuses_each_property_is_asked_a_few_times_only() -> None:
    def answer(_path: str, body: Any) -> Reply:
        name = "Context" if "Context" in body else "Name" if "Name" in body else "Protocol"
        return reply(400, info("Base.1.8.PropertyUnknown", MessageArgs=[name, "Name"]))

    bmc = Careful(answer)

    assert isinstance(run(subscribe(open_service(bmc), OURS, "secret")), Blocker)
    assert len(bmc.sent) <= messages.LEFT_OUT_MAX + 1


def test_a_test_event_is_sent_without_what_is_refused_and_with_what_is_demanded() -> None:
    def answer(_path: str, body: Any) -> Reply | None:
        if "MessageId" in body:
            return reply(400, info("Base.1.8.PropertyUnknown", MessageArgs=["MessageId"]))
        if "EventType" not in body:
            return reply(
                400, info("Base.1.8.ActionParameterMissing", MessageArgs=["x", "EventType"])
            )
        return None

    bmc = Careful(answer)
    info_path = f"{V1}/EventService/TestInfo"
    action = {"target": TEST, "@Redfish.ActionInfo": info_path}
    shown = {"Subscriptions": to(HOOKS), "Actions": {"#EventService.SubmitTestEvent": action}}
    listed = {"Parameters": [{"Name": "EventId"}]}
    bmc.tree = {**bmc.tree, f"{V1}/EventService": shown, info_path: listed}

    assert run(submit_test(open_service(bmc))) is None
    assert bmc.last == {"EventId": "1", "EventType": "Alert"}


@pytest.mark.parametrize("name", ["Inserted", "WriteProtected", "UserName"])
def test_an_image_is_inserted_without_a_property_that_the_service_refuses(name: str) -> None:
    bmc = refusing(
        name, reply(400, info("Base.1.8.ActionParameterUnknown", MessageArgs=["x", name]))
    )
    client = open_client(bmc, Quirk(name="x", title="x", media_login="none"))

    assert run(client.insert_media("https://192.0.2.9/a.iso")) is None
    assert bmc.last["Image"] == "https://192.0.2.9/a.iso"
    assert name not in bmc.last


def test_an_image_that_is_refused_is_not_left_out() -> None:
    bmc = refusing("Image", reply(400, info("B.1.0.ActionParameterUnknown", MessageArgs=["Image"])))

    assert isinstance(run(open_client(bmc).insert_media("https://192.0.2.9/a.iso")), Blocker)
    assert all("Image" in call.body for call in bmc.sent)


@pytest.mark.parametrize("status", [401, 404, 412, 429, 500, 503])
def test_an_answer_that_refuses_no_property_is_not_answered_without_one(status: int) -> None:
    body = {"Boot": {MODE: "UEFI"}}
    answer = reply(status, info("Base.1.8.PropertyNotWritable", MessageArgs=[MODE]))

    assert messages.leave_out(answer, body, {}, (MODE,)) is None


@pytest.mark.parametrize(
    "nonsense",
    [
        [],
        {"error": 3},
        {"error": {"@Message.ExtendedInfo": "x"}},
        {"error": {"@Message.ExtendedInfo": [{"MessageArgs": {"a": 1}, "Message": 7}]}},
        {"error": {"@Message.ExtendedInfo": [{"MessageArgs": [None, ["x"], "x" * 9999]}]}},
        {"@Message.ExtendedInfo": None, "Boot": {"@Message.ExtendedInfo": [[]]}},
    ],
)
def test_a_refusal_that_is_nonsense_names_nothing(nonsense: Any) -> None:
    answer = Reply(400, {}, json.dumps(nonsense).encode())

    assert messages.find_named(answer, {"Boot": {MODE: "UEFI"}}) == set()
