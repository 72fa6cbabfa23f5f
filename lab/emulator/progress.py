"""What takes time: a stack's creation, a rolling update, an instance refresh.

Each is a generator which yields whenever it has to wait and is gone on with by `advance`, several times a second. There
are no threads: everything happens under the emulator's lock, in an order that a test can repeat.
"""

import logging
from collections.abc import Generator, Mapping, Set
from typing import Any

log = logging.getLogger("lab.emulator")

Work = Generator[None, None, None]


def begin(backend: Any, key: str, work: Work) -> None:
    """Do as much of this as can be done now; `advance` does the rest. `key` names it in its backend."""
    _works(backend)[key] = work
    _go_on(backend, key)


def in_progress(backend: Any, key: str) -> bool:
    """Whether work begun under this key has not ended."""
    return key in _works(backend)


def drop(backend: Any, key: str) -> None:
    """Stop work where it is."""
    if work := _works(backend).pop(key, None):
        work.close()


def interrupt(backend: Any, key: str, error: Exception) -> None:
    """Let work fail with this error where it is; what it then does is its own affair."""
    try:
        _works(backend)[key].throw(error)
    except StopIteration:
        del _works(backend)[key]


def advance(backend: Any) -> None:
    """Go on with all work, each as far as it comes."""
    for key in list(_works(backend)):
        if in_progress(backend, key):
            _go_on(backend, key)


def side_by_side(works: Mapping[str, Work], after: Mapping[str, Set[str]]) -> Work:
    """Every work begins as soon as those that it comes `after` are done. The first that fails ends them all."""
    waiting, running = dict(works), dict[str, Work]()
    try:
        while waiting or running:
            unfinished = waiting.keys() | running.keys()
            for name in [name for name in waiting if not after.get(name, set()) & unfinished]:
                running[name] = waiting.pop(name)
            done = [name for name, work in running.items() if _is_done(work)]
            for name in done:
                del running[name]
            if not running and not done:
                raise ValueError(f"these wait for each other: {', '.join(sorted(waiting))}")
            if not done:
                yield
    finally:
        for work in running.values():
            work.close()


def _is_done(work: Work) -> bool:
    try:
        next(work)
    except StopIteration:
        return True
    return False


def _works(backend: Any) -> dict[str, Work]:
    works: dict[str, Work] = backend.__dict__.setdefault("lab_works", {})
    return works


def _go_on(backend: Any, key: str) -> None:
    work = _works(backend)[key]
    try:
        if not _is_done(work):
            return
    except Exception:
        log.exception("%s", key)
    if _works(backend).get(key) is work:
        del _works(backend)[key]
