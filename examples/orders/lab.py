"""The ways into the lab: the cluster, the emulated AWS, and the example's tables there."""

import sys
from typing import Any
from urllib.parse import quote

import boto3

from messaging import client_config
from operations.cdk import run_cdk
from operations.deployment import Deployment
from operations.errors import OperationError
from stacks.environment import Environment

STACK = "orders-example"


def amqp_url(deployment: Deployment) -> str:
    """Of the cluster's load balancer."""
    user = deployment.credentials("administrator")
    address = deployment.parameter("amqp-endpoint").removeprefix("amqp://")
    return f"amqp://{user.username}:{quote(user.password, safe='')}@{address}/%2F"


def deployed_tables(environment: Environment) -> dict[str, str]:
    """Deploys the example's stack; the names of its tables."""
    app = f"{sys.executable} -m examples.orders.infrastructure"
    arguments = ["deploy", "--app", app, "--output", "cdk.out/orders", "--method=direct", "--require-approval", "never"]
    if run_cdk(environment, [*arguments, "--quiet", STACK]):
        raise OperationError("the example's tables were not deployed", "The CDK's own message is above.")
    client = boto3.client("cloudformation", **emulated(environment))
    [stack] = client.describe_stacks(StackName=STACK)["Stacks"]
    return {output["OutputKey"].removesuffix("Table"): output["OutputValue"] for output in stack["Outputs"]}


def emulated(environment: Environment) -> dict[str, Any]:
    """What a boto3 client needs to find the lab."""
    return {
        "endpoint_url": environment.aws_endpoint,
        "region_name": environment.region,
        "aws_access_key_id": "emulated",
        "aws_secret_access_key": "emulated",
    }


def dynamodb(environment: Environment) -> Any:
    """The lab's DynamoDB."""
    return boto3.client("dynamodb", config=client_config(), **emulated(environment))
