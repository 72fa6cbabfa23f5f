"""What a deployment published about itself: endpoints, table, bucket, secrets."""

import json
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from operations.aws import Aws
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment


@dataclass(frozen=True)
class Credentials:
    """A RabbitMQ user. The password is shown to nobody who does not ask for it."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.username!r})"


class Deployment:
    """A deployed cluster as its SSM parameters under `/rabbitmq/<cluster>/` describe it."""

    def __init__(self, environment: Environment, aws: Aws | None = None) -> None:
        self.environment = environment
        self.aws = aws or Aws(environment)
        self._parameters: dict[str, str] | None = None

    def parameter(self, name: str) -> str:
        """The value of one parameter. Raises OperationError when the cluster is not deployed."""
        value = self.parameters().get(name)
        if value is None:
            raise self._not_deployed(f"it publishes no {name}")
        return value

    def parameters(self) -> dict[str, str]:
        """Every parameter by its short name. Raises OperationError when AWS cannot be asked."""
        if self._parameters is None:
            prefix = f"/rabbitmq/{self.environment.cluster_name}/"
            try:
                pages = self.aws.parameters.get_paginator("get_parameters_by_path").paginate(
                    Path=prefix, Recursive=True
                )
                found = {p["Name"].removeprefix(prefix): p["Value"] for page in pages for p in page["Parameters"]}
            except (BotoCoreError, ClientError) as error:
                raise self._not_deployed(f"AWS cannot be asked: {error}") from error
            if not found:
                raise self._not_deployed(f"there is no parameter under {prefix} in {self.environment.region}")
            self._parameters = found
        return self._parameters

    def credentials(self, user: str) -> Credentials:
        """`administrator`, `monitoring` or `federation`, from Secrets Manager."""
        arn = self.parameter(f"{user}-secret-arn")
        try:
            secret = json.loads(self.aws.secrets.get_secret_value(SecretId=arn)["SecretString"])
        except (BotoCoreError, ClientError) as error:
            raise OperationError(
                f"{self.environment.name}: the {user}'s secret cannot be read: {error}",
                f"Use credentials that may call secretsmanager:GetSecretValue on {arn}.",
            ) from error
        return Credentials(secret["username"], secret["password"])

    def endpoints(self) -> dict[str, str]:
        """Address by kind: `amqp-endpoint`, `amqps-endpoint`, `management-url`; only those that exist."""
        return {
            k: v for k, v in self.parameters().items() if k in ("amqp-endpoint", "amqps-endpoint", "management-url")
        }

    def _not_deployed(self, why: str) -> OperationError:
        name = self.environment.name
        return OperationError(
            f"{name}: cluster {self.environment.cluster_name} is not deployed: {why}",
            f"Run `make deploy ENV={name}`, or check the AWS credentials and region in use.",
            ExitCode.NOT_DEPLOYED,
        )
