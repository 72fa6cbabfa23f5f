"""AWS clients: one session, each client made when it is first used (their service models cost time and memory)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.client import AutoScalingClient
    from mypy_boto3_cloudformation.client import CloudFormationClient
    from mypy_boto3_dynamodb.client import DynamoDBClient
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_elbv2.client import ElasticLoadBalancingv2Client
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_secretsmanager.client import SecretsManagerClient

AwsError = (BotoCoreError, ClientError)
"""Whatever a client raises."""

_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})

UNKNOWN = "unknown"
"""Our word for an instance that EC2 does not know. EC2 forgets instances about an hour after their end."""

GONE = ("terminated", UNKNOWN)
"""States of an instance that will never come back. One that only shuts down still writes."""


class Aws:
    """Clients for one region, with the instance's own role."""

    def __init__(self, region: str) -> None:
        self._session = boto3.Session(region_name=region)
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _client(self, service: str) -> Any:
        with self._lock:  # making clients is not thread-safe, using them is
            if service not in self._clients:
                self._clients[service] = self._session.client(service, config=_CONFIG)  # type: ignore[call-overload]
            return self._clients[service]

    @property
    def autoscaling(self) -> AutoScalingClient:
        """Lifecycle hooks."""
        return self._client("autoscaling")  # type: ignore[no-any-return]

    @property
    def cloudformation(self) -> CloudFormationClient:
        """Signals."""
        return self._client("cloudformation")  # type: ignore[no-any-return]

    @property
    def dynamodb(self) -> DynamoDBClient:
        """Ownership, lock, reports."""
        return self._client("dynamodb")  # type: ignore[no-any-return]

    @property
    def ec2(self) -> EC2Client:
        """States of other instances."""
        return self._client("ec2")  # type: ignore[no-any-return]

    @property
    def load_balancing(self) -> ElasticLoadBalancingv2Client:
        """This instance's health, as the load balancers see it."""
        return self._client("elbv2")  # type: ignore[no-any-return]

    @property
    def s3(self) -> S3Client:
        """Mirrored artefacts."""
        return self._client("s3")  # type: ignore[no-any-return]

    @property
    def secretsmanager(self) -> SecretsManagerClient:
        """Secrets."""
        return self._client("secretsmanager")  # type: ignore[no-any-return]


def error_code(error: BaseException) -> str:
    """The service's code of an error, or the error's class when no service answered."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def instance_state(ec2: EC2Client, instance_id: str) -> str:
    """EC2's word on an instance: pending, running, shutting-down, stopping, stopped, terminated; or UNKNOWN."""
    try:
        answer = ec2.describe_instances(InstanceIds=[instance_id])
    except ClientError as error:
        if error_code(error) == "InvalidInstanceID.NotFound":
            return UNKNOWN
        raise
    states = [str(item["State"]["Name"]) for group in answer["Reservations"] for item in group["Instances"]]
    return states[0] if states else UNKNOWN
