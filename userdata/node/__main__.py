"""`python3 -m node boot` runs the boot steps, `python3 -m node agent` the node agent."""

from __future__ import annotations

import sys

from node import journal


def main(arguments: list[str]) -> int:
    """Run one of the two; returns the exit code."""
    journal.set_up()
    if arguments == ["boot"]:
        from node.boot_run import boot

        return boot()
    if arguments == ["agent"]:
        from node.agent import agent

        return agent()
    sys.stderr.write("usage: python3 -m node boot|agent\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
