"""The delayed-message exchange plugin: its file in place before the broker's first start, and proof that it took it.

RabbitMQ starts without a plugin that it finds unfit (not a plugin, or built for another series) and says so in a log
line only. Applications would notice by their lost delays. So the node asks the broker for the exchange type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from node import verify
from node.artifacts import Artifact, file_name, program
from node.commands import Runner
from node.errors import NotYet, Refusal
from node.fetch import Fetcher, Missing
from node.files import write

NAME = "rabbitmq_delayed_message_exchange"
EXCHANGE_TYPE = "x-delayed-message"

REMEDY = (
    "give the file that was built for this RabbitMQ series (versions.delayed_plugin in environments/*.yaml); if no "
    "application needs delays, set versions.delayed_plugin.required to false"
)


class DelayedPlugin:
    """The plugin of one version profile, which RabbitMQ finds in `plugins`.

    `note` hears of what does not stop the boot.
    """

    def __init__(
        self, versions: Mapping[str, Any], architecture: str, plugins: Path, note: Callable[[str], None]
    ) -> None:
        self._wanted = program(versions, "delayed_plugin", architecture)
        self._entry, self._plugins, self._note = versions["delayed_plugin"], plugins, note

    @property
    def _required(self) -> bool:
        return bool(self._entry.get("required", True))

    def find(self, fetcher: Fetcher, runner: Runner) -> Path | None:
        """The plugin's file, verified; None if there is none and none is required. Raises Refusal otherwise.

        It is looked for where RabbitMQ looks, on the host, in the artefact bucket, and upstream.
        """
        try:
            return self._of_the_profile(self._wanted, fetcher, runner) if self._wanted else self._of_the_image(fetcher)
        except (Missing, NotYet) as error:
            if self._required:
                raise
            self._note(f"without the delayed-message plugin, which is not required: {error}")
            return None

    def _of_the_profile(self, wanted: Artifact, fetcher: Fetcher, runner: Runner) -> Path:
        in_place = self._plugins / file_name(wanted.key)
        if wanted.sha256 and in_place.is_file() and verify.sha256(in_place) == wanted.sha256:
            return in_place
        return verify.fetch(fetcher, wanted, runner)

    def _of_the_image(self, fetcher: Fetcher) -> Path:
        # The profile of a host image names no file. Then any version is taken that the host has: RabbitMQ judges it.
        version = self._entry["version"]
        places = [self._plugins, *fetcher.directories(f"artifacts/delayed_plugin/{version}")]
        for directory in places:
            found = sorted(directory.glob(f"{NAME}-*.ez"))
            if found:
                return self._checked(found[-1])
        remedy = f"put the file into one of these directories; or else {REMEDY}"
        raise Missing(f"there is no {NAME}-{version}.ez", ", ".join(map(str, places)), remedy)

    def _checked(self, file: Path) -> Path:
        wanted, found = self._entry.get("sha256"), verify.sha256(file)
        if wanted and found != wanted:
            raise Refusal(f"SHA-256 of delayed_plugin is {found}, expected {wanted}", str(file), verify.REMEDY)
        return file

    def prove(self, exchange_types: Sequence[str]) -> None:
        """Check that a broker which was given the plugin has it. Raises Refusal if it is required and does not."""
        if EXCHANGE_TYPE in exchange_types:
            return
        unfit = f"RabbitMQ runs without {NAME}: it found the file unfit"
        if self._required:
            raise Refusal(unfit, "`journalctl -u rabbitmq-server`, at `Failed to enable some plugins`", REMEDY)
        self._note(f"{unfit}, and it is not required")

    def place(self, file: Path) -> None:
        """Put the file where RabbitMQ looks, under its own name: RabbitMQ reads the version from it."""
        write(self._plugins / file.name, file.read_bytes())
