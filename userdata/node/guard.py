"""Stands down when the fence says that another instance is the node now.

A human can force a hand-over while this instance still runs, cut off or frozen. When it comes to itself it must not
go on writing.
"""

from __future__ import annotations

from collections.abc import Callable

from node.departure import LeavingNode
from node.journal import log
from node.ownership import Ownership
from node.services import BOOT, Services


class Guard:
    """Looks at the ownership record and compares."""

    def __init__(
        self,
        ownership: Ownership,
        instance_id: str,
        node: LeavingNode,
        services: Services,
        mounted: Callable[[], bool],
    ) -> None:
        self._ownership, self._instance_id, self._node = ownership, instance_id, node
        self._services, self._mounted = services, mounted

    def check(self) -> bool:
        """Returns whether this instance had to stand down. A failing table is raised: no answer proves nothing."""
        # In this order: whoever has the directory mounted had passed the fence before, so the record must name it.
        if not self._mounted():
            return False
        owner = self._ownership.read().owner
        if owner is None or owner == self._instance_id:
            return False
        log.error("instance %s owns this node now: stopping RabbitMQ and Consul, back to the fence", owner)
        self._node.stop_boot()
        self._node.let_go()
        self._services.restart(BOOT)
        return True
