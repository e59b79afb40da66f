"""Batches of multivectors are multivectors, element by element; multivectors in notebooks; names of other packages."""

import itertools
import operator

import numpy as np
import pytest

import gradewise as gw
from gradewise import Algebra, Multivectors, Rotor

SIGNATURES = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (3, 0, 1), (4, 1, 0)]
OPERATORS = [
    operator.mul, operator.xor, operator.or_, operator.and_, operator.lshift, operator.rshift, operator.add, operator.sub,
]  # fmt: skip


def drawn(algebra, *shape, seed=0):
    rng = np.random.default_rng(seed)
    return Multivectors(algebra, rng.integers(-3, 4, (*shape, len(algebra.blades))))


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
def test_operators_are_those_of_multivectors(apply, signature):
    algebra = Algebra(signature)
    x, y = drawn(algebra, 2, 1, seed=1), drawn(algebra, 3, seed=2)
    made = apply(x, y)
    assert made.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        assert made[i, j] == apply(x[i, 0], y[j])
    one = y[0]
    assert apply(x, one)[1, 0] == apply(x[1, 0], one) and apply(one, x)[1, 0] == apply(one, x[1, 0])
    assert apply(x, 2.0)[1, 0] == apply(x[1, 0], 2.0) and apply(2.0, x)[1, 0] == apply(2.0, x[1, 0])
    assert apply(np.float64(2), x)[1, 0] == apply(2.0, x[1, 0])


@pytest.mark.parametrize("signature", SIGNATURES)
def test_parts_are_those_of_multivectors(signature):
    algebra = Algebra(signature)
    x = drawn(algebra, 4)
    for number, one in enumerate(x):
        assert (~x)[number] == ~one and (-x)[number] == -one and x.involution()[number] == one.involution()
        assert x.grade(2)[number] == one.grade(2) and (x / 2)[number] == one / 2
        assert x.norm()[number] == pytest.approx(one.norm()) and x.squared_norm()[number] == one.squared_norm()
        assert tuple(x.vector_part[number]) == one.vector_part
        assert x["e12"][number] == one["e12"] == -x["e21"][number]
    assert len(x) == 4 and x[1:3].shape == (2,) and x[..., 1] == x[1]
    assert Multivectors(algebra, list(x)).coefficients.tolist() == x.coefficients.tolist()


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0), (3, 0, 1)])
def test_versors_act(signature):
    algebra = Algebra(signature)
    rng = np.random.default_rng(3)
    x = Multivectors.vectors(algebra, rng.normal(size=(5, algebra.dimension)))
    mirror, rotor = algebra.vector(*range(1, algebra.dimension + 1)), algebra.rotor(algebra.e23, 0.7)
    for versor in (mirror, rotor, mirror * rotor.multivector):
        moved = versor @ x
        for number, one in enumerate(x):
            assert moved[number].isclose(versor @ one, atol=1e-12)
    versors = Multivectors(algebra, [mirror, rotor])
    assert (versors @ x[0])[0].isclose(mirror.sandwich(x[0]), atol=1e-12)
    assert (versors @ x[0])[1].isclose(rotor.apply(x[0]), atol=1e-12)
    with pytest.raises(gw.ArgumentError, match=r"element \[1\] is no versor"):
        Multivectors(algebra, [mirror, 1 + mirror]) @ x[0]
    with pytest.raises(gw.ArgumentError, match="no inverse|no versor"):
        (x * 0) @ x


def test_mistakes_are_named():
    space, spacetime = Algebra(3), Algebra(1, 3)
    with pytest.raises(gw.ShapeError, match=r"\[2, 3\], expected \[..., 8\]"):
        Multivectors(space, np.zeros((2, 3)))
    with pytest.raises(gw.ShapeError, match=r"\[3\] and \[2\]"):
        drawn(space, 3) * drawn(space, 2)
    with pytest.raises(gw.ShapeError, match=r"vectors.*\[2, 4\], expected \[..., 3\]"):
        Multivectors.vectors(space, np.zeros((2, 4)))
    with pytest.raises(gw.ArgumentError, match="one algebra"):
        drawn(space, 3) * drawn(spacetime, 3)
    with pytest.raises(gw.ArgumentError):
        drawn(space, 3) * spacetime.e1
    for apply in [*OPERATORS, operator.matmul, operator.truediv]:
        for other in ("e1", np.ones(3)):
            with pytest.raises(TypeError):
                apply(drawn(space, 3), other)
    with pytest.raises(KeyError, match="e4"):
        drawn(space, 3)["e4"]


def test_the_null_generator_is_e0():
    space, plane = Algebra(3, 0, 1), Algebra(2, 0, 1)
    assert space.e0 == space.e4 == space["e0"] and space.e0 * space.e0 == 0
    assert space.e01 == space.e0 ^ space.e1 == -space.e14 and plane.e012 == plane.e0 ^ plane.e12
    assert space.multivector({"e01": 2}) == 2 * space.e0 * space.e1
    assert space.plane(1, 2, 3, 5)["e0"] == 5
    assert space.point(1, 2, 3) == space.e123 + space.e0 * (-3 * space.e12 + 2 * space.e13 - space.e23)
    for algebra in (Algebra(3), Algebra(2, 0, 2)):
        assert not hasattr(algebra, "e0")
    with pytest.raises(KeyError, match="the last is e0"):
        space["e5"]
    assert not hasattr(space, "e00") and not hasattr(space, "e04")


def test_notebooks_show_sums_of_blades():
    space = Algebra(3)
    x = space.multivector("1 + 2e1 - e12 - 0.5e123")
    assert x._repr_latex_() == r"$1 + 2\,e_{1} - e_{12} - 0.5\,e_{123}$"
    assert x._repr_html_() == (
        "1 + 2&thinsp;<i>e</i><sub>1</sub> − <i>e</i><sub>12</sub> − 0.5&thinsp;<i>e</i><sub>123</sub>"
    )
    latex = {
        "0": "0", "-e1": "-e_{1}", "(1e-7)": r"1 \cdot 10^{-7}", "123456.7e2": r"123457\,e_{2}", "1234567e2": r"1.23457 \cdot 10^{6}\,e_{2}",
        "0.00012": "0.00012", "0.333333333333": "0.333333",
    }  # fmt: skip
    for text, expected in latex.items():
        assert space.multivector(text)._repr_latex_() == f"${expected}$"
    assert space.scalar(2e-9)._repr_html_() == "2·10<sup>−9</sup>"
    assert (space.e1 * float("inf"))._repr_latex_().startswith("$") and "∞" in space.scalar(float("inf"))._repr_html_()
    rotor = space.rotor(space.e12, 0.5)
    assert rotor._repr_latex_() == rotor.multivector._repr_latex_() and "<sub>12</sub>" in rotor._repr_html_()
    batch = drawn(space, 12)
    assert batch._repr_html_().count("<tr>") == 11 and "2 more" in batch._repr_html_()
    assert repr(batch) == "<multivectors [12] of Algebra(3, 0, 0)>"
    assert isinstance(rotor, Rotor)


@pytest.mark.parametrize("signature", [(3, 0, 0), (1, 3, 0), (2, 0, 1)])
def test_products_are_those_of_the_package_clifford(signature):
    """Theirs are ours, but for the inner product with scalars: theirs is Hestenes', zero there; ours is the fat dot, their product."""
    clifford = pytest.importorskip("clifford")
    layout, _ = clifford.Cl(*signature)
    algebra = Algebra(*signature)
    # By names. Theirs counts null generators first, and from 1: here e0.
    names = [name.translate({ord(str(n)): str(n - signature[2]) for n in range(1, 5)}) for name in layout.names]
    blades = [algebra[name or "1"] for name in names]
    assert list(layout.sig[: signature[2]]) == [0] * signature[2]
    rng = np.random.default_rng(5)
    values = rng.integers(-3, 4, (2, len(blades))).astype(float)
    theirs = [clifford.MultiVector(layout, value) for value in values]
    ours = [sum(number * blade for number, blade in zip(value, blades)) for value in values]

    def same(made, expected):
        found = [(made * blade.coefficients[index])[algebra.blades[index]] for blade, index in zip(blades, places)]
        assert np.allclose(found, expected.value, atol=1e-12)

    places = [next(i for i, sign in enumerate(blade.coefficients) if sign) for blade in blades]
    a, b = ours
    c, d = theirs
    same(a * b, c * d)
    same(a ^ b, c ^ d)
    same(a << b, c.lc(d))
    same(~a, ~c)
    same((a - a[0]) | (b - b[0]), c | d)
    assert a | 2 == 2 * a and (c | 2) == 0
