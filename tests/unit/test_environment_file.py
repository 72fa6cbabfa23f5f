"""Reading an environment file: every fault at once, each with its place, and never a traceback."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from stacks.environment import Environment, EnvironmentErrors, Finding
from stacks.environment_cli import schema_text
from tests.unit.environment_files import ENVIRONMENTS, REMOVED, changed, findings

ROOT = ENVIRONMENTS.parent


def refused(directory: Path, text: str | bytes, name: str = "local") -> list[Finding]:
    (directory / f"{name}.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(EnvironmentErrors) as caught:
        Environment.load(name, directory)
    return caught.value.findings


def local_text() -> str:
    return (ENVIRONMENTS / "local.yaml").read_text()


def test_an_environment_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(EnvironmentErrors) as caught:
        Environment.load("producton", ENVIRONMENTS)
    (finding,) = caught.value.findings
    assert "no environment 'producton'" in finding.reason
    assert finding.remedy == "Did you mean production? There are: development, local, production, staging."


def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "local.yaml").write_text(local_text())
    with pytest.raises(EnvironmentErrors, match="no environment"):
        Environment.load("../local", tmp_path / "inside")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        pytest.param("name: local\ntier: [development\n", 3, "not YAML", id="an open bracket"),
        pytest.param("name: local\n\ttier: development\n", 2, "not YAML", id="a tab"),
        pytest.param(b"name: \xff\xfe\n", None, "not YAML", id="bytes that are no text"),
        pytest.param("a: &x [*x]\n", None, "not YAML", id="a list inside itself"),
        pytest.param("? [a]\n: b\n", None, "not YAML", id="a key that is a list"),
        pytest.param("name: local\n---\nname: other\n", 2, "not YAML", id="two documents"),
        pytest.param("- local\n", None, "a mapping of keys to values", id="a list"),
        pytest.param("", None, "a mapping of keys to values", id="nothing"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    (finding,) = refused(tmp_path, text)
    assert reason in finding.reason
    if line is not None:
        assert finding.line == line


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    text = local_text()
    first = text[: text.index("\nregion:")].count("\n") + 2
    (finding,) = refused(tmp_path, text + "region: eu-west-1\n")
    assert (finding.field, finding.line) == ("region", text.count("\n") + 1)
    assert f"first on line {first}" in finding.reason


def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "local", {"access.amqp.alowed_cidrs": []})
    assert (finding.field, finding.reason) == ("access.amqp.alowed_cidrs", "unknown key")
    assert finding.remedy.startswith("Did you mean `allowed_cidrs`? Known here: plain, tls,")


def test_an_unknown_key_at_the_top_is_refused_with_all_known_ones(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "local", {"zzz": 1})
    assert finding.field == "zzz"
    assert finding.remedy.startswith("Known here: name, tier, cluster_name,")


def test_a_missing_key_is_refused_with_what_it_means(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "local", {"access.amqp.plain": REMOVED})
    assert (finding.field, finding.value) == ("access.amqp.plain", None)
    assert finding.remedy.startswith("Add it. Whether port 5672 listens")


def test_a_copied_file_must_not_keep_its_name(tmp_path: Path) -> None:
    (finding,) = refused(tmp_path, local_text(), name="other")
    assert (finding.field, finding.value) == ("name", "'local'")
    assert "name: other" in finding.remedy


def test_a_finding_has_file_line_field_value_reason_and_remedy(tmp_path: Path) -> None:
    text = local_text().replace("root_volume_gib: 30", "root_volume_gib: 3")
    line = text[: text.index("root_volume_gib")].count("\n") + 1
    (finding,) = refused(tmp_path, text)
    assert str(finding).splitlines() == [
        f"{tmp_path}/local.yaml:{line}  instance.root_volume_gib = 3",
        "    reason: below the least allowed, 10",
        "    remedy: Correct it. Root volume (gp3, encrypted) in GiB, 10 to 1000: system, programs and logs. "
        "Data is on EFS.",
    ]


def test_all_faults_are_reported_at_once_whatever_their_kind(tmp_path: Path) -> None:
    found = findings(
        tmp_path,
        "production",
        {
            "colour": "red",  # unknown key
            "account": "42",  # a single field
            "tier": REMOVED,  # missing, so production's rules have nothing to say
            "availability_zones": ["eu-west-1a", "eu-west-2b"],  # two rules about one field
            "versions.delayed_plugin.version": "4.1.0",  # one field against another
            "versions.erlang.sha256": "x",  # beside a sound version, which must still be compared:
            "versions.erlang.version": "26.0",
            "access.amqp.allowed_cidrs": ["10.0.0.0/8", "nowhere"],
            "access.amqp.certificate_arn": REMOVED,  # TLS without one, in a section with a fault of its own
            "access.management.certificate_arn": "arn:aws:acm:us-east-1:111122223333:certificate/"
            "11111111-2222-3333-4444-555555555555",
            "efs.provisioned_mibps": REMOVED,
        },
    )
    assert sorted(finding.field for finding in found) == sorted(
        [
            "colour",
            "account",
            "tier",
            "availability_zones",
            "availability_zones[1]",
            "versions.delayed_plugin.version",
            "versions.erlang.sha256",
            "versions.erlang.version",
            "access.amqp.allowed_cidrs[1]",
            "access.amqp.certificate_arn",
            "access.management.certificate_arn",
            "efs.provisioned_mibps",
        ]
    )


def test_a_wrong_value_is_not_taken_for_its_default(tmp_path: Path) -> None:
    # The default of termination is true; a text in its place must not look like it, nor like false.
    found = findings(tmp_path, "production", {"protection.termination": "no", "protection.retain_data": False})
    assert [(finding.field, finding.reason[:10]) for finding in found] == [
        ("protection.retain_data", "production"),
        ("protection.termination", "true or fa"),
    ]


def test_a_malformed_key_is_not_reported_as_a_missing_one(tmp_path: Path) -> None:
    found = findings(tmp_path, "production", {"versions.signing_keys.rabbitmq": "0A9A"})
    assert [finding.field for finding in found] == ["versions.signing_keys.rabbitmq"]


def places(content: Any, path: str = "") -> Iterator[str]:
    """The dotted path of every value in `content`."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield f"{path}{key}"
        yield from places(value, f"{path}{key}.")


@pytest.mark.parametrize("nonsense", [{"a": {}}, [None]], ids=["a mapping", "a list"])
def test_nonsense_anywhere_is_a_finding_there_and_never_a_traceback(tmp_path: Path, nonsense: Any) -> None:
    for place in places(changed("local", {})):
        where = [
            finding.field.replace("[", ".").replace("]", "")
            for finding in findings(tmp_path, "local", {place: nonsense})
        ]
        assert any(field.startswith(place) for field in where), f"{place}: {where}"


def test_findings_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = local_text().replace("eu-west-1c]", "eu-west-2c]").replace("region: eu-west-1", "region: eu-west-1\nzzz: 1")
    assert [finding.field for finding in refused(tmp_path, text)] == ["zzz", "availability_zones[2]"]


def test_the_committed_schema_is_the_models() -> None:
    committed = (ENVIRONMENTS / "schema.json").read_text()
    assert committed == schema_text(), "run: python -m stacks.environment schema > environments/schema.json"


@pytest.mark.parametrize("file", sorted(ENVIRONMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_environment_holds_to_the_schema_and_names_it(file: Path) -> None:
    Draft202012Validator(json.loads(schema_text())).validate(yaml.safe_load(file.read_text()))
    assert file.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"


def test_the_schema_knows_what_editors_can_check() -> None:
    validator = Draft202012Validator(json.loads(schema_text()))
    wrong = yaml.safe_load(local_text()) | {"account": "1", "availability_zones": ["a", "b"], "colour": "red"}
    assert len(list(validator.iter_errors(wrong))) == 3


def test_every_field_of_the_schema_is_described() -> None:
    schema = json.loads(schema_text())
    for title, part in {"Environment": schema, **schema["$defs"]}.items():
        for name, field in part["properties"].items():
            assert len(field.get("description", "")) > 10, f"{title}.{name}"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stacks.environment", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_line_checks_several_files_and_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "local.yaml").write_text(local_text())
    (tmp_path / "other.yaml").write_text("name: other\n")
    result = run("check", "local", "other", "missing", "--directory", str(tmp_path))
    assert result.returncode == 2
    assert result.stdout == f"{tmp_path}/local.yaml: sound\n"
    assert "other.yaml:1" not in result.stderr  # what is missing has no line
    assert f"{tmp_path}/other.yaml  efs\n    reason: missing" in result.stderr
    assert "no environment 'missing'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_line_is_content_with_the_repository() -> None:
    result = run("check", "local", "development", "staging", "production")
    assert (result.returncode, result.stderr) == (0, "")
