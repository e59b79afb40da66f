"""Particles as multivectors of space-time, and reference vectors that break the symmetry.

The blades are 1; t, x, y, z; tx, ty, tz, xy, xz, yz; the four of three generators; txyz.
"""

from __future__ import annotations

from typing import Any, Optional

import jax.numpy as jnp
from jax import Array

from gradewise._transformers.spurions import get_num_spurions, rows
from gradewise.jax._transformers.public import embed, extract

__all__ = [
    "embed_axialvector",
    "embed_bivector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "extract_axialvector",
    "extract_bivector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "get_num_spurions",
    "get_spurions",
]


def embed_scalar(scalars: Array) -> Array:
    """Scalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(scalars, 0, 1, "embed_scalar")


def extract_scalar(multivectors: Array) -> Array:
    """The scalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 0, 1, "extract_scalar")


def embed_vector(vectors: Array) -> Array:
    """Vectors ``[..., 4]``, (t, x, y, z), as multivectors ``[..., 16]``."""
    return embed(vectors, 1, 4, "embed_vector")


def extract_vector(multivectors: Array) -> Array:
    """The vectors ``[..., 4]``, (t, x, y, z), of multivectors."""
    return extract(multivectors, 1, 4, "extract_vector")


def embed_bivector(bivectors: Array) -> Array:
    """Bivectors ``[..., 6]``, (tx, ty, tz, xy, xz, yz), as multivectors ``[..., 16]``."""
    return embed(bivectors, 5, 6, "embed_bivector")


def extract_bivector(multivectors: Array) -> Array:
    """The bivectors ``[..., 6]``, (tx, ty, tz, xy, xz, yz), of multivectors."""
    return extract(multivectors, 5, 6, "extract_bivector")


def embed_axialvector(axialvectors: Array) -> Array:
    """Axial vectors ``[..., 4]``, (t, x, y, z), as multivectors ``[..., 16]``: on the blades of the other three generators."""
    return embed(axialvectors[..., ::-1], 11, 4, "embed_axialvector")


def extract_axialvector(multivectors: Array) -> Array:
    """The axial vectors ``[..., 4]``, (t, x, y, z), of multivectors."""
    return extract(multivectors, 11, 4, "extract_axialvector")[..., ::-1]


def embed_pseudoscalar(pseudoscalars: Array) -> Array:
    """Pseudoscalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(pseudoscalars, 15, 1, "embed_pseudoscalar")


def extract_pseudoscalar(multivectors: Array) -> Array:
    """The pseudoscalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 15, 1, "extract_pseudoscalar")


def get_spurions(
    beam_spurion: Optional[str] = "xyplane", add_time_spurion: bool = True, beam_mirror: bool = True, dtype: Any = None
) -> Array:
    """Reference multivectors ``[spurions, 16]``. A network that sees them is equivariant under what leaves them alone.

    Args:
        beam_spurion: the beam, as a vector "lightlike", "timelike" or "spacelike", as the plane "xyplane" across it, or None.
        add_time_spurion: whether the direction of time follows.
        beam_mirror: whether a beam that is a vector has a second one in the other direction.
        dtype: of the result, float32 if None.
    """
    made = rows(beam_spurion, add_time_spurion, beam_mirror)
    return jnp.asarray(made, jnp.float32 if dtype is None else dtype).reshape(-1, 16)
