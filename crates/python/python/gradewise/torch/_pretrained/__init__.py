"""Models as folders in the layout of model hubs: ``config.json`` beside the weights, whole or in shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, CheckpointError
from gradewise.torch._pretrained.arguments import Recorded, class_of, decode, path_of
from gradewise.torch._pretrained.config import Config
from gradewise.torch._pretrained.weights import SHARD_BYTES, StrPath, load, remove_others, save

M = TypeVar("M", bound="Pretrained")


class Pretrained(Recorded):
    """A model that is written to a folder and made from one: :meth:`save_pretrained` and :meth:`from_pretrained`.

    The folder has the layout of model hubs: ``config.json`` with the class, the constructor's arguments and the version of gradewise, and
    ``model.safetensors``, or shards of it with ``model.safetensors.index.json``. No hub and no client of one is needed; ``gradewise import``
    and ``gradewise export --pretrained`` read and write the same folders.
    """

    def save_pretrained(
        self,
        folder: StrPath,
        *,
        max_shard_size: int = SHARD_BYTES,
        state_dict: Optional[Mapping[str, Tensor]] = None,
    ) -> None:
        """Writes the model to a folder, which is made if it is not there. Weights of an earlier model there are replaced; other files stay.

        Args:
            folder: the folder.
            max_shard_size: bytes of a file of weights. Larger models are written in shards; a larger tensor has a shard of its own.
            state_dict: the weights, for a model that is spread over processes; the model's own if None.

        Raises:
            ArgumentError: an argument of the constructor that JSON cannot hold, such as a function of one's own.
            CheckpointError: weights that are spread over processes.
            MissingPackageError: safetensors is not installed.
        """
        arguments = self._recorded().checked()
        made = Config(path_of(*self._recorded().kind), arguments)
        weights = dict(self.state_dict() if state_dict is None else state_dict)  # type: ignore[attr-defined]
        for name, tensor in weights.items():
            if type(tensor).__name__ == "DTensor":
                raise CheckpointError(
                    f"save_pretrained: {name} is spread over processes; gather the weights with "
                    "torch.distributed.checkpoint.state_dict.get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)) "
                    "and hand them on as state_dict"
                )
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        written = save(path, weights, max_shard_size)
        made.write(path)
        remove_others(path, written)

    @classmethod
    def from_pretrained(
        cls: type[M],
        folder: StrPath,
        *,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
        **arguments: Any,
    ) -> M:
        """The model of a folder, in evaluation mode. Every tensor is accounted for, and none may hold NaN or infinity.

        Args:
            folder: what :meth:`save_pretrained` or ``gradewise export --pretrained`` wrote.
            device: where the model is to be; on the CPU if None.
            dtype: of its weights; as they were written if None.
            arguments: of the constructor, in place of those of the folder, such as ``checkpoint_blocks=True``.

        Raises:
            CheckpointError: a folder without a file that it needs, of another class, or whose weights are not those of the model.
            MissingPackageError: safetensors is not installed.
        """
        path = Path(folder)
        config = Config.read(path)
        own = path_of(cls.__module__, cls.__qualname__)
        if config.kind != own:
            raise CheckpointError(
                f"{path}: its config.json is of {config.kind}, not of {own}; call from_pretrained of that class, or "
                "gradewise.torch.from_pretrained, which finds it"
            )
        return _made(cls, path, config, device, dtype, arguments)


def from_pretrained(
    folder: StrPath, *, device: Any = None, dtype: Optional[torch.dtype] = None, **arguments: Any
) -> nn.Module:
    """The model of a folder, of whichever class of gradewise its ``config.json`` names; see :meth:`Pretrained.from_pretrained`."""
    path = Path(folder)
    config = Config.read(path)
    kind = class_of(config.kind, f"{path / 'config.json'}")
    if not issubclass(kind, Pretrained):
        raise CheckpointError(f"{path / 'config.json'}: {config.kind} is no model that folders hold")
    return _made(kind, path, config, device, dtype, arguments)  # type: ignore[return-value]


def _made(kind: type[M], path: Path, config: Config, device: Any, dtype: Any, arguments: Mapping[str, Any]) -> M:
    where = f"{path / 'config.json'}"
    given = {**{name: decode(value, where) for name, value in config.arguments.items()}, **arguments}
    # Initial values are overwritten; drawing them leaves no trace.
    with torch.random.fork_rng(devices=[]):
        try:
            model = kind(**given)
        except TypeError as error:
            raise CheckpointError(
                f"{where}: {config.kind} does not take its arguments: {error}; it was written by gradewise {config.version}"
            ) from error
        except ArgumentError as error:
            raise CheckpointError(f"{where}: {config.kind} refuses its arguments: {error}") from error
    load(path, model)  # type: ignore[arg-type]
    return model.to(device=device, dtype=dtype).eval()  # type: ignore[attr-defined]
