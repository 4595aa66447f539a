"""`make vm-test`: the built test image on a virtual machine, driven by the daemon's own code.

The machine is QEMU in software emulation behind sushy-tools' Redfish service. Everything runs in
separate namespaces: the test touches no libvirt, network or process of the host, and everything
ends with it.
"""
