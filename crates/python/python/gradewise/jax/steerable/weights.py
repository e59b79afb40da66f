"""Parameters by names with dots, as safetensors hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from gradewise._errors import CheckpointError


def flatten(parameters: Mapping[str, Any]) -> dict[str, Array]:
    """Nested parameters by names with dots, ``CliffordSteerableConv_0.bias``, with or without the collection "params" around them."""
    return flatten_dict(parameters.get("params", parameters), sep=".")


def load(parameters: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the values of a checkpoint.

    Args:
        parameters: what ``model.init(key, x)`` returns; it says which parameters there are, and their dtypes. It is not changed.
        state: published parameters, nested or by names with dots, as ``safetensors.numpy.load_file`` reads those that training runs of this
            project write.

    Raises:
        CheckpointError: names or shapes are others.
    """
    own, given = flatten(parameters), flatten(state)
    if own.keys() != given.keys():
        raise CheckpointError(f"{sorted(own.keys() ^ given.keys())} are not in both, the checkpoint and the model")
    for name, value in given.items():
        if np.shape(value) != own[name].shape:
            raise CheckpointError(f"{name} has shape {list(np.shape(value))}, expected {list(own[name].shape)}")
    values = unflatten_dict({name: jnp.asarray(value, own[name].dtype) for name, value in given.items()}, sep=".")
    return {"params": values} if "params" in parameters else values
