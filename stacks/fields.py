"""The kinds of value an environment file holds. Each refuses a wrong one with its own reason and remedy."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_PRIVATE_NETWORKS = tuple(
    ipaddress.IPv4Network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)  # RFC 1918, and RFC 6598, which AWS allows in a VPC as well
_PRIVATE_RANGES = "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10"
_WRITE_CIDR = "Write an IPv4 network as ADDRESS/PREFIX with no host bits, such as 10.0.0.0/16."


class Section(BaseModel):
    """A part of an environment file: unknown keys are refused, nothing is converted, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


AsTuple = Strict(False)
"""For lists, the one thing that is converted: YAML has lists, a frozen model wants tuples."""


def refuse(reason: str, remedy: str) -> PydanticCustomError:
    """The error a validator raises. Pydantic carries reason and remedy to the finding."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason, "remedy": remedy})


@dataclass(frozen=True)
class Shape:
    """A string of one pattern. The pattern goes to the JSON Schema, the sentences to whoever wrote something else."""

    pattern: str
    reason: str
    remedy: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$"}

    def _check(self, value: str) -> str:
        if not re.fullmatch(self.pattern, value):
            raise refuse(self.reason, self.remedy)
        return value


def is_private(network: ipaddress.IPv4Network) -> bool:
    """Whether every address of `network` is private."""
    return any(network.subnet_of(private) for private in _PRIVATE_NETWORKS)


def _network(value: str) -> ipaddress.IPv4Network:
    if ":" in value:
        raise refuse("the VPC and its load balancers are IPv4 only", _WRITE_CIDR)
    if "/" not in value:
        raise refuse("a network needs its prefix length", _WRITE_CIDR)
    try:
        return ipaddress.IPv4Network(value)
    except ValueError as error:
        raise refuse(f"not an IPv4 network ({error})", _WRITE_CIDR) from None


def _cidr(value: str) -> str:
    _network(value)
    return value


def _private_cidr(value: str) -> str:
    if not is_private(_network(value)):
        raise refuse(
            "the management UI and API are never open to public addresses: whoever logs in there owns the cluster, "
            "and its plugins have published advisories up to remote code execution",
            f"Name networks inside {_PRIVATE_RANGES}; come in by VPN, peering or Session Manager port forwarding.",
        )
    return value


def _vpc_cidr(value: str) -> str:
    network = _network(value)
    if not is_private(network):
        raise refuse("a VPC of public addresses hides those addresses' owners", f"Choose inside {_PRIVATE_RANGES}.")
    if not 16 <= network.prefixlen <= 24:
        raise refuse(
            "the prefix length must be 16 to 24: AWS allows no VPC wider than /16, and of a /24 the three public "
            "subnets, a sixteenth each, are /28 already, AWS's least",
            "Choose a prefix from /16 to /24.",
        )
    return value


_CIDR_SCHEMA = Field(json_schema_extra={"pattern": r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$"})
Cidr = Annotated[str, AfterValidator(_cidr), _CIDR_SCHEMA]
PrivateCidr = Annotated[str, AfterValidator(_private_cidr), _CIDR_SCHEMA]
VpcCidr = Annotated[str, AfterValidator(_vpc_cidr), _CIDR_SCHEMA]

Account = Annotated[
    str, Shape(r"\d{12}", "an AWS account has 12 digits", 'Write all 12 digits in quotes: "111122223333".')
]
Region = Annotated[
    str, Shape(r"[a-z]{2}(-[a-z]+)+-\d", "not the name of an AWS region", "Write it as AWS does: eu-west-1.")
]
LoopbackEndpoint = Annotated[
    str,
    Shape(
        r"https?://(localhost|127(\.\d{1,3}){3}):\d{2,5}",
        "an emulated AWS is reached on loopback only: anything else would send this deployment's requests to a "
        "stranger",
        "Write http://localhost:PORT, or leave the key out for the real AWS.",
    ),
]
VpcId = Annotated[
    str, Shape(r"vpc-[0-9a-f]{8,17}", "not a VPC id", "Copy it from `aws ec2 describe-vpcs`: vpc-0123456789abcdef0.")
]
SubnetId = Annotated[
    str,
    Shape(
        r"subnet-[0-9a-f]{8,17}",
        "not a subnet id",
        "Copy it from `aws ec2 describe-subnets`: subnet-0123456789abcdef0.",
    ),
]
AmiId = Annotated[
    str, Shape(r"ami-[0-9a-f]{8,17}", "not an AMI id", "Copy it from `aws ec2 describe-images`, or leave the key out.")
]
CertificateArn = Annotated[
    str,
    Shape(
        r"arn:aws(-cn|-us-gov)?:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "not the ARN of a certificate in AWS Certificate Manager",
        "Copy it from `aws acm list-certificates`: arn:aws:acm:REGION:ACCOUNT:certificate/ID.",
    ),
]
EmailAddress = Annotated[
    str,
    Shape(
        r"[A-Za-z0-9._%+-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}",
        "not an e-mail address: the subscription would wait for a confirmation that never comes",
        "Write one address of the form team@example.com.",
    ),
]
DomainName = Annotated[
    str,
    Shape(
        r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}",
        "not a domain name of at least two labels",
        "Write it in lower case without a final dot: internal.example.com.",
    ),
]
ZoneId = Annotated[
    str,
    Shape(
        r"Z[A-Z0-9]{1,31}",
        "not a hosted zone id",
        "Copy it from `aws route53 list-hosted-zones`, without /hostedzone/.",
    ),
]


def _tag_key(value: str) -> str:
    lower = value.lower()
    if lower.startswith("aws:"):
        raise refuse("AWS keeps tag keys that begin with aws: to itself", "Choose another key.")
    if lower == "name" or lower.startswith("rabbitmq-"):
        raise refuse(
            "this key is set by the project: nodes find each other by rabbitmq-cluster and rabbitmq-node, and Name "
            "shows the node",
            "Choose another key.",
        )
    return value


_TAG_CHARACTERS = (
    r"[\w \-.:/=+@]"  # https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
)
TagKey = Annotated[
    str,
    Shape(
        rf"\S|\S{_TAG_CHARACTERS}{{0,126}}\S",
        "a tag key has 1 to 128 letters, digits, spaces or _ - . : / = + @, with no space at either end",
        "Shorten or rename it.",
    ),
    Shape(rf"{_TAG_CHARACTERS}+", "a tag key has only letters, digits, spaces or _ - . : / = + @", "Rename it."),
    AfterValidator(_tag_key),
]
TagValue = Annotated[
    str,
    Shape(
        rf"{_TAG_CHARACTERS}{{0,256}}",
        "a tag value has at most 256 letters, digits, spaces or _ - . : / = + @",
        "Shorten it, or leave the other characters out.",
    ),
]
