"""What the service says of itself: abilities, resource types and schemas (RFC 7644 section 4)."""

from __future__ import annotations

from typing import Any

from provisioner.integrations.scim.resources import (
    GROUP,
    GROUPS,
    LIST,
    PROVIDER_CONFIG,
    RESOURCE_TYPE,
    RESULTS_MAX,
    SCHEMA,
    USER,
    USERS,
    Body,
    ScimError,
)


def show_config(base: str) -> Body:
    return {
        "schemas": [PROVIDER_CONFIG],
        "patch": {"supported": True},
        "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": RESULTS_MAX},
        "changePassword": {"supported": False},
        "sort": {"supported": False},
        "etag": {"supported": True},
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Bearer token",
                "description": "The token in `scim_token_file` (RFC 6750).",
                "specUri": "https://www.rfc-editor.org/info/rfc6750",
                "primary": True,
            }
        ],
        "meta": {
            "resourceType": "ServiceProviderConfig",
            "location": f"{base}/ServiceProviderConfig",
        },
    }


def list_types(base: str) -> list[Body]:
    return [
        {
            "schemas": [RESOURCE_TYPE],
            "id": resource.name,
            "name": resource.name,
            "endpoint": resource.endpoint,
            "description": f"{resource.name}s of the site's operators and tenants.",
            "schema": resource.schema,
            "meta": {
                "resourceType": "ResourceType",
                "location": f"{base}/ResourceTypes/{resource.name}",
            },
        }
        for resource in (USERS, GROUPS)
    ]


def _attribute(name: str, about: str, **more: Any) -> Body:
    kind = more.get("type", "string")
    text = {"caseExact": False, "uniqueness": "none"} if kind in ("string", "reference") else {}
    return {
        "name": name,
        "type": kind,
        "multiValued": False,
        "description": about,
        "required": False,
        "mutability": "readWrite",
        "returned": "default",
        **text,
        **more,
    }


def _refer(name: str, about: str, types: list[str], **more: Any) -> Body:
    given = {"type": "reference", "referenceTypes": types, "caseExact": True, **more}
    return _attribute(name, about, **given)


_READ: Body = {"mutability": "readOnly"}
_ONCE: Body = {"mutability": "immutable"}
_USER_ATTRIBUTES = [
    _attribute(
        "userName", "Name by which the person signs in.", required=True, uniqueness="server"
    ),
    _attribute("displayName", "Name of the person, for people."),
    _attribute(
        "name",
        "Parts of the person's name.",
        type="complex",
        subAttributes=[
            _attribute("formatted", "The whole name."),
            _attribute("familyName", "Family name."),
            _attribute("givenName", "Given name."),
        ],
    ),
    _attribute("active", "False: no session, token or approval here.", type="boolean"),
    _attribute(
        "emails",
        "Addresses; sessions under one of them end too.",
        type="complex",
        multiValued=True,
        subAttributes=[
            _attribute("value", "Address."),
            _attribute("type", "Kind, as work."),
            _attribute("primary", "Whether it is the preferred one.", type="boolean"),
        ],
    ),
    _attribute(
        "groups",
        "Groups of the person; changed by groups alone.",
        type="complex",
        multiValued=True,
        subAttributes=[
            _attribute("value", "Id of the group.", **_READ),
            _refer("$ref", "Address of the group.", ["Group"], **_READ),
            _attribute("display", "Name of the group.", **_READ),
            _attribute("type", "Always direct.", **_READ),
        ],
        **_READ,
    ),
]
_GROUP_ATTRIBUTES = [
    _attribute("displayName", "Name of the group.", required=True, uniqueness="server"),
    _attribute(
        "members",
        "Users in the group.",
        type="complex",
        multiValued=True,
        subAttributes=[
            _attribute("value", "Id of the user.", **_ONCE),
        ],
    ),
]


def list_schemas(base: str) -> list[Body]:
    described = (
        (USER, "User", "A person.", _USER_ATTRIBUTES),
        (GROUP, "Group", "A group of persons; it gives no role here.", _GROUP_ATTRIBUTES),
    )
    return [
        {
            "schemas": [SCHEMA],
            "id": urn,
            "name": name,
            "description": about,
            "attributes": attributes,
            "meta": {"resourceType": "Schema", "location": f"{base}/Schemas/{urn}"},
        }
        for urn, name, about, attributes in described
    ]


def show_list(items: list[Body], total: int, start: int) -> Body:
    return {
        "schemas": [LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(items),
        "Resources": items,
    }


def find_one(items: list[Body], name: str) -> Body:
    """Return the resource type or schema of this id. Raises ScimError."""
    for item in items:
        if item["id"] == name:
            return item
    raise ScimError(404, f"there is no {name[:80]}")
