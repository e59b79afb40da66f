"""Points, planes, lines, motions and bodies as multivectors of the projective algebra.

The blades are 1; e0, e1, e2, e3; e01, e02, e03, e12, e13, e23; e012, e013, e023, e123; e0123, with e0 of square 0. Planes are vectors,
points are trivectors, rotations and translations are even.
"""

from __future__ import annotations

import warnings
from typing import Optional

import torch
from torch import Tensor

from gradewise._errors import ShapeError
from gradewise.torch._transformers.embedding import check, embed, extract
from gradewise.torch.gatr.primitives import geometric_product, outer_product, reverse


def _blades(parts: dict[int, Tensor]) -> Tensor:
    """Multivectors ``[..., 16]`` of components ``[...]`` by their blades."""
    zero = torch.zeros_like(next(iter(parts.values())))
    return torch.stack([parts.get(blade, zero) for blade in range(16)], -1)


def embed_scalar(scalars: Tensor) -> Tensor:
    """Scalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(scalars, 0, 1, "embed_scalar")


def extract_scalar(multivectors: Tensor) -> Tensor:
    """The scalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 0, 1, "extract_scalar")


def embed_pseudoscalar(pseudoscalars: Tensor) -> Tensor:
    """Pseudoscalars ``[..., 1]`` as multivectors ``[..., 16]``."""
    return embed(pseudoscalars, 15, 1, "embed_pseudoscalar")


def extract_pseudoscalar(multivectors: Tensor) -> Tensor:
    """The pseudoscalars ``[..., 1]`` of multivectors."""
    return extract(multivectors, 15, 1, "extract_pseudoscalar")


def embed_point(coordinates: Tensor) -> Tensor:
    """Points ``[..., 3]`` as trivectors ``[..., 16]`` of weight 1."""
    check(coordinates, 3, "embed_point")
    x, y, z = coordinates.unbind(-1)
    return _blades({11: -z, 12: y, 13: -x, 14: torch.ones_like(x)})


def extract_point(multivector: Tensor, divide_by_embedding_dim: bool = True, threshold: float = 1e-3) -> Tensor:
    """The points ``[..., 3]`` of multivectors.

    Args:
        multivector: ``[..., 16]``.
        divide_by_embedding_dim: whether to divide by the points' weight; without, the result does not move with its input.
        threshold: what is divided by instead of a weight between it and its negative.
    """
    check(multivector, 16, "extract_point")
    if not divide_by_embedding_dim:
        warnings.warn(
            "extract_point with divide_by_embedding_dim=False is not equivariant; leave the option out",
            DeprecationWarning,
            stacklevel=2,
        )
    z, y, x, weight = multivector[..., 11:15].unbind(-1)
    point = torch.stack((-x, y, -z), -1)
    return point / _weight(weight, threshold)[..., None] if divide_by_embedding_dim else point


def _weight(weight: Tensor, threshold: float) -> Tensor:
    return torch.where(weight.abs() > threshold, weight, threshold)


def extract_point_embedding_reg(multivector: Tensor) -> Tensor:
    """How far the weights of points are from 1 or -1: ``[..., 1]``."""
    return extract(multivector, 14, 1, "extract_point_embedding_reg").abs() - 1.0


def embed_translation(translation_vector: Tensor) -> Tensor:
    """Translations by vectors ``[..., 3]`` as multivectors ``[..., 16]`` that act from both sides."""
    check(translation_vector, 3, "embed_translation")
    x, y, z = (-0.5 * translation_vector).unbind(-1)
    return _blades({0: torch.ones_like(x), 5: x, 6: y, 7: z})


def extract_translation(multivector: Tensor, divide_by_embedding_dim: bool = False, threshold: float = 1e-3) -> Tensor:
    """The vectors ``[..., 3]`` of translations; not equivariant, and deprecated by the published package.

    Args:
        multivector: ``[..., 16]``.
        divide_by_embedding_dim: whether to divide by the scalars.
        threshold: what is divided by instead of a scalar between it and its negative.
    """
    warnings.warn("extract_translation is not equivariant", DeprecationWarning, stacklevel=2)
    vector = -2.0 * extract(multivector, 5, 3, "extract_translation")
    return vector / _weight(multivector[..., :1], threshold) if divide_by_embedding_dim else vector


def embed_rotation(quaternion: Tensor) -> Tensor:
    """Rotations about the origin by unit quaternions ``[..., 4]``, (i, j, k, w) with ijk = -1, as multivectors ``[..., 16]``."""
    check(quaternion, 4, "embed_rotation")
    i, j, k, w = quaternion.unbind(-1)
    return _blades({0: w, 8: -k, 9: j, 10: -i})


def extract_rotation(multivector: Tensor, normalize: bool = False) -> Tensor:
    """The quaternions ``[..., 4]``, (i, j, k, w), of multivectors.

    Args:
        multivector: ``[..., 16]``.
        normalize: whether to divide by their norm.
    """
    check(multivector, 16, "extract_rotation")
    k, j, i = multivector[..., 8:11].unbind(-1)
    quaternion = torch.stack((-i, j, -k, multivector[..., 0]), -1)
    return quaternion / quaternion.norm(dim=-1, keepdim=True) if normalize else quaternion


def embed_oriented_plane(normal: Tensor, position: Tensor) -> Tensor:
    """Planes with normals ``[..., 3]`` through points ``[..., 3]`` as vectors ``[..., 16]``."""
    plane = embed(normal, 2, 3, "embed_oriented_plane")
    there, back = embed_translation(position), embed_translation(-position)
    return geometric_product(geometric_product(there, plane), back)


def extract_oriented_plane(multivector: Tensor) -> Tensor:
    """The normals ``[..., 3]`` of planes."""
    return extract(multivector, 2, 3, "extract_oriented_plane")


def embed_reflection(normal: Tensor, position: Tensor) -> Tensor:
    """Reflections in planes, which are the planes themselves; see :func:`embed_oriented_plane`."""
    return embed_oriented_plane(normal, position)


def extract_reflection(multivector: Tensor) -> Tensor:
    """The normals ``[..., 3]`` of the planes of reflections."""
    return extract_oriented_plane(multivector)


def embed_pluecker_ray(pluecker_ray: Tensor) -> Tensor:
    """Lines by their directions and moments ``[..., 6]`` as bivectors ``[..., 16]``."""
    check(pluecker_ray, 6, "embed_pluecker_ray")
    x, y, z, a, b, c = pluecker_ray.unbind(-1)
    return _blades({5: a, 6: b, 7: c, 8: z, 9: -y, 10: x})


def extract_pluecker_ray(multivector: Tensor) -> Tensor:
    """The directions and moments ``[..., 6]`` of lines."""
    check(multivector, 16, "extract_pluecker_ray")
    a, b, c, z, y, x = multivector[..., 5:11].unbind(-1)
    return torch.stack((x, -y, z, a, b, c), -1)


def _one_of(x: Tensor, count: int, operation: str) -> None:
    if tuple(x.shape[-2:]) != (1, count):
        raise ShapeError(f"{operation}: shape {list(x.shape)}, expected [..., 1, {count}]")


def embed_3d_object(position: Tensor, orientation: Tensor, explicit_point: bool = False) -> Tensor:
    """Bodies as the three planes of their axes, and their position if asked for: ``[..., 3 or 4, 16]``.

    Args:
        position: ``[..., 1, 3]``.
        orientation: unit quaternions ``[..., 1, 4]``, (i, j, k, w).
        explicit_point: whether the position follows.
    """
    _one_of(position, 3, "embed_3d_object")
    _one_of(orientation, 4, "embed_3d_object")
    motion = geometric_product(embed_translation(position), embed_rotation(orientation))
    axes = embed(torch.eye(3, dtype=position.dtype, device=position.device), 2, 3, "embed_3d_object")
    planes = geometric_product(geometric_product(motion, axes), reverse(motion))
    return torch.cat((planes, embed_point(position)), -2) if explicit_point else planes


def extract_3d_object(
    multivector: Tensor, normalize_quaternion: bool = True, sign_reference: Optional[Tensor] = None
) -> tuple[Tensor, Tensor]:
    """Positions ``[..., 1, 3]`` and orientations ``[..., 1, 4]`` of bodies.

    Args:
        multivector: three planes, and a point if there is one: ``[..., 3 or 4, 16]``.
        normalize_quaternion: whether to divide orientations by their norm.
        sign_reference: quaternions whose half space the orientations are taken from.
    """
    planes = multivector[..., :3, :]
    if multivector.shape[-2] == 4:
        point = multivector[..., 3:4, :]
    else:
        first, second, third = (planes[..., n : n + 1, :] for n in range(3))
        point = outer_product(outer_product(first, second), third)
    axes = embed(torch.eye(3, dtype=multivector.dtype, device=multivector.device), 2, 3, "extract_3d_object")
    turned = geometric_product(embed(planes[..., 2:5], 2, 3, "extract_3d_object"), axes).sum(-2, keepdim=True)
    one = torch.zeros(16, dtype=multivector.dtype, device=multivector.device)
    one[0] = 1.0
    quaternion = extract_rotation(one + turned, normalize=normalize_quaternion)
    if sign_reference is not None:
        quaternion = quaternion * (sign_reference * quaternion).sum(-1, keepdim=True).sign()
    return extract_point(point), quaternion


def embed_3d_object_two_vec(position: Tensor, orientation: Tensor) -> Tensor:
    """Bodies as their position and three planes across two vectors and their cross product: ``[..., 4, 16]``.

    Args:
        position: ``[..., 1, 3]``.
        orientation: two vectors behind one another, ``[..., 1, 6]``.
    """
    _one_of(position, 3, "embed_3d_object_two_vec")
    _one_of(orientation, 6, "embed_3d_object_two_vec")
    first, second = orientation.split(3, -1)
    normals = torch.cat((first, second, torch.linalg.cross(first, second)), -2)
    return torch.cat((embed_point(position), embed_oriented_plane(normals, position.expand_as(normals))), -2)


def extract_3d_object_two_vec(multivector: Tensor) -> tuple[Tensor, Tensor]:
    """Positions ``[..., 1, 3]`` and two vectors ``[..., 1, 6]`` of bodies as :func:`embed_3d_object_two_vec` makes them."""
    vectors = extract_oriented_plane(multivector[..., 1:3, :])
    return extract_point(multivector[..., :1, :]), vectors.flatten(-2)[..., None, :]
