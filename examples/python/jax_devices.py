"""Data parallelism in JAX, written in two ways: ``jax.shard_map`` over a mesh, and ``jax.pmap``.

    python jax_devices.py                                                        # every device that JAX finds
    XLA_FLAGS=--xla_force_host_platform_device_count=2 python jax_devices.py     # two on the CPU

A network of Clifford operators learns the products of multivectors. Each device has a share of the rows; gradients are averaged over
devices, so that parameters stay the same on all of them, and both ways take the step of one device.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import gradewise.jax as gj

FEATURES = 4


def initial():
    """Two linear maps, and the weights of the product of what they give."""
    first, second, product = jax.random.split(jax.random.key(0), 3)
    matrix = lambda key: FEATURES**-0.5 * jax.random.normal(key, (4, FEATURES, FEATURES))
    return {"left": matrix(first), "right": matrix(second), "product": 0.5 * jax.random.normal(product, (FEATURES, 20))}


def data(rows):
    """Multivectors ``[blades, rows, features]`` of Cl(3,0,0), and their squares."""
    x = 0.5 * jax.random.normal(jax.random.key(1), (8, rows, FEATURES))
    return x, gj.geometric_product(x, x)


def loss(parameters, x, y):
    """The mean square error."""
    left, right = (gj.mv_linear(x, parameters[side]) for side in ("left", "right"))
    return jnp.mean((gj.sgp(left, right, parameters["product"]) - y) ** 2)


def stepped(parameters, x, y, axis=None, rate=2.0):
    """A step of gradient descent on a share of the rows, where ``axis`` names the devices; the loss before it."""
    value, gradient = jax.value_and_grad(loss)(parameters, x, y)
    if axis is not None:
        value, gradient = jax.lax.pmean((value, gradient), axis)
    return jax.tree.map(lambda p, g: p - rate * g, parameters, gradient), value


def on_one_device(steps, rows):
    """The loss at each step, and the parameters after the last."""
    step, parameters, losses = jax.jit(stepped), initial(), []
    for _ in range(steps):
        parameters, value = step(parameters, *data(rows))
        losses.append(float(value))
    return losses, parameters


def by_shard_map(steps, rows):
    """The same with rows shared by all devices: the second axis of features is split."""
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    shares = P(None, "rows")

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), shares, shares), out_specs=P(), check_vma=False)
    def step(parameters, x, y):
        return stepped(parameters, x, y, "rows")

    parameters, losses = initial(), []
    for _ in range(steps):
        parameters, value = step(parameters, *data(rows))
        losses.append(float(value))
    return losses, parameters


def by_pmap(steps, rows):
    """The same with an axis for the devices in front of features, and of parameters, of which each device has its own."""
    count = jax.device_count()
    share = lambda x: jnp.moveaxis(x.reshape(x.shape[0], count, -1, x.shape[2]), 1, 0)
    step = jax.pmap(partial(stepped, axis="rows"), axis_name="rows")
    parameters, losses = jax.tree.map(lambda p: jnp.stack([p] * count), initial()), []
    for _ in range(steps):
        parameters, value = step(parameters, *map(share, data(rows)))
        losses.append(float(value[0]))
    return losses, jax.tree.map(lambda p: p[0], parameters)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=64, help="a multiple of the number of devices")
    arguments = parser.parse_args()
    for way in (on_one_device, by_shard_map, by_pmap):
        losses, _ = way(arguments.steps, arguments.rows)
        print(f"{way.__name__}: {jax.device_count()} devices, loss {losses[0]:.6f} to {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
