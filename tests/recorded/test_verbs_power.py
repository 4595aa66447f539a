"""Resets, standby power and accounts: what is sent, and what a refusal is taken for."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_bmc import V1, bmc_of, reply, run, said

from provisioner.model.inventory import Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, LoginRefused, Reply, Secret, Unreachable

RESET = {"#ComputerSystem.Reset": {"target": f"{V1}/Systems/DGX/Actions/Reset"}}


def test_a_reset_that_is_refused_because_the_host_is_already_there_is_no_error() -> None:
    answer = {
        f"POST {V1}/Systems/DGX/Actions/Reset": reply(409, said("Base.1.0.ActionNotSupported"))
    }
    _, client = bmc_of("tiny_dgx", answer, Systems__DGX={"Actions": RESET})

    assert run(client.reset_system("On")) is None
    refused = run(client.reset_system("ForceOff"))
    assert isinstance(refused, Blocker)


def test_a_reset_type_that_the_action_info_does_not_list_is_never_sent() -> None:
    info = f"{V1}/Systems/DGX/ResetActionInfo"
    action = {
        "#ComputerSystem.Reset": {**RESET["#ComputerSystem.Reset"], "@Redfish.ActionInfo": info}
    }
    bmc, client = bmc_of(
        "tiny_dgx",
        {},
        Systems__DGX={"Actions": action},
        Systems__DGX__ResetActionInfo={
            "Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]
        },
    )

    refused = run(client.reset_system("PowerCycle"))

    assert refused.reason is Reason.NOT_OFFERED
    assert bmc.sent == []


def test_power_of_a_bmc_that_answers_nothing_is_raised_not_guessed() -> None:
    _, gone = bmc_of("tiny_dgx", {f"GET {V1}/Systems": reply(503)})
    _, closed = bmc_of("tiny_dgx", {f"GET {V1}/Systems": reply(401)})
    _, well = bmc_of("tiny_dgx", {})

    with pytest.raises(Unreachable):
        run(gone.power())
    with pytest.raises(LoginRefused):
        run(closed.power())
    assert run(well.power()) is Power.ON


def test_standby_power_is_only_taken_from_a_host_that_is_off() -> None:
    target = f"{V1}/Chassis/Card1/Actions/Oem/NvidiaChassis.AuxPowerReset"
    actions = {"Actions": {"Oem": {"Nvidia": {"#NvidiaChassis.AuxPowerReset": {"target": target}}}}}
    answers = {f"POST {target}": reply(204)}
    on, running = bmc_of("bluefield_in_nic_mode", answers, Chassis__Card1=actions)
    off, stopped = bmc_of(
        "bluefield_in_nic_mode",
        answers,
        Chassis__Card1=actions,
        Systems__Bluefield={"PowerState": "Off"},
    )

    refused = run(running.ac_cycle())

    assert refused.reason is Reason.PRECONDITION
    assert on.sent == []
    assert run(stopped.ac_cycle()) is None
    assert [c.body for c in off.sent] == [{"ResetType": "AuxPowerCycle"}]


def test_a_dgx_has_no_redfish_action_for_standby_power() -> None:
    _, client = bmc_of("tiny_dgx", {})

    assert run(client.ac_cycle()).reason is Reason.NOT_OFFERED


ACCOUNT = f"{V1}/AccountService/Accounts/1"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "": {"AccountService": {"@odata.id": f"{V1}/AccountService"}},
    "AccountService": {"Accounts": {"@odata.id": f"{V1}/AccountService/Accounts"}},
    "AccountService__Accounts": {"Members": [{"@odata.id": ACCOUNT}]},
    "AccountService__Accounts__1": {"UserName": "root", "@odata.etag": 'W/"12"'},
}


def test_a_password_is_changed_under_the_etag_made_strong() -> None:
    bmc, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": reply(200)}, **ACCOUNTS)

    assert run(client.set_password("root", Secret("new"))) is None
    assert [(c.headers, c.body) for c in bmc.sent] == [({"If-Match": '"12"'}, {"Password": "new"})]


@pytest.mark.parametrize("place", ["Password@Message.ExtendedInfo", "error"])
def test_a_refusal_that_repeats_the_password_is_told_without_it(place: str) -> None:
    """NVIDIA/bmcweb 7f3a16ae, as it was run: in Message and MessageArgs, under the property."""
    words = f"The value {'x' * 270} N3w-secret for the property Password is not strong."
    info = [{"MessageId": "Base.1.0.PropertyValueFormatError", "Message": words}]
    body = {place: info} if place != "error" else {"error": {"@Message.ExtendedInfo": info}}
    _, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": reply(400, body)}, **ACCOUNTS)

    refused = run(client.set_password("root", Secret("N3w-secret")))

    assert refused.detail.startswith("HTTP status 400: The value x")
    assert "N3w" not in refused.detail


def tagged(tag: str) -> dict[str, dict[str, Any]]:
    return {**ACCOUNTS, "AccountService__Accounts__1": {"UserName": "root", "@odata.etag": tag}}


@pytest.mark.parametrize(
    ("printed", "fits"),
    [
        ('"12"', "*"),  # the comparison is broken, the resource has not changed
        ('"12"', "12"),  # community.general, strip_etag_quotes
        ('W/"12"', 'W/"12"'),  # text is compared
        ('""12""', '"12"'),  # community.general#3268
    ],
)
def test_a_refused_etag_is_tried_in_the_other_ways_to_write_it(printed: str, fits: str) -> None:
    def answer(call: Call) -> Reply:
        return reply(200) if call.headers.get("If-Match") == fits else reply(412)

    bmc, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": answer}, **tagged(printed))

    assert run(client.set_password("root", Secret("new"))) is None
    assert bmc.sent[-1].headers == {"If-Match": fits}
    assert len(bmc.sent) <= 3


def test_a_weak_etag_never_ends_in_any() -> None:
    bmc, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": reply(412)}, **tagged('W/"12"'))

    refused = run(client.set_password("root", Secret("new")))

    assert refused.reason is Reason.PRECONDITION
    assert [c.headers["If-Match"] for c in bmc.sent] == ['"12"', 'W/"12"', "12"]


def test_what_somebody_changed_meanwhile_is_not_overwritten() -> None:
    def answer(_: Call) -> Reply:
        bmc.tree = {**bmc.tree, ACCOUNT: {"UserName": "root", "@odata.etag": '"13"'}}
        return reply(412)

    bmc, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": answer}, **tagged('"12"'))

    refused = run(client.set_password("root", Secret("new")))

    assert refused.reason is Reason.PRECONDITION
    assert "*" not in [c.headers["If-Match"] for c in bmc.sent]


def test_a_resource_without_a_tag_is_asked_for_with_any_if_one_is_demanded() -> None:
    def answer(call: Call) -> Reply:
        return reply(200) if call.headers.get("If-Match") == "*" else reply(428)

    bmc, client = bmc_of("dell_with_pages", {f"PATCH {ACCOUNT}": answer}, **tagged(""))

    assert run(client.set_password("root", Secret("new"))) is None
    assert [c.headers for c in bmc.sent] == [{}, {"If-Match": "*"}]


def test_a_card_s_password_is_changed_without_a_tag() -> None:
    bmc, client = bmc_of("bluefield_in_nic_mode", {f"PATCH {ACCOUNT}": reply(200)}, **ACCOUNTS)

    assert run(client.set_password("root", Secret("new"))) is None
    assert [(c.headers, c.body) for c in bmc.sent] == [({}, {"Password": "new"})]


def test_a_factory_bmc_that_answers_nothing_else_names_the_account_to_change() -> None:
    demand = reply(403, said("Base.1.13.PasswordChangeRequired", args=(ACCOUNT,)))
    bmc, client = bmc_of(
        "bluefield_in_nic_mode",
        {f"GET {V1}/AccountService": demand, f"PATCH {ACCOUNT}": reply(200)},
        **ACCOUNTS,
    )

    assert run(client.set_password("root", Secret("new"))) is None
    assert [c.path for c in bmc.sent] == [ACCOUNT]
