"""Published pages in short: the facts of each retyped in the page's own form, with its address."""

from __future__ import annotations


def html(heading: str, head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    """A page as a browser saves it: a heading, then a table."""

    def line(tag: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}><p>{c}</p></{tag}>" for c in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<html><h2>{heading}</h2><table>{line('th', head)}{body}</table></html>"


# docs.nvidia.com/doca/archive/2-9-3/General+Support
GENERAL_SUPPORT = html(
    "General Support",
    ("Component", "Version", "Description"),
    ("BlueField-3 NIC firmware", "32.43.3608", "Firmware of the BlueField-3"),
    ("BlueField-2 NIC firmware", "24.43.3608", "Firmware of the BlueField-2"),
    ("BMC firmware", "24.10-33", "BlueField BMC firmware"),
    ("BlueField-3 eROT (Glacier)", "00.02.0195.0000", "BlueField-3 eROT firmware"),
    ("BlueField-2 eROT (CEC)", "04.0f", "BlueField-2 eROT firmware"),
) + html(
    "Adapter cards",
    ("Adapter Card", "Bundled Firmware Version"),
    ("ConnectX-7", "28.43.3608"),
    ("ConnectX-6 Dx", "22.43.3608"),
    ("ConnectX-5/ConnectX-5 Ex", "16.35.4506"),
)
# docs.nvidia.com/networking/display/mftv4350/Supported-Adapter-Cards-Firmware-Versions
MFT = """# Supported Adapter Cards Firmware Versions

| Adapter Card | Bundled Firmware Version |
|---|---|
| ConnectX-9 | 82.48.1000 |
| ConnectX-8 | 40.48.1000 |
| BlueField®-3 | 32.48.1000 |
| ConnectX-7 | 28.48.1000 |
"""
# docs.nvidia.com/dgx/dgxgb200-fw-update-guide/previous-releases-gb300.html
PREVIOUS_RELEASES = html(
    "SW 1.0.1 Compute FW versions#",
    ("Component", "Version"),
    ("HMC CPLD", "0.22"),
    ("GPU", "97.10.4A.00.0C"),
    ("SBIOS", "2.05.13"),
    ("CX7", "40.47.1026"),
    ("BF3", "32.47.1026"),
) + html(
    "SW 1.3.2 Switch FW versions#",
    ("Component", "Version"),
    ("BMC", "88.0002.1958"),
    ("NVOS", "25.02.4317"),
)
# github.com/Mellanox/network-operator at b06827e0, 040-supported-nic-firmware-configmap.yaml
FIRMWARE_MAP = """apiVersion: v1
kind: ConfigMap
metadata:
  namespace: {{ .RuntimeSpec.Namespace }}
data:
  Nvidia_mlx5_ConnectX-7-26.01: "1021 26.01-1.0.0 28.48.1000"
  Nvidia_mlx5_ConnectX-7-26.04: "1021 26.04-0.8.6 28.49.1014"
  Nvidia_mlx5_ConnectX-9-26.04: "1025 26.04-0.8.6 82.49.1014"
  Nvidia_mlx5_MT43244_BlueField-3_integrated_ConnectX-7_Dx-26.04: "a2dc 26.04-0.8.6 32.49.1014"
"""
# www.netris.io/docs/en/4.8/ai-netris-host-networking.html, its source
NETRIS = """
Spectrum-X v1.3.0
\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"

.. list-table::
   :header-rows: 1

   * - Components
     - Version
   * - Cumulus Linux OS
     - 5.12.1.100
   * - BlueField FW Bundle (BFB)
     - 2.10.0-147_25.01
   * - BlueField-3 Firmware
     - 32.44.1036
   * - DOCA Host
     - 2.10.0-0.5.3
   * - Spectrum-X Congestion Control Algorithm (SPC-X CC)
     - 2.10

Permissions
"""
# developer.download.nvidia.com/compute/nvidia-driver/redist/redistrib_535.309.01.json
REDISTRIB = """{"release_date": "2026-04-28", "release_label": "535.309.01",
 "release_product": "nvidia-driver",
 "fabricmanager": {"name": "NVIDIA Fabric Manager", "version": "535.309.01"},
 "nvidia_driver": {"name": "NVIDIA Linux Driver", "version": "535.309.01"}}"""
# docs.nvidia.com/dgx/dgxgb300nvl72-release-notes, as `pdftotext -layout` prints a page
PDF = """Host Software Components

Component                    Version
GPU Driver                   580.126.20
IMEX                         580.126.20
DOCA_Host                    3.2.1-044413
BF3_BFB                      3.2.1-42_25.11

The following are the versions tested with this release.
"""
# github.com/Mellanox/nic-configuration-operator at 597a544, bindata/spectrum-x/RA2.2.yaml
PROFILE = "mlxConfig:\n  none: {}\ndocaCCVersion: 3.4.0\n"
# the manifest of HPE's repositories (downloads.linux.hpe.com), its form; a version of ours
HPE = """<?xml version="1.0" encoding="UTF-8"?>
<manifest schema_version="2.0.0.0"><meta lang="en">
 <product id="1"><product_version>
  <name><name_xlate lang="cn">x</name_xlate>
   <name_xlate lang="en">Online ROM Flash Component - HPE Cray XD670 (U54) Servers</name_xlate>
  </name><version value="2.40_09-21-2026" revision=""/>
  <products><product rom="U54"/></products></product_version></product>
 <product id="2"><product_version><name><name_xlate lang="en">Other</name_xlate></name>
  <version value="1"/><products><product rom="R11"/></products></product_version></product>
</meta></manifest>"""
