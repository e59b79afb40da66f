"""The file ``config.json`` of a model's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradewise import _core
from gradewise._errors import CheckpointError

FORMAT_VERSION = 1
"""Of the layout of the file; files of later ones are refused."""
_FILE = "config.json"


@dataclass(frozen=True)
class Config:
    """What a folder says of its model.

    Attributes:
        kind: the path of its class.
        arguments: those of its constructor, as JSON.
        version: of the gradewise that wrote it.
    """

    kind: str
    arguments: dict[str, Any]
    version: str = field(default_factory=lambda: _core.__version__)

    @staticmethod
    def read(folder: Path) -> Config:
        """The configuration of a folder.

        Raises:
            CheckpointError: there is none, or it is not one of gradewise.
        """
        path = folder / _FILE
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "is not there"
            raise CheckpointError(
                f"{folder} {what}; name the folder that save_pretrained or `gradewise export --pretrained` wrote"
            )
        try:
            made = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                f"{folder} has no {_FILE}: it is no folder of save_pretrained; weights alone go into a model by load_state_dict"
            ) from None
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}; write the folder again") from error
        if not isinstance(made, dict) or made.get("library") != "gradewise":
            raise CheckpointError(
                f'{path} is of another library: it has no "library": "gradewise"; make the model by its constructor and load the weights '
                "by load_state_dict"
            )
        version = made.get("format_version")
        if not isinstance(version, int) or version < 1:
            raise CheckpointError(f"{path} has the format_version {version!r}, expected {FORMAT_VERSION}")
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has the format_version {version}, and this gradewise reads up to {FORMAT_VERSION}; install a newer one"
            )
        kind, arguments = made.get("class"), made.get("arguments")
        if not isinstance(kind, str) or not isinstance(arguments, dict):
            raise CheckpointError(f"{path} has no class, or no arguments of its constructor; write the folder again")
        return Config(kind, arguments, str(made.get("library_version")))

    def write(self, folder: Path) -> None:
        """Writes the file."""
        made = {
            "arguments": self.arguments,
            "class": self.kind,
            "format_version": FORMAT_VERSION,
            "library": "gradewise",
            "library_version": self.version,
        }
        replace(folder / _FILE, text(made))


def text(value: Any) -> bytes:
    """JSON as the program writes it, too."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def replace(path: Path, contents: bytes) -> None:
    """Writes a file in one step: at any moment it is the earlier one or this one."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(contents)
    partial.replace(path)
