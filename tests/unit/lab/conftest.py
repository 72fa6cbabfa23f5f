"""Fixtures of the emulator's tests."""

from emulated_aws import aws, cluster, served

__all__ = ["aws", "cluster", "served"]
