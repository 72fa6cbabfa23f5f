"""Log lines for the journal. The units set one identifier, rabbitmq-node, for everything."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger("node")

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class _JournalFormatter(logging.Formatter):
    """Prefixes each line with the priority that systemd reads from standard output."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def set_up() -> None:
    """Log to standard output, with priorities when it is not a terminal."""
    handler = logging.StreamHandler(sys.stdout)
    formatter = logging.Formatter if sys.stdout.isatty() else _JournalFormatter
    handler.setFormatter(formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
