"""EC2's own data source for cloud-init, told that this is EC2. Runs on the lab's hosts, nowhere else.

cloud-init recognises EC2 by the firmware's UUID, which it does not read in a container; and only on EC2 does it use
tokens (IMDSv2). Everything else is DataSourceEc2, unchanged.
"""
# mypy: ignore-errors
# (cloud-init is in the hosts' image, not among this project's requirements)

from cloudinit import sources
from cloudinit.sources import DataSourceEc2 as ec2  # noqa: N813


class DataSourceEc2Lab(ec2.DataSourceEc2):
    """Found in the local stage, like DataSourceEc2Local on EC2; without DHCP, as the address is there already."""

    def _get_cloud_name(self) -> str:
        return ec2.CloudNames.AWS


datasources = [(DataSourceEc2Lab, (sources.DEP_FILESYSTEM,))]


def get_datasource_list(depends: list[str]) -> list[type]:
    """Data sources of this file that need no more than `depends`."""
    return sources.list_from_depends(depends, datasources)
