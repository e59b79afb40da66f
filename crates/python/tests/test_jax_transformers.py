"""The transformers in JAX against golden vectors and against those of PyTorch, with weights of the published packages."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import gradewise
import gradewise.jax.gatr
import gradewise.jax.lgatr
import transformer_cases
from gradewise.jax._transformers.definition import named
from sweeps import sampled
from transformer_cases import FOLDER, OURS, default_dtype, evaluate, golden, worst

# Most of the time of these tests is XLA's, for programs that run once.
jax.config.update("jax_disable_most_optimizations", True)

THEIRS = {"lgatr": gradewise.jax.lgatr, "gatr": gradewise.jax.gatr}
TINY = {
    "LGATr": {"num_blocks": 1, "in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 2, "in_s_channels": 1}
    | {"out_s_channels": 1, "hidden_s_channels": 4, "attention": {"num_heads": 2}, "mlp": {"mlp_ratio": 1}},
    "GATr": {"in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 2, "in_s_channels": 1, "out_s_channels": 1}
    | {"hidden_s_channels": 4, "attention": {"num_heads": 2, "pos_encoding": True}, "mlp": {}, "num_blocks": 1},
    "LGATrSlim": {"num_blocks": 1, "in_v_channels": 1, "out_v_channels": 1, "hidden_v_channels": 2, "in_s_channels": 1}
    | {"out_s_channels": 1, "hidden_s_channels": 4, "num_heads": 2},
}


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def package_of(kind):
    return "gatr" if kind.endswith("GATr") and not kind.endswith("LGATr") else "lgatr"


def made(package, kind, arguments, weights, dtype=jnp.float64):
    """A definition, and its parameters with these weights."""
    definition = getattr(THEIRS[package], kind)(**arguments)
    begun = definition.init(jax.random.key(0), dtype)
    return definition, THEIRS[package].load(begun, weights)


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
GOLDEN = sampled([pytest.param(case, id=case[0]) for case in CASES], 6)


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


@pytest.mark.parametrize("case", GOLDEN)
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


DRAWS = [(package, seed) for seed in range(12) for package in ("lgatr", "gatr")]


@pytest.mark.parametrize("package, seed", sampled([pytest.param(*draw, id="-".join(map(str, draw))) for draw in DRAWS], 9))
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


def inputs_of(kind, seed=0, items=3, batch=()):
    generator = np.random.default_rng(seed)
    first = ("vectors", 4) if kind == "LGATrSlim" else ("multivectors", 16)
    scalars = generator.normal(size=(*batch, 2, items, 1))
    return {first[0]: generator.normal(size=(*batch, 2, items, 1, first[1])), "scalars": scalars}


def tiny(kind, seed=1, **options):
    """A definition of one block with parameters away from their initial values."""
    definition = getattr(THEIRS[package_of(kind)], kind)(**(TINY[kind] | options))
    generator = np.random.default_rng(seed)
    begun = definition.init(jax.random.key(seed), jnp.float64)
    return definition, jax.tree.map(lambda p: p + 0.3 * generator.normal(size=p.shape), begun)


def test_initial_values_are_those_of_the_bounds():
    """The same bounds as in PyTorch: the greatest of many values is close to them, and none is beyond."""
    theirs = OURS["gatr"].EquiLinear(40, 40, 40, 40, initialization="small")
    ours = dict(named(THEIRS["gatr"].EquiLinear(40, 40, 40, 40, initialization="small").init(jax.random.key(0))))
    assert {name: tuple(x.shape) for name, x in theirs.state_dict().items()} == {n: x.shape for n, x in ours.items()}
    for name, x in theirs.state_dict().items():
        for coefficient in range(9) if name == "weight" else [Ellipsis]:
            ratio = np.abs(ours[name][..., coefficient]).max() / np.abs(x[..., coefficient].numpy()).max()
            assert 0.8 < ratio < 1.25, (name, coefficient, ratio)


@pytest.mark.parametrize("kind", ["LGATr", "GATr"])
def test_transformations(kind):
    """vmap, forward mode, forward over reverse and reverse over reverse, for a function of one scale of the inputs."""
    definition, parameters = tiny(kind)
    given = {name: jnp.asarray(x) for name, x in inputs_of(kind, batch=(3,)).items()}
    one = {name: x[0] for name, x in given.items()}

    def total(scale, inputs):
        mv, s = definition(parameters, **{name: scale * x for name, x in inputs.items()})
        return (mv * mv).sum() + (s**3).sum()

    values = jax.jit(jax.vmap(total, (None, 0)))(1.0, given)
    alone = jax.jit(total)
    for number in range(3):
        np.testing.assert_allclose(values[number], alone(1.0, {n: x[number] for n, x in given.items()}), rtol=1e-12)
    slope = jax.jit(jax.grad(total))
    _, forward = jax.jit(lambda t: jax.jvp(lambda t: total(t, one), (t,), (1.0,)))(1.0)
    np.testing.assert_allclose(forward, slope(1.0, one), rtol=1e-10)
    step = 1e-5
    expected = (slope(1.0 + step, one) - slope(1.0 - step, one)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.hessian(lambda t: total(t, one)))(1.0), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(total)))(1.0, one), expected, rtol=1e-6)


def boost(rapidity):
    """The rotor of a boost along x, and one that turns x to y."""
    rotor = np.zeros(16)
    rotor[0], rotor[5] = np.cosh(rapidity / 2), np.sinh(rapidity / 2)
    turn = np.zeros(16)
    turn[0], turn[8] = np.cos(0.4), np.sin(0.4)
    return gradewise.jax.lgatr.geometric_product(jnp.asarray(rotor), jnp.asarray(turn))


def motion():
    """A translation and a rotation."""
    own = gradewise.jax.gatr
    turn = own.interface.embed_rotation(jnp.asarray([0.1, 0.5, -0.3, np.sqrt(1 - 0.35)]))
    return own.geometric_product(own.interface.embed_translation(jnp.asarray([0.3, -1.2, 0.7])), turn)


@pytest.mark.parametrize("kind", ["LGATr", "GATr"])
def test_equivariance(kind):
    """With any parameters: boosts of γ = 10 and turns, and translations and turns."""
    definition, parameters = tiny(kind)
    own = THEIRS[package_of(kind)]
    rotor = boost(np.arccosh(10.0)) if kind == "LGATr" else motion()
    turned = lambda x: own.geometric_product(own.geometric_product(rotor, x), own.reverse(rotor))  # noqa: E731
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
    layer = gradewise.jax.lgatr.GradeDropout(0.4)
    mv, s = layer({}, jnp.ones((500, 3, 16)), jnp.ones((500, 8)), key=jax.random.key(3))
    grades = np.split(np.asarray(mv), (1, 5, 11, 15), -1)
    assert all((grade == grade[..., :1]).all() for grade in grades)
    for values in (*(grade[..., 0] for grade in grades), np.asarray(s)):
        assert set(np.unique(values)) == {0.0, 1 / 0.6} and abs((values == 0).mean() - 0.4) < 0.05
    kept, _ = layer({}, mv, s)
    assert (kept == mv).all()
    definition, parameters = tiny("LGATr", dropout_prob=0.5)
    given = inputs_of("LGATr")
    run = jax.jit(lambda key: definition(parameters, given["multivectors"], given["scalars"], key=key)[1])
    first, again, other = (run(jax.random.key(n)) for n in (0, 0, 1))
    assert (first == again).all() and (first != other).any()


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


def attention_inputs(before=(2, 3), heads=2, items=3, others=4):
    generator = np.random.default_rng(5)
    shapes = [(items, 2, 16), (others, 2, 16), (others, 1, 16), (items, 3), (others, 3), (others, 5)]
    return [generator.normal(size=(*before, heads, *shape)) for shape in shapes]


@pytest.mark.parametrize("mask", [(3, 4), (2, 3, 4), (2, 3, 1, 3, 4), (3, 2, 3, 4)])
@pytest.mark.parametrize("is_bool", [True, False])
def test_masks(mask, is_bool):
    generator = np.random.default_rng(6)
    values = generator.normal(size=mask)
    values = values > -0.8 if is_bool else values
    given = attention_inputs()
    found = gradewise.jax.lgatr.sdp_attention(*map(jnp.asarray, given), attn_mask=values)
    expected = OURS["lgatr"].primitives.sdp_attention(*map(torch.from_numpy, given), attn_mask=torch.from_numpy(values))
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12, atol=1e-12)


def test_causal_attention_and_items_that_attend_to_none():
    given = attention_inputs(others=3)
    mask = np.ones((3, 3), bool)
    mask[0, 0] = False
    run = lambda *x: gradewise.jax.lgatr.sdp_attention(*x, attn_mask=mask, is_causal=True, scale=0.3)  # noqa: E731
    mv, s = run(*map(jnp.asarray, given))
    assert not mv[..., 0, :, :].any() and not s[..., 0, :].any()
    triangle = torch.from_numpy(mask & np.tri(3, dtype=bool))
    expected, _ = OURS["lgatr"].primitives.sdp_attention(*map(torch.from_numpy, given), attn_mask=triangle, scale=0.3)
    np.testing.assert_allclose(mv[..., 1:, :, :], expected.numpy()[..., 1:, :, :], rtol=1e-12, atol=1e-12)
    gradient = jax.grad(lambda x: run(x, *map(jnp.asarray, given[1:]))[0].sum())(jnp.asarray(given[0]))
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_attention_of_jax_itself():
    """``implementation`` is that of ``jax.nn.dot_product_attention``, whose softmax is in single precision."""
    given = [jnp.asarray(x, jnp.float32) for x in attention_inputs()]
    mask = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)) > -0.8)
    for options in ({}, {"attn_mask": mask}, {"attn_mask": jnp.where(mask, 0.3, -0.2)}):
        own = gradewise.jax.lgatr.sdp_attention(*given, **options)
        for a, b in zip(gradewise.jax.lgatr.sdp_attention(*given, **options, implementation="xla"), own):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


FUNCTIONS = {
    "lgatr": {"geometric_product": 2, "inner_product": 2, "abs_squared_norm": 1, "equi_layer_norm": 1, "reverse": 1}
    | {"grade_project": 1, "grade_involute": 1},
    "gatr": {"geometric_product": 2, "outer_product": 2, "equivariant_join": 3, "inner_product": 2, "dual": 1}
    | {"reverse": 1, "grade_involute": 1},
}


@pytest.mark.parametrize("package, name", [(p, name) for p, names in FUNCTIONS.items() for name in names])
def test_functions(package, name):
    generator = np.random.default_rng(7)
    given = [generator.normal(size=(2, 3, 16)) for _ in range(FUNCTIONS[package][name])]
    found = getattr(THEIRS[package], name)(*map(jnp.asarray, given))
    primitives = __import__(f"gradewise.torch.{package}.primitives", fromlist=[name])
    close(found, getattr(primitives, name)(*map(torch.from_numpy, given)))


def close(found, expected):
    assert found.dtype.name == "float64"
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("package, maps", [("lgatr", 5), ("lgatr", 10), ("gatr", 9)])
def test_equi_linear(package, maps):
    generator = np.random.default_rng(8)
    x, coefficients = generator.normal(size=(2, 3, 4, 16)), generator.normal(size=(5, 4, maps))
    primitives = __import__(f"gradewise.torch.{package}.primitives", fromlist=["equi_linear"])
    found = THEIRS[package].equi_linear(jnp.asarray(x), jnp.asarray(coefficients))
    close(found, primitives.equi_linear(torch.from_numpy(x), torch.from_numpy(coefficients)))


INTERFACE = {
    "lgatr": {"scalar": 1, "vector": 4, "bivector": 6, "axialvector": 4, "pseudoscalar": 1},
    "gatr": {"scalar": 1, "point": 3, "translation": 3, "rotation": 4, "oriented_plane": 3, "pluecker_ray": 6}
    | {"pseudoscalar": 1, "point_embedding_reg": 0},
}


@pytest.mark.parametrize("package, name", [(p, name) for p, names in INTERFACE.items() for name in names])
def test_interface(package, name):
    ours, theirs = ((x.interface if package == "gatr" else x) for x in (THEIRS[package], OURS[package]))
    generator, width = np.random.default_rng(9), INTERFACE[package][name]
    if width:
        given = [generator.normal(size=(5, width)) for _ in range(2 if name == "oriented_plane" else 1)]
        embed = f"embed_{name}"
        close(getattr(ours, embed)(*map(jnp.asarray, given)), getattr(theirs, embed)(*map(torch.from_numpy, given)))
    if name != "translation":
        mv, extract = generator.normal(size=(5, 16)), f"extract_{name}"
        close(getattr(ours, extract)(jnp.asarray(mv)), getattr(theirs, extract)(torch.from_numpy(mv)))


@pytest.mark.parametrize("beam", ["lightlike", "timelike", "spacelike", "xyplane", None])
@pytest.mark.parametrize("has_time, is_mirrored", [(True, True), (False, True), (True, False)])
def test_spurions(beam, has_time, is_mirrored):
    options = (beam, has_time, is_mirrored)
    found = gradewise.jax.lgatr.get_spurions(*options, dtype=jnp.float64)
    close(found, OURS["lgatr"].get_spurions(*options, dtype=torch.float64))
    assert len(found) == gradewise.jax.lgatr.get_num_spurions(*options)


def test_definitions_are_equal_by_their_options():
    one, two, other = (gradewise.jax.lgatr.LGATr(**TINY["LGATr"], checkpoint_blocks=flag) for flag in (False, False, True))
    assert one == two and hash(one) == hash(two) and one != other


def test_errors():
    own = gradewise.jax.lgatr
    definition, parameters = tiny("LGATr")
    given = inputs_of("LGATr")
    with pytest.raises(gradewise.ShapeError, match="multivectors of 2 channels"):
        definition(parameters, jnp.ones((2, 3, 2, 16)), given["scalars"])
    with pytest.raises(gradewise.ShapeError, match="one row of scalars for each item"):
        definition(parameters, given["multivectors"], jnp.ones((2, 4, 1)))
    with pytest.raises(gradewise.ArgumentError, match="no scalars"):
        definition(parameters, given["multivectors"])
    with pytest.raises(gradewise.ArgumentError, match="no option 'dropout_p'"):
        definition(parameters, **given, dropout_p=0.5)
    with pytest.raises(gradewise.ShapeError, match="attention: mask"):
        definition(parameters, **given, attn_mask=np.ones((4, 4), bool))
    with pytest.raises(gradewise.ArgumentError, match="reinsert_mv_channels has 3"):
        tiny("LGATr", reinsert_mv_channels=[3])[0](parameters, **given)
    state = {name: np.asarray(x) for name, x in named(parameters)}
    with pytest.raises(gradewise.CheckpointError, match=r"linear_out.weight has shape \[1, 2, 10\], expected"):
        own.load(own.LGATr(**(TINY["LGATr"] | {"out_mv_channels": 2})).init(jax.random.key(0)), state)
    with pytest.raises(gradewise.CheckpointError, match="are not in both"):
        own.load(parameters, {name: x for name, x in state.items() if name != "linear_in.weight"})
