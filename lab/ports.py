"""Who holds a port."""

import errno
import re
import socket

from lab.system import LabError, run


def holder_of(address: str, port: int) -> str | None:
    """The program that listens where `address:port` would, as `name (process 123)`; None when there is none."""
    for line in run(["ss", "-Hltnp", f"sport = :{port}"]).stdout.splitlines():
        words = line.split()
        local = words[3].rpartition(":")[0].strip("[]").partition("%")[0]
        if local in (address, "0.0.0.0", "*", "::"):
            found = re.search(r'\("([^"]+)",pid=(\d+)', line)
            return f"{found[1]} (process {found[2]})" if found else "a process that cannot be seen from here"
    return None


def require_free(address: str, port: int, what: str) -> None:
    """Raise `LabError` naming the holder when `what` cannot listen at `address:port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise LabError(f"{what} cannot listen at {address}:{port}: {error.strerror}") from None
            holder = holder_of(address, port) or "another process"
            raise LabError(
                f"{what} cannot listen at {address}:{port}: {holder} does already. "
                "Stop that process, or the lab that it belongs to."
            ) from None
