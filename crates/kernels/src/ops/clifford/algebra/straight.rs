//! Products as straight-line code for the signatures that most models use.
//!
//! The terms of a signature are sorted at compile time as [`Program`](super::program::Program) sorts them at run time, and
//! each becomes one instruction on vector registers, with constant operands. The interpreter reads two operands from
//! memory for each term; here the blades of a small algebra stay in registers. Every sum is formed in the same order by
//! both, so that their results have the same bits.
//!
//! Each program is a function of its own, compiled for each instruction set and called once for a tile: the passes around it
//! are compiled once for all signatures.

use super::{
    program::Programs,
    tile::{self, Tile},
};
use crate::cpu::simd::{Lanes, Real, Simd};
use gradewise_core::{Blade, Signature};
use std::marker::PhantomData;

/// What a program computes of the trilinear form Σ ±w[path]·x·y·out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// (x, y) → out.
    Forward,
    /// (out, y) → x.
    GradLeft,
    /// (out, x) → y.
    GradRight,
    /// (x, y) and out → the weights.
    Weights,
}

/// Most terms of a program: 16 blades with 16.
const MOST: usize = 256;
/// Most grades.
const GRADES: usize = 5;

/// One term of a program, ±a·b, and what follows it.
#[derive(Clone, Copy)]
struct Step {
    a: usize,
    b: usize,
    result: usize,
    path: usize,
    negative: bool,
    /// First and last of the terms that share a weight and a result.
    opens: bool,
    closes: bool,
    /// In the first of the groups of its result.
    first: bool,
    /// Last of its result, or for [`Role::Weights`] of its path.
    ends: bool,
}

/// A program, its number of terms, and that of the weights.
struct Steps {
    steps: [Step; MOST],
    count: usize,
    paths: usize,
}

/// The blades of the algebra in order.
const fn blades(signature: Signature) -> [Blade; 16] {
    let mut blades = [Blade::SCALAR; 16];
    let mut mask = 0;
    while mask < signature.blade_count() {
        if let Some(blade) = Blade::from_mask(mask as u16) {
            blades[blade.position(signature)] = blade;
        }
        mask += 1;
    }
    blades
}

/// The terms of a signature with up to four generators, sorted for a role.
const fn steps(signature: Signature, role: Role) -> Steps {
    let blades = blades(signature);
    let count = signature.blade_count();
    // Paths are numbered by (left, out, right) among those that occur.
    let mut paths = [[[usize::MAX; GRADES]; GRADES]; GRADES];
    let mut terms = [(0usize, 0usize, 0usize, 0i8); MOST];
    let (mut total, mut left) = (0, 0);
    while left < count {
        let mut right = 0;
        while right < count {
            let sign = blades[left].product_sign(blades[right], signature);
            if sign != 0
                && let Some(blade) = Blade::from_mask(blades[left].mask() ^ blades[right].mask())
            {
                let out = blade.position(signature);
                terms[total] = (left, right, out, sign);
                paths[blades[left].grade()][blade.grade()][blades[right].grade()] = 0;
                total += 1;
            }
            right += 1;
        }
        left += 1;
    }
    let (mut number, mut at) = (0, 0);
    while at < GRADES * GRADES * GRADES {
        let path = &mut paths[at / (GRADES * GRADES)][at / GRADES % GRADES][at % GRADES];
        if *path == 0 {
            *path = number;
            number += 1;
        }
        at += 1;
    }
    // Each term as one number that sorts as the term does: span, path, result, positive first, a, b.
    let mut keys = [u64::MAX; MOST];
    let mut index = 0;
    while index < total {
        let (left, right, out, sign) = terms[index];
        let path = paths[blades[left].grade()][blades[out].grade()][blades[right].grade()];
        let (a, b, result) = match role {
            Role::Forward | Role::Weights => (left, right, out),
            Role::GradLeft => (out, right, left),
            Role::GradRight => (out, left, right),
        };
        let span = if matches!(role, Role::Weights) { path } else { result };
        let negative = (sign < 0) as usize;
        let key = (((((span << 8 | path) << 8 | result) << 1 | negative) << 8 | a) << 8 | b) as u64;
        // By insertion: terms come nearly sorted.
        let mut place = index;
        while place > 0 && keys[place - 1] > key {
            keys[place] = keys[place - 1];
            place -= 1;
        }
        keys[place] = key;
        index += 1;
    }
    let step = Step {
        a: 0,
        b: 0,
        result: 0,
        path: 0,
        negative: false,
        opens: false,
        closes: false,
        first: false,
        ends: false,
    };
    let mut steps = [step; MOST];
    let (mut index, mut first) = (0, true);
    while index < total {
        let (key, group, span) = (keys[index] as usize, keys[index] >> 17, keys[index] >> 33);
        let opens = index == 0 || keys[index - 1] >> 17 != group;
        let closes = index + 1 == total || keys[index + 1] >> 17 != group;
        let begins = index == 0 || keys[index - 1] >> 33 != span;
        first = begins || first && !opens;
        steps[index] = Step {
            a: key >> 8 & 0xff,
            b: key & 0xff,
            result: key >> 17 & 0xff,
            path: key >> 25 & 0xff,
            negative: key >> 16 & 1 == 1,
            opens,
            closes,
            first,
            ends: index + 1 == total || keys[index + 1] >> 33 != span,
        };
        index += 1;
    }
    Steps { steps, count: total, paths: number }
}

/// The programs of Cl(P,Q,R).
struct Code<const P: u8, const Q: u8, const R: u8>;

impl<const P: u8, const Q: u8, const R: u8> Code<P, Q, R> {
    const FORWARD: Steps = steps(Signature::new(P, Q, R), Role::Forward);
    const GRAD_LEFT: Steps = steps(Signature::new(P, Q, R), Role::GradLeft);
    const GRAD_RIGHT: Steps = steps(Signature::new(P, Q, R), Role::GradRight);
    const WEIGHTS: Steps = steps(Signature::new(P, Q, R), Role::Weights);
}

/// `$body` for each number below 16 times the number of `$block`s, as a constant: the compiler does not unroll loops that long.
macro_rules! for_each_term {
    ($index:ident in [$($block:literal)*] $body:block) => {
        $(for_each_term!(@ $index, $block, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15], $body);)*
    };
    (@ $index:ident, $block:literal, [$($number:literal)*], $body:block) => {
        $({
            const $index: usize = 16 * $block + $number;
            $body
        })*
    };
}

/// ±a·b, added to `sum` unless it is the first of its group.
#[inline(always)]
fn add_term<T: Real, S: Simd>(
    simd: S,
    step: Step,
    sum: T::Vector<S>,
    a: T::Vector<S>,
    b: T::Vector<S>,
) -> T::Vector<S> {
    let a = if step.negative { T::negate(simd, a) } else { a };
    if step.opens { T::multiply(simd, a, b) } else { T::multiply_add(simd, a, b, sum) }
}

/// The code of a signature for the role of number `ROLE`.
trait Straight<const ROLE: usize> {
    /// As a [`Function`].
    fn run<T: Real, S: Simd>(
        simd: S,
        a: &[Lanes<T>],
        b: &[Lanes<T>],
        third: &[Lanes<T>],
        out: &mut [Lanes<T>],
    );
}

macro_rules! implement {
    ($code:ty, $blades:literal, $blocks:tt) => {
        implement!(@ $code, FORWARD, { Role::Forward as usize }, $blades, $blocks);
        implement!(@ $code, GRAD_LEFT, { Role::GradLeft as usize }, $blades, $blocks);
        implement!(@ $code, GRAD_RIGHT, { Role::GradRight as usize }, $blades, $blocks);

        impl Straight<{ Role::Weights as usize }> for $code {
            #[inline(always)]
            fn run<T: Real, S: Simd>(
                simd: S,
                a: &[Lanes<T>],
                b: &[Lanes<T>],
                grad: &[Lanes<T>],
                sums: &mut [Lanes<T>],
            ) {
                let (a, b, grad) = (&a[..$blades], &b[..$blades], &grad[..$blades]);
                let sums = &mut sums[..<$code>::WEIGHTS.paths];
                for part in 0..T::count::<S>() {
                    let zero = T::splat(simd, T::zero());
                    let (mut sum, mut total) = (zero, zero);
                    for_each_term!(INDEX in $blocks {
                        const STEP: Step = <$code>::WEIGHTS.steps[INDEX];
                        if INDEX < <$code>::WEIGHTS.count {
                            let (x, y) = (T::parts::<S>(&a[STEP.a])[part], T::parts::<S>(&b[STEP.b])[part]);
                            sum = add_term::<T, S>(simd, STEP, sum, x, y);
                            if STEP.closes {
                                let grad = T::parts::<S>(&grad[STEP.result])[part];
                                let before = if STEP.first { T::parts::<S>(&sums[STEP.path])[part] } else { total };
                                total = T::multiply_add(simd, sum, grad, before);
                            }
                            if STEP.ends {
                                T::parts_mut::<S>(&mut sums[STEP.path])[part] = total;
                            }
                        }
                    });
                }
            }
        }
    };
    (@ $code:ty, $steps:ident, $role:block, $blades:literal, $blocks:tt) => {
        impl Straight<$role> for $code {
            #[inline(always)]
            fn run<T: Real, S: Simd>(
                simd: S,
                a: &[Lanes<T>],
                b: &[Lanes<T>],
                weights: &[Lanes<T>],
                out: &mut [Lanes<T>],
            ) {
                // Lengths that the compiler knows: every index below is a constant.
                let (a, b, out) = (&a[..$blades], &b[..$blades], &mut out[..$blades]);
                let weights = &weights[..<$code>::$steps.paths];
                for part in 0..T::count::<S>() {
                    let zero = T::splat(simd, T::zero());
                    let (mut sum, mut total) = (zero, zero);
                    for_each_term!(INDEX in $blocks {
                        const STEP: Step = <$code>::$steps.steps[INDEX];
                        if INDEX < <$code>::$steps.count {
                            let (x, y) = (T::parts::<S>(&a[STEP.a])[part], T::parts::<S>(&b[STEP.b])[part]);
                            sum = add_term::<T, S>(simd, STEP, sum, x, y);
                            if STEP.closes {
                                let weight = T::parts::<S>(&weights[STEP.path])[part];
                                total = if STEP.first {
                                    T::multiply(simd, sum, weight)
                                } else {
                                    T::multiply_add(simd, sum, weight, total)
                                };
                            }
                            if STEP.ends {
                                T::parts_mut::<S>(&mut out[STEP.result])[part] = total;
                            }
                        }
                    });
                }
            }
        }
    };
}

implement!(Code<2, 0, 0>, 4, [0]);
implement!(Code<3, 0, 0>, 8, [0 1 2 3]);
implement!(Code<3, 0, 1>, 16, [0 1 2 3 4 5 6 7 8 9 10 11]);
implement!(Code<1, 3, 0>, 16, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);

/// Straight-line code for the tiles of one signature: (a, b, weights) → out, or for [`Role::Weights`] (a, b, grad), added to
/// the gradients of the weights.
type Function<T, S> = fn(S, &[Lanes<T>], &[Lanes<T>], &[Lanes<T>], &mut [Lanes<T>]);

/// A call of straight-line code, as pulp compiles it for an instruction set.
struct Call<'a, T, C, const ROLE: usize> {
    a: &'a [Lanes<T>],
    b: &'a [Lanes<T>],
    third: &'a [Lanes<T>],
    out: &'a mut [Lanes<T>],
    code: PhantomData<C>,
}

impl<T: Real, C: Straight<ROLE>, const ROLE: usize> pulp::WithSimd for Call<'_, T, C, ROLE> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        C::run::<T, S>(simd, self.a, self.b, self.third, self.out);
    }
}

/// The [`Function`] of a signature and a role.
fn call<T: Real, S: Simd, C: Straight<ROLE>, const ROLE: usize>(
    simd: S,
    a: &[Lanes<T>],
    b: &[Lanes<T>],
    third: &[Lanes<T>],
    out: &mut [Lanes<T>],
) {
    simd.vectorize(Call::<T, C, ROLE> { a, b, third, out, code: PhantomData });
}

/// The functions of a signature, by role.
fn functions<T: Real, S: Simd, C>() -> [Function<T, S>; 4]
where
    C: Straight<0> + Straight<1> + Straight<2> + Straight<3>,
{
    [call::<T, S, C, 0>, call::<T, S, C, 1>, call::<T, S, C, 2>, call::<T, S, C, 3>]
}

/// The products of the tiles of a signature on an instruction set: by straight-line code where there is some, else
/// by the interpreter.
pub(crate) struct Products<'a, T, S> {
    simd: S,
    tables: &'a Programs,
    functions: Option<[Function<T, S>; 4]>,
}

impl<'a, T: Real, S: Simd> Products<'a, T, S> {
    /// Double precision and machines without vector registers have the interpreter alone: what straight-line code gains there is
    /// not worth the time that it takes to compile. Without optimisation each of its terms would have stack of its own, in all
    /// more than a thread has.
    const STRAIGHT: bool =
        size_of::<T>() == size_of::<f32>() && !S::IS_SCALAR && !cfg!(gradewise_unoptimised);

    pub(crate) fn new(simd: S, tables: &'a Programs) -> Self {
        let functions = if Self::STRAIGHT {
            match tables.signature {
                Signature::CL2 => Some(functions::<T, S, Code<2, 0, 0>>()),
                Signature::CL3 => Some(functions::<T, S, Code<3, 0, 0>>()),
                Signature::PGA3 => Some(functions::<T, S, Code<3, 0, 1>>()),
                Signature::STA => Some(functions::<T, S, Code<1, 3, 0>>()),
                _ => None,
            }
        } else {
            None
        };
        Self { simd, tables, functions }
    }

    /// `out[result] = Σ_groups w[path]·Σ ±a·b`, for a role other than [`Role::Weights`].
    #[inline(always)]
    pub(crate) fn weighted<const FMA: bool, const BLADES: usize>(
        &self,
        role: Role,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        weights: &[Lanes<T>],
        out: &mut Tile<T, BLADES>,
    ) {
        if let Some(functions) = &self.functions {
            return functions[role as usize](self.simd, a, b, weights, out);
        }
        let program = match role {
            Role::Forward | Role::Weights => &self.tables.forward,
            Role::GradLeft => &self.tables.grad_left,
            Role::GradRight => &self.tables.grad_right,
        };
        tile::weighted::<T, FMA, BLADES>(program, a, b, weights, out);
    }

    /// `sums[path] += Σ_results grad[result]·Σ ±a·b`.
    #[inline(always)]
    pub(crate) fn weight_gradient<const FMA: bool, const BLADES: usize>(
        &self,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        grad: &Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        match &self.functions {
            Some(functions) => functions[Role::Weights as usize](self.simd, a, b, grad, sums),
            None => tile::weight_gradient::<T, FMA, BLADES>(&self.tables.by_path, a, b, grad, sums),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tile::zero_tile, *};
    use crate::cpu::simd::{Kernel, dispatch};
    use gradewise_core::Algebra;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Products of random tiles: of every role, then the gradient of the weights added to random sums.
    struct Every<'a> {
        tables: &'a Programs,
        a: Tile<f32, 32>,
        b: Tile<f32, 32>,
        grad: Tile<f32, 32>,
        weights: Vec<Lanes<f32>>,
        straight: bool,
    }

    impl Kernel for Every<'_> {
        type Output = Vec<Lanes<f32>>;

        #[inline(always)]
        fn run<S: Simd, const FMA: bool>(self, simd: S) -> Vec<Lanes<f32>> {
            let Self { tables, a, b, grad, weights, straight } = self;
            let mut products = Products::<f32, S>::new(simd, tables);
            if straight {
                assert_eq!(products.functions.is_some(), Products::<f32, S>::STRAIGHT);
            } else {
                products.functions = None;
            }
            let mut results = Vec::new();
            for role in [Role::Forward, Role::GradLeft, Role::GradRight] {
                let mut out = zero_tile();
                products.weighted::<FMA, 32>(role, &a, &b, &weights, &mut out);
                results.extend_from_slice(&out[..tables.blades]);
            }
            let mut sums = weights;
            products.weight_gradient::<FMA, 32>(&a, &b, &grad, &mut sums);
            results.extend(sums);
            results
        }
    }

    #[test]
    fn straight_line_products_have_the_bits_of_the_interpreted_ones() {
        for (seed, signature) in (0..8).flat_map(|seed| {
            [Signature::CL2, Signature::CL3, Signature::PGA3, Signature::STA]
                .map(|signature| (seed, signature))
        }) {
            let algebra = Algebra::new(signature).expect("a small algebra");
            let tables = &Programs::of(&algebra);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut lanes = || -> Lanes<f32> { std::array::from_fn(|_| rng.random_range(-1.0..1.0)) };
            let [a, b, grad] = [(); 3].map(|()| [(); 32].map(|()| lanes()));
            let weights: Vec<Lanes<f32>> = (0..tables.paths).map(|_| lanes()).collect();
            let [straight, interpreted] = [true, false]
                .map(|straight| dispatch(Every { tables, a, b, grad, weights: weights.clone(), straight }));
            assert_eq!(straight.len(), 3 * tables.blades + tables.paths);
            for (index, (straight, interpreted)) in straight.iter().zip(&interpreted).enumerate() {
                for (straight, interpreted) in straight.iter().zip(interpreted) {
                    assert!(
                        straight.is_finite() && *straight != 0.0,
                        "{signature}: result {index} is {straight}"
                    );
                    assert_eq!(straight.to_bits(), interpreted.to_bits(), "{signature}: result {index}");
                }
            }
        }
    }
}
