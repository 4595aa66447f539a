"""What a daemon's series of optics says of one node now."""

from __future__ import annotations

from provisioner.integrations.optics.series import OpticSeries
from provisioner.model.alert import Signal


def list_alerts(series: OpticSeries, node: str = "n1") -> list[Signal]:
    told = series.list_standing().get(node, {})
    return [signal for signal in told.values() if signal is not None]
