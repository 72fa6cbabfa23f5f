"""This instance behind the load balancers: clients arrive only once they have found it healthy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

from node.aws import AwsError
from node.journal import log

if TYPE_CHECKING:
    from mypy_boto3_elbv2.client import ElasticLoadBalancingv2Client
    from mypy_boto3_elbv2.type_defs import TargetDescriptionTypeDef


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

    def others_missing(self) -> str | None:
        """None once clients that leave this node find another one in every group that a load balancer uses."""
        try:
            return next(filter(None, map(self._others_missing_in, self._groups)), None)
        except AwsError as error:
            return f"AWS does not answer: {error}"

    def register(self) -> None:
        """Take new connections again. Auto Scaling takes an instance out of its groups before it says that it ends it.

        An error is logged: nobody is worse off than before.
        """
        self._each(lambda group: self._client().register_targets(TargetGroupArn=group, Targets=self._me))

    def deregister(self) -> None:
        """Take no new connection. An error is logged: the drain itself makes the health checks fail."""
        self._each(lambda group: self._client().deregister_targets(TargetGroupArn=group, Targets=self._me))

    @property
    def _me(self) -> list[TargetDescriptionTypeDef]:
        return [{"Id": self._instance_id}]

    def _each(self, call: Callable[[str], object]) -> None:
        for group in self._groups:
            try:
                call(group)
            except AwsError as error:
                log.warning("target group %s: %s", _name(group), error)

    def _others_missing_in(self, group: str) -> str | None:
        targets = self._client().describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
        if any(target["TargetHealth"].get("Reason") == "Target.NotInUse" for target in targets):
            return None
        others = [target for target in targets if target["Target"]["Id"] != self._instance_id]
        if any(target["TargetHealth"]["State"] == "healthy" for target in others):
            return None
        return f"target group {_name(group)} has no other healthy target"

    def _missing_in(self, group: str) -> str | None:
        answer = self._client().describe_target_health(TargetGroupArn=group, Targets=self._me)
        for description in answer["TargetHealthDescriptions"]:
            health = description["TargetHealth"]
            if health["State"] != "healthy" and health.get("Reason") != "Target.NotInUse":
                return f"target group {_name(group)} has this instance {health['State']}"
        return None


def _name(group: str) -> str:
    return group.rsplit("/", 2)[-2]
