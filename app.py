#!/usr/bin/env python3
"""The CDK app: one environment's stacks. `cdk deploy --all -c environment=NAME` (cdk.json names the default)."""

import sys

import aws_cdk as cdk

from stacks.access import AccessStack
from stacks.cluster import ClusterStack
from stacks.environment import Environment, EnvironmentErrors
from stacks.messaging import MessagingStack
from stacks.network import NetworkStack
from stacks.observability import ObservabilityStack
from stacks.storage import StorageStack


def build(app: cdk.App, environment: Environment) -> None:
    """Compose one environment's stacks. The references between them give the order of deployment."""
    network = NetworkStack(app, environment=environment)
    vpc, subnets = network.vpc, network.subnets
    storage = StorageStack(app, environment=environment, vpc=vpc, subnets=subnets)
    cluster = ClusterStack(app, environment=environment, vpc=vpc, subnets=subnets, storage=storage)
    access = AccessStack(app, environment=environment, vpc=vpc, subnets=subnets.values(), cluster=cluster)
    watch = ObservabilityStack(app, environment=environment, storage=storage, cluster=cluster, access=access)
    if environment.messaging:
        MessagingStack(app, environment=environment, topic=watch.topic)
    for key, value in environment.tags.items():
        cdk.Tags.of(app).add(key, value)


if __name__ == "__main__":
    # CloudFormation's own validation triples the time of a synthesis; the tests run it.
    app = cdk.App(builtin_cloud_formation_validation=False)
    try:
        environment = Environment.load(app.node.try_get_context("environment") or "local")
    except EnvironmentErrors as errors:
        print(errors, file=sys.stderr)
        sys.exit(2)
    build(app, environment)
    app.synth()
