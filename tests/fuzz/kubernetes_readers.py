"""Readers of objects of Kubernetes, as registry.py lists readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.integrations.kubernetes.specs import BadSpec, CampaignSpec

_SPECS = "kubernetes.specs"
KUBERNETES_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    (_SPECS, (BadSpec,), "read_spec", {"kind": CampaignSpec}),
    ("kubernetes.operator", (), "read_policy", {}),
    ("kubernetes.conditions", (), "read_refusal", {}),
)
_API = "it takes documents of our own API, which tests/api holds to their schema"
_METADATA = "metadata of the API server, which it writes itself"
KUBERNETES_BESIDE: Mapping[str, str] = {
    "kubernetes.campaign_reconciliation:choose_move": _API,
    "kubernetes.campaign_reconciliation:count_progress": _API,
    "kubernetes.campaign_reconciliation:report_campaign": _API,
    "kubernetes.claim_reconciliation:report_share": _API,
    "kubernetes.conditions:accept": _API,
    "kubernetes.conditions:build_status": _API,
    "kubernetes.conditions:refuse": _API,
    "kubernetes.conditions:wait": _API,
    "kubernetes.operator:read_watched": _METADATA,
    "kubernetes.tenant_reconciliation:report_tenant": _API,
}
