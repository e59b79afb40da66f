"""Algebras, multivectors and rotors: the laws they obey, and how they look in Python."""

import copy
import math
import pickle

import numpy as np
import pytest

import gradewise as gw
from gradewise import Algebra, Rotor

SIGNATURES = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (3, 0, 1), (4, 1, 0)]


def drawn(algebra, seed, count=3):
    rng = np.random.default_rng(seed)
    return [algebra.multivector(rng.integers(-3, 4, len(algebra.blades)).astype(float)) for _ in range(count)]


def test_signatures():
    assert Algebra(3, 0, 1) == Algebra((3, 0, 1)) == Algebra("3,0,1") == Algebra("Cl(3,0,1)") == Algebra([3, 0, 1])
    assert Algebra(3).signature == (3, 0, 0) and Algebra(1, 3).signature == (1, 3, 0)
    assert repr(Algebra(3, 0, 1)) == "Algebra(3, 0, 1)"
    assert len({Algebra(2), Algebra(2, 0), Algebra(3)}) == 2
    assert Algebra(2) != (2, 0, 0)
    with pytest.raises(gw.ArgumentError, match="9 generators"):
        Algebra(9)
    with pytest.raises(gw.ArgumentError, match="not a signature"):
        Algebra("three")
    for wrong in [(), (1, 2, 3, 4), (1.5,), (-1,), (None,)]:
        with pytest.raises(gw.ArgumentError, match="not a signature"):
            Algebra(*wrong)


def test_blades_grades_and_generators():
    cl3 = Algebra(3)
    assert cl3.blades == ("1", "e1", "e2", "e3", "e12", "e13", "e23", "e123")
    assert cl3.grades == (0, 1, 1, 1, 2, 2, 2, 3)
    assert cl3.dimension == 3
    e1, e2, e3 = cl3.generators
    assert (e1, e2, e3) == (cl3.e1, cl3.e2, cl3.e3)
    assert cl3.e12 == e1 * e2 == cl3["e12"] == -cl3["e21"] == -cl3.e21
    assert cl3.pseudoscalar == cl3.e123 == e1 ^ e2 ^ e3
    assert "e123" in dir(cl3) and "multivector" in dir(cl3)
    with pytest.raises(AttributeError, match="no blade `e4`"):
        cl3.e4
    with pytest.raises(AttributeError, match="nothing"):
        cl3.nothing
    with pytest.raises(KeyError, match="e14"):
        cl3["e14"]
    assert not hasattr(cl3, "e11") and not hasattr(cl3, "e")


@pytest.mark.parametrize("signature", SIGNATURES)
def test_the_tables_are_those_of_the_product(signature):
    algebra = Algebra(signature)
    blades = [algebra[name] for name in algebra.blades]
    for left, row in enumerate(algebra.cayley):
        for right, cell in enumerate(row):
            product = blades[left] * blades[right]
            expected = 0 * algebra.e1 if cell == "0" else algebra[cell.lstrip("-")] * (-1 if cell[0] == "-" else 1)
            assert product == expected, (left, right)
    for left, right, out, sign in algebra.terms:
        assert blades[left] * blades[right] == sign * blades[out]
    grades = algebra.grades
    paths = {(grades[left], grades[out], grades[right]) for left, right, out, _ in algebra.terms}
    assert algebra.paths == sorted(paths)
    squares = [(e * e).scalar_part for e in algebra.generators]
    p, q, r = signature
    assert squares == [1.0] * p + [-1.0] * q + [0.0] * r


@pytest.mark.parametrize("signature", SIGNATURES)
def test_laws_hold_exactly_for_whole_numbers(signature):
    algebra = Algebra(signature)
    for seed in range(5):
        a, b, c = drawn(algebra, seed)
        assert (a * b) * c == a * (b * c)
        assert a * (b + c) == a * b + a * c
        assert ~(a * b) == ~b * ~a
        assert (a * b).involution() == a.involution() * b.involution()
        assert a.conjugate() == ~a.involution()
        assert (a ^ b) ^ c == a ^ (b ^ c)
        assert (a & b).dual() == a.dual() ^ b.dual()
        assert a.dual().undual() == a == a.undual().dual()
        assert sum((a[k] for k in range(algebra.dimension + 1)), 0 * a) == a == a.even() + a.odd()
        assert (a << b) == sum(
            (
                (a[i] * b[j])[j - i]
                for i in range(len(a.algebra.generators) + 1)
                for j in range(i, algebra.dimension + 1)
            ),
            0 * a,
        )
        assert ~(a << b) == ~b >> ~a
        assert a.scalar_product(b) == (a * b).scalar_part
        assert a.squared_norm() == (~a * a).scalar_part
        assert a.commutator(b) == (a * b - b * a) / 2


def test_operators_and_methods_are_the_same():
    a, b, _ = drawn(Algebra(1, 3), 7)
    assert a ^ b == a.outer(b) and a | b == a.inner(b) and a & b == a.regressive(b)
    assert a << b == a.left_contraction(b) and a >> b == a.right_contraction(b)
    assert ~a == a.reverse() and abs(a) == a.norm() and +a == a and -a == a * -1


def test_numbers_are_scalars():
    algebra = Algebra(3)
    x = algebra.multivector("1 + 2e1 - e12")
    one = algebra.scalar(1.0)
    assert x + 1 == 1 + x == x + one
    assert x - 1 == -(1 - x) == x - one
    assert 2 * x == x * 2 == x + x == np.float64(2) * x == x * np.float32(2)
    assert x / 2 == 0.5 * x
    assert 3 ^ x == 3 * x and (2 << x) == 2 * x and (x >> 2) == 2 * x
    assert 1 / algebra.e1 == algebra.e1
    assert one == 1 and one == 1.0 and algebra.e1 != 1
    with pytest.raises(gw.ArgumentError, match="zero"):
        x / 0
    for wrong in ("e1", None, [1.0]):
        with pytest.raises(TypeError):
            x + wrong


def test_powers():
    algebra = Algebra(3)
    x = algebra.multivector("1 + 2e1 - e12")
    assert x**0 == 1 and x**1 == x and x**5 == x * x * x * x * x
    v = algebra.vector(3, 0, 4)
    assert (v**-2).isclose(1 / 25 * (v**0))
    general = algebra.multivector("2 + e1 - e12 + 3e123")
    assert (general * general**-1).isclose(1) and (general**-2 * general).isclose(general.inverse())
    with pytest.raises(gw.ArgumentError, match="divides zero"):
        (algebra.scalar(1.0) + algebra.e1) ** -1


def test_making_multivectors():
    algebra = Algebra(3)
    x = algebra.multivector("1 + 2e1 - e12")
    assert x == algebra.multivector({"1": 1, "e1": 2, "e21": 1})
    assert x == algebra.multivector([1, 2, 0, 0, -1, 0, 0, 0]) == algebra.multivector(x.numpy())
    assert algebra.multivector(x) == x and algebra.multivector(2) == algebra.scalar(2)
    assert algebra.vector([1, 2, 3]) == algebra.vector(1, 2, 3) == algebra.vector(np.array([1.0, 2.0, 3.0]))
    with pytest.raises(gw.ArgumentError, match="at character"):
        algebra.multivector("1 + 2f1")
    with pytest.raises(gw.ArgumentError, match="no blade `e4`"):
        algebra.multivector({"e4": 1})
    with pytest.raises(gw.ShapeError, match="8"):
        algebra.multivector([1, 2])
    with pytest.raises(gw.ShapeError, match="one per generator"):
        algebra.vector(1, 2)
    with pytest.raises(gw.ArgumentError, match="Cl\\(2,0,0\\)"):
        algebra.multivector(Algebra(2).e1)
    with pytest.raises(gw.ArgumentError, match="object cannot become a multivector"):
        algebra.multivector(object())


def test_indexing():
    x = Algebra(3).multivector("1 + 2e1 - 4e12")
    assert x["e1"] == 2.0 and isinstance(x["e1"], float)
    assert x["e12"] == -4 and x["e21"] == 4 and x["1"] == 1 and x["e3"] == 0
    assert x[1] == x.grade(1) == Algebra(3).multivector("2e1")
    assert x.scalar_part == 1 and x.vector_part == (2, 0, 0) and x.grades == (0, 1, 2)
    assert x.to_dict() == {"1": 1.0, "e1": 2.0, "e12": -4.0}
    with pytest.raises(KeyError, match="e4"):
        x["e4"]
    for wrong in (4, -1):
        with pytest.raises(IndexError, match="grades 0 to 3"):
            x[wrong]
    with pytest.raises(TypeError):
        x[1.5]


def test_numpy():
    x = Algebra(2).multivector("1 + 2e1 - e12")
    np.testing.assert_array_equal(x.numpy(), [1, 2, 0, -1])
    np.testing.assert_array_equal(np.asarray(x), x.coefficients)
    assert np.asarray(x).dtype == np.float64 and np.asarray(x, np.float32).dtype == np.float32


def test_equality_and_hash():
    algebra = Algebra(3)
    x, y = algebra.multivector("1 + 2e1"), algebra.multivector("2e1 + 1")
    assert x == y and hash(x) == hash(y) and x != algebra.multivector("2e1")
    assert hash(algebra.scalar(2)) == hash(2) and {2: "two"}[algebra.scalar(2)] == "two"
    zero = -1 * (0 * algebra.e1)
    assert zero == 0 and hash(zero) == hash(0) and not zero and bool(x)
    assert hash(x + zero * algebra.e2) == hash(x - 0 * algebra.e2)
    assert Algebra(2).e1 != algebra.e1 and x != "1 + 2e1"


def test_text():
    x = Algebra(3).multivector("1 + 2e1 - 0.5e12")
    assert repr(x) == str(x) == f"{x}" == "1 + 2e1 − 0.5e12"
    assert f"{x / 3:.3}" == f"{x / 3:.3f}" == "0.333 + 0.667e1 − 0.167e12"
    assert x.algebra.multivector(repr(x)) == x
    with pytest.raises(ValueError, match="precision"):
        f"{x:>10}"
    html = Algebra(2)._repr_html_()
    assert html.count("<td>") == 16 and "<td>−1</td>" in html
    assert "256 blades" in Algebra(8)._repr_html_()


def test_pickle_and_copy():
    algebra = Algebra(1, 3)
    rotor = algebra.rotor(algebra.e23, 0.7)
    for value in (algebra, algebra.multivector("1 + 2e1 - e12"), rotor):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


def test_different_algebras_do_not_meet():
    a, b = Algebra(2).e1, Algebra(3).e1
    for operation in (lambda: a * b, lambda: a + b, lambda: a ^ b, lambda: a.sandwich(b), lambda: a.isclose(b)):
        with pytest.raises(gw.ArgumentError, match=r"Cl\(2,0,0\) and Cl\(3,0,0\)"):
            operation()


def test_inverse_and_norm():
    algebra = Algebra(1, 3)
    x = algebra.vector(3, 1, 0, 1)
    assert x.squared_norm() == 7 and x.norm() == math.sqrt(7)
    assert (x * x.inverse()).isclose(algebra.scalar(1)) and (x.normalized() * x.norm()).isclose(x)
    null = algebra.vector(1, 1, 0, 0)
    for operation in (null.inverse, null.normalized):
        with pytest.raises(gw.ArgumentError, match="no result"):
            operation()


def test_reflections_and_sandwiches():
    algebra = Algebra(3)
    e1, e2, e3 = algebra.generators
    assert e1.sandwich(e1) == -e1 and e1.sandwich(e2) == e2 == e1.apply(e2)
    assert (2 * e1 + e3).reflected_in(e1) == -2 * e1 + e3
    with pytest.raises(gw.ArgumentError, match="even and odd"):
        (1 + algebra.e123).sandwich(e1)


def test_rotors_turn():
    algebra = Algebra(3)
    e1, e2, e3 = algebra.generators
    quarter = algebra.rotor(e1 ^ e2, math.pi / 2)
    assert quarter(e1).isclose(e2) and quarter.apply(e3).isclose(e3) and quarter(e2).isclose(-e1)
    assert (~quarter)(e2).isclose(e1) and (quarter * ~quarter).multivector.isclose(algebra.scalar(1))
    assert (quarter**0.5 * quarter**0.5).multivector.isclose(quarter.multivector)
    assert algebra.rotor_between(e1, 5 * e2).multivector.isclose(quarter.multivector)
    assert algebra.rotor_between(e1, -e1)(e1).isclose(-e1, atol=1e-12)
    assert quarter.log().exp().isclose(quarter.multivector) and Rotor(quarter.multivector) == quarter
    assert (quarter * e3).isclose(quarter.multivector * e3) and (e3 * quarter).isclose(e3 * quarter.multivector)
    assert 2 * quarter == quarter * 2 == 2 * quarter.multivector
    assert algebra.identity(e1) == e1 and quarter.algebra == algebra
    assert repr(algebra.identity) == "Rotor(1)"
    with pytest.raises(gw.ArgumentError, match="normalize first"):
        Rotor(2 * algebra.e12)
    with pytest.raises(gw.ArgumentError, match="bivector"):
        algebra.rotor(e1, 1.0)
    with pytest.raises(gw.ArgumentError, match="different algebras"):
        algebra.rotor(Algebra(2).e12, 1.0)


def test_composition_and_slerp():
    algebra = Algebra(3)
    first, second = algebra.rotor(algebra.e12, 0.3), algebra.rotor(algebra.e23, 1.1)
    x = algebra.vector(1, 2, 3)
    assert (second * first)(x).isclose(second(first(x)))
    assert first.slerp(second, 0).multivector.isclose(first.multivector)
    assert first.slerp(second, 1).multivector.isclose(second.multivector)
    middle = first.slerp(second, 0.5)
    assert (middle * ~first).multivector.isclose((second * ~middle).multivector)
    worn = first
    for _ in range(1000):
        worn = worn * ~second * second
    assert abs(worn.renormalized().multivector.squared_norm() - 1) < 1e-15


def test_boosts():
    algebra = Algebra(1, 3)
    boosted = algebra.rotor(algebra.e12, 0.5)(algebra.e1)
    assert abs(boosted["e1"] - math.cosh(0.5)) < 1e-12 and abs(abs(boosted["e2"]) - math.sinh(0.5)) < 1e-12


def test_motors_move_points_and_planes():
    pga = Algebra(3, 0, 1)
    point, other = pga.point(1, 2, 3), pga.point(4, 6, 3)
    assert point.coordinates() == (1, 2, 3) and (2 * point).coordinates() == (1, 2, 3)
    there = pga.translator(10, 0, -1)
    np.testing.assert_allclose(there(point).coordinates(), (11, 2, 2), atol=1e-12)
    turn = pga.rotor(pga.e12, math.pi / 2)
    np.testing.assert_allclose(turn(point).coordinates(), (-2, 1, 3), atol=1e-12)
    np.testing.assert_allclose((there * turn)(point).coordinates(), (8, 1, 2), atol=1e-12)
    np.testing.assert_allclose((there**0.5)(point).coordinates(), (6, 2, 2.5), atol=1e-12)
    # The join of two points is the line through them, and a line's norm their distance.
    assert abs((point & other).norm() - 5) < 1e-12
    # Three planes meet in a point.
    meet = pga.plane(1, 0, 0, -1) ^ pga.plane(0, 1, 0, -2) ^ pga.plane(0, 0, 1, -3)
    assert meet.coordinates() == (1, 2, 3)
    # The plane z = 3 holds both points, and moves with them.
    plane = pga.plane(0, 0, 1, -3)
    assert (plane ^ point) == 0 and (plane ^ other) == 0
    assert (there(plane) ^ there(point)).norm() < 1e-12
    with pytest.raises(gw.ArgumentError, match="infinity"):
        pga.multivector("e124").coordinates()
    for wrong in (lambda: Algebra(3).point(1, 2, 3), lambda: Algebra(3).plane(1, 2, 3, 4)):
        with pytest.raises(gw.ArgumentError, match=r"is of Cl\(3,0,1\)"):
            wrong()
    with pytest.raises(gw.ArgumentError, match=r"is of Cl\(3,0,1\)"):
        Algebra(3).translator(1, 2, 3)
    with pytest.raises(gw.ArgumentError, match=r"points are of Cl\(3,0,1\)"):
        Algebra(3).e123.coordinates()


def test_exp_and_log_refuse_what_has_no_closed_form():
    algebra = Algebra(4)
    with pytest.raises(gw.ArgumentError, match="bivector"):
        algebra.e1.exp()
    with pytest.raises(gw.ArgumentError, match="rotor"):
        algebra.e1.log()


def test_double_rotations_have_exponentials_and_logarithms():
    algebra = Algebra(4)
    planes = algebra.e12 + 2 * algebra.e34
    turned = planes.exp()
    assert turned.isclose(algebra.e12.exp() * (2 * algebra.e34).exp())
    assert turned.log().isclose(planes)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_the_product_is_that_of_the_operators(signature):
    import gradewise.numpy as gn

    algebra = Algebra(signature)
    a, b, _ = drawn(algebra, 11)
    column = lambda x: x.numpy().reshape(-1, 1, 1)
    np.testing.assert_array_equal(gn.geometric_product(column(a), column(b), signature), column(a * b))
    np.testing.assert_array_equal(gn.regressive_product(column(a), column(b), signature), column(a & b))


def test_slerp_goes_the_shorter_way():
    algebra = Algebra(3, 0, 1)
    start = algebra.translator(1, 2, 3) * algebra.rotor(algebra.e12, 0.5)
    end = Rotor((algebra.translator(1.1, 2, 3) * algebra.rotor(algebra.e12, 0.51)).multivector * -1.0)
    x, y, z = start.slerp(end, 0.5).apply(algebra.point(0, 0, 0)).coordinates()
    assert abs(x - 1.05) < 0.01 and abs(y - 2) < 0.01 and abs(z - 3) < 0.01
    # Boosts, and their negatives.
    spacetime = Algebra(1, 3)
    boost = spacetime.rotor(spacetime.e12, 1.0)
    identity = spacetime.identity
    half = identity.slerp(Rotor(boost.multivector * -1.0), 0.5)
    assert (half * half).multivector.isclose(boost.multivector)


def test_logarithm_of_a_full_turn_with_a_translation():
    algebra = Algebra(3, 0, 1)
    step = algebra.translator(0, 0, 0.25) * algebra.rotor(algebra.e12, math.pi / 2)
    motion = step * step * step * step
    assert motion.log().exp().isclose(motion.multivector)
    half = motion**0.5
    x, y, z = (half * half).apply(algebra.point(0, 0, 0)).coordinates()
    assert abs(x) < 1e-12 and abs(y) < 1e-12 and abs(z - 1) < 1e-12
