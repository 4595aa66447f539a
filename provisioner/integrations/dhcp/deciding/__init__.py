"""What leases of DHCP servers say of a site. Pure: it reads no clock, file or socket."""
