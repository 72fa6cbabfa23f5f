"""Small things in which moto's CloudFormation differs from AWS's, type by type."""

import json
from typing import Any

from moto.efs.models import AccessPoint, FileSystem
from moto.kms.models import Key, KmsBackend
from moto.ssm.models import SimpleSystemManagerBackend

from lab.emulator.overrides import adds, replaces

_create_key = KmsBackend.create_key


@replaces(KmsBackend, "create_key")
def _create_key_with_tags(
    self: KmsBackend,
    policy: str | None,
    key_usage: str,
    key_spec: str,
    description: str,
    tags: list[dict[str, str]] | None,
    multi_region: bool = False,
    origin: str = "AWS_KMS",
) -> Key:
    """CloudFormation says Key and Value, KMS's own API TagKey and TagValue."""
    same = [
        {"TagKey": t.get("TagKey", t.get("Key", "")), "TagValue": t.get("TagValue", t.get("Value", ""))}
        for t in tags or []
    ]
    return _create_key(self, policy, key_usage, key_spec, description, same, multi_region, origin)


_put_parameter = SimpleSystemManagerBackend.put_parameter


@replaces(SimpleSystemManagerBackend, "put_parameter")
def _put_parameter_with_tags(self: SimpleSystemManagerBackend, *positional: Any, **arguments: Any) -> Any:
    """CloudFormation's tags of a parameter are a map, the API's a list."""
    tags = arguments.get("tags")
    if isinstance(tags, dict):
        arguments["tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return _put_parameter(self, *positional, **arguments)


def _access_point_id(self: AccessPoint) -> str:
    """What `Ref` returns."""
    return self.access_point_id


adds(AccessPoint, "physical_resource_id")(property(_access_point_id))


@adds(AccessPoint, "get_cfn_attribute")
def _access_point_attribute(self: AccessPoint, name: str) -> str:
    return {"AccessPointId": self.access_point_id, "Arn": self.access_point_arn}[name]


@adds(FileSystem, "get_cfn_attribute")
def _file_system_attribute(self: FileSystem, name: str) -> str:
    return {"FileSystemId": self.file_system_id, "Arn": self.file_system_arn}[name]


_create_file_system = FileSystem.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]


def _create_with_policy(
    cls: Any, /, name: str, cloudformation: Any, account: str, region: str, **rest: Any
) -> FileSystem:
    file_system: FileSystem = _create_file_system(cls, name, cloudformation, account, region, **rest)
    if policy := cloudformation["Properties"].get("FileSystemPolicy"):
        file_system.file_system_policy = json.dumps(policy)
    return file_system


replaces(FileSystem, "create_from_cloudformation_json")(classmethod(_create_with_policy))
