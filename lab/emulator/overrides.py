"""How this package changes moto: each change is registered beside its reason and put in place by `install`.

`replaces` demands that moto has what is replaced, `adds` that it has not. So a newer moto which renames something, or
has learnt something, is noticed when the emulator starts.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from moto.cloudformation import parsing

T = TypeVar("T")
Owner = type | ModuleType

_changes: list[tuple[Owner, str, Any, bool]] = []
_installed = False


def replaces(owner: Owner, name: str) -> Callable[[T], T]:
    """Register a function or property in the place of moto's."""
    return _register(owner, name, exists=True)


def adds(owner: Owner, name: str) -> Callable[[T], T]:
    """Register a function or property which moto lacks."""
    return _register(owner, name, exists=False)


def _register(owner: Owner, name: str, *, exists: bool) -> Callable[[T], T]:
    def register(change: T) -> T:
        _changes.append((owner, name, change, exists))
        return change

    return register


def install() -> None:
    """Change moto. For the rest of this process, once: moto's backends are global too."""
    global _installed
    if _installed:
        return
    wrong = [f"{owner.__name__}.{name}" for owner, name, _, exists in _changes if hasattr(owner, name) != exists]
    if wrong:
        raise RuntimeError(f"this version of moto does not fit lab/emulator: look at {', '.join(wrong)}")
    for owner, name, change, _ in _changes:
        setattr(owner, name, change)
    # moto remembers which CloudFormation types there are; by now there are more.
    for cached in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        cached.cache_clear()
    _installed = True
