"""Fixtures of the emulator's tests."""

from tests.unit.lab.emulated_aws import aws, cluster, served

__all__ = ["aws", "cluster", "served"]
