"""From an environment file to a checked model: YAML with line numbers, every fault of every kind in one go."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from stacks.findings import EnvironmentErrors, Finding, Path, Violation
from stacks.yaml_document import Document

Model = TypeVar("Model", bound=BaseModel)
Rule = Callable[[Any], Iterator[Violation]]


def load(model: type[Model], name: str, directory: FilePath, rules: Iterable[Rule]) -> Model:
    """`directory/name.yaml` as `model`, with every rule held.

    Raises EnvironmentErrors with all faults: of the YAML, of single fields, and of every rule whose fields are sound.
    """
    names = sorted(path.stem for path in directory.glob("*.yaml"))
    file = directory / f"{name}.yaml"
    if name not in names:
        raise EnvironmentErrors([_no_such_file(str(file), name, names)])
    document = Document.read(file)
    if not isinstance(document.data, dict):
        raise EnvironmentErrors(
            [
                document.finding(
                    (), "an environment is a mapping of keys to values", "Start from a copy of another file."
                )
            ]
        )
    violations = list(document.duplicates)
    instance: Model | None = None
    try:
        instance = model.model_validate(document.data)
        violations += [violation for rule in rules for violation in rule(instance)]
    except ValidationError as error:
        # A list of wrong items counts as empty for pydantic too, which would be a second finding about one fault.
        details = [
            detail for detail in error.errors(include_url=False) if detail["type"] != "too_short" or not detail["input"]
        ]
        violations += [_violation(model, detail) for detail in details]
        sound = _sound_part(model, document.data, (), {detail["loc"] for detail in details})
        for rule in rules:
            violations += _as_far_as_possible(rule, sound)
    if isinstance(document.data.get("name"), str) and document.data["name"] != name:
        violations.append(
            Violation(
                ("name",),
                f"the file is called {file.name}, and a copied file must not deploy over its original",
                f"Write `name: {name}`, or rename the file.",
            )
        )
    if violations or instance is None:
        raise EnvironmentErrors(document.finding(v.path, v.reason, v.remedy) for v in violations)
    return instance


def _no_such_file(file: str, name: str, names: list[str]) -> Finding:
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    existing = f"There are: {', '.join(names)}." if names else "There is no environment in that directory."
    return Finding(file, "(whole file)", None, f"there is no environment {name!r}", f"{hint}{existing}")


def _as_far_as_possible(rule: Rule, sound: BaseModel) -> Iterator[Violation]:
    try:
        yield from rule(sound)
    except AttributeError:
        return  # the rule needs a field that has a finding of its own already


def _sound_part(model: type[Model], data: dict[str, Any], path: Path, faults: set[Path]) -> Model:
    """`model` from those fields of `data` that pass on their own. The others are missing as attributes."""
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        below = (*path, key)
        wrong_inside = any(fault[: len(below)] == below for fault in faults)
        if below in faults or (wrong_inside and not _has_fields(info)):
            continue
        if key in data:
            values[name] = _sound_value(info.annotation, data[key], below, faults)
        elif not info.is_required():
            values[name] = info.get_default(call_default_factory=True, validated_data={})
    sound = model.model_construct(**values)
    for name in model.model_fields.keys() - values.keys():
        sound.__dict__.pop(name, None)  # model_construct fills in defaults; a wrong value is not its default
    return sound


def _sound_value(annotation: Any, raw: Any, path: Path, faults: set[Path]) -> Any:
    section = _section(annotation)
    if isinstance(raw, dict) and section:
        return _sound_part(section, raw, path, faults)
    if isinstance(raw, dict) and (item := _section_by_name(annotation)):
        return {
            key: _sound_part(item, value, (*path, key), faults) if isinstance(value, dict) else value
            for key, value in raw.items()
        }
    return tuple(raw) if isinstance(raw, list) else raw


def _has_fields(info: FieldInfo) -> bool:
    return bool(_section(info.annotation) or _section_by_name(info.annotation))


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model in `Model` or `Model | None`."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel) and get_origin(annotation) is not dict:
            return candidate
    return None


def _section_by_name(annotation: Any) -> type[BaseModel] | None:
    """The model in `dict[str, Model]`."""
    return _section(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _violation(model: type[BaseModel], detail: ErrorDetails) -> Violation:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    kind, context = detail["type"], detail.get("ctx", {})
    parent, info = _declared(model, path)
    about = (info.description or "") if info else ""
    if kind == "refused":
        return Violation(path, context["reason"], context["remedy"])
    if kind == "extra_forbidden":
        known = [item.alias or name for name, item in parent.model_fields.items()]
        close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        hint = f"Did you mean `{close[0]}`? " if close else ""
        return Violation(path, "unknown key", f"{hint}Known here: {', '.join(known)}.")
    if kind == "missing":
        return Violation(path, "missing, and it has no default", f"Add it. {about}")
    if kind == "string_type" and isinstance(detail["input"], int | float) and not isinstance(detail["input"], bool):
        return Violation(path, "a text is expected, and without quotes this is a number", f"Put it in quotes. {about}")
    reasons = {
        "greater_than_equal": f"below the least allowed, {context.get('ge')}",
        "less_than_equal": f"above the most allowed, {context.get('le')}",
        "literal_error": f"not one of {context.get('expected')}",
        "too_short": "must not be empty",
        "int_type": "a whole number is expected",
        "bool_type": "true or false is expected",
        "string_type": "a text is expected",
        "tuple_type": "a list is expected",
        "dict_type": "a mapping of keys to values is expected",
        "model_type": "a mapping of keys to values is expected",
    }
    return Violation(path, reasons.get(kind, detail["msg"]), f"Correct it. {about}".rstrip())


def _declared(model: type[BaseModel], path: Path) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost model around `path`, and the declaration of the field that `path` leads to or into."""
    info: FieldInfo | None = None
    by_name: type[BaseModel] | None = None
    for part in path:
        if by_name:
            model, by_name = by_name, None
            continue
        fields = {item.alias or name: item for name, item in model.model_fields.items()}
        found = fields.get(str(part)) if isinstance(part, str) else None
        if found is None:
            break
        info = found
        by_name = _section_by_name(info.annotation)
        inner = _section(info.annotation)
        if inner is None and by_name is None:
            break
        model = inner or model
    return model, info
