"""No secret and no forgotten placeholder in anything that leaves this machine."""

import copy
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from stacks.bundle import pack, user_data
from tests.synth.synthesis import ENVIRONMENTS, Synthesis, Synthesiser, Template, load

SECRET_PATTERNS = {
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "access key": re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"),
    "assigned literal": re.compile(
        r"(password|passwd|secret|cookie|encrypt|token)[\"']?\s*[:=]\s*[\"']?"
        r"(?=[A-Za-z+/]*\d)(?=[0-9+/]*[A-Za-z])[A-Za-z0-9+/]{16,}={0,2}[\"'\s]",
        re.IGNORECASE,
    ),
    "URL with a password": re.compile(r"\b(amqps?|https?)://[^\s/:@\"'{}$%]+:[^\s/@\"'{}$%]+@"),
}
PLACEHOLDERS = re.compile(r"@@\w+@@|\$\{Token\[|CHANGE-?ME|\bREPLACE_?ME\b|<your-", re.IGNORECASE)
SECRET_PROPERTIES = {"SecretString", "SecretBinary", "MasterUserPassword", "Password", "AuthToken"}


def strings(value: Any) -> Iterator[str]:
    """Every string inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def findings(text: str) -> list[str]:
    """What in a text looks like a secret or a placeholder nobody filled in."""
    found = [f"{name}: {match[0]}" for name, pattern in SECRET_PATTERNS.items() if (match := pattern.search(text))]
    return found + [f"placeholder: {match}" for match in PLACEHOLDERS.findall(text)]


def literal_properties(value: Any) -> Iterator[str]:
    """Properties that hold a secret in the template itself."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in SECRET_PROPERTIES and isinstance(item, str):
                yield key
            yield from literal_properties(item)
    elif isinstance(value, list):
        for item in value:
            yield from literal_properties(item)


def template_findings(template: Template) -> list[str]:
    found = [finding for text in strings(template) for finding in findings(text)]
    return found + [f"literal {name}" for name in literal_properties(template["Resources"])]


def test_templates_hold_no_secret_and_no_placeholder(synthesis: Synthesis) -> None:
    for kind, template in synthesis.templates.items():
        assert template_findings(template) == [], kind


def test_every_secret_is_generated_by_secrets_manager(synthesis: Synthesis) -> None:
    secrets = {s["Name"]: s["GenerateSecretString"] for s in synthesis.properties("AWS::SecretsManager::Secret")}
    cluster = synthesis.environment.cluster_name
    users = {f"{cluster}/{user}": user for user in ("administrator", "monitoring", "federation")}
    assert set(secrets) == set(users) | {f"{cluster}/erlang-cookie", f"{cluster}/consul-gossip-key"}
    for name, generated in secrets.items():
        assert (generated["PasswordLength"], generated["ExcludePunctuation"]) == (32, True)
        if name in users:
            assert generated["GenerateStringKey"] == "password"
            assert json.loads(generated["SecretStringTemplate"]) == {"username": users[name]}
        else:
            assert "SecretStringTemplate" not in generated


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_bundle_files_hold_no_secret_and_no_placeholder(environment: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(load(environment))), mode="r:gz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            assert findings(file.read().decode()) == [], member.name


def test_the_user_data_script_holds_its_one_placeholder_and_nothing_else() -> None:
    assert findings(user_data()) == ["placeholder: @@INSTANCE_JSON@@"]


def test_a_literal_secret_string_is_noticed(synthesised: Synthesiser) -> None:
    template = copy.deepcopy(synthesised("local").templates["cluster"])
    secret = next(r for r in template["Resources"].values() if r["Type"] == "AWS::SecretsManager::Secret")
    del secret["Properties"]["GenerateSecretString"]
    secret["Properties"]["SecretString"] = "guest"
    assert template_findings(template) == ["literal SecretString"]


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "key AKIAIOSFODNN7EXAMPLE",
        'password = "hunter2hunter2hunter2"',
        '"encrypt": "pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s="',
        "amqp://guest:guest@localhost",
        "endpoint: @@ENDPOINT@@",
        "arn:${Token[TOKEN.12]}",
        "default_pass = changeme",
    ],
)
def test_what_looks_like_a_secret_or_a_placeholder_is_noticed(text: str) -> None:
    assert len(findings(text)) == 1
