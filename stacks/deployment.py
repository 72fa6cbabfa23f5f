"""What all stacks of one deployment have in common."""

import aws_cdk as cdk
from aws_cdk import aws_ssm as ssm
from constructs import Construct, IConstruct

from stacks.environment import Environment, StackKind


class DeploymentStack(cdk.Stack):
    """A stack of one deployment: named after it, bound to its account and region, protected as it asks."""

    def __init__(self, scope: Construct, *, environment: Environment, kind: StackKind, description: str) -> None:
        super().__init__(
            scope,
            environment.stack_name(kind),
            description=description,
            env=cdk.Environment(account=environment.account, region=environment.region),
            termination_protection=environment.protection.termination,
            # The rule's only use is to fail early on a very old bootstrap stack; it adds a parameter to every template.
            synthesizer=cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        self.environment_model = environment

    @property
    def retention(self) -> cdk.RemovalPolicy:
        """What happens to data when its resource leaves the template."""
        return cdk.RemovalPolicy.RETAIN if self.environment_model.protection.retain_data else cdk.RemovalPolicy.DESTROY

    def publish(self, name: str, value: str, description: str) -> None:
        """Tell operators and applications: an SSM parameter `/rabbitmq/<cluster>/<name>` and a stack output."""
        identifier = camel(name)
        ssm.StringParameter(
            self,
            f"{identifier}Parameter",
            parameter_name=f"/rabbitmq/{self.environment_model.cluster_name}/{name}",
            string_value=value,
            description=description,
        )
        cdk.CfnOutput(self, identifier, value=value, description=description)


def camel(name: str) -> str:
    """A logical id made of a name: `eu-west-1a` -> `EuWest1a`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("-"))


def pin(construct: cdk.Resource, logical_id: str) -> None:
    """Give a construct's resource a logical id that does not depend on where the construct stands in the tree."""
    resource = construct.node.default_child
    assert isinstance(resource, cdk.CfnElement)
    resource.override_logical_id(logical_id)


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding of cdk-nag's AwsSolutions pack on one construct. The reason is for the auditor."""
    cdk.Validations.of(construct).acknowledge(
        cdk.Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    )
