"""`make vm-test`: the built test image on a virtual machine, driven by the daemon's own code.

A machine of QEMU in software emulation behind sushy-tools' Redfish service, everything in
namespaces of its own: nothing of the host's libvirt, network or processes is touched, and all of
it ends with the test.
"""
