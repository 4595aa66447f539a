"""Readers of objects of Kubernetes, as registry.py lists readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.integrations.kubernetes.specs import BadSpec, CampaignSpec

_SPECS = "integrations.kubernetes.specs"
KUBERNETES_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    (_SPECS, (BadSpec,), "read_spec", {"kind": CampaignSpec}),
    ("integrations.kubernetes.operator", (), "read_policy", {}),
    ("integrations.kubernetes.conditions", (), "read_refusal", {}),
)
_API = "it takes documents of our own API, which tests/api holds to their schema"
_METADATA = "metadata of the API server, which it writes itself"
KUBERNETES_BESIDE: Mapping[str, str] = {
    "integrations.kubernetes.campaign_reconciliation:choose_move": _API,
    "integrations.kubernetes.campaign_reconciliation:count_progress": _API,
    "integrations.kubernetes.campaign_reconciliation:report_campaign": _API,
    "integrations.kubernetes.claim_reconciliation:report_share": _API,
    "integrations.kubernetes.conditions:accept": _API,
    "integrations.kubernetes.conditions:build_status": _API,
    "integrations.kubernetes.conditions:refuse": _API,
    "integrations.kubernetes.conditions:wait": _API,
    "integrations.kubernetes.operator:read_watched": _METADATA,
    "integrations.kubernetes.tenant_reconciliation:report_tenant": _API,
}
