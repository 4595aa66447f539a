"""The laboratory: a virtual machine of QEMU in software emulation, its network, its Redfish.

Everything runs in the namespaces that `run.py` has made (network, mounts, processes): libvirt's
folders are empty file systems of our own, and when the first process of the namespace ends, the
kernel ends the others. KVM is never used, because /dev/kvm may exist and not work.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import bcrypt

from delivery import tools
from images.locks import BadInput
from provisioner.integrations.sim.hardware.clock import make_certificate

NETWORK = "198.51.100"  # TEST-NET-2 (RFC 5737), which no real network uses
GATEWAY = f"{NETWORK}.1"
REDFISH_PORT, AGENT_PORT, FILE_PORT = 8000, 6385, 8070
MAC = "52:54:00:aa:00:01"
UUID = "5f0c2c8e-2a52-4a7b-9a5e-0d6f0c6a0001"
DISK_SERIAL, NVME_SERIAL = "PROVISIONER-OS", "PROVISIONER-NVME"
DISK_BYTES, NVME_BYTES = 4 << 30, 64 << 20
NAMESPACES = (1, 2, 3)  # of the NVMe drive; the last one is detached: it has no block device
TENANT_DATA = b"data of the tenant before "  # fills every namespace
MEMORY_MIB = 4096  # the ramdisk unpacks to 1.5 GB, into a file system of at most half the memory
START_LIMIT_S = 120
OVMF = "/usr/share/OVMF"

# folders that libvirt writes to, replaced by empty ones
PRIVATE = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt")
QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
cgroup_controllers = []
namespaces = []
remember_owner = 0
"""
NETWORK_XML = f"""\
<network><name>provisioner</name><bridge name='prov0' stp='off'/>
 <ip address='{GATEWAY}' netmask='255.255.255.0'>
  <dhcp><range start='{NETWORK}.100' end='{NETWORK}.200'/></dhcp></ip></network>
"""


@dataclass(frozen=True)
class Login:
    """Address and login of the Redfish service."""

    url: str
    username: str
    password: str


class Lab:
    """One machine, made by `start`. It ends with the namespace, or by `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.console = folder / "console.log"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Login:
        """Set up mounts, libvirt, network, machine (off) and Redfish service. Raises BadInput."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mount_private_folders()
        run_tool("ip", "link", "set", "lo", "up")
        self._spawn("libvirtd", "libvirtd")
        wait_until("libvirtd answers", lambda: succeeds("virsh", "version"))
        self._define("net", NETWORK_XML)
        run_tool("virsh", "net-start", "provisioner")
        images = self.folder / "pool"
        images.mkdir(exist_ok=True)
        run_tool("virsh", "pool-define-as", "default", "dir", "--target", str(images))
        run_tool("virsh", "pool-start", "default")
        run_tool("qemu-img", "create", "-q", "-f", "raw", str(images / "os.img"), str(DISK_BYTES))
        for number in NAMESPACES:
            content = TENANT_DATA * (NVME_BYTES // len(TENANT_DATA) + 1)
            self.namespace(number).write_bytes(content[:NVME_BYTES])
        self._define("", self._render_domain())
        return self._start_redfish()

    def namespace(self, number: int) -> Path:
        """Return the file behind a namespace of the NVMe drive."""
        return self.folder / "pool" / f"nvme{number}.img"

    def _list_nvme_arguments(self) -> str:
        """Return QEMU's arguments for one NVMe drive with several namespaces (qemu 7.2, docs)."""
        arguments = [
            ("-device", "nvme-subsys,id=drive,nqn=provisioner"),
            ("-device", f"nvme,id=control,serial={NVME_SERIAL},subsys=drive,addr=0x10"),
        ]
        for number in NAMESPACES:
            file = f"file={self.namespace(number)}"
            detached = ",detached=on" if number == NAMESPACES[-1] else ""
            space = f"nvme-ns,drive=nvm{number},nsid={number},shared=on{detached}"
            arguments += [
                ("-drive", f"if=none,id=nvm{number},format=raw,cache=unsafe,{file}"),
                ("-device", space),
            ]
        return "".join(
            f"    <qemu:arg value='{word}'/>\n" for argument in arguments for word in argument
        )

    def stop(self) -> None:
        """End every process that `start` has started, the machine first."""
        succeeds("virsh", "destroy", "provisioner")
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()

    def cpu_s(self) -> float:
        """Return the CPU seconds that the machine's QEMU has used so far; 0 while it is off."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            if "(qemu-system" in text:
                fields = text.rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def read_console(self) -> str:
        """Return the machine's output on its serial line."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def _mount_private_folders(self) -> None:
        for folder in PRIVATE:
            Path(folder).mkdir(parents=True, exist_ok=True)
            run_tool("mount", "-t", "tmpfs", "-o", "mode=0755", "provisioner-vm", folder)
        run_tool("mount", "-t", "sysfs", "provisioner-vm", "/sys")  # of this network namespace
        for part in ("/etc/libvirt/qemu", "/var/lib/libvirt/dnsmasq", "/var/lib/libvirt/qemu"):
            Path(part).mkdir(parents=True)
        Path("/etc/libvirt/qemu.conf").write_text(QEMU_CONF)
        Path("/etc/libvirt/libvirtd.conf").write_text('auth_unix_rw = "none"\n')

    def _define(self, kind: str, xml: str) -> None:
        file = self.folder / "defined.xml"
        file.write_text(xml)
        run_tool("virsh", f"{kind}-define" if kind else "define", str(file))

    def _render_domain(self) -> str:
        pool = self.folder / "pool"
        loader = (
            f"<loader readonly='yes' type='pflash'>{OVMF}/OVMF_CODE_4M.fd</loader>"
            f"<nvram template='{OVMF}/OVMF_VARS_4M.fd'>{self.folder}/vars.fd</nvram>"
        )
        return f"""\
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>provisioner</name><uuid>{UUID}</uuid>
  <memory unit='MiB'>{MEMORY_MIB}</memory><vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>{loader}<boot dev='hd'/></os>
  <features><acpi/></features>
  <cpu mode='custom'><model>Nehalem</model></cpu>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='unsafe' discard='unmap'/>
      <source file='{pool}/os.img'/><target dev='vda' bus='virtio'/>
      <serial>{DISK_SERIAL}</serial></disk>
    <interface type='network'><mac address='{MAC}'/><source network='provisioner'/>
      <model type='virtio'/></interface>
    <serial type='file'><source path='{self.console}' append='on'/><target port='0'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <graphics type='vnc' port='-1' listen='127.0.0.1'/><video><model type='vga'/></video>
  </devices>
  <qemu:commandline>
{self._list_nvme_arguments()}  </qemu:commandline>
</domain>
"""

    def _start_redfish(self) -> Login:
        """Start sushy-tools' emulator on libvirt, over HTTPS with a password."""
        password = secrets.token_urlsafe(16)
        cert, key = make_certificate("sushy", GATEWAY)
        digest = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        files = {
            "cert.pem": cert,
            "key.pem": key,
            "htpasswd": f"admin:{digest.replace('$2b$', '$2y$')}\n".encode(),
        }
        for name, content in files.items():
            file = self.folder / name
            file.touch(0o600)
            file.write_bytes(content)
        settings = {
            "SUSHY_EMULATOR_LISTEN_IP": GATEWAY,
            "SUSHY_EMULATOR_LISTEN_PORT": REDFISH_PORT,
            "SUSHY_EMULATOR_SSL_CERT": str(self.folder / "cert.pem"),
            "SUSHY_EMULATOR_SSL_KEY": str(self.folder / "key.pem"),
            "SUSHY_EMULATOR_AUTH_FILE": str(self.folder / "htpasswd"),
            "SUSHY_EMULATOR_LIBVIRT_URI": "qemu:///system",
            "SUSHY_EMULATOR_IGNORE_BOOT_DEVICE": False,
            "SUSHY_EMULATOR_STATE_DIR": str(self.folder),
            "SUSHY_EMULATOR_VMEDIA_VERIFY_SSL": False,
            "SUSHY_EMULATOR_BOOT_LOADER_MAP": {
                "UEFI": {"x86_64": f"{OVMF}/OVMF_CODE_4M.fd"},
                "Legacy": {"x86_64": None},
            },
            "SUSHY_EMULATOR_SECURE_BOOT_DISABLED_NVRAM": f"{OVMF}/OVMF_VARS_4M.fd",
            "SUSHY_EMULATOR_FEATURE_SET": "full",
        }
        config = self.folder / "sushy.conf"
        config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
        emulator = Path(sys.executable).with_name("sushy-emulator")
        self._spawn("sushy", str(emulator), "--config", str(config))
        return Login(f"https://{GATEWAY}:{REDFISH_PORT}", "admin", password)

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": str(link_bindings(self.folder))},
                )
            )


def link_bindings(folder: Path) -> Path:
    """Make a folder with only Debian's libvirt bindings.

    python3-libvirt is built for the same Python 3.11, and its version is that of the library.
    """
    own = folder / "bindings"
    own.mkdir(exist_ok=True)
    sources = list(Path("/usr/lib/python3/dist-packages").glob("libvirt*"))
    if not sources or sys.version_info[:2] != (3, 11):
        raise BadInput("needs python3-libvirt of Debian 12 and Python 3.11")
    for source in sources:
        target = own / source.name
        if not target.is_symlink():
            target.symlink_to(source)
    return own


def wait_until(event: str, condition: object, limit_s: float = START_LIMIT_S) -> None:
    """Wait until `so()` is true. Raises BadInput with `what` if that takes too long."""
    assert callable(condition)
    ends = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > ends:
            raise BadInput(f"not within {limit_s:.0f} s: {event}")
        time.sleep(0.2)


def succeeds(*command: str) -> bool:
    """Return whether a command succeeds."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def run_tool(*command: str) -> None:
    """Run a command. Raises BadInput with its output if it fails."""
    tools.run_tool(*command, error=BadInput)
