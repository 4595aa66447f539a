"""The table of contents of the API: every route, and who carries out each kind of change.

A new noun is one module with `ROUTES`, and one name here.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.api import (
    alerts,
    campaign_nodes,
    campaigns,
    case_work,
    cases,
    certificates,
    console_map,
    console_session,
    credentials,
    events,
    matters,
    node_parts,
    nodes,
    pages,
    requests,
    tenants,
)
from provisioner.api.changes import Execute
from provisioner.api.route import Route
from provisioner.model.access import ChangeKind

ALL: tuple[Route, ...] = (
    *nodes.ROUTES,
    *node_parts.ROUTES,
    *tenants.ROUTES,
    *certificates.ROUTES,
    *campaigns.ROUTES,
    *campaign_nodes.ROUTES,
    *cases.ROUTES,
    *case_work.ROUTES,
    *alerts.ROUTES,
    *matters.ROUTES,
    *requests.ROUTES,
    *events.ROUTES,
    *credentials.ROUTES,
    *console_map.ROUTES,
    *console_session.ROUTES,
    *pages.ROUTES,
)

EXECUTORS: Mapping[ChangeKind, Execute] = {
    ChangeKind.NODE_RETRY: nodes.change_node,
    ChangeKind.NODE_RECLAIM: nodes.change_node,
    ChangeKind.TENANT_PUT: tenants.change_tenant,
    ChangeKind.TENANT_SHRINK: tenants.change_tenant,
    ChangeKind.TENANT_DELETE: tenants.change_tenant,
    ChangeKind.TENANT_SETTLE: tenants.change_tenant,
    ChangeKind.CERTIFICATE_REVOKE: certificates.change_certificate,
    ChangeKind.ALERT_OVERRIDE: alerts.change_alert,
    ChangeKind.ALERT_CLEAR: alerts.change_alert,
    ChangeKind.CAMPAIGN_CREATE: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_START: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_PAUSE: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_RESUME: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_ABORT: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_ROLLBACK: campaigns.change_campaign,
    ChangeKind.CAMPAIGN_DEFER: campaign_nodes.change_node,
    ChangeKind.CAMPAIGN_SKIP: campaign_nodes.change_node,
    ChangeKind.CAMPAIGN_AGAIN: campaign_nodes.change_node,
    ChangeKind.CAMPAIGN_ACCEPT: campaign_nodes.change_node,
    ChangeKind.CAMPAIGN_REHEARSE: campaign_nodes.rehearsal,
    ChangeKind.CASE_OPEN: cases.change_case,
    ChangeKind.CASE_OPEN_RACK: cases.change_case,
    ChangeKind.CASE_ACCEPT: case_work.change_case,
    ChangeKind.CASE_DEFER: case_work.change_case,
    ChangeKind.CASE_RETURNED: case_work.change_case,
    ChangeKind.CASE_REPLACE: case_work.change_case,
    ChangeKind.CASE_RETIRE: case_work.change_case,
    ChangeKind.CASE_CLOSE: case_work.change_case,
    ChangeKind.CASE_RMA: case_work.change_case,
    ChangeKind.CASE_SPARE: case_work.change_case,
    ChangeKind.CASE_TELL: case_work.change_case,
    ChangeKind.TOKEN_REVOKE: credentials.change_token,
}
