"""Read a site's own thresholds from YAML text."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from provisioner.checks.threshold_data import ANY, MODELS, THRESHOLDS, Limit, Limits
from provisioner.planning.matrix.located_yaml import load

_FILE: TypeAdapter[dict[str, dict[str, Limit]]] = TypeAdapter(dict[str, dict[str, Limit]])
_SEE = "See docs/thresholds.md."


def parse(source: str, text: str) -> Mapping[str, Limits]:
    """Return threshold -> profile, GPU model or "any" -> limit.

    Raises InputError with file and line for the first fault.
    """
    located = load(source, text)
    if not isinstance(located.tree, dict):
        raise located.build_error((), "these are no thresholds", _SEE)
    try:
        thresholds = _FILE.validate_python(located.tree)
    except ValidationError as error:
        raise located.build_model_error(error, f"Write a value and a source. {_SEE}") from None
    for name, limits in thresholds.items():
        if name not in THRESHOLDS:
            raise located.build_error((name,), f"there is no threshold {name!r}", _SEE)
        for key, limit in limits.items():
            if not key or (key.isupper() and key not in (ANY, *MODELS)):
                models = ", ".join(MODELS)
                raise located.build_error(
                    (name, key),
                    f"{key!r} is no GPU model that is recognised",
                    f"It is one of {models}, the name of a profile, or {ANY}.",
                )
            if limit.value is None:
                raise located.build_error(
                    (name, key), "it has no value", "Write one, or leave it out."
                )
    return thresholds
