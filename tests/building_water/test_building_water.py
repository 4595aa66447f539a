"""The building's leak sensors: dry only while a fresh, good value says it by its own state text.

Messages have the shape of docs/sources/hardware.md#building. The long test runs
Debian's mosquitto.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mosquitto import start_broker
from program import run

from provisioner.integrations.building_water import signals
from provisioner.integrations.building_water.building_commands import (
    Channel,
    hear,
    open_broker,
    write_file,
)
from provisioner.integrations.building_water.signals import FAULT, LEAK, Building
from provisioner.integrations.racks.water_file import read_building

NOW = 1_800_000_000.0
LEAKS = [{"value": 0, "text": "NoLeak"}, {"value": 1, "text": "Leak"}]
FILLED = [{"value": n, "text": "NoLeak"} for n in range(2, 64)]
FAULTS = [{"value": 0, "text": "NoFault"}, {"value": 1, "text": "Fault"}]


def meta(tag: str = "a/b", kind: str = LEAK, **more: Any) -> tuple[str, bytes]:
    states = LEAKS if kind == LEAK else FAULTS
    body = {"objectType": "Rack", "pointType": kind, "rackLocationId": "r01", "stateText": states}
    return f"BMS/v1/PUB/Metadata/Rack/{kind}/{tag}", json.dumps(body | more).encode()


def value(told: Any, tag: str = "a/b", kind: str = LEAK, **more: Any) -> tuple[str, bytes]:
    body = {"value": told, "timestamp": int(NOW * 1000), "quality": 1}
    return f"BMS/v1/PUB/Value/Rack/{kind}/{tag}", json.dumps(body | more).encode()


def judge(*messages: tuple[str, bytes], later: float = 0.0) -> list[str]:
    """Return what the points of r01 say, each once."""
    building = Building()
    for topic, payload in messages:
        building.take(topic, payload, NOW)
    return sorted({told[0] for told in building.judge(NOW + later).get("r01", {}).values()})


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([value(0)], []),  # no metadata: nobody knows whose it is
        ([meta()], ["unreadable"]),
        ([value(0), meta()], ["unreadable"]),
        ([meta(), value(0)], ["dry"]),
        ([meta(), value(1)], ["wet"]),
        ([meta(), value(1, quality=0)], ["wet"]),  # a leak counts at any quality
        ([meta(), value(0, quality=0)], ["unreadable"]),
        ([meta(), value(0, quality=True)], ["unreadable"]),
        ([meta(), value(None)], ["unreadable"]),
        ([meta(), value("0")], ["unreadable"]),
        ([meta(), value(False)], ["unreadable"]),
        ([meta(), value(2)], ["unreadable"]),
        ([meta(), value(0.5)], ["unreadable"]),
        ([meta(), value(10**400)], ["unreadable"]),
        ([meta(), value(0, timestamp=int((NOW - 400) * 1000))], ["unreadable"]),
        ([meta(), value(0, timestamp=int((NOW + 400) * 1000))], ["unreadable"]),
        ([meta(), value(0, timestamp=None)], ["unreadable"]),
        ([meta(), value(0), value(0, timestamp=int((NOW - 9) * 1000))], ["unreadable"]),
        ([meta(), value(1), value(None)], ["wet"]),  # a message that says nothing ends no leak
        ([meta(), value(1), value(0)], ["dry"]),
        ([meta(stateText=[{"value": 0, "text": "Leak"}, {"value": 1, "text": "NoLeak"}]), value(0)],
         ["wet"]),
        ([meta(stateText=[*LEAKS, {"value": 0, "text": "Leak"}]), value(0)], ["unreadable"]),
        ([meta(stateText=[{"value": 0, "text": "probably fine"}]), value(0)], ["unreadable"]),
        ([meta(stateText=None), value(0)], ["unreadable"]),
        ([meta(), value(0), meta("f", FAULT), value(1, "f", FAULT)], ["dry", "unreadable"]),
        ([meta(), value(0), meta("f", FAULT), value(0, "f", FAULT)], ["dry"]),
        ([meta("f", FAULT), value(0, "f", FAULT)], ["dry", "unreadable"]),  # none tells of leaks
        ([meta(), value(0), meta("c")], ["dry", "unreadable"]),
        ([meta(), value(0), (value(0)[0], b"{")], ["unreadable"]),
        # of two values of one name, the last would be meant
        ([meta(), (value(0)[0], value(1)[1][:-1] + b', "value": 0}')], ["unreadable"]),
        ([(meta()[0], meta()[1][:-1] + b', "rackLocationId": "r01"}'), value(0)], []),
        ([meta(stateText=[*LEAKS, *FILLED, {"value": 0, "text": "Leak"}]), value(0)],
         ["unreadable"]),  # more than are looked at
        ([meta(stateText=[*LEAKS, {"value": 0, "text": None}]), value(0)], ["unreadable"]),
        ([meta(stateText=[*LEAKS, {"value": "0", "text": "Leak"}]), value(0)], ["unreadable"]),
        ([meta(stateText=[*LEAKS, "0: Leak"]), value(0)], ["unreadable"]),
        # a value that was heard under other words means nothing under the new ones
        ([meta(), value(0), meta(stateText=LEAKS[::-1])], ["dry"]),
        ([meta(), value(0), meta(stateText=[{"value": 0, "text": "Leak"}])], ["unreadable"]),
        ([meta(), value(0), meta(stateText=None)], ["unreadable"]),
        ([meta(), value(1), meta(stateText=None)], ["wet"]),
        ([meta(), value(0), (meta()[0], b"{"), value(0)], ["unreadable"]),
        ([meta(), value(0), (meta()[0], b"{"), meta(), value(0)], ["dry"]),
        ([meta(), value(1), meta(rackLocationId="r02")], ["wet"]),  # the floor of r01 is wet yet
        ([meta(rackLocationId="r02"), value(1), meta()], ["wet"]),
        ([meta(rackLocationId="r02"), value(0), meta()], ["unreadable"]),
    ],
)  # fmt: skip
def test_a_point_is_dry_only_by_a_fresh_good_value_of_its_own_text(
    messages: list[tuple[str, bytes]], said: list[str]
) -> None:
    assert judge(*messages) == said


def test_silence_is_unknown_and_a_leak_outlives_it() -> None:
    assert judge(meta(), value(0), later=299) == ["dry"]
    assert judge(meta(), value(0), later=301) == ["unreadable"]
    assert judge(meta(), value(0), later=-5) == ["unreadable"]  # our clock went back
    assert judge(meta(), value(1), later=1e6) == ["wet"]


def test_more_points_than_are_kept_leave_none_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "POINTS_MAX", 2)
    two = [meta("a"), value(0, "a"), meta("b", rackLocationId="r02")]
    assert judge(*two) == ["dry"]
    assert judge(*two, meta("c", rackLocationId="r03")) == ["unreadable"]
    assert judge(*two, value(1, "a"), meta("c")) == ["wet"]


@pytest.mark.parametrize("words", [["--out", "none/b.json", "--plain"], ["--ca", "none.pem"]])
def test_a_file_that_is_not_there_is_an_error_with_a_remedy(
    tmp_path: Path, words: list[str]
) -> None:
    words = words if "--out" in words else [*words, "--out", "b.json"]
    shown = run(["building-water", "watch", "127.0.0.1", "--port", "1", *words], tmp_path)
    assert shown.returncode == 2, shown.stderr
    assert "Traceback" not in shown.stderr
    assert words[1] in shown.stderr


def test_no_bytes_crash_it_or_make_anything_dry() -> None:
    rng = random.Random(7)
    whole = [meta(), value(0)]
    for _ in range(3000):
        topic, payload = rng.choice(whole)
        cut = bytearray(payload)
        for _ in range(rng.randint(1, 4)):
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        building = Building()
        building.take(*meta(), NOW)
        building.take(topic, bytes(cut[: rng.randint(0, len(cut))]), NOW)
        for told in building.judge(NOW).get("r01", {}).values():
            assert told[0] in {"dry", "wet", "unreadable"}
    building = Building()
    for topic in ("", "/" * 20, "BMS/v1/PUB/Value/Rack", "BMS/v1/PUB/Value/CDU/LeakDetect/x"):
        building.take(topic, b"[" * 60_000, NOW)
    building.take(meta()[0], b"[" * 60_000, NOW)
    assert building.judge(NOW) == {}


def test_racks_read_the_file_and_an_old_or_missing_one_is_silence(tmp_path: Path) -> None:
    file = tmp_path / "building.json"
    building = Building()
    for topic, payload in (meta(), value(0)):
        building.take(topic, payload, NOW)
    write_file(file, building, NOW)

    told = read_building(file, "r01", NOW + 5)
    assert told is not None
    assert [(one.slot, one.moisture.value) for one in told] == [(f"{LEAK}/a/b", "dry")]
    assert read_building(file, "r02", NOW) == ()
    assert read_building(file, "r01", NOW + 31) is None
    assert read_building(file, "r01", NOW - 1) is None
    file.write_text("{")
    assert read_building(file, "r01", NOW) is None
    assert read_building(tmp_path / "none.json", "r01", NOW) is None


def test_a_broker_that_is_gone_makes_all_unknown(tmp_path: Path) -> None:
    file = tmp_path / "building.json"
    seen: list[list[str]] = []

    @contextlib.asynccontextmanager
    async def broker() -> AsyncIterator[Channel]:
        async def messages() -> AsyncIterator[tuple[str, bytes]]:
            yield meta()
            yield value(0)
            write_and_note()
            raise OSError("connection lost")

        async def send(_topic: str, _payload: bytes) -> None:
            raise AssertionError("nothing is sent to the building")

        yield Channel(messages(), send)

    def write_and_note() -> None:
        told = read_building(file, "r01", NOW) or ()
        seen.append([one.moisture.value for one in told])

    class Stop(Exception):
        pass

    async def pause(seconds: float) -> None:
        if seconds > 5:  # the broker is awaited
            write_and_note()
            raise Stop
        await asyncio.sleep(0)

    with pytest.raises(ExceptionGroup):
        asyncio.run(hear(broker, file, pause, lambda: NOW))
    assert seen[-1] == ["unreadable"]


@pytest.mark.long
def test_a_real_broker_is_heard_and_its_end_is_silence(tmp_path: Path) -> None:
    aiomqtt = pytest.importorskip("aiomqtt")
    broker, port = start_broker(tmp_path)
    file = tmp_path / "building.json"

    async def told(wanted: list[str]) -> None:
        """Publish until the file says what is wanted; the test's own limit ends it else."""
        while True:
            said = read_building(file, "r01", time.time()) or ()
            if [one.moisture.value for one in said] == wanted:
                return
            await asyncio.sleep(0.2)

    async def publish(number: int) -> None:
        async with aiomqtt.Client("127.0.0.1", port) as client:
            for topic, payload in (meta(), value(number, timestamp=int(time.time() * 1000))):
                await client.publish(topic, payload, qos=0)

    async def repeat(number: int, wanted: list[str]) -> None:
        waiting = asyncio.create_task(told(wanted))
        while not waiting.done():
            with contextlib.suppress(aiomqtt.MqttError):
                await publish(number)
            await asyncio.sleep(0.3)

    async def quick(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))

    async def run() -> None:
        hearing = asyncio.create_task(
            hear(lambda: open_broker("127.0.0.1", port, "", None, None), file, quick)
        )
        await repeat(0, ["dry"])
        await repeat(1, ["wet"])
        await repeat(0, ["dry"])
        broker.terminate()
        await told(["unreadable"])
        hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hearing

    try:
        asyncio.run(asyncio.wait_for(run(), 120))
    finally:
        broker.terminate()
        broker.wait()
