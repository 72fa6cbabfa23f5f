"""CloudFormation templates as data: what refers to what, and what a duration means."""

import re
from collections.abc import Iterator
from typing import Any

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def seconds(duration: str) -> float:
    """A duration such as PT1H30M. Raises ValueError."""
    found = _DURATION.fullmatch(duration)
    if not found or not any(found.groups()):
        raise ValueError(f"{duration!r} is not a duration such as PT15M")
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def after(resources: dict[str, Any]) -> dict[str, set[str]]:
    """For each logical id those which it refers to or depends on."""
    return {
        logical_id: {name for name in references(json) if name in resources and name != logical_id}
        for logical_id, json in resources.items()
    }


def in_order(resources: dict[str, Any]) -> list[str]:
    """Logical ids, each after those it refers to."""
    before, order = after(resources), dict[str, None]()

    def visit(logical_id: str, path: tuple[str, ...]) -> None:
        if logical_id in order or logical_id in path:
            return
        for reference in sorted(before[logical_id]):
            visit(reference, (*path, logical_id))
        order[logical_id] = None

    for logical_id in resources:
        visit(logical_id, ())
    return list(order)


def references(json: Any) -> Iterator[str]:
    """Names of resources and parameters that a part of a template refers to."""
    if isinstance(json, list):
        for item in json:
            yield from references(item)
    elif isinstance(json, dict):
        for key, value in json.items():
            if key in ("Ref", "DependsOn"):
                yield from [value] if isinstance(value, str) else value
            elif key == "Fn::GetAtt":
                yield value[0] if isinstance(value, list) else value.split(".")[0]
            elif key == "Fn::Sub":
                text = value if isinstance(value, str) else value[0]
                yield from re.findall(r"\$\{([A-Za-z0-9]+)", text)
                yield from references(value[1:] if isinstance(value, list) else [])
            else:
                yield from references(value)
