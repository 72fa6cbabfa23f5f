"""What the outside waits for: the Auto Scaling group's lifecycle hooks and CloudFormation's signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Literal

from botocore.exceptions import ClientError

from node.aws import AwsError, error_code
from node.clock import Clock
from node.journal import log

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.client import AutoScalingClient
    from mypy_boto3_cloudformation.client import CloudFormationClient

HEARTBEAT_EVERY_SECONDS = 30.0
"""Well below the shortest heartbeat timeout of a hook, 120 s for the terminating one."""

RETRY_SECONDS = 5.0
"""A heartbeat that failed is tried again after this."""

SIGNAL_ID_LENGTH = 64
"""CloudFormation's limit for a signal's UniqueId."""


class Hook:
    """One lifecycle hook of this instance.

    Auto Scaling may not wait for it: not any more (it was completed, or has timed out), not yet (a terminating instance
    first leaves its load balancers), or not at all (a restart of the host). That is logged, and asking goes on until
    the hook was completed here. Any other failure counts: a launch that nobody completes is abandoned, instance and
    all.
    """

    def __init__(
        self, client: Callable[[], AutoScalingClient], name: str, group: str, instance_id: str, clock: Clock
    ) -> None:
        self._client, self._name, self._clock = client, name, clock
        self._group, self._instance_id = group, instance_id
        self._due_at = clock.monotonic() + HEARTBEAT_EVERY_SECONDS
        self._said = ""
        self._completed = False

    def heartbeat(self) -> None:
        """Ask for more time, at most every HEARTBEAT_EVERY_SECONDS. A failure is logged and made good soon."""
        if self._completed or self._clock.monotonic() < self._due_at:
            return
        pause = HEARTBEAT_EVERY_SECONDS
        try:
            self._client().record_lifecycle_action_heartbeat(
                LifecycleHookName=self._name, AutoScalingGroupName=self._group, InstanceId=self._instance_id
            )
        except AwsError as error:
            self._say(f"takes no heartbeat: {error}")
            pause = pause if _is_no_action(error) else RETRY_SECONDS
        self._due_at = self._clock.monotonic() + pause

    def complete(self) -> bool:
        """Let the group continue. Returns False if it does not wait for this hook; any other error of AWS is raised."""
        if self._completed:
            return True
        try:
            self._client().complete_lifecycle_action(
                LifecycleHookName=self._name,
                AutoScalingGroupName=self._group,
                InstanceId=self._instance_id,
                LifecycleActionResult="CONTINUE",
            )
        except ClientError as error:
            if not _is_no_action(error):
                raise
            self._say(f"has nothing to complete: {error}")
            return False
        self._say("completed")
        self._completed = True
        return True

    def _say(self, what: str) -> None:
        if what != self._said:
            log.info("lifecycle hook %s %s", self._name, what)
        self._said = what


def _is_no_action(error: BaseException) -> bool:
    """Whether Auto Scaling says that it does not wait for this hook."""
    return error_code(error) == "ValidationError" and "No active Lifecycle Action" in str(error)


class Signals:
    """Signals to the stack about the Auto Scaling group's resource."""

    def __init__(self, client: Callable[[], CloudFormationClient], stack: str, resource: str, instance_id: str) -> None:
        self._client, self._stack, self._resource, self._instance_id = client, stack, resource, instance_id

    def success(self) -> None:
        """The node is ready. Errors of AWS are raised: without the signal a deployment is rolled back."""
        self._send(self._instance_id, "SUCCESS")

    def failure(self, step: str, reason: str) -> None:
        """The node will not become ready.

        A signal has no field for a reason, so the reason goes first, as the id of a signal of its own.
        """
        for unique_id in (f"{self._instance_id} {step}: {reason}"[:SIGNAL_ID_LENGTH], self._instance_id):
            try:
                self._send(unique_id, "FAILURE")
            except AwsError as error:
                log.warning("the failure could not be signalled: %s", error)

    def _send(self, unique_id: str, status: Literal["SUCCESS", "FAILURE"]) -> None:
        try:
            self._client().signal_resource(
                StackName=self._stack, LogicalResourceId=self._resource, UniqueId=unique_id, Status=status
            )
        except ClientError as error:
            if error_code(error) != "ValidationError":
                raise
            # Outside a deployment the resource waits for no signal, and CloudFormation says so with this error.
            log.info("signal %s not taken: %s", status, error)
        else:
            log.info("signal %s sent to %s", status, self._resource)
