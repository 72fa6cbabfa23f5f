"""This instance behind the load balancers: clients arrive only once they have found it healthy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

from node.aws import AwsError

if TYPE_CHECKING:
    from mypy_boto3_elbv2.client import ElasticLoadBalancingv2Client


class Targets:
    """The instance in its target groups, by their ARNs."""

    def __init__(
        self, client: Callable[[], ElasticLoadBalancingv2Client], groups: Sequence[str], instance_id: str
    ) -> None:
        self._client, self._groups, self._instance_id = client, groups, instance_id

    def missing(self) -> str | None:
        """None once every group that a load balancer uses has this target healthy, else what is missing.

        While a cluster is created there are no load balancers yet.
        """
        try:
            return next(filter(None, map(self._missing_in, self._groups)), None)
        except AwsError as error:
            return f"AWS does not answer: {error}"

    def _missing_in(self, group: str) -> str | None:
        answer = self._client().describe_target_health(TargetGroupArn=group, Targets=[{"Id": self._instance_id}])
        for description in answer["TargetHealthDescriptions"]:
            health = description["TargetHealth"]
            if health["State"] != "healthy" and health.get("Reason") != "Target.NotInUse":
                return f"target group {group.rsplit('/', 2)[-2]} has this instance {health['State']}"
        return None
