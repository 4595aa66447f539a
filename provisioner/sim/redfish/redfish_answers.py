"""Answers of a simulated BMC, and the Redfish errors of DSP0266 clause 8.6."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
Listen = Callable[[Callable[[bytes], None]], Callable[[], None]]
"""Starts to send a stream's bytes to a receiver; the returned function ends it."""


class Answer(NamedTuple):
    """One HTTP answer. Faults may change it before it is sent.

    `status` 0 drops the connection without an answer; `delay_s` is simulated seconds before the
    answer; `cut` is the number of body bytes after which the connection breaks (-1: none).
    With `stream` the answer does not end.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    delay_s: float = 0.0
    cut: int = -1
    stream: Listen | None = None


GONE = Answer(0, {})
JSON_TYPE = "application/json;charset=utf-8"
_SEVERITY = {2: "OK", 4: "Critical", 5: "Critical"}


def dump_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def make_answer(status: int, value: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a JSON body, or none."""
    sent = dict(headers or {})
    if value is None:
        return Answer(status, sent)
    sent.setdefault("Content-Type", JSON_TYPE)
    return Answer(status, sent, dump_json(value))


def make_message(key: str, text: str, args: Sequence[str] = (), **more: Any) -> Json:
    """One Message object. `key` is the complete one, such as "Base.1.18.Success"."""
    return {
        "@odata.type": "#Message.v1_1_1.Message",
        "MessageId": key,
        "Message": text,
        "MessageArgs": list(args),
        "MessageSeverity": more.pop("severity", "OK"),
        "Resolution": more.pop("resolution", "None."),
        **more,
    }


BASE_TEXTS = {  # the subset of the Base registry that is used here
    "Success": "The request completed successfully.",
    "GeneralError": "A general error has occurred. See Resolution for information on how to "
    "resolve the error.",
    "ResourceMissingAtURI": "The resource at the URI '%1' was not found.",
    "OperationNotAllowed": "The HTTP method is not allowed on this resource.",
    "ResourceAtUriUnauthorized": "While accessing the resource at '%1', the service received an "
    "authorization error '%2'.",
    "NoValidSession": "There is no valid session established with the implementation.",
    "PasswordChangeRequired": "The password provided for this account must be changed before "
    "access is granted.  PATCH the Password property for this account located at the target URI "
    "'%1' to complete this process.",
    "InsufficientPrivilege": "There are insufficient privileges for the account or credentials "
    "associated with the current session to perform the requested operation.",
    "SessionLimitExceeded": "The session establishment failed due to the number of simultaneous "
    "sessions exceeding the limit of the implementation.",
    "EventSubscriptionLimitExceeded": "The event subscription failed due to the number of "
    "simultaneous subscriptions exceeding the limit of the implementation.",
    "MalformedJSON": "The request body submitted was malformed JSON and could not be parsed by "
    "the receiving service.",
    "PropertyUnknown": "The property %1 is not in the list of valid properties for the resource.",
    "PropertyNotWritable": "The property %1 is a read-only property and cannot be assigned a "
    "value.",
    "PropertyMissing": "The property %1 is a required property and must be included in the "
    "request.",
    "PropertyValueNotInList": "The value '%1' for the property %2 is not in the list of "
    "acceptable values.",
    "PropertyValueTypeError": "The value '%1' for the property %2 is not a type that the "
    "property can accept.",
    "PropertyValueFormatError": "The value '%1' for the property %2 is not a format that the "
    "property can accept.",
    "ActionParameterMissing": "The action %1 requires the parameter %2 to be present in the "
    "request body.",
    "ActionParameterValueNotInList": "The value '%1' for the parameter %2 in the action %3 is "
    "not in the list of acceptable values.",
    "ActionParameterNotSupported": "The parameter %1 for the action %2 is not supported on the "
    "target resource.",
    "CreateFailedMissingReqProperties": "The create operation failed because the required "
    "property %1 was missing from the request.",
    "PreconditionFailed": "The ETag supplied did not match the ETag required to change this "
    "resource.",
    "PreconditionRequired": "A precondition header or annotation is required to change this "
    "resource.",
    "QueryNotSupported": "Querying is not supported by the implementation.",
    "QueryParameterValueTypeError": "The value '%1' for the query parameter %2 is not a type "
    "that the parameter can accept.",
    "QueryParameterOutOfRange": "The value '%1' for the query parameter %2 is out of range %3.",
    "ServiceTemporarilyUnavailable": "The service is temporarily unavailable.  Retry in %1 "
    "seconds.",
    "ResourceInUse": "The change to the requested resource failed because the resource is in use "
    "or in transition.",
    "ResourceAlreadyExists": "The requested resource of type %1 with the property %2 with the "
    "value '%3' already exists.",
    "UnsupportedMediaType": "The media type of the request is not supported.",
    "PayloadTooLarge": "The supplied payload exceeds the maximum size supported by the service.",
    "HeaderInvalid": "Header '%1' is invalid.",
    "InternalError": "The request failed due to an internal service error.  The service is still "
    "operational.",
    "ActionNotSupported": "The action %1 is not supported by the resource.",
    "ChassisPowerStateOffRequired": "The Chassis with Id '%1' requires to be powered off to "
    "perform this request.",
    "UpdateInProgress": "An update is in progress.",
}


def make_base_message(
    key: str, *args: str, resolution: str = "None.", severity: str = "Critical"
) -> Json:
    """A message of the Base registry with its arguments filled in."""
    text = BASE_TEXTS[key]
    for n, arg in enumerate(args, 1):
        text = text.replace(f"%{n}", arg)
    registry = "Update.1.0" if key == "UpdateInProgress" else "Base.1.18"
    return make_message(f"{registry}.{key}", text, args, severity=severity, resolution=resolution)


def make_error(
    status: int,
    key: str,
    *args: str,
    headers: Mapping[str, str] | None = None,
    resolution: str = "None.",
    prop: str = "",
) -> Answer:
    """An error answer with `@Message.ExtendedInfo`; `prop` names the property at fault."""
    info = make_base_message(key, *args, resolution=resolution)
    if prop:
        info["RelatedProperties"] = [f"#/{prop}"]
    body = {
        "error": {
            "code": info["MessageId"],
            "message": info["Message"],
            "@Message.ExtendedInfo": [info],
        }
    }
    return make_answer(status, body, headers)


def answer_done(status: int = 200) -> Answer:
    """The answer of an action that succeeded."""
    return make_answer(
        status,
        {
            "error": {
                "code": "Base.1.18.Success",
                "message": BASE_TEXTS["Success"],
                "@Message.ExtendedInfo": [make_base_message("Success", severity="OK")],
            }
        },
    )
