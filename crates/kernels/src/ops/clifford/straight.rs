//! Products as straight-line code for the signatures that most models use.
//!
//! The terms of a signature are sorted at compile time as [`Program`](super::program::Program) sorts them at run time, and
//! each becomes one instruction on vector registers, with constant operands. The interpreter reads two operands from
//! memory for each term; here the blades of a small algebra stay in registers. Every sum is formed in the same order by
//! both, so that their results have the same bits.

use super::{
    program::Programs,
    tile::{self, Tile},
};
use crate::simd::{Lanes, Real, Simd};
use gradewise_core::{Blade, Signature};

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

/// How the products of tiles of `BLADES` are computed.
pub(crate) trait Product<const BLADES: usize> {
    /// `out[result] = Σ_groups w[path]·Σ ±a·b`, for a role other than [`Role::Weights`].
    fn weighted<T: Real, S: Simd, const FMA: bool>(
        simd: S,
        tables: &Programs,
        role: Role,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        weights: &[Lanes<T>],
        out: &mut Tile<T, BLADES>,
    );

    /// `sums[path] += Σ_results grad[result]·Σ ±a·b`.
    fn weight_gradient<T: Real, S: Simd, const FMA: bool>(
        simd: S,
        tables: &Programs,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        grad: &Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    );
}

/// The programs of any signature, term by term.
pub(crate) struct Interpreted;

impl<const BLADES: usize> Product<BLADES> for Interpreted {
    #[inline(always)]
    fn weighted<T: Real, S: Simd, const FMA: bool>(
        _: S,
        tables: &Programs,
        role: Role,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        weights: &[Lanes<T>],
        out: &mut Tile<T, BLADES>,
    ) {
        let program = match role {
            Role::Forward | Role::Weights => &tables.forward,
            Role::GradLeft => &tables.grad_left,
            Role::GradRight => &tables.grad_right,
        };
        tile::weighted::<T, FMA, BLADES>(program, a, b, weights, out);
    }

    #[inline(always)]
    fn weight_gradient<T: Real, S: Simd, const FMA: bool>(
        _: S,
        tables: &Programs,
        a: &Tile<T, BLADES>,
        b: &Tile<T, BLADES>,
        grad: &Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        tile::weight_gradient::<T, FMA, BLADES>(&tables.by_path, a, b, grad, sums);
    }
}

/// The programs of Cl(P,Q,R).
pub(crate) struct Code<const P: u8, const Q: u8, const R: u8>;

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

/// The body of [`Product::weighted`].
macro_rules! weighted {
    ($code:ty, $steps:ident, $blocks:tt, $simd:ident, $a:ident, $b:ident, $weights:ident, $out:ident) => {
        for part in 0..T::count::<S>() {
            let zero = T::splat($simd, T::zero());
            let (mut sum, mut total) = (zero, zero);
            for_each_term!(INDEX in $blocks {
                const STEP: Step = <$code>::$steps.steps[INDEX];
                if INDEX < <$code>::$steps.count {
                    let (x, y) = (T::parts::<S>(&$a[STEP.a])[part], T::parts::<S>(&$b[STEP.b])[part]);
                    sum = add_term::<T, S>($simd, STEP, sum, x, y);
                    if STEP.closes {
                        let weight = T::parts::<S>(&$weights[STEP.path])[part];
                        total = if STEP.first {
                            T::multiply($simd, sum, weight)
                        } else {
                            T::multiply_add($simd, sum, weight, total)
                        };
                    }
                    if STEP.ends {
                        T::parts_mut::<S>(&mut $out[STEP.result])[part] = total;
                    }
                }
            });
        }
    };
}

/// Without vector registers the programs are interpreted, with the same bits: what the straight-line code gains there is not worth the
/// time that it takes to compile.
macro_rules! implement {
    ($code:ty, $blades:literal, $blocks:tt) => {
        impl Product<$blades> for $code {
            #[inline(always)]
            fn weighted<T: Real, S: Simd, const FMA: bool>(
                simd: S,
                tables: &Programs,
                role: Role,
                a: &Tile<T, $blades>,
                b: &Tile<T, $blades>,
                weights: &[Lanes<T>],
                out: &mut Tile<T, $blades>,
            ) {
                if S::IS_SCALAR {
                    return <Interpreted as Product<$blades>>::weighted::<T, S, FMA>(
                        simd, tables, role, a, b, weights, out,
                    );
                }
                // A length that the compiler knows: every index below is a constant.
                let weights = &weights[..<$code>::FORWARD.paths];
                match role {
                    Role::Forward | Role::Weights => {
                        weighted!($code, FORWARD, $blocks, simd, a, b, weights, out);
                    }
                    Role::GradLeft => weighted!($code, GRAD_LEFT, $blocks, simd, a, b, weights, out),
                    Role::GradRight => weighted!($code, GRAD_RIGHT, $blocks, simd, a, b, weights, out),
                }
            }

            #[inline(always)]
            fn weight_gradient<T: Real, S: Simd, const FMA: bool>(
                simd: S,
                tables: &Programs,
                a: &Tile<T, $blades>,
                b: &Tile<T, $blades>,
                grad: &Tile<T, $blades>,
                sums: &mut [Lanes<T>],
            ) {
                if S::IS_SCALAR {
                    return <Interpreted as Product<$blades>>::weight_gradient::<T, S, FMA>(
                        simd, tables, a, b, grad, sums,
                    );
                }
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
}

implement!(Code<2, 0, 0>, 4, [0]);
implement!(Code<3, 0, 0>, 8, [0 1 2 3]);
implement!(Code<3, 0, 1>, 16, [0 1 2 3 4 5 6 7 8 9 10 11]);
implement!(Code<1, 3, 0>, 16, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);

/// Evaluates `$body` with `$product` bound to the implementation of the products of `$tables`, on tiles of `$blades`.
macro_rules! with_product {
    ($tables:expr, $blades:ident, $product:ident => $body:expr) => {{
        use $crate::ops::clifford::straight::{Code, Interpreted};
        const CL2: gradewise_core::Signature = gradewise_core::Signature::CL2;
        const CL3: gradewise_core::Signature = gradewise_core::Signature::CL3;
        const PGA3: gradewise_core::Signature = gradewise_core::Signature::PGA3;
        const STA: gradewise_core::Signature = gradewise_core::Signature::STA;
        macro_rules! by {
            ($count:literal, $type:ty) => {{
                const $blades: usize = $count;
                type $product = $type;
                $body
            }};
        }
        // Without optimisation each term of the straight-line code has stack of its own, in all more than a thread has.
        const STRAIGHT: bool = !cfg!(gradewise_unoptimised);
        match $tables.signature {
            CL2 if STRAIGHT => by!(4, Code<2, 0, 0>),
            CL3 if STRAIGHT => by!(8, Code<3, 0, 0>),
            PGA3 if STRAIGHT => by!(16, Code<3, 0, 1>),
            STA if STRAIGHT => by!(16, Code<1, 3, 0>),
            _ => match $tables.blades {
                0..=8 => by!(8, Interpreted),
                9..=32 => by!(32, Interpreted),
                _ => by!(256, Interpreted),
            },
        }
    }};
}
pub(crate) use with_product;

#[cfg(test)]
mod tests {
    use super::{super::tile::zero_tile, *};
    use crate::simd::{Kernel, dispatch};
    use gradewise_core::Algebra;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Products of random tiles: of every role, then the gradient of the weights added to random sums.
    struct Products<'a, P, T, const BLADES: usize> {
        tables: &'a Programs,
        a: Tile<T, BLADES>,
        b: Tile<T, BLADES>,
        grad: Tile<T, BLADES>,
        weights: Vec<Lanes<T>>,
        product: std::marker::PhantomData<P>,
    }

    impl<P: Product<BLADES>, T: Real, const BLADES: usize> Kernel for Products<'_, P, T, BLADES> {
        type Output = Vec<Lanes<T>>;

        #[inline(always)]
        fn run<S: Simd, const FMA: bool>(self, simd: S) -> Vec<Lanes<T>> {
            let Self { tables, a, b, grad, weights, .. } = self;
            let mut results = Vec::new();
            for role in [Role::Forward, Role::GradLeft, Role::GradRight] {
                let mut out = zero_tile();
                P::weighted::<T, S, FMA>(simd, tables, role, &a, &b, &weights, &mut out);
                results.extend_from_slice(&out[..tables.blades]);
            }
            let mut sums = weights;
            P::weight_gradient::<T, S, FMA>(simd, tables, &a, &b, &grad, &mut sums);
            results.extend(sums);
            results
        }
    }

    fn compare<P: Product<BLADES>, T: Real, const BLADES: usize>(signature: Signature, seed: u64) {
        let algebra = Algebra::new(signature).expect("a small algebra");
        let tables = Programs::of(&algebra);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut lanes = || -> Lanes<T> { std::array::from_fn(|_| T::narrow(rng.random_range(-1.0..1.0))) };
        let (a, b, grad) =
            ([(); BLADES].map(|()| lanes()), [(); BLADES].map(|()| lanes()), [(); BLADES].map(|()| lanes()));
        let weights: Vec<Lanes<T>> = (0..tables.paths).map(|_| lanes()).collect();
        let product = std::marker::PhantomData;
        let straight = dispatch(Products::<P, T, BLADES> {
            tables: &tables,
            a,
            b,
            grad,
            weights: weights.clone(),
            product,
        });
        let product = std::marker::PhantomData;
        let interpreted =
            dispatch(Products::<Interpreted, T, BLADES> { tables: &tables, a, b, grad, weights, product });
        assert_eq!(straight.len(), 3 * tables.blades + tables.paths);
        for (index, (straight, interpreted)) in straight.iter().zip(&interpreted).enumerate() {
            for (straight, interpreted) in straight.iter().zip(interpreted) {
                let (straight, interpreted) = (straight.widen(), interpreted.widen());
                assert!(straight.is_finite() && straight != 0.0, "{signature}: result {index} is {straight}");
                assert_eq!(straight.to_bits(), interpreted.to_bits(), "{signature}: result {index}");
            }
        }
    }

    #[test]
    fn straight_line_products_have_the_bits_of_the_interpreted_ones() {
        for seed in 0..8 {
            compare::<Code<2, 0, 0>, f32, 4>(Signature::CL2, seed);
            compare::<Code<2, 0, 0>, f64, 4>(Signature::CL2, seed);
            compare::<Code<3, 0, 0>, f32, 8>(Signature::CL3, seed);
            compare::<Code<3, 0, 0>, f64, 8>(Signature::CL3, seed);
            compare::<Code<3, 0, 1>, f32, 16>(Signature::PGA3, seed);
            compare::<Code<3, 0, 1>, f64, 16>(Signature::PGA3, seed);
            compare::<Code<1, 3, 0>, f32, 16>(Signature::STA, seed);
            compare::<Code<1, 3, 0>, f64, 16>(Signature::STA, seed);
        }
    }
}
