"""What ``jax.export`` has to be told of operators.

``jax.export.export(jax.jit(f), disabled_checks=gradewise.jax.export.checks())`` serialises a function with operators. Who runs it again
imports ``gradewise.jax`` first, which registers the targets. Programs name the operation and its attributes by texts, not by versions of
kernels. Rows may be a symbol of ``jax.export.symbolic_shape``; other axes have sizes.
"""

from __future__ import annotations

import jax.export

from gradewise.jax._primitives import TARGETS

__all__ = ["TARGETS", "checks"]


def checks() -> list[jax.export.DisabledSafetyCheck]:
    """For ``disabled_checks`` of ``jax.export.export``: that calls of :data:`TARGETS` are stable."""
    return [jax.export.DisabledSafetyCheck.custom_call(name) for name in TARGETS]
