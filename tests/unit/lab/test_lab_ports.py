import os
import socket

import pytest

from lab.ports import holder_of, require_free
from lab.system import LabError


def test_a_free_port_is_no_error() -> None:
    with socket.create_server(("127.77.1.1", 0)) as taken:
        port = taken.getsockname()[1]
    require_free("127.77.1.1", port, "the load balancer")


def test_a_taken_port_is_an_error_that_names_who_holds_it() -> None:
    with socket.create_server(("127.77.1.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            LabError, match=rf"amqp cannot listen at 127\.77\.1\.1:{port}: \S+ \(process {os.getpid()}\)"
        ):
            require_free("127.77.1.1", port, "amqp")


def test_who_listens_on_every_address_holds_this_one_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=f"process {os.getpid()}"):
            require_free("127.77.1.1", port, "amqp")


def test_another_address_with_the_same_port_is_not_taken() -> None:
    with socket.create_server(("127.77.1.2", 0)) as taken:
        port = taken.getsockname()[1]
        require_free("127.77.1.1", port, "amqp")
        assert holder_of("127.77.1.1", port) is None


def test_an_address_this_machine_does_not_have_is_said_so() -> None:
    with pytest.raises(LabError, match=r"192\.0\.2\.9:80: Cannot assign"):
        require_free("192.0.2.9", 80, "amqp")
