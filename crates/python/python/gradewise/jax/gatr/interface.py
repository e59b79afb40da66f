"""Points, planes, lines and motions as multivectors of the projective algebra.

The blades are 1; e0, e1, e2, e3; e01, e02, e03, e12, e13, e23; e012, e013, e023, e123; e0123, with e0 of square 0. Planes are vectors,
points are trivectors, rotations and translations are even.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from gradewise.jax._transformers.public import check, embed, extract
from gradewise.jax.gatr.primitives import geometric_product


def _blades(parts: dict[int, Array]) -> Array:
    """Multivectors ``[..., 16]`` of components ``[...]`` by their blades."""
    zero = jnp.zeros_like(next(iter(parts.values())))
    return jnp.stack([parts.get(blade, zero) for blade in range(16)], -1)


def _apart(x: Array) -> list[Array]:
    return [x[..., number] for number in range(x.shape[-1])]


def _weight(weight: Array, threshold: float) -> Array:
    return jnp.where(jnp.abs(weight) > threshold, weight, threshold)


def embed_scalar(scalars: Array) -> Array:
    """Scalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(scalars, 0, 1, "embed_scalar")


def extract_scalar(multivectors: Array) -> Array:
    """The scalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 0, 1, "extract_scalar")


def embed_pseudoscalar(pseudoscalars: Array) -> Array:
    """Pseudoscalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(pseudoscalars, 15, 1, "embed_pseudoscalar")


def extract_pseudoscalar(multivectors: Array) -> Array:
    """The pseudoscalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 15, 1, "extract_pseudoscalar")


def embed_point(coordinates: Array) -> Array:
    """Points ``[..., 3]`` as trivectors ``[..., 16]`` of weight 1."""
    check(coordinates, 3, "embed_point")
    x, y, z = _apart(coordinates)
    return _blades({11: -z, 12: y, 13: -x, 14: jnp.ones_like(x)})


def extract_point(multivector: Array, threshold: float = 1e-3) -> Array:
    """The points ``[..., 3]`` of multivectors.

    Args:
        multivector: ``[..., 16]``.
        threshold: what is divided by instead of a weight between it and its negative.
    """
    check(multivector, 16, "extract_point")
    z, y, x, weight = _apart(multivector[..., 11:15])
    return jnp.stack((-x, y, -z), -1) / _weight(weight, threshold)[..., None]


def extract_point_embedding_reg(multivector: Array) -> Array:
    """How far the weights of points are from 1 or -1: ``[..., 1]``."""
    return jnp.abs(extract(multivector, 14, 1, "extract_point_embedding_reg")) - 1.0


def embed_translation(translation_vector: Array) -> Array:
    """Translations by vectors ``[..., 3]`` as multivectors ``[..., 16]`` that act from both sides."""
    check(translation_vector, 3, "embed_translation")
    x, y, z = _apart(-0.5 * translation_vector)
    return _blades({0: jnp.ones_like(x), 5: x, 6: y, 7: z})


def embed_rotation(quaternion: Array) -> Array:
    """Rotations about the origin by unit quaternions ``[..., 4]``, (i, j, k, w) with ijk = -1, as multivectors ``[..., 16]``."""
    check(quaternion, 4, "embed_rotation")
    i, j, k, w = _apart(quaternion)
    return _blades({0: w, 8: -k, 9: j, 10: -i})


def extract_rotation(multivector: Array, normalize: bool = False) -> Array:
    """The quaternions ``[..., 4]``, (i, j, k, w), of multivectors.

    Args:
        multivector: ``[..., 16]``.
        normalize: whether to divide by their norm.
    """
    check(multivector, 16, "extract_rotation")
    k, j, i = _apart(multivector[..., 8:11])
    quaternion = jnp.stack((-i, j, -k, multivector[..., 0]), -1)
    return quaternion / jnp.linalg.norm(quaternion, axis=-1, keepdims=True) if normalize else quaternion


def embed_oriented_plane(normal: Array, position: Array) -> Array:
    """Planes with normals ``[..., 3]`` through points ``[..., 3]`` as vectors ``[..., 16]``; reflections in planes are the planes."""
    plane = embed(normal, 2, 3, "embed_oriented_plane")
    there, back = embed_translation(position), embed_translation(-position)
    return geometric_product(geometric_product(there, plane), back)


def extract_oriented_plane(multivector: Array) -> Array:
    """The normals ``[..., 3]`` of planes."""
    return extract(multivector, 2, 3, "extract_oriented_plane")


def embed_pluecker_ray(pluecker_ray: Array) -> Array:
    """Lines by their directions and moments ``[..., 6]`` as bivectors ``[..., 16]``."""
    check(pluecker_ray, 6, "embed_pluecker_ray")
    x, y, z, a, b, c = _apart(pluecker_ray)
    return _blades({5: a, 6: b, 7: c, 8: z, 9: -y, 10: x})


def extract_pluecker_ray(multivector: Array) -> Array:
    """The directions and moments ``[..., 6]`` of lines."""
    check(multivector, 16, "extract_pluecker_ray")
    a, b, c, z, y, x = _apart(multivector[..., 5:11])
    return jnp.stack((x, -y, z, a, b, c), -1)
