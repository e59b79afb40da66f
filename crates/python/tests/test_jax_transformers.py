"""The transformers in JAX against golden vectors and against those of PyTorch, with weights of the published packages."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import gradewise
import transformer_cases
from gradewise.jax._transformers.definition import named
from jax_transformers import THEIRS, TINY, inputs_of, package_of, tiny
from transformer_cases import FOLDER, OURS, default_dtype, evaluate, golden, worst


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def made(package, kind, arguments, weights, dtype=jnp.float64):
    """A definition, and its parameters with these weights."""
    definition = getattr(THEIRS[package], kind)(**arguments)
    shapes = jax.eval_shape(lambda: definition.init(jax.random.key(0), dtype))
    return definition, THEIRS[package].load(shapes, weights)


def tensors(found):
    return {name: torch.from_numpy(np.asarray(x)) for name, x in found.items()}


def evaluated(definition, parameters, inputs, cotangents):
    """Outputs, and gradients of inputs and parameters, under the names of :func:`transformer_cases.evaluate`."""
    inputs = {name: jnp.asarray(x.numpy()) for name, x in inputs.items()}

    def loss(parameters, inputs):
        there = [y for y in definition(parameters, **inputs) if y is not None]
        return sum((y * c.numpy()).sum() for y, c in zip(there, cotangents)), there

    gradients, there = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(parameters, inputs)
    of_parameters = {f"grad.{name}": g for name, g in named(gradients[0]) if hasattr(g, "dtype")}
    of_inputs = {f"grad.{name}": g for name, g in gradients[1].items()}
    return tensors({f"out.{number}": y for number, y in enumerate(there)} | of_parameters | of_inputs)


CASES = golden() if FOLDER.exists() else []
DAILY = ("lgatr_linear", "slim_plain")
GOLDEN = [pytest.param(case, id=case[0], marks=() if case[0] in DAILY else pytest.mark.whole) for case in CASES]
assert not CASES or {case[0] for case in CASES} >= set(DAILY)


def parts(case, prefix):
    return {name.removeprefix(prefix): x for name, x in case[4].items() if name.startswith(prefix)}


def expected(case):
    renamed = {name.replace("grad.in.", "grad.").replace("grad.weight.", "grad."): x for name, x in case[4].items()}
    return {name: x for name, x in renamed.items() if name.startswith(("out.", "grad."))}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_vectors(case):
    cotangents = [case[4][name] for name in sorted(case[4]) if name.startswith("cot.")]
    model = made(*case[1:4], parts(case, "weight."))
    assert worst(evaluated(*model, parts(case, "in."), cotangents), expected(case)) < 1e-11


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_golden_vectors_in_single_precision(case):
    """As far from the golden outputs as PyTorch's modules are in single precision."""
    outputs = {name: x for name, x in expected(case).items() if name.startswith("out.")}
    inputs = {name: x.float() for name, x in parts(case, "in.").items()}
    theirs = getattr(OURS[case[1]], case[2])(**case[3])
    theirs.load_state_dict(parts(case, "weight."))
    with torch.no_grad():
        exact = {f"out.{n}": y for n, y in enumerate(theirs(**inputs))}
    definition, parameters = made(*case[1:4], parts(case, "weight."), jnp.float32)
    there = jax.jit(lambda p, x: definition(p, **x))(parameters, {n: jnp.asarray(x.numpy()) for n, x in inputs.items()})
    assert {y.dtype.name for y in there} == {"float32"}
    found = tensors({f"out.{number}": y for number, y in enumerate(there)})
    assert worst(found, outputs, 1e-2) < max(1e-5, 3 * worst(exact, outputs, 1e-2))


def pair(package, kind, arguments, seed):
    """A model of PyTorch that drops nothing, moved away from its initial values, and ours with its weights."""
    torch.manual_seed(seed)
    with default_dtype(torch.float64):
        theirs = getattr(OURS[package], kind)(**arguments).double().eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p += 0.1 * torch.randn_like(p)
    known = inspect.signature(getattr(THEIRS[package], kind).__init__).parameters
    own = {name: value for name, value in arguments.items() if name in known}
    return theirs, made(package, kind, own, theirs.state_dict())


DAILY_DRAWS = (("lgatr", 1), ("gatr", 3))
DRAWS = [
    pytest.param(*draw, id="-".join(map(str, draw)), marks=() if draw in DAILY_DRAWS else pytest.mark.whole)
    for draw in ((package, seed) for seed in range(24) for package in ("lgatr", "gatr"))
]


@pytest.mark.parametrize("package, seed", DRAWS)
def test_random_options(package, seed):
    kind, arguments, shapes = getattr(transformer_cases, f"{package}_options")(seed)
    theirs, ours = pair(package, kind, arguments, seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    with torch.no_grad():
        there = [y for y in theirs(**inputs) if y is not None]
    cotangents = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in there]
    result = evaluate(theirs, inputs, cotangents)
    # GATr's distances of points amplify roundings a thousandfold.
    moved = {name: x * (1 + 2e-16 * torch.randn(x.shape, dtype=x.dtype).sign()) for name, x in inputs.items()}
    conditioning = worst(evaluate(theirs, moved, cotangents), result)
    assert worst(evaluated(*ours, inputs, cotangents), result) < max(1e-11, 10 * conditioning), (kind, arguments)


def test_initial_values_are_those_of_the_bounds():
    """The same bounds as in PyTorch: the greatest of many values is close to them, and none is beyond."""
    theirs = OURS["gatr"].EquiLinear(40, 40, 40, 40, initialization="small")
    ours = dict(named(THEIRS["gatr"].EquiLinear(40, 40, 40, 40, initialization="small").init(jax.random.key(0))))
    assert {name: tuple(x.shape) for name, x in theirs.state_dict().items()} == {n: x.shape for n, x in ours.items()}
    for name, x in theirs.state_dict().items():
        for coefficient in range(9) if name == "weight" else [slice(None)]:
            ratio = np.abs(ours[name][..., coefficient]).max() / np.abs(x[..., coefficient].numpy()).max()
            assert 0.8 < ratio < 1.25, (name, coefficient, ratio)


def test_rotary_frequencies_are_those_of_pytorch():
    """They are no parameters: nothing that JAX transforms."""
    shapes = jax.eval_shape(lambda: THEIRS["gatr"].GATr(**TINY["GATr"]).init(jax.random.key(0)))
    own = dict(named(shapes))["blocks.0.attention.pos_encoding.inv_freq"]
    theirs = OURS["gatr"].GATr(**TINY["GATr"]).blocks[0].attention.pos_encoding.inv_freq
    np.testing.assert_allclose(own.values, theirs, rtol=1e-6)
    assert len(jax.tree.leaves(shapes)) == len(dict(named(shapes))) - 1


def need_transformations(total, one, many):
    """vmap, forward mode, forward over reverse and reverse over reverse, for a function of one scale of the inputs."""
    values = jax.jit(jax.vmap(total, (None, 0)))(1.0, many)
    alone = jax.jit(total)
    for number in range(3):
        np.testing.assert_allclose(values[number], alone(1.0, jax.tree.map(lambda x: x[number], many)), rtol=1e-12)
    slope = jax.jit(jax.grad(total))
    _, forward = jax.jit(lambda t: jax.jvp(lambda t: total(t, one), (t,), (1.0,)))(1.0)
    np.testing.assert_allclose(forward, slope(1.0, one), rtol=1e-10)
    step = 1e-5
    expected = (slope(1.0 + step, one) - slope(1.0 - step, one)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.hessian(lambda t: total(t, one)))(1.0), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(total)))(1.0, one), expected, rtol=1e-6)


def test_transformations():
    """Of the product of multivectors, a kernel, and its norm."""
    own = THEIRS["lgatr"]
    many = jnp.asarray(np.random.default_rng(3).normal(size=(3, 5, 2, 16)))

    def total(scale, x):
        return (own.equi_layer_norm(own.geometric_product(scale * x, x + scale**2)) ** 3).sum()

    need_transformations(total, many[0], many)


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["LGATr", "GATr", "LGATrSlim"])
def test_transformations_of_networks(kind):
    definition, parameters = tiny(kind)
    many = {name: jnp.asarray(x) for name, x in inputs_of(kind, batch=(3,)).items()}

    def total(scale, inputs):
        mv, s = definition(parameters, **{name: scale * x for name, x in inputs.items()})
        return (mv * mv).sum() + (s**3).sum()

    need_transformations(total, jax.tree.map(lambda x: x[0], many), many)


def boost(rapidity):
    """The rotor of a boost along x, and one that turns x to y."""
    rotor = np.zeros(16)
    rotor[0], rotor[5] = np.cosh(rapidity / 2), np.sinh(rapidity / 2)
    turn = np.zeros(16)
    turn[0], turn[8] = np.cos(0.4), np.sin(0.4)
    return THEIRS["lgatr"].geometric_product(jnp.asarray(rotor), jnp.asarray(turn))


def motion():
    """A translation and a rotation."""
    own = THEIRS["gatr"]
    turn = own.interface.embed_rotation(jnp.asarray([0.1, 0.5, -0.3, np.sqrt(1 - 0.35)]))
    return own.geometric_product(own.interface.embed_translation(jnp.asarray([0.3, -1.2, 0.7])), turn)


@pytest.mark.parametrize("kind", ["LGATr", "GATr"])
def test_equivariance(kind):
    """With any parameters: boosts of γ = 10 and turns, and translations and turns."""
    definition, parameters = tiny(kind)
    own = THEIRS[package_of(kind)]
    rotor = boost(np.arccosh(10.0)) if kind == "LGATr" else motion()
    turned = jax.jit(lambda x: own.geometric_product(own.geometric_product(rotor, x), own.reverse(rotor)))
    given = {name: jnp.asarray(x) for name, x in inputs_of(kind).items()}
    run = jax.jit(lambda mv, s: definition(parameters, mv, s))
    mv, s = run(given["multivectors"], given["scalars"])
    moved, same = run(turned(given["multivectors"]), given["scalars"])
    scale = float(jnp.abs(turned(mv)).max())
    assert float(jnp.abs(moved - mv).max()) > 1e-2 * scale
    assert float(jnp.abs(moved - turned(mv)).max()) < 1e-9 * scale
    np.testing.assert_allclose(same, s, rtol=1e-8, atol=1e-9)


def test_equivariance_of_the_slim_network():
    definition, parameters = tiny("LGATrSlim")
    given = inputs_of("LGATrSlim")
    gamma, matrix = 10.0, np.eye(4)
    matrix[0, 0] = matrix[1, 1] = gamma
    matrix[0, 1] = matrix[1, 0] = np.sqrt(gamma**2 - 1)
    run = jax.jit(lambda v, s: definition(parameters, v, s))
    v, s = run(given["vectors"], given["scalars"])
    moved, same = run(given["vectors"] @ matrix, given["scalars"])
    np.testing.assert_allclose(moved, v @ matrix, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(same, s, rtol=1e-9, atol=1e-9)


def test_dropout_takes_whole_grades():
    layer = THEIRS["lgatr"].GradeDropout(0.4)
    run = jax.jit(lambda key: layer({}, jnp.ones((500, 3, 16)), jnp.ones((500, 8)), key=key))
    mv, s = run(jax.random.key(3))
    grades = np.split(np.asarray(mv), (1, 5, 11, 15), -1)
    assert all((grade == grade[..., :1]).all() for grade in grades)
    for values in (*(grade[..., 0] for grade in grades), np.asarray(s)):
        assert set(np.unique(values)) == {0.0, 1 / 0.6} and abs((values == 0).mean() - 0.4) < 0.05
    kept, _ = jax.jit(lambda *x: layer({}, *x))(mv, s)
    assert (kept == mv).all()


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["LGATr", "GATr", "LGATrSlim"])
def test_dropout_in_networks(kind):
    """Another key drops other features."""
    definition, parameters = tiny(kind, dropout_prob=0.5)
    run = jax.jit(lambda key: definition(parameters, **inputs_of(kind), key=key)[1])
    first, again, other = (run(jax.random.key(n)) for n in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    kept = jax.jit(lambda: definition(parameters, **inputs_of(kind))[1])()
    plain = getattr(THEIRS[package_of(kind)], kind)(**TINY[kind])
    # Layers of dropout have numbers among those of the perceptron.
    there = plain.init(jax.random.key(0), jnp.float64)
    same = jax.tree.unflatten(jax.tree.structure(there), jax.tree.leaves(parameters))
    np.testing.assert_allclose(kept, jax.jit(lambda: plain(same, **inputs_of(kind))[1])(), rtol=1e-12)


@pytest.mark.whole
@pytest.mark.parametrize("kind, options", [("LGATr", {"checkpoint_blocks": True}), ("GATr", {"checkpoint": ["block"]})])
def test_blocks_computed_again(kind, options):
    plain, parameters = tiny(kind)
    again = getattr(THEIRS[package_of(kind)], kind)(**(TINY[kind] | options))
    given = inputs_of(kind)

    def gradient(definition):
        loss = lambda p: sum((y * y).sum() for y in definition(p, given["multivectors"], given["scalars"]))  # noqa: E731
        made = jax.make_jaxpr(jax.grad(loss))(parameters)
        return made, jax.jit(jax.grad(loss))(parameters)

    (_, expected), (program, found) = gradient(plain), gradient(again)
    assert "checkpoint" in str(program) or "remat" in str(program)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * float(jnp.abs(b).max()))


def test_definitions_are_equal_by_their_options():
    one, two, other = (THEIRS["lgatr"].LGATr(**TINY["LGATr"], checkpoint_blocks=flag) for flag in (False, False, True))
    assert one == two and hash(one) == hash(two) and one != other


def test_errors():
    own = THEIRS["lgatr"]
    definition, parameters = tiny("LGATr")
    given = inputs_of("LGATr")

    def call(parameters=parameters, definition=definition, options={}, **changed):
        jax.eval_shape(lambda x: definition(parameters, **x, **options), given | changed)

    with pytest.raises(gradewise.ShapeError, match="multivectors of 2 channels"):
        call(multivectors=jnp.ones((2, 3, 2, 16)))
    with pytest.raises(gradewise.ShapeError, match="one row of scalars for each item"):
        call(scalars=jnp.ones((2, 4, 1)))
    with pytest.raises(gradewise.ArgumentError, match="no scalars"):
        call(scalars=None)
    with pytest.raises(gradewise.ArgumentError, match="no option 'dropout_p'"):
        call(options={"dropout_p": 0.5})
    with pytest.raises(gradewise.ShapeError, match="attention: mask"):
        call(options={"attn_mask": np.ones((4, 4), bool)})
    with pytest.raises(gradewise.ArgumentError, match="reinsert_mv_channels has 3"):
        call(definition=tiny("LGATr", reinsert_mv_channels=[3])[0])
    state = {name: np.asarray(x) for name, x in named(parameters)}
    other = own.LGATr(**(TINY["LGATr"] | {"out_mv_channels": 2}))
    with pytest.raises(gradewise.CheckpointError, match=r"linear_out\.\S+ has shape .*, expected"):
        own.load(jax.eval_shape(other.init, jax.random.key(0)), state)
    with pytest.raises(gradewise.CheckpointError, match="are not in both"):
        own.load(parameters, {name: x for name, x in state.items() if name != "linear_in.weight"})
    slim, weights = tiny("LGATrSlim")
    with pytest.raises(gradewise.ShapeError, match="vectors of shape"):
        slim(weights, jnp.ones((2, 3, 1, 5)), jnp.ones((2, 3, 1)))
    gatr, weights = tiny("GATr")
    with pytest.raises(gradewise.ArgumentError, match="join_reference 'origin'"):
        gatr(weights, **given, join_reference="origin")
    with pytest.raises(gradewise.ArgumentError, match="even number"):
        THEIRS["gatr"].GeometricBilinear(1, 3)
