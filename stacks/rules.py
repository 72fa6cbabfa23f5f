"""A connection between two security groups, written out as its two rules."""

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class Connection(Construct):
    """Lets `source` reach `destination` on one TCP port: an egress rule there, an ingress rule here.

    Both rules belong to the stack of `scope`. The groups' own `connections` would put each rule beside its group, and
    two stacks that know each other cannot be deployed.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        source: ec2.ISecurityGroup,
        destination: ec2.ISecurityGroup,
        port: int,
        purpose: str,
    ) -> None:
        super().__init__(scope, id)
        ec2.CfnSecurityGroupEgress(
            self,
            "Out",
            group_id=source.security_group_id,
            destination_security_group_id=destination.security_group_id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description=purpose,
        )
        ec2.CfnSecurityGroupIngress(
            self,
            "In",
            group_id=destination.security_group_id,
            source_security_group_id=source.security_group_id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description=purpose,
        )
