"""A YAML file that knows its lines: findings point at them, and keys given twice are faults."""

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from stacks.findings import EnvironmentErrors, Finding, Path, Violation, field_name, shown


@dataclass
class Document:
    """A YAML file as data, with the line of every key and item, and the keys that were given twice."""

    file: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[Violation] = field(default_factory=list)

    @classmethod
    def read(cls, file: FilePath) -> "Document":
        document = cls(str(file))
        try:
            loader = yaml.SafeLoader(file.read_bytes())
            node = loader.get_single_node()
            if node is not None:
                document._walk(node, (), frozenset())
                document.data = loader.construct_document(node)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            problem = (
                getattr(error, "problem", None) or getattr(error, "reason", None) or str(error) or "nested without end"
            )
            raise EnvironmentErrors(
                [
                    Finding(
                        document.file,
                        "(whole file)",
                        None,
                        f"not YAML: {problem}" + (f", column {mark.column + 1}" if mark else ""),
                        "Correct that line; often it is indentation, a tab, or a colon in an unquoted value.",
                        mark.line + 1 if mark else None,
                    )
                ]
            ) from None
        return document

    def _walk(self, node: yaml.Node, path: Path, above: frozenset[int]) -> None:
        if id(node) in above:  # an alias to a node around it
            raise RecursionError
        above = above | {id(node)}
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = (*path, str(key.value))
                if below in self.lines and key.value != "<<":
                    self.duplicates.append(
                        Violation(
                            below,
                            f"given twice, first on line {self.lines[below]}; YAML would take the last",
                            "Keep one of them.",
                        )
                    )
                self.lines[below] = key.start_mark.line + 1
                self._walk(value, below, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                self._walk(item, (*path, index), above)

    def finding(self, path: Path, reason: str, remedy: str) -> Finding:
        """The fault at `path`, or at the nearest place above it that the file has."""
        value: Any = self.data
        present = True
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                present = False
                break
        nearest = next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), None)
        printed = shown(value) if present and not isinstance(value, dict) else None
        return Finding(self.file, field_name(path), printed, reason, remedy, nearest)
