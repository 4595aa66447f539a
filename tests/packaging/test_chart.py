"""The Helm chart: its values, its options and its paths agree with the program and the image.

Helm itself renders it in the long test: its own Go code as a library, from a package that is
fetched by digest; the result is checked against the schemas that Kubernetes publishes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from program import alone
from test_image import serve_image
from test_package import EPOCH, require_index

from delivery.chart import CHART, build_chart
from delivery.image import FIRMWARE, STATE, USER
from delivery.sources import NAME, ROOT, read_version
from provisioner.settings import Settings

LOCK = Path(__file__).with_name("chart.lock")
TEMPLATES = "".join(p.read_text() for p in sorted((CHART / "templates").iterdir()))
FULL: Mapping[str, Any] = {
    "hostNetwork": False,
    "artifactHost": "10.0.0.2",
    "agentHost": "10.0.0.2",
    "settings": {"api_host": "0.0.0.0", "lookup_isolation": "site"},
    "overlays": {"site.yaml": "releases: {}\n"},
    "lab": True,
    "options": ["--api-port", "8444"],
    "persistence": {"existingClaim": "data"},
    "firmware": {"hostPath": "/srv/firmware"},
    "secrets": {"ssh": "hosts", "masterKey": "master", "database": "postgresql"},
    "operator": {"enabled": True, "server": "https://site.example:8443"},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "image": {"repository": "registry.example/p", "tag": "1", "pullSecrets": [{"name": "r"}]},
    "nodeSelector": {"role": "control"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
OPERATOR = {  # the kinds that the operator adds
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Deployment",
    "CustomResourceDefinition",
}
RENDER = """
import json, sys
import helm_python, kubernetes_validate, yaml
chart, packed, version, values = *sys.argv[1:4], json.loads(sys.argv[4])
problems = [m for m in helm_python.lint(chart)["messages"] if m["severity"] > 1]
rendered = []
with helm_python.Chart.load(packed) as loaded:
    loaded.validate_schema(values)
    for text in loaded.render(values, name="site", namespace="test").values():
        rendered += [d for d in yaml.safe_load_all(text) if d]
for document in rendered:
    kubernetes_validate.validate(document, version, strict=True)
print(json.dumps({"problems": problems, "rendered": rendered}))
"""


def read_values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def list_paths(values: Mapping[str, Any]) -> set[str]:
    """Return the values of two levels as a template names them."""
    free = {"settings", "overlays", "resources", "nodeSelector", "affinity"}
    return {
        f"{key}.{inner}" if inner else key
        for key, value in values.items()
        for inner in (value if isinstance(value, dict) and key not in free else [""])
    }


def test_the_chart_is_of_the_programs_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["name"], chart["version"], chart["appVersion"]) == (
        NAME,
        read_version(),
        read_version(),
    )


def test_templates_use_each_value_and_no_other():
    used = set(re.findall(r"\.Values\.([A-Za-z]+(?:\.[A-Za-z]+)?)", TEMPLATES))

    assert used == list_paths(read_values())


@pytest.mark.parametrize("values", [{}, FULL])
def test_values_follow_their_schema_and_settings_are_the_programs(values: Mapping[str, Any]):
    schema = json.loads((CHART / "values.schema.json").read_text())
    merged = read_values() | values

    jsonschema.Draft7Validator(schema).validate(merged)
    assert set(merged["settings"]) <= set(Settings.model_fields)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**merged, "replicas": 3})


def test_options_are_those_of_the_command_and_paths_those_of_the_image():
    shown = alone(["serve", "--help"], ROOT).stdout
    options = set(re.findall(r"(--[a-z][a-z-]+)", TEMPLATES))

    assert len(options) >= 7
    assert {o for o in options if o not in shown} == set()
    assert f"--data={STATE}/data" in TEMPLATES
    assert f"mountPath: {FIRMWARE}, readOnly: true" in TEMPLATES
    assert f"runAsUser: {USER}" in TEMPLATES


def render(place: Path, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what Helm makes of the chart: `problems`, and the documents as `rendered`."""
    require_index()
    uv = str(Path(sys.executable).with_name("uv"))
    environment = place / "environment"
    subprocess.run([uv, "venv", "--quiet", environment], check=True, timeout=60)
    python = environment / "bin" / "python"
    locked = ["--require-hashes", "--no-deps", "--python", python, "-r", LOCK]
    subprocess.run([uv, "pip", "install", "--quiet", *locked], check=True, timeout=300)
    ran = subprocess.run(
        [python, "-c", RENDER, CHART, build_chart(place, EPOCH), "1.34", json.dumps(values)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result: Mapping[str, Any] = json.loads(ran.stdout)
    return result


@pytest.mark.long
def test_the_rendered_command_with_an_overlay_serves_from_the_images_own_files(tmp_path: Path):
    overlay = "releases:\n  spectrum-x-1.3.0:\n    profiles:\n      hgx-h100-bf3:\n"
    overlay += '        pins:\n          host.bios: {version: "2.4", evidence: ours}\n'
    values = {"overlays": {"site.yaml": overlay}, "lab": True}
    rendered = {d["kind"]: d for d in render(tmp_path, values)["rendered"]}
    pod = rendered["StatefulSet"]["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    files = {f"/etc/provisioner/{n}": t for n, t in rendered["ConfigMap"]["data"].items()}

    assert "--matrix=/etc/provisioner/site.yaml" in arguments
    serve_image(tmp_path, files, [a.replace("$(MACHINE_ADDRESS)", "127.0.0.1") for a in arguments])


@pytest.mark.long
@pytest.mark.parametrize("values", [{}, FULL])
def test_helm_renders_what_kubernetes_takes(tmp_path: Path, values: Mapping[str, Any]):
    result = render(tmp_path, values)
    rendered = {d["kind"]: d for d in result["rendered"]}
    pod = rendered["StatefulSet"]["spec"]["template"]["spec"]
    claims = rendered["StatefulSet"]["spec"].get("volumeClaimTemplates", [])
    volumes = {v["name"] for v in [*pod["volumes"], *(c["metadata"] for c in claims)]}

    assert result["problems"] == []
    assert set(rendered) == {"ConfigMap", "Service", "StatefulSet"} | (
        OPERATOR if values else set()
    )
    assert {m["name"] for m in pod["containers"][0]["volumeMounts"]} == volumes
    assert ("--lab" in pod["containers"][0]["args"]) is bool(values)
    selector = rendered["Service"]["spec"]["selector"]
    assert selector == rendered["StatefulSet"]["spec"]["selector"]["matchLabels"]
