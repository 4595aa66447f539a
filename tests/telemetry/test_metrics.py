"""What `/metrics` tells of a fleet, that it is bounded, and whom it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from measured_site import BLOCKER, StillClock, of, parsed, scraped, site, step
from prometheus_client import CollectorRegistry

from provisioner.daemon.telemetry import open_telemetry
from provisioner.integrations.prometheus.recording import UNKNOWN, Recorder
from provisioner.model.input_error import InputError
from provisioner.model.plan import StepKind
from provisioner.planning.lifecycle.journey import JOURNEY
from provisioner.ports import Call, Reply
from provisioner.ports.telemetry import SILENCE
from provisioner.settings import Settings

TOKEN = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site(tmp_path_factory.mktemp("site"), late=15) as url:
        status, told = scraped(url)
        assert status == 200
        yield told


def test_nodes_are_counted_by_kind_and_state(text: str):
    told = parsed(text)

    assert of(told, "provisioner_nodes", kind="host", state="released") == 2
    assert of(told, "provisioner_nodes", kind="switch", state="released") == 1
    assert of(told, "provisioner_nodes", kind="host", state="validating") == 15
    assert of(told, "provisioner_nodes_blocked", reason="check_failed") == 2


def test_time_in_a_state_is_told_beside_its_limit(text: str):
    told = parsed(text)

    limit = of(told, "provisioner_state_limit_seconds", state="validating")
    longest = of(told, "provisioner_state_longest_seconds", kind="host", state="validating")
    assert (limit, longest) == (6 * 3600, 21 * 3600)
    assert of(told, "provisioner_nodes_over_limit", kind="host", state="validating") == 15
    assert of(told, "provisioner_nodes_over_limit", kind="host", state="quarantined") == 0
    assert len([k for k in told if k[0] == "provisioner_state_limit_seconds"]) == len(JOURNEY)


def test_only_a_few_nodes_are_named_and_those_that_are_latest(text: str):
    named = {dict(k[1]).get("node") for k in parsed(text)} - {None}

    assert named == {f"n{i}" for i in range(15, 25)}


def test_no_label_is_an_address_a_path_or_unbounded(text: str):
    allowed = {"kind", "state", "reason", "vendor", "outcome", "component", "le", "expires"}
    allowed |= {"queue", "status", "classification", "stage", "campaign", "node", "version"}
    allowed |= {"limit"}  # of one caller of the API: a closed list
    allowed |= {"receiver"}  # of the exported journal: two
    allowed |= {"subject"}  # of what daemons compare: a handful of names
    platform = {"implementation", "major", "minor", "patchlevel"}
    labels = {name for k in parsed(text) for name, _ in k[1]}

    assert labels <= allowed | platform
    assert "10.0.0" not in text
    assert "/redfish" not in text


def test_certificates_are_told_by_when_they_end(text: str):
    told = parsed(text)

    counts = [
        of(told, "provisioner_certificates", expires=e) for e in ("expired", "day", "week", "later")
    ]
    assert counts == [1, 1, 0, 1]
    assert of(told, "provisioner_certificate_oldest_seconds") == 10 * 86400


def test_logins_are_told_by_their_age(text: str):
    told = parsed(text)

    assert of(told, "provisioner_credentials") == 3
    assert of(told, "provisioner_credentials_unknown_age") == 1
    assert of(told, "provisioner_credentials_due") == 1
    assert of(told, "provisioner_credentials_failing") == 1
    assert of(told, "provisioner_credential_oldest_seconds") == 20 * 86400


def test_receivers_of_the_journal_are_told_by_what_they_have_not_taken(text: str):
    told = parsed(text)
    rows = of(told, "provisioner_journal_rows")
    failing = "provisioner_audit_export_failing_seconds"

    assert of(told, "provisioner_audit_export_waiting", receiver="otlp") == rows > 0
    assert of(told, failing, receiver="otlp") == 0
    assert of(told, failing, receiver="syslog") == 60
    assert of(told, "provisioner_audit_export_rejected_total", receiver="otlp") == 0


def test_a_campaign_is_told_with_its_failures_and_its_budget(text: str):
    told = parsed(text)

    assert of(told, "provisioner_campaign_nodes", campaign="c0001", state="failed") == 1
    assert of(told, "provisioner_campaign_failures", campaign="c0001") == 1
    assert of(told, "provisioner_campaign_failure_budget", campaign="c0001") >= 0
    assert of(told, "provisioner_campaign_stopped", campaign="c0001") == 1
    assert of(told, "provisioner_campaign_standing_still", campaign="c0001") == 0
    assert of(told, "provisioner_campaign_standing_still", campaign="c0002") == 1


def test_redfish_is_told_by_vendor_and_by_how_it_ended(text: str):
    told = parsed(text)
    name = "provisioner_redfish_requests_total"

    assert of(told, name, vendor="dell_idrac", kind="read", outcome="2xx") == 1
    assert of(told, name, vendor="dell_idrac", kind="write", outcome="5xx") == 1
    assert of(told, name, vendor=UNKNOWN, kind="read", outcome="unreachable") == 1
    seconds = "provisioner_redfish_request_seconds_sum"
    assert of(told, seconds, vendor="dell_idrac", kind="write") == pytest.approx(0.3)


def test_steps_and_plans_are_told_with_their_durations(text: str):
    told = parsed(text)
    count = "provisioner_step_seconds_count"

    assert of(told, count, component="host.bmc", outcome="done") == 1
    assert of(told, count, component="other", outcome="check_failed") == 1
    assert of(told, "provisioner_step_estimated_seconds_total", component="host.bmc") == 300
    assert of(told, "provisioner_plan_seconds_count", outcome="done") == 1


def test_queues_alerts_cases_and_the_process_are_told(text: str):
    told = parsed(text)

    assert of(told, "provisioner_queue_length", queue="operations") == 3
    assert of(told, "provisioner_queue_limit", queue="operations") == 512
    assert of(told, "provisioner_operations", status="active") == 1
    assert of(told, "provisioner_alerts", classification="Hardware") == 1
    assert of(told, "provisioner_cases", stage="opened") == 1
    assert of(told, "process_resident_memory_bytes") > 0


def test_whoever_shows_no_token_learns_nothing(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with site(tmp_path, metrics_token_file=str(token)) as url:
        assert url.startswith("https://")
        refused, said = scraped(url)
        wrong, _ = scraped(url, Authorization="Bearer " + TOKEN[::-1])
        good, told = scraped(url, Authorization="Bearer " + TOKEN)

    assert (refused, wrong, good) == (401, 401, 200)
    assert "provisioner_" not in said
    assert "provisioner_nodes" in told
    assert TOKEN not in told


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.2", "::", "metrics.example"])
def test_beyond_loopback_a_token_is_demanded(host: str):
    async def opened() -> None:
        async with open_telemetry(Settings(metrics_port=0, metrics_host=host), StillClock()):
            pass

    with pytest.raises(InputError, match="need a token"):
        asyncio.run(opened())


def test_without_settings_nobody_measures():
    async def opened() -> object:
        async with open_telemetry(Settings(), StillClock()) as measured:
            return measured.telemetry

    assert asyncio.run(opened()) is SILENCE


def test_a_vendor_is_remembered_for_a_bounded_number_of_bmcs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("provisioner.integrations.prometheus.recording.VENDORS_MAX", 1)
    registry = CollectorRegistry()
    told = Recorder(registry, lambda: 0.0)
    root = Reply(200, {}, b'{"Vendor": "Supermicro"}')
    for number in range(3):
        told.request(f"https://10.0.0.{number}", Call("GET", "/redfish/v1"), 0.1, root)

    def count(vendor: str) -> float | None:
        labels = {"vendor": vendor, "kind": "read", "outcome": "2xx"}
        return registry.get_sample_value("provisioner_redfish_requests_total", labels)

    assert (count("supermicro"), count(UNKNOWN)) == (1, 2)


def test_an_activation_is_told_by_its_reset_and_a_takeover_as_cut_off():
    registry = CollectorRegistry()
    told = Recorder(registry, lambda: 0.0)
    reset = step().model_copy(update={"kind": StepKind.ACTIVATE})

    def taken_over() -> None:
        with told.step("o", "n", reset) as problems:
            problems.append(BLOCKER)
            raise KeyError

    with pytest.raises(KeyError):
        taken_over()

    labels = {"component": "bmc_reset", "outcome": "cut_off"}
    assert registry.get_sample_value("provisioner_step_seconds_count", labels) == 1
