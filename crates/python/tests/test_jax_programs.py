"""Functions with operators beyond one process and one device: serialised by jax.export, and spread over several devices by rows."""

import importlib.util
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradewise
import gradewise.jax as gj
from gradewise.jax import export

needs_flatbuffers = pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None,
    reason="jax.export serialises by flatbuffers, which is not installed",
)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def run(text, *words, **environment):
    """Runs a program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, words)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


weight = np.random.default_rng(1).standard_normal((4, 20))


def energy(x):
    return (gj.sgp(x, x, weight.astype(x.dtype), gate=True, normalize=True) ** 2).sum()


@needs_flatbuffers
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_serialised_function_runs_in_another_process(dtype, tmp_path):
    """Forward, backward and the backward pass of it: all targets."""
    forces = jax.grad(energy)
    function = jax.jit(lambda x: (energy(x), forces(x), jax.grad(lambda x: (forces(x) ** 2).sum())(x)))
    x = np.random.default_rng(0).standard_normal((8, 6, 4)).astype(dtype)
    made = jax.export.export(function, disabled_checks=export.checks())(x)
    (tmp_path / "function").write_bytes(made.serialize())
    np.savez(tmp_path / "numbers.npz", x, *function(x))
    run(
        """
        import sys, jax, numpy, gradewise.jax
        jax.config.update("jax_enable_x64", True)
        x, *expected = numpy.load(sys.argv[2]).values()
        for found, known in zip(jax.export.deserialize(open(sys.argv[1], "rb").read()).call(x), expected, strict=True):
            assert found.dtype == known.dtype
            numpy.testing.assert_allclose(found, known, rtol=1e-12 if x.dtype == "float64" else 1e-5)
        """,
        tmp_path / "function",
        tmp_path / "numbers.npz",
    )


def test_a_program_names_its_targets():
    x = jnp.ones((8, 6, 4))
    twice = jax.jit(jax.grad(lambda x: (jax.grad(energy)(x) ** 2).sum()))
    text = jax.export.export(twice, disabled_checks=export.checks())(x).mlir_module()
    assert set(export.TARGETS) == {"gradewise_forward", "gradewise_backward", "gradewise_backward_twice"}
    assert all(f"@{target}(" in text for target in export.TARGETS if target != "gradewise_forward")
    with pytest.raises(ValueError, match="gradewise_backward"):
        jax.export.export(twice)(x)


def test_a_program_for_any_number_of_rows():
    rows = jax.export.symbolic_shape("rows")[0]
    function = jax.jit(lambda x: (gj.mv_layer_norm(x, jnp.ones(4)), jax.grad(energy)(x)))
    made = jax.export.export(function, disabled_checks=export.checks())(jax.ShapeDtypeStruct((8, rows, 4), jnp.float64))
    for count in (1, 5):
        x = jax.random.normal(jax.random.key(count), (8, count, 4))
        for found, expected in zip(made.call(x), function(x), strict=True):
            np.testing.assert_array_equal(found, expected)
    several = jax.export.symbolic_shape("rows, features")
    with pytest.raises(gradewise.ShapeError, match="only the rows"):
        jax.export.export(jax.jit(gj.geometric_product), disabled_checks=export.checks())(
            *[jax.ShapeDtypeStruct((8, *several), jnp.float64)] * 2
        )
    with pytest.raises(gradewise.ShapeError, match=r"expected \[8, 20\]|paths"):
        jax.export.export(jax.jit(gj.sgp), disabled_checks=export.checks())(
            *[jax.ShapeDtypeStruct((8, rows, 4), jnp.float64)] * 2, jnp.ones((4, 19))
        )


DEVICES = """
import re
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import gradewise.jax as gj
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = jax.devices()
assert len(devices) == 4
mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
by_rows, everywhere = P(None, ("a", "b")), P()
put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))
x = jax.random.normal(jax.random.key(0), (8, 16, 4))
weight = jax.random.normal(jax.random.key(1), (4, 20))
matrices = jax.random.normal(jax.random.key(2), (4, 4, 4))

def loss(matrices, weight, x):
    return (gj.sgp(x, gj.mv_linear(x, matrices), weight, gate=True, normalize=True) ** 2).sum()

def close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape and float(abs(a - b).max()) <= 1e-12 * float(abs(b).max()), float(abs(a - b).max())
"""


def on_four_devices(text):
    run(DEVICES + textwrap.dedent(text), XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")


def test_rows_on_several_devices_are_not_gathered():
    on_four_devices("""
    given = put(matrices, everywhere), put(weight, everywhere), put(x, by_rows)
    gradient = jax.grad(loss, (0, 1, 2))
    functions = {
        "forward": (lambda m, w, x: gj.sgp(x, gj.mv_linear(x, m), w), 2),
        "gradient": (gradient, 4),
        "twice": (jax.grad(lambda *i: sum((g**2).sum() for g in gradient(*i)), (0, 1, 2)), None),
        "tangent": (lambda *i: jax.jvp(loss, i, tuple(0.1 * y for y in i)), None),
    }
    for name, (function, count) in functions.items():
        text = jax.jit(function).lower(*given).compile().as_text()
        assert not re.search("all-gather|collective-permute|all-to-all", text), name
        calls = re.findall(r'= \\(?\\w+\\[([\\d,]*)\\][^\\n]*custom_call_target="gradewise_', text)
        assert calls and (count is None or len(calls) == count), (name, calls)
        found = jax.jit(function)(*given)
        close(found, function(matrices, weight, x))
    assert jax.jit(functions["forward"][0])(*given).sharding.spec == by_rows
    *_, of_x = jax.jit(gradient)(*given)
    assert of_x.sharding.spec == by_rows
    # Outside of jit, too; and over one axis of the mesh alone.
    assert gj.geometric_product(given[2], given[2]).sharding.spec == by_rows
    half = put(x, P(None, "b"))
    assert gj.geometric_product(half, half).sharding.spec == P(None, "b")
    close(jax.jit(gradient)(*given[:2], half), gradient(matrices, weight, x))
    # Other axes than rows are gathered, and the numbers stay.
    close(jax.jit(gradient)(*given[:2], put(x, P("a", None, "b"))), gradient(matrices, weight, x))
    """)


def test_functions_for_shards():
    on_four_devices("""
    whole = jax.shard_map(
        lambda m, w, x: jax.lax.psum(loss(m, w, x), ("a", "b")), mesh=mesh, in_specs=(P(), P(), by_rows), out_specs=P()
    )
    for of in (whole, jax.jit(whole)):
        close(of(matrices, weight, x), loss(matrices, weight, x))
    gradient = lambda f: jax.grad(f, (0, 1, 2))
    close(jax.jit(gradient(whole))(matrices, weight, x), gradient(loss)(matrices, weight, x))
    twice = lambda f: jax.grad(lambda *i: sum((g**2).sum() for g in gradient(f)(*i)), (0, 1, 2))
    close(jax.jit(twice(whole))(matrices, weight, x), twice(loss)(matrices, weight, x))
    # Gradients of what is the same on all shards are added up within.
    inside = jax.shard_map(
        lambda w, x: jax.grad(lambda w: loss(matrices, w, x))(w), mesh=mesh, in_specs=(P(), by_rows), out_specs=P()
    )
    close(jax.jit(inside)(weight, x), jax.grad(loss, 1)(matrices, weight, x))
    """)


def test_pmap():
    on_four_devices("""
    parts = x.reshape(8, 4, 4, 4).swapaxes(0, 1)
    step = jax.pmap(lambda x: jax.lax.psum(jax.grad(loss, 1)(matrices, weight, x), "rows"), axis_name="rows")
    for found in step(parts):
        close(found, jax.grad(loss, 1)(matrices, weight, x))
    """)
