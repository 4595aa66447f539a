"""Series of leaves' optics, and which end of a link is dirty or dying before it flaps."""

from provisioner.runtime.integrations import Integration

INTEGRATION = Integration(
    name="optics",
    about="Series of optics: light, bias and flaps by day, and the ends that announce their end.",
    switched_on=lambda settings, _: settings.watch_optics_days > 0,
    optic_series="provisioner.integrations.optics.series:OpticSeries",
    routes="provisioner.integrations.optics.port_routes:ROUTES",
    commands={"optics": "provisioner.integrations.optics.optics_commands:optics"},
)
