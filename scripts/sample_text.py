#!/usr/bin/env python3
"""Writes crates/zoo/src/data/text/sample.txt, the text that `gradewise train gpt` learns from by default: an introduction to geometric
algebra in plain words, and worked examples with numbers that are right, drawn from a fixed seed."""
import random
from pathlib import Path

INTRODUCTION = """\
GEOMETRIC ALGEBRA IN PLAIN WORDS

1. Arrows and numbers

A number says how much. An arrow says how much and where to. For most of history these were kept apart: one did
arithmetic with numbers and drew pictures of arrows. Geometric algebra lets both into one arithmetic. In it we add,
subtract and multiply numbers, arrows, areas and volumes, and what comes out always has a picture.

Start with two arrows of length one that stand at a right angle. Call them e1 and e2. Every arrow in the plane is
some of the one plus some of the other: the arrow 3 e1 + 2 e2 goes three steps along the first and two along the
second. Adding arrows is adding steps. So far nothing is new.

What is new is that arrows may be multiplied. The product of two arrows a and b is written a b, without a sign
between them, and it obeys the rules that one expects of a product. It is associative: a (b c) and (a b) c are the
same. It distributes over sums: a (b + c) is a b + a c. Only one thing is lost. The order matters: a b need not be
b a. And one thing is gained: the product of an arrow with itself is a number, the square of its length.

From these few words everything follows. The square of e1 is 1, and the square of e2 is 1. What is the square of
e1 + e2? It is an arrow along the diagonal of a unit square, so its length squared is 2. But by the rules it is
e1 e1 + e1 e2 + e2 e1 + e2 e2, which is 2 + e1 e2 + e2 e1. Hence e1 e2 + e2 e1 must be zero. Arrows at a right
angle change sign when they change places: e2 e1 is minus e1 e2.

And what is e1 e2 itself? It is not a number, for then it would not change sign. It is not an arrow, for its square
is e1 e2 e1 e2, which is minus e1 e1 e2 e2, which is minus one, and no arrow has a negative square. It is something
else: a piece of the plane, one unit of area with a sense of turning from e1 towards e2. We write it e12 and call it
a bivector.

2. Two products in one

Take any two arrows a and b. Their product splits into two parts. One part stays the same when a and b change
places: half of a b + b a. It is a number, the inner product, which is the length of a times the length of b times
the cosine of the angle between them. The other part changes sign: half of a b - b a. It is a bivector, the outer
product, whose size is the area of the parallelogram between a and b. So one product knows both how much two arrows
agree and how much they span.

If the inner part is zero, the arrows stand at a right angle. If the outer part is zero, they lie along one line. In
between, the product holds both, and nothing is forgotten: since a a is a number, every arrow that is not zero has an
inverse, a divided by its length squared. One can divide by an arrow. With the inner product alone or the outer
product alone that is not so; together they are enough.

3. Grades

In space there are three arrows at right angles: e1, e2 and e3. Their products give three units of area, e12, e13
and e23, and one unit of volume, e123. With the number 1 these are eight: one scalar, three vectors, three bivectors
and one trivector. Every element of the algebra of space is a sum of these eight with numbers before them. It is
called a multivector. The number of arrows in a product is its grade: scalars have grade zero, vectors have grade
one, bivectors have grade two and the trivector has grade three.

In a plane there are four such units, in space there are eight, in four dimensions there are sixteen. Each new
direction doubles their number, for each old product may or may not contain the new arrow.

A rotation leaves grades alone. Turn a vector and it is still a vector; turn an area and it is still an area. A
network that treats each grade as a whole, and mixes grades only by the product, cannot help but respect rotations.
That is what the layers of this library do.

4. Mirrors

How does one reflect an arrow x in the mirror that stands at a right angle to an arrow n of length one? The answer
is short: minus n x n. Try it. If x lies along n, then n x n is x, and the result is minus x: the arrow is turned
around, as it should be. If x lies in the mirror, then n and x change sign when they change places, so n x n is minus
x n n, which is minus x, and the result is x: the arrow stays.

Two reflections make a rotation. Reflect in the mirror of m and then in the mirror of n: x becomes n m x m n. The
arrow has been turned in the plane of m and n by twice the angle between them. The product R = n m is called a rotor,
and m n is its reverse. To turn anything at all, whether a vector, an area or a whole multivector, put the rotor
before it and the reverse after it.

A rotor is a number plus a bivector: the cosine of half the angle, and the sine of half the angle times the unit of
the plane. Half, because it acts from both sides. This is where the half angles of quaternions come from. The
quaternions are the rotors of space and nothing more mysterious than that: i, j and k are three planes.

5. Complex numbers are hiding here

In the plane, e12 has the square minus one. So a number plus a multiple of e12 is a complex number. Multiply an arrow
by e12 from the right and it turns by a quarter: e1 e12 is e1 e1 e2, which is e2. There is no need to imagine an
imaginary unit. It is a piece of the plane, and it turns arrows.

6. Space and time

Nothing says that every direction must have a positive square. In the algebra of space and time there is one
direction whose square is plus one and three whose squares are minus one. Reflections and rotors work as before, word
for word. But a rotor in a plane that contains the direction of time is no longer made from sines and cosines. It is
made from hyperbolic sines and cosines, and it does not turn: it boosts. A boost is what a moving observer sees.

7. Points, lines and planes

If one more direction is added whose square is zero, then translations become rotors too. In this algebra planes are
vectors, two planes meet in a line, which is a bivector, and three planes meet in a point, which is a trivector. To
move something, put a motor before it and its reverse after it. One formula moves points, lines and planes alike.

8. Why learn with multivectors?

Suppose a network must predict where five charged particles will be after some time. If the whole system is turned,
the answer must turn with it. An ordinary network has to learn this from examples, turned in every way. A network
built from geometric products has it from the start: its layers commute with rotations and reflections, because the
product does. It needs fewer examples, and it is never wrong about symmetry.

The layers are simple. A linear layer mixes features, with one weight for each grade. A product layer multiplies two
multivectors, with one weight for each way in which two grades make a third. A gate looks at a number that does not
change under rotation, such as a length, and scales by it. A norm divides by the average length. Between them they can
express any polynomial that respects the symmetry, and a polynomial is enough to come close to anything smooth.

9. Advice for calculating by hand

Write each product of units as a string of digits: e1 e2 is 12, and e3 e1 is 31. To multiply two strings, write one
after the other. Sort the digits by exchanging neighbours, and count the exchanges: an odd number gives a minus sign.
When two equal digits stand side by side, strike them out and multiply by the square of that direction. What is left
is a unit of the algebra. With this one rule, a child can multiply multivectors, and so can a machine.
"""


def number(value):
    return f"{value:g}"


def term(value, unit, first):
    size = abs(value)
    body = (number(size) + " " if size != 1 or not unit else "") + unit if unit else number(size)
    body = body.strip()
    if first:
        return body if value > 0 else f"-{body}"
    return f" + {body}" if value > 0 else f" - {body}"


def show(values):
    """A sum of units, such as 3 e1 - 2 e2."""
    text = ""
    for unit, value in values:
        if value != 0:
            text += term(value, unit, text == "")
    return text or "0"


def blade(left, right):
    """Product of basis blades as sorted tuples of digits, in an algebra whose units square to one."""
    digits, sign = list(left + right), 1
    done = False
    while not done:
        done = True
        for i in range(len(digits) - 1):
            if digits[i] > digits[i + 1]:
                digits[i], digits[i + 1] = digits[i + 1], digits[i]
                sign, done = -sign, False
            elif digits[i] == digits[i + 1]:
                del digits[i : i + 2]
                done = False
                break
    return sign, tuple(digits)


def product(x, y):
    out = {}
    for a, p in x.items():
        for b, q in y.items():
            sign, c = blade(a, b)
            out[c] = out.get(c, 0) + sign * p * q
    return {k: v for k, v in sorted(out.items(), key=lambda item: (len(item[0]), item[0])) if v != 0}


def name(digits):
    return "e" + "".join(map(str, digits)) if digits else ""


def multivector(x):
    return show([(name(k), v) for k, v in sorted(x.items(), key=lambda item: (len(item[0]), item[0]))])


def vector(rng, dimension, most=6):
    while True:
        x = {(i,): rng.randint(-most, most) for i in range(1, dimension + 1)}
        if sum(1 for v in x.values() if v) >= 2:
            return {k: v for k, v in x.items() if v}


def grade(x, k):
    return {key: v for key, v in x.items() if len(key) == k}


def plane_product(rng):
    a, b = vector(rng, 2), vector(rng, 2)
    ab = product(a, b)
    inner, outer = multivector(grade(ab, 0)), multivector(grade(ab, 2))
    opening = rng.choice([
        f"Let a = {multivector(a)} and b = {multivector(b)} be two arrows in the plane.",
        f"Take the arrows a = {multivector(a)} and b = {multivector(b)}.",
        f"Multiply {multivector(a)}, which we call a, by {multivector(b)}, which we call b.",
    ])
    middle = rng.choice([
        f" Their inner product is {inner} and their outer product is {outer}, so a b = {multivector(ab)}.",
        f" The product a b is {multivector(ab)}: the number {inner} says how much they agree, and {outer} is the area they span.",
        f" We find a b = {multivector(ab)}.",
    ])
    if not grade(ab, 0):
        end = " There is no scalar part, so the arrows stand at a right angle."
    elif not grade(ab, 2):
        end = " There is no bivector part, so the arrows lie along one line."
    else:
        end = rng.choice([
            f" In the other order, b a = {multivector(product(b, a))}: only the sign of the area has changed.",
            f" Half of a b + b a is {inner}, a number, as promised.",
            " Both parts are there: the arrows are neither parallel nor at a right angle.",
            "",
        ])
    return opening + middle + end


def space_product(rng):
    a, b = vector(rng, 3, 4), vector(rng, 3, 4)
    ab = product(a, b)
    return rng.choice([
        f"In space, let a = {multivector(a)} and b = {multivector(b)}. Then a b = {multivector(ab)}.",
        f"The product of {multivector(a)} and {multivector(b)} is {multivector(ab)}.",
        f"What is {multivector(a)} times {multivector(b)}? Sort the units and count the signs: it is {multivector(ab)}.",
    ]) + rng.choice([
        f" Its scalar part is {multivector(grade(ab, 0))} and its bivector part is {multivector(grade(ab, 2))}.",
        " A product of two vectors has grades zero and two, never one or three.",
        "",
    ])


def length(rng):
    a = vector(rng, 3, 7)
    square = product(a, a)[()]
    return rng.choice([
        f"The square of {multivector(a)} is {square}, so its inverse is that arrow divided by {square}.",
        f"How long is the arrow {multivector(a)}? Its square is {square}, so its length is the square root of {square}, about {square ** 0.5:.3f}.",
        f"Since the square of a = {multivector(a)} is {square}, we may divide by a: the inverse of a is a over {square}.",
    ])


def mirror(rng):
    axis = rng.choice([1, 2, 3])
    x = vector(rng, 3)
    n = {(axis,): 1}
    image = {k: -v for k, v in product(product(n, x), n).items()}
    return rng.choice([
        f"Reflect x = {multivector(x)} in the mirror at a right angle to e{axis}. The image is -e{axis} x e{axis} = {multivector(image)}: only the part along e{axis} has changed its sign.",
        f"The mirror of e{axis} takes {multivector(x)} to {multivector(image)}.",
        f"Put x = {multivector(x)} before the mirror of e{axis}. Behind it one sees {multivector(image)}.",
    ])


def quarter(rng):
    x = vector(rng, 2, 9)
    turned = product(x, {(1, 2): 1})
    return rng.choice([
        f"Turn {multivector(x)} by a quarter: multiply by e12 from the right, and it becomes {multivector(turned)}.",
        f"The arrow {multivector(x)}, multiplied by e12 from the right, is {multivector(turned)}, which is the same arrow turned by a quarter.",
    ])


def units(rng):
    left = tuple(sorted(rng.sample([1, 2, 3, 4], rng.randint(1, 3))))
    right = tuple(sorted(rng.sample([1, 2, 3, 4], rng.randint(1, 3))))
    sign, out = blade(left, right)
    result = ("-" if sign < 0 else "") + (name(out) or "1")
    return rng.choice([
        f"The product {name(left)} {name(right)} is {result}.",
        f"Write {''.join(map(str, left))} and {''.join(map(str, right))} side by side, sort, and strike out pairs: {name(left)} {name(right)} = {result}.",
        f"{name(left)} times {name(right)} gives {result}, which has grade {len(out)}.",
    ])


def complex_numbers(rng):
    a, b, c, d = (rng.choice([-5, -4, -3, -2, 2, 3, 4, 5]) for _ in range(4))
    x, y = {(): a, (1, 2): b}, {(): c, (1, 2): d}
    return (f"Read {multivector(x)} and {multivector(y)} as complex numbers with e12 for the imaginary unit. Their product is "
            f"{multivector(product(x, y))}, in either order.")


def triple(rng):
    a, b, c = vector(rng, 3, 3), vector(rng, 3, 3), vector(rng, 3, 3)
    volume = grade(product(product(a, b), c), 3)
    size = volume.get((1, 2, 3), 0)
    text = f"The three arrows {multivector(a)}, {multivector(b)} and {multivector(c)} span the volume {multivector(volume)}."
    if size == 0:
        return text + " They lie in one plane."
    return text + rng.choice([
        f" Its sign says that they are a {'right' if size > 0 else 'left'}-handed system.",
        " If two of them change places, the volume changes its sign.",
        "",
    ])


REMARKS = [
    "Check the rule for the unit e12: its square is minus one.",
    "It is good practice to check the result by its grades before looking at the numbers.",
    "A number commutes with everything; a vector commutes with hardly anything.",
    "If an answer seems wrong, count the exchanges again. It is almost always a sign.",
    "Nothing here depends on the axes: turn all the arrows, and every inner product stays as it is.",
    "Do the next one without looking.",
    "The area has no shape, only a size, a plane and a sense of turning.",
    "One may think of a bivector as a wheel and of a vector as its axle, but only in space.",
    "Remember that the reverse of a product is the product of the reverses in the other order.",
    "The scalar part of a product does not depend on the order of its two factors.",
    "This is the whole of the calculation; the picture does the rest.",
    "Compare this with the cross product, which gives an arrow where an area is meant.",
]


def main():
    rng = random.Random(20)
    kinds = [plane_product, plane_product, plane_product, space_product, space_product, length, mirror, quarter, units, units,
             complex_numbers, triple]
    text = INTRODUCTION + "\n10. Worked examples\n"
    number_of = 0
    while len(text) < 64_000:
        number_of += 1
        sentences = [rng.choice(kinds)(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.4:
            sentences.append(rng.choice(REMARKS))
        paragraph, line, lines = f"Example {number_of}. " + " ".join(sentences), "", []
        for word in paragraph.split():
            if len(line) + len(word) + 1 > 115:
                lines.append(line)
                line = ""
            line += (" " if line else "") + word
        text += "\n" + "\n".join([*lines, line]) + "\n"
    target = Path(__file__).resolve().parent.parent / "crates/zoo/src/data/text/sample.txt"
    target.write_text(text, encoding="ascii", newline="\n")
    print(target, len(text))


if __name__ == "__main__":
    main()
