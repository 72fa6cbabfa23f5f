"""The instance types this cluster is meant for, and their processor architecture."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stacks.fields import refuse

Architecture = Literal["x86_64", "arm64"]

_GRAVITON = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge"
_X86 = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"
_BURSTABLE = "small medium large xlarge 2xlarge"

# Families with their sizes. Left out on purpose: less than 2 GiB of memory (quorum queues' log alone takes three to
# four times its 128 MiB), local disks (the data is on EFS), accelerators, bare metal.
_FAMILIES: tuple[tuple[Architecture, str, str], ...] = (
    ("arm64", "m6g m7g m8g c6g c7g c8g r6g r7g r8g", _GRAVITON),
    ("arm64", "t4g", _BURSTABLE),
    ("x86_64", "m6i m6a m7i m7a c6i c6a c7i c7a r6i r6a r7i r7a", _X86),
    ("x86_64", "t3 t3a", _BURSTABLE),
)

INSTANCE_TYPES: dict[str, Architecture] = {
    f"{family}.{size}": architecture
    for architecture, families, sizes in _FAMILIES
    for family in families.split()
    for size in sizes.split()
}


def is_burstable(instance_type: str) -> bool:
    """Whether processor and network of `instance_type` run on credits."""
    return instance_type.startswith("t")


def _known(value: str) -> str:
    if value in INSTANCE_TYPES:
        return value
    family, _, size = value.partition(".")
    known = sorted({name.partition(".")[0] for name in INSTANCE_TYPES})
    if family in known:
        sizes = [name.partition(".")[2] for name in INSTANCE_TYPES if name.startswith(f"{family}.")]
        raise refuse(f"{family} has no size {size!r} that fits this cluster", f"Choose one of {', '.join(sizes)}.")
    raise refuse(
        "not a type this project knows, so its architecture is unknown too",
        f"Choose a family of {', '.join(known)}, such as m7g.large, or add the family to stacks/instance_types.py.",
    )


InstanceType = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(INSTANCE_TYPES)})]
