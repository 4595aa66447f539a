"""Attributes that carry out an act at the next boot are no settings, and are refused by name."""

from __future__ import annotations

import pytest

from provisioner.planning.machine_settings.pinned_sets import find_setting_fault


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("EmmcWipe", "true"),
        ("NvmeWipe", "true"),
        ("ResetEfiVars", "true"),
        ("TpmOperation", "TPM Clear"),
        ("PendingOperation_0123", "TPM Clear"),
        ("Tpm2Hierarchy", "Clear"),
        ("TpmSecurity", "clear"),
    ],
)
def test_an_act_that_would_be_repeated_for_ever_is_no_setting(attribute: str, value: str) -> None:
    fault = find_setting_fault(f"attribute:{attribute}", value)

    assert fault is not None
    assert "again and again" in fault[0]
    assert "between tenants" in fault[1]


def test_a_clock_is_no_setting() -> None:
    fault = find_setting_fault("attribute:DateTime", "2026-01-01T00:00:00Z")

    assert fault is not None
    assert "clock" in fault[0]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("Tpm2Hierarchy", "Enabled"), ("TpmSecurity", "On"), ("ProcX2Apic", "Enabled")],
)
def test_states_beside_them_are_settings(attribute: str, value: str) -> None:
    assert find_setting_fault(f"attribute:{attribute}", value) is None
