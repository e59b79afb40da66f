"""The weights of a model's folder: one file, or shards with an index."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, CheckpointError
from gradewise.data._extra import need
from gradewise.torch._pretrained.config import replace, text

StrPath = Union[str, "os.PathLike[str]"]

SHARD_BYTES = 5_000_000_000
"""Bytes of a file of weights, as hubs have them."""
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
_SHOWN = 6


def save(folder: Path, weights: Mapping[str, Tensor], max_shard_size: int) -> set[str]:
    """Writes weights, and returns the names of the files."""
    if max_shard_size < 1:
        raise ArgumentError(f"save_pretrained: max_shard_size is {max_shard_size}, expected bytes, at least 1")
    write = _safetensors("torch").save_file
    kept = {name: weights[name].detach().to("cpu").contiguous() for name in sorted(weights)}
    shards: list[dict[str, Tensor]] = [{}]
    room = max_shard_size
    for name, tensor in kept.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = max_shard_size
        shards[-1][name] = tensor
        room -= size
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    names = [_WHOLE] if len(shards) == 1 else names
    for name, shard in zip(names, shards):
        partial = folder / f"{name}.partial"
        # Tensors of one file must not share memory; second names of a parameter are written too.
        write(_unshared(shard), partial, metadata={"format": "pt"})
        partial.replace(folder / name)
    if len(shards) == 1:
        return {_WHOLE}
    total = sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
    places = {name: file for file, shard in zip(names, shards) for name in shard}
    replace(folder / _INDEX, text({"metadata": {"total_size": total}, "weight_map": places}))
    return {_INDEX, *names}


def remove_others(folder: Path, written: set[str]) -> None:
    """Removes the weights of an earlier model."""
    for path in list(folder.iterdir()):
        is_weights = path.name in (_WHOLE, _INDEX) or _SHARD.fullmatch(path.name)
        if is_weights and path.name not in written:
            path.unlink()


def load(folder: Path, model: nn.Module) -> None:
    """Gives a model the weights of a folder, and their dtypes.

    Raises:
        CheckpointError: files that are missing or damaged, an index that does not fit them, tensors that the model does not have or
            lacks, or of another shape, or with NaN or infinity.
    """
    found = _read(folder)
    expected = model.state_dict(keep_vars=True)
    missing, unused = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or unused:
        parts = [
            f"{what} ({len(names)}): {_listed(names)}"
            for what, names in (("the folder lacks", missing), ("nothing takes", unused))
            if names
        ]
        raise CheckpointError(f"{folder} does not hold a {type(model).__name__} of its arguments; {'; '.join(parts)}")
    for name, tensor in found.items():
        shape = expected[name].shape
        if tensor.shape != shape:
            raise CheckpointError(f"{folder}: tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).sum())
            raise CheckpointError(
                f"{folder}: {bad} of the {tensor.numel()} elements of {name} are NaN or infinite: the training that wrote it diverged; "
                "save an earlier state of the model"
            )
    dtypes = {tensor.dtype for name, tensor in found.items() if isinstance(expected[name], nn.Parameter)}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, nn.Parameter) and tensor.dtype != found[name].dtype:
            tensor.data = tensor.data.to(found[name].dtype)
    model.load_state_dict(found)


def _read(folder: Path) -> dict[str, Tensor]:
    whole, index = folder / _WHOLE, folder / _INDEX
    if whole.exists() and index.exists():
        raise CheckpointError(f"{folder} has both {_WHOLE} and {_INDEX}; remove the one that is out of date")
    if whole.exists():
        return _tensors(whole)
    if not index.exists():
        raise CheckpointError(
            f"{folder} has no weights: neither {_WHOLE} nor {_INDEX}; download or copy the folder whole"
        )
    places = _places(index)
    found: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        path = folder / file
        if not path.exists():
            raise CheckpointError(f"{path} is not there, and {_INDEX} names it; download or copy the folder whole")
        tensors = _tensors(path)
        expected = {name for name, place in places.items() if place == file}
        if tensors.keys() != expected:
            raise CheckpointError(
                f"{path} does not hold the tensors that {_INDEX} says: {_listed(sorted(tensors.keys() ^ expected))} are in one of both; "
                "write the folder again"
            )
        found |= tensors
    return found


def _places(index: Path) -> dict[str, str]:
    """The files of tensors by name."""
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(f"{index} has no weight_map: {error!r}; write the folder again") from error
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index} has no weight_map of names to files; write the folder again")
    for name, file in places.items():
        # Files of other folders are not read because an index says so.
        if not isinstance(file, str) or not _SHARD.fullmatch(file):
            raise CheckpointError(
                f"{index} places {name} in {file!r}, expected model-00001-of-00002.safetensors or such"
            )
    return places


def _tensors(path: Path) -> dict[str, Tensor]:
    from_file = _safetensors("")
    try:
        with from_file.safe_open(str(path), "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (from_file.SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or no safetensors file: {error}; download or copy it again"
        ) from error


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    seen: set[int] = set()
    made = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        made[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return made


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _safetensors(part: str) -> Any:
    name = "safetensors.torch" if part else "safetensors"
    return need("gradewise.torch", "torch", name, "a folder with a model's weights")
