"""The command line of `python -m stacks.environment`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from stacks.environment import Environment
from stacks.findings import EnvironmentErrors, Finding

app = typer.Typer(add_completion=False, help="Check environment files, or print their JSON Schema.")


def schema_text() -> str:
    """The JSON Schema of an environment file, as it stands in environments/schema.json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Environment.model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@app.command()
def check(
    names: Annotated[
        list[str], typer.Argument(metavar="ENV...", help="Names of environments, as in environments/ENV.yaml.")
    ],
    directory: Annotated[Path, typer.Option(help="Where the files are.")] = Path("environments"),
) -> None:
    """Check environments. Exit code 0 if all are sound, 2 if not, with every problem of every file."""
    findings: list[Finding] = []
    for name in names:
        try:
            Environment.load(name, directory)
        except EnvironmentErrors as errors:
            findings += errors.findings
        else:
            print(f"{directory / name}.yaml: sound")
    if findings:
        print(EnvironmentErrors(findings), file=sys.stderr)
        raise typer.Exit(2)


@app.command()
def schema() -> None:
    """Print the JSON Schema of an environment file."""
    print(schema_text(), end="")


def main() -> None:
    """Run the command line."""
    app(prog_name="python -m stacks.environment")
