"""Settings of the BMCs' own TLS certificates, which the site's authority signs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.settings.power import VARIABLE

_VALUE = r"[^,=/+<>#;\x00-\x1f]{1,64}"
_SUBJECT = rf"^(C=[A-Z]{{2}},ST={_VALUE},L={_VALUE},O={_VALUE},OU={_VALUE})?$"


class BmcCertificateSettings(Record):
    """Part of `Settings`."""

    bmc_ca_command: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Command of the site's certificate authority: it reads the request (PKCS#10, "
        "PEM) of a BMC from its input and prints the certificate (PEM). Empty: BMCs keep theirs.",
    )
    bmc_ca_environment: tuple[Annotated[str, Field(pattern=VARIABLE)], ...] = Field(
        (), max_length=16, description="Variables that this command inherits from the daemon."
    )
    bmc_ca_limit_s: float = Field(
        60.0, gt=0, le=600, description="The command of the authority ends within this."
    )
    bmc_certificate_subject: str = Field(
        "",
        pattern=_SUBJECT,
        description="Subject of BMCs' certificates beside their name, which Redfish demands whole: "
        "C=DE,ST=Hessen,L=Frankfurt,O=Example,OU=Compute.",
    )
    bmc_certificate_renew_days: float = Field(
        30.0, gt=0, le=3650, description="A BMC's certificate is renewed so long before its end."
    )
    bmc_certificate_nodes_max: int = Field(
        16, ge=1, le=4096, description="Nodes whose BMCs get certificates at the same time."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> BmcCertificateSettings:
        if self.bmc_ca_command and not self.bmc_ca_command[0].startswith("/"):
            raise ValueError("bmc_ca_command begins with the absolute path of the command")
        if self.bmc_ca_command and not self.bmc_certificate_subject:
            raise ValueError("bmc_ca_command needs bmc_certificate_subject")
        return self
