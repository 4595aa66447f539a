"""The building is asked to isolate a rack, and only its own word says that it did.

Messages have the shape of docs/sources/hardware.md#isolation. The long test runs Debian's
mosquitto, with a building beside it that obeys.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from mosquitto import start_broker
from program import run
from typer.testing import CliRunner

from provisioner.integrations.building_water.building_commands import Asking, hear, open_broker
from provisioner.integrations.building_water.isolation import Isolation, Request, RequestFile
from provisioner.integrations.racks import isolation_commands, rack_commands
from provisioner.integrations.racks.locks import hold_name
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_file import WaterFile, read_isolation
from provisioner.model.input_error import InputError

NOW = 1_800_000_000.0
LIQUID = "RackLiquidIsolationRequest"
LIQUID_STATUS = "RackLiquidIsolationStatus"
ELECTRICAL = "RackElectricalIsolationRequest"
ELECTRICAL_STATUS = "RackElectricalIsolationStatus"
ASKS = [{"value": 0, "text": "NoIsolationRequested"}, {"value": 1, "text": "IsolationRequested"}]
STATES = [{"value": 0, "text": "NotIsolated"}, {"value": 1, "text": "Isolated"}]
OURS = "PROV"


def meta(kind: str, tag: str = "a/b", **more: Any) -> tuple[str, bytes]:
    request = kind.endswith("Request")
    body = {"objectType": "Rack", "pointType": kind, "rackLocationId": "r01"}
    body |= {"stateText": ASKS, "integration": OURS} if request else {"stateText": STATES}
    return f"BMS/v1/PUB/Metadata/Rack/{kind}/{tag}", json.dumps(body | more).encode()


def status(kind: str, told: Any, now: float = NOW, **more: Any) -> tuple[str, bytes]:
    body = {"value": told, "timestamp": int(now * 1000), "quality": 1}
    return f"BMS/v1/PUB/Value/Rack/{kind}/a/b", json.dumps(body | more).encode()


def want(*, isolate: bool = True, rack: str = "r01") -> dict[str, Request]:
    return {rack: Request(isolate=isolate, who="amy", why="two drip", at=NOW)}


def points(*messages: tuple[str, bytes]) -> Isolation:
    made = Isolation(OURS)
    for topic, payload in messages:
        assert made.take(topic, payload, NOW)
    return made


def sent(made: Isolation, wanted: dict[str, Request], now: float = NOW) -> list[tuple[str, Any]]:
    due = made.list_due(wanted, now)
    return [(topic, json.loads(payload)["value"]) for topic, payload in due]


def test_a_request_goes_to_the_points_that_name_us_and_is_repeated_until_it_is_taken_back() -> None:
    made = points(meta(LIQUID), meta(ELECTRICAL), meta(LIQUID, "other", integration="NICO"))
    places = [f"BMS/v1/{OURS}/Value/Rack/{kind}/a/b" for kind in (LIQUID, ELECTRICAL)]

    assert sent(made, {}) == []  # of a rack that nobody named, nothing is said
    assert sent(made, want()) == [(place, 1) for place in places]
    assert sent(made, want(), NOW + 99) == []
    assert sent(made, want(), NOW + 100) == [(place, 1) for place in places]
    assert sent(made, {}, NOW + 300) == []
    assert sent(made, want(isolate=False), NOW + 301) == [(place, 0) for place in places]
    made.forget()  # nobody knows whether the last one arrived
    assert sent(made, want(isolate=False), NOW + 302) == [(place, 0) for place in places]


@pytest.mark.parametrize(
    "more",
    [
        {"integration": "NICO"},
        {"integration": None},
        {"rackLocationId": ""},
        {"rackLocationId": 7},
        {"stateText": None},
        {"stateText": [ASKS[0]]},
        {"stateText": [*ASKS, {"value": 2, "text": "IsolateRequest"}]},  # which of the two?
        {"stateText": [{"value": 1, "text": "perhaps"}, ASKS[0]]},
    ],
)
def test_a_point_whose_meaning_nobody_knows_gets_nothing_and_that_is_told(more: Any) -> None:
    made = points(meta(LIQUID), meta(LIQUID, **more))

    assert sent(made, want()) == []
    assert made.judge(want(), NOW)["r01"]["liquid"].startswith("not sent: no point names")


def test_words_of_a_site_decide_which_number_asks() -> None:
    turned = [{"value": 7, "text": "NoIsolateRequest"}, {"value": 4, "text": "IsolateRequest"}]
    assert [number for _, number in sent(points(meta(LIQUID, stateText=turned)), want())] == [4]


@pytest.mark.parametrize(
    ("told", "isolated"),
    [
        (status(LIQUID_STATUS, 1), True),
        (status(LIQUID_STATUS, 0), False),
        (status(LIQUID_STATUS, None), False),
        (status(LIQUID_STATUS, 1, quality=0), False),
        (status(LIQUID_STATUS, 1, NOW - 400), False),
        (status(LIQUID_STATUS, -1), False),
    ],
)
def test_only_a_fresh_good_word_of_the_building_is_isolation(told: Any, isolated: bool) -> None:
    both = (meta(LIQUID_STATUS), meta(ELECTRICAL_STATUS), status(ELECTRICAL_STATUS, 1))
    made = points(meta(LIQUID), meta(ELECTRICAL), *both, told)
    list(made.list_due(want(), NOW))

    assert made.is_isolated("r01", NOW) is isolated
    assert ("says the building" in made.judge(want(), NOW)["r01"]["liquid"]) is isolated
    assert not made.is_isolated("r01", NOW + 301)  # silence
    assert not made.is_isolated("r02", NOW)
    made.forget()
    assert not made.is_isolated("r01", NOW)
    one = points(meta(LIQUID_STATUS), status(LIQUID_STATUS, 1))
    assert not one.is_isolated("r01", NOW)  # nothing is told of its power


def test_a_damaged_file_asks_for_nothing_and_takes_nothing_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "isolation.json"
    asking = Asking(file, points(meta(LIQUID)))
    for content in (None, "{", '{"racks": {"r01": {"isolate": "x"}}}'):
        if content is not None:
            file.write_text(content)
        asking.read()
        assert asking.wanted == {}
    assert capsys.readouterr().err.count("no request is sent") == 1
    file.write_text(RequestFile(racks=want()).model_dump_json())
    asking.read()
    assert sent(asking.points, dict(asking.wanted)) != []


def plan(tmp_path: Path) -> Path:
    units = [
        {"name": f"t{n}", "kind": "compute-tray", "u": 11 + n, "slot": 10 + n, "tray_index": n}
        for n in range(3)
    ]
    file = tmp_path / "racks.yaml"
    rack = {"name": "r01", "chassis_serial": "C1", "domain": "d01", "units": units}
    file.write_text(json.dumps({"racks": [rack]}))
    return file


def isolate(tmp_path: Path, wet: tuple[str, ...], *words: str) -> Any:
    latched = UnitWater(state=WaterState.WET, latched=True, because="wet", since=NOW)
    water = tmp_path / "water.json"
    looked = {f"t{n}": UnitWater(state=WaterState.DRY, because="dry") for n in range(3)}
    water.write_text(WaterFile(units={**looked, **dict.fromkeys(wet, latched)}).model_dump_json())
    given = ["isolate", str(plan(tmp_path)), "r01", "--water", str(water)]
    given += ["--requests", str(tmp_path / "isolation.json"), "--who", "amy", "--why", "drips"]
    return CliRunner().invoke(rack_commands.app, [*given, *words])


def test_isolation_is_asked_for_two_leaking_units_and_taken_back_once_none_is_wet(
    tmp_path: Path,
) -> None:
    file = tmp_path / "isolation.json"
    one = isolate(tmp_path, ("t0",), "--yes")
    assert one.exit_code == 1
    assert "1 of its units are held as wet, and 2 are needed" in one.output
    assert isolate(tmp_path, ("t0", "t1")).exit_code != 0  # nobody said yes
    assert not file.exists()

    two = isolate(tmp_path, ("t0", "t1"), "--yes")
    assert two.exit_code == 0, two.output
    assert "host:t2" in two.output  # what is lost is told before
    assert "not known" in two.output
    assert RequestFile.model_validate_json(file.read_text()).racks["r01"].isolate
    kept = isolate(tmp_path, ("t0",), "--end", "--yes")
    assert "held as wet: t0" in kept.output
    assert kept.exit_code == 1
    assert isolate(tmp_path, (), "--end", "--yes").exit_code == 0
    ended = RequestFile.model_validate_json(file.read_text()).racks["r01"]
    assert (ended.isolate, ended.who) == (False, "amy")
    assert isolate(tmp_path, ("building:r01",), "--yes").exit_code == 0  # its own sensor is wet

    file.write_text("{")
    assert isolate(tmp_path, ("t0", "t1"), "--yes").exit_code != 0
    assert file.read_text() == "{"


def test_isolation_is_not_taken_back_by_an_empty_latch_nor_beside_coolant_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "isolation.json"
    assert isolate(tmp_path, ("t0", "t1"), "--yes").exit_code == 0
    asked = file.read_bytes()
    kept = isolate(tmp_path, (), "--end", "--yes", "--water", str(tmp_path / "none.json"))
    assert kept.exit_code
    (tmp_path / "none.json").write_text("{}")
    kept = isolate(tmp_path, (), "--end", "--yes", "--water", str(tmp_path / "none.json"))
    assert "the file of the latch has no look at t0, t1, t2" in kept.output
    assert "rack dry" not in kept.output  # nothing is held: it would lift nothing
    assert "Look at them: `rack water`" in kept.output

    def leak(*_: object, **__: object) -> None:
        isolate(tmp_path, ("t1",), "--end", "--yes")  # writes the file of the latch

    monkeypatch.setattr(isolation_commands, "ask_person", leak)
    busy = isolate(tmp_path, (), "--end")
    assert "held as wet: t1" in busy.output
    assert file.read_bytes() == asked


def test_of_two_commands_at_one_time_neither_loses_the_others_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation_commands, "TRIES", 2)
    other = InputError("", "", "", "")
    with hold_name(tmp_path / ".isolation.json.lock", other):
        second = isolate(tmp_path, ("t0", "t1"), "--yes")
    assert "another command writes it" in f"{second.output}{second.exception}"
    assert not (tmp_path / "isolation.json").exists()


@pytest.mark.parametrize("words", [["--requests", "r.json"], ["--integration", "PROV"],
                                   ["--requests", "r.json", "--integration", "a/#"]])  # fmt: skip
def test_a_name_and_a_file_come_together_and_a_name_is_one_level_of_a_topic(
    tmp_path: Path, words: list[str]
) -> None:
    start = ["building-water", "watch", "127.0.0.1", "--plain", "--out", "b.json"]
    shown = run([*start, *words], tmp_path)
    assert shown.returncode == 2, shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.long
def test_a_building_behind_a_real_broker_is_asked_and_its_answer_is_told(tmp_path: Path) -> None:
    aiomqtt = pytest.importorskip("aiomqtt")
    broker, port = start_broker(tmp_path)
    requests = tmp_path / "isolation.json"
    file = tmp_path / "building.json"
    pairs = {LIQUID: LIQUID_STATUS, ELECTRICAL: ELECTRICAL_STATUS}

    async def obey() -> None:
        """Be the building: tell of the points, and do what is asked."""
        state = dict.fromkeys(pairs, 0)
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe(f"BMS/v1/{OURS}/Value/Rack/#", qos=1)
            for kind in (*pairs, *pairs.values()):
                topic, payload = meta(kind)
                await client.publish(topic, payload, retain=True)
            async for message in client.messages:
                kind = str(message.topic).split("/")[5]
                state[kind] = json.loads(message.payload)["value"]
                for asked, answer in pairs.items():
                    topic, payload = status(answer, state[asked], time.time())
                    await client.publish(topic, payload)

    async def told(*, isolated: bool) -> None:
        while True:
            said = read_isolation(file, "r01", time.time())
            if said is not None and said.isolated is isolated:
                return
            await asyncio.sleep(0.1)

    async def quick(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))

    async def live() -> None:
        asking = Asking(requests, Isolation(OURS))
        hearing = asyncio.create_task(
            hear(lambda: open_broker("127.0.0.1", port, "", None, None), file, quick, asking=asking)
        )
        building: asyncio.Task[None] | None = None
        while building is None or building.done():  # until the broker is there
            building = asyncio.create_task(obey())
            await asyncio.wait({building}, timeout=1.0)
        requests.write_text(RequestFile(racks=want()).model_dump_json())
        await told(isolated=True)
        requests.write_text(RequestFile(racks=want(isolate=False)).model_dump_json())
        await told(isolated=False)
        requests.write_text(RequestFile(racks=want()).model_dump_json())
        await told(isolated=True)
        broker.terminate()  # nobody says so any more
        await told(isolated=False)
        for task in (building, hearing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiomqtt.MqttError):
                await task

    try:
        asyncio.run(asyncio.wait_for(live(), 120))
    finally:
        broker.terminate()
        broker.wait()
