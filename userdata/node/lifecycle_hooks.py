"""What the outside waits for: the Auto Scaling group's lifecycle hooks and CloudFormation's signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from node.aws import AwsError
from node.clock import Clock
from node.journal import log

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.client import AutoScalingClient
    from mypy_boto3_cloudformation.client import CloudFormationClient

HEARTBEAT_EVERY_SECONDS = 30.0
"""Well below the shortest heartbeat timeout of a hook, 120 s for the terminating one."""

SIGNAL_ID_LENGTH = 64
"""CloudFormation's limit for a signal's UniqueId."""


class Hook:
    """One lifecycle hook of this instance.

    An instance that was not launched just now (a restart, a hook that has timed out) has no action to complete. That is
    logged and nothing else.
    """

    def __init__(
        self, client: Callable[[], AutoScalingClient], name: str, group: str, instance_id: str, clock: Clock
    ) -> None:
        self._client, self._name, self._group, self._instance_id, self._clock = client, name, group, instance_id, clock
        self._beat_at = clock.monotonic()
        self._open = True

    def heartbeat(self) -> None:
        """Ask for more time, at most every HEARTBEAT_EVERY_SECONDS."""
        if not self._open or self._clock.monotonic() - self._beat_at < HEARTBEAT_EVERY_SECONDS:
            return
        self._beat_at = self._clock.monotonic()
        try:
            self._client().record_lifecycle_action_heartbeat(
                LifecycleHookName=self._name, AutoScalingGroupName=self._group, InstanceId=self._instance_id
            )
        except AwsError as error:
            self._open = False
            log.info("lifecycle hook %s takes no heartbeat: %s", self._name, error)

    def complete(self) -> bool:
        """Let the group continue. Returns whether the hook took it."""
        try:
            self._client().complete_lifecycle_action(
                LifecycleHookName=self._name,
                AutoScalingGroupName=self._group,
                InstanceId=self._instance_id,
                LifecycleActionResult="CONTINUE",
            )
        except AwsError as error:
            log.info("lifecycle hook %s not completed: %s", self._name, error)
            return False
        log.info("lifecycle hook %s completed", self._name)
        return True


class Signals:
    """Signals to the stack about the Auto Scaling group's resource."""

    def __init__(self, client: Callable[[], CloudFormationClient], stack: str, resource: str, instance_id: str) -> None:
        self._client, self._stack, self._resource, self._instance_id = client, stack, resource, instance_id

    def success(self) -> None:
        """The node is ready."""
        self._send(self._instance_id, "SUCCESS")

    def failure(self, step: str, reason: str) -> None:
        """The node will not become ready.

        A signal has no field for a reason, so the reason goes first, as the id of a signal of its own.
        """
        self._send(f"{self._instance_id} {step}: {reason}"[:SIGNAL_ID_LENGTH], "FAILURE")
        self._send(self._instance_id, "FAILURE")

    def _send(self, unique_id: str, status: str) -> None:
        try:
            self._client().signal_resource(
                StackName=self._stack,
                LogicalResourceId=self._resource,
                UniqueId=unique_id,
                Status=status,  # type: ignore[arg-type]
            )
        except AwsError as error:
            # Outside a deployment the resource waits for no signal, and CloudFormation says so with an error.
            log.info("signal %s not taken: %s", status, error)
        else:
            log.info("signal %s sent to %s", status, self._resource)
