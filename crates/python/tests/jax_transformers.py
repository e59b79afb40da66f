"""Small transformers in JAX under test."""

import jax
import jax.numpy as jnp
import numpy as np

import gradewise.jax.gatr
import gradewise.jax.lgatr

# Most of the time of these tests is XLA's, for programs that run once.
jax.config.update("jax_disable_most_optimizations", True)

THEIRS = {"lgatr": gradewise.jax.lgatr, "gatr": gradewise.jax.gatr}
TINY = {
    "LGATr": {"num_blocks": 1, "in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 2, "in_s_channels": 1}
    | {"out_s_channels": 1, "hidden_s_channels": 4, "attention": {"num_heads": 2}, "mlp": {"mlp_ratio": 1}},
    "GATr": {
        "in_mv_channels": 1,
        "out_mv_channels": 1,
        "hidden_mv_channels": 2,
        "in_s_channels": 1,
        "out_s_channels": 1,
    }
    | {"hidden_s_channels": 4, "attention": {"num_heads": 2, "pos_encoding": True}, "mlp": {}, "num_blocks": 1},
    "LGATrSlim": {"num_blocks": 1, "in_v_channels": 1, "out_v_channels": 1, "hidden_v_channels": 2, "in_s_channels": 1}
    | {"out_s_channels": 1, "hidden_s_channels": 4, "num_heads": 2},
}


def package_of(kind):
    return "gatr" if kind.endswith("GATr") and not kind.endswith("LGATr") else "lgatr"


def inputs_of(kind, seed=0, items=3, batch=()):
    generator = np.random.default_rng(seed)
    first = ("vectors", 4) if kind == "LGATrSlim" else ("multivectors", 16)
    scalars = generator.normal(size=(*batch, 2, items, 1))
    return {first[0]: generator.normal(size=(*batch, 2, items, 1, first[1])), "scalars": scalars}


def tiny(kind, seed=1, **options):
    """A definition of one block with parameters away from their initial values."""
    definition = getattr(THEIRS[package_of(kind)], kind)(**(TINY[kind] | options))
    generator = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: definition.init(jax.random.key(seed), jnp.float64))
    return definition, jax.tree.map(lambda p: jnp.asarray(0.4 * generator.normal(size=p.shape)), shapes)
