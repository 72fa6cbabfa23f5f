"""CloudFormation types which moto lacks: secrets, alarms, hooks and security group rules as resources of their own.

Each is a class that moto finds because it is a `CloudFormationModel`. What `Resource` asks of it: `create`, and
`update` where a change means something.
"""

import contextlib
import json
from typing import Any, ClassVar, Self

from moto.autoscaling.models import autoscaling_backends
from moto.cloudwatch.models import Dimension, Metric, MetricDataQuery, MetricStat, cloudwatch_backends
from moto.core.common_models import CloudFormationModel
from moto.ec2.models import ec2_backends
from moto.secretsmanager.models import FakeSecret, SecretsManagerBackend, secretsmanager_backends
from moto.secretsmanager.utils import random_password
from moto.utilities.utils import get_partition


class Resource:
    """What moto wants of a type, said once for all of them."""

    TYPE: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    """The property that names it, if there is one."""

    def __init__(self, physical_id: str, account: str, region: str, **attributes: str) -> None:
        self.physical_resource_id = physical_id
        self.account, self.region = account, region
        self.attributes = attributes

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        """Make it. To be overridden: `abc` cannot say so here, its metaclass and moto's exclude each other."""
        raise NotImplementedError

    def update(self, properties: dict[str, Any]) -> None:
        """Change it in place. It keeps its physical id: whatever refers to it goes on to do so."""

    def remove(self) -> None:
        """Undo `create`."""

    @classmethod
    def cloudformation_type(cls) -> str:
        """For moto."""
        return cls.TYPE

    @classmethod
    def cloudformation_name_type(cls) -> str:
        """For moto."""
        return cls.NAME

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """For moto."""
        return True

    def get_cfn_attribute(self, name: str) -> str:
        """For moto: `Fn::GetAtt`."""
        return self.attributes.get(name, self.physical_resource_id)

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Self:
        """For moto."""
        return cls.create(resource_name, cloudformation_json["Properties"], account_id, region_name)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Self,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> Self:
        """For moto."""
        original_resource.update(cloudformation_json["Properties"])
        return original_resource

    def delete(self, account: str, region: str) -> None:
        """For moto."""
        self.remove()


class Secret(Resource, CloudFormationModel):
    """A secret. What was generated once stays, whatever changes about the resource."""

    TYPE, NAME = "AWS::SecretsManager::Secret", "Name"

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        generate = properties.get("GenerateSecretString")
        created = secretsmanager_backends[account][region].create_secret(
            name=name,
            secret_string=cls._generate(generate) if generate is not None else properties.get("SecretString"),
            secret_binary=None,
            description=properties.get("Description"),
            tags=properties.get("Tags"),
            kms_key_id=properties.get("KmsKeyId"),
            client_request_token=None,
            replica_regions=[],
            force_overwrite=False,
        )
        return cls(json.loads(created)["ARN"], account, region)

    def update(self, properties: dict[str, Any]) -> None:
        secret = self._backend.secrets[self.physical_resource_id]
        if isinstance(secret, FakeSecret):
            secret.description = properties.get("Description")
            secret.tags = properties.get("Tags")

    def remove(self) -> None:
        self._backend.delete_secret(
            self.physical_resource_id, recovery_window_in_days=None, force_delete_without_recovery=True
        )

    @property
    def _backend(self) -> SecretsManagerBackend:
        return secretsmanager_backends[self.account][self.region]

    @staticmethod
    def _generate(wanted: dict[str, Any]) -> str:
        password = random_password(
            int(wanted.get("PasswordLength", 32)),
            wanted.get("ExcludeCharacters", ""),
            bool(wanted.get("ExcludeNumbers")),
            bool(wanted.get("ExcludePunctuation")),
            bool(wanted.get("ExcludeUppercase")),
            bool(wanted.get("ExcludeLowercase")),
            bool(wanted.get("IncludeSpace")),
            bool(wanted.get("RequireEachIncludedType", True)),
        )
        if "GenerateStringKey" not in wanted:
            return password
        return json.dumps({**json.loads(wanted["SecretStringTemplate"]), wanted["GenerateStringKey"]: password})


class Alarm(Resource, CloudFormationModel):
    """A metric alarm, on one metric or on an expression over several."""

    TYPE, NAME = "AWS::CloudWatch::Alarm", "AlarmName"

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        arn = f"arn:{get_partition(region)}:cloudwatch:{region}:{account}:alarm:{name}"
        alarm = cls(name, account, region, Arn=arn)
        alarm.update(properties)
        return alarm

    def update(self, properties: dict[str, Any]) -> None:
        cloudwatch_backends[self.account][self.region].put_metric_alarm(
            name=self.physical_resource_id,
            namespace=properties.get("Namespace", ""),
            metric_name=properties.get("MetricName", ""),
            metric_data_queries=[self._query(query) for query in properties.get("Metrics", [])],
            comparison_operator=properties["ComparisonOperator"],
            evaluation_periods=int(properties["EvaluationPeriods"]),
            datapoints_to_alarm=properties.get("DatapointsToAlarm"),
            period=properties.get("Period", 0),
            threshold=float(properties.get("Threshold", 0)),
            statistic=properties.get("Statistic", ""),
            description=properties.get("AlarmDescription", ""),
            dimensions=properties.get("Dimensions", []),
            alarm_actions=properties.get("AlarmActions", []),
            ok_actions=properties.get("OKActions", []),
            insufficient_data_actions=properties.get("InsufficientDataActions", []),
            actions_enabled=properties.get("ActionsEnabled", True),
            treat_missing_data=properties.get("TreatMissingData"),
        )

    def remove(self) -> None:
        cloudwatch_backends[self.account][self.region].delete_alarms([self.physical_resource_id])

    @staticmethod
    def _query(wanted: dict[str, Any]) -> MetricDataQuery:
        statistic = None
        if wanted_statistic := wanted.get("MetricStat"):
            metric = wanted_statistic["Metric"]
            dimensions = [Dimension(d["Name"], d["Value"]) for d in metric.get("Dimensions", [])]
            statistic = MetricStat(
                Metric(metric["MetricName"], metric["Namespace"], dimensions),
                wanted_statistic["Period"],
                wanted_statistic["Stat"],
                wanted_statistic.get("Unit"),
            )
        label: Any = wanted.get("Label")  # moto's own API leaves what is not given None, whatever the types say
        period: Any = wanted.get("Period")
        returned = wanted.get("ReturnData", True)
        return MetricDataQuery(wanted["Id"], label, period, returned, wanted.get("Expression"), statistic)


class LifecycleHook(Resource, CloudFormationModel):
    """A lifecycle hook outside of its group."""

    TYPE, NAME = "AWS::AutoScaling::LifecycleHook", "LifecycleHookName"

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        hook = cls(name, account, region)
        hook.update(properties)
        return hook

    def update(self, properties: dict[str, Any]) -> None:
        self.group = properties["AutoScalingGroupName"]
        autoscaling_backends[self.account][self.region].create_lifecycle_hook(
            self.physical_resource_id,
            self.group,
            properties["LifecycleTransition"],
            int(properties.get("HeartbeatTimeout", 3600)),
            properties.get("DefaultResult", "ABANDON"),
        )

    def remove(self) -> None:
        autoscaling_backends[self.account][self.region].delete_lifecycle_hook(self.group, self.physical_resource_id)


class _Rule(Resource):
    """One rule of a security group, either way."""

    DIRECTION: ClassVar[str]
    PEER: ClassVar[str]

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        rule = cls(name, account, region)
        rule.properties = properties
        rule._call("authorize")
        return rule

    def update(self, properties: dict[str, Any]) -> None:
        self._call("revoke")
        self.properties = properties
        self._call("authorize")

    def remove(self) -> None:
        with contextlib.suppress(Exception):  # the group may have gone first
            self._call("revoke")

    def _call(self, verb: str) -> None:
        wanted = self.properties
        backend = ec2_backends[self.account][self.region]
        cidr = (
            {"CidrIp": wanted["CidrIp"], "Description": wanted.get("Description", "")} if "CidrIp" in wanted else None
        )
        getattr(backend, f"{verb}_security_group_{self.DIRECTION}")(
            wanted["GroupId"],
            wanted["IpProtocol"],
            str(wanted.get("FromPort", -1)),
            str(wanted.get("ToPort", -1)),
            ip_ranges=[cidr] if cidr else [],
            source_groups=[{"GroupId": wanted[self.PEER]}] if self.PEER in wanted else [],
        )

    properties: dict[str, Any]


class SecurityGroupEgress(_Rule, CloudFormationModel):
    """A rule for what leaves."""

    TYPE, DIRECTION, PEER = "AWS::EC2::SecurityGroupEgress", "egress", "DestinationSecurityGroupId"


class SecurityGroupIngress(_Rule, CloudFormationModel):
    """A rule for what comes in. moto has the type, but cannot take a rule back."""

    TYPE, DIRECTION, PEER = "AWS::EC2::SecurityGroupIngress", "ingress", "SourceSecurityGroupId"


class Unmodelled(Resource, CloudFormationModel):
    """Any type that neither moto nor this package knows: it exists, has a name, and does nothing.

    Bucket policies too, on purpose: moto applies them without their conditions, and one that demands TLS of everybody
    would lock everybody out.
    """

    TYPE = "Lab::Unmodelled"

    @classmethod
    def create(cls, name: str, properties: dict[str, Any], account: str, region: str) -> Self:
        return cls(name, account, region)
