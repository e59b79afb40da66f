//! The structures are what their publications say, and the table is what theory predicts.

use super::*;
use crate::data::atoms::Vector;

fn dot(a: Vector, b: Vector) -> f64 {
    (0..3).map(|k| a[k] * b[k]).sum()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12)
}

/// Vectors from the first atom to its neighbours.
fn star(of: &Neighbourhood) -> Vec<Vector> {
    let own = (0..of.neighbours.len()).filter(|&k| of.neighbours.receivers[k] == 0);
    own.map(|k| of.differences[k]).collect()
}

/// The sorted distances of neighbours, and the sorted (distance, distance, dot product) of pairs of them.
fn two_and_three_bodies(vectors: &[Vector]) -> [Vec<f64>; 2] {
    let distances = vectors.iter().map(|&v| dot(v, v)).collect();
    // A hash of a triple that is symmetric in the two neighbours.
    let pairs = vectors.iter().enumerate().flat_map(|(i, &a)| {
        vectors[i + 1..].iter().map(move |&b| (dot(a, a) + dot(b, b)).sin() + 3.0 * dot(a, b))
    });
    [sorted(distances), sorted(pairs.collect())]
}

/// A sum over quadruples of neighbours that a reflection changes the sign of.
fn handedness(vectors: &[Vector]) -> f64 {
    let cross = |a: Vector, b: Vector| {
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    };
    let mut sum = 0.0;
    for &a in vectors {
        for &b in vectors {
            for &c in vectors {
                let weight = (dot(a, b) + 2.0 * dot(b, c) + 5.0 * dot(c, a)).sin();
                sum += vectors.iter().map(|&d| dot(cross(a, b), d) * weight).sum::<f64>();
            }
        }
    }
    sum
}

/// The sorted sums over quadruples of neighbours of a function that is symmetric in them.
fn five_bodies(vectors: &[Vector]) -> Vec<f64> {
    let mut all = Vec::new();
    for (i, &a) in vectors.iter().enumerate() {
        for (j, &b) in vectors.iter().enumerate().skip(i + 1) {
            for (k, &c) in vectors.iter().enumerate().skip(j + 1) {
                for &d in &vectors[k + 1..] {
                    let rings = dot(a, b) * dot(b, c) * dot(c, d) * dot(d, a)
                        + dot(a, c) * dot(c, b) * dot(b, d) * dot(d, a)
                        + dot(a, b) * dot(b, d) * dot(d, c) * dot(c, a);
                    let pairs = [dot(a, b), dot(a, c), dot(a, d), dot(b, c), dot(b, d), dot(c, d)];
                    all.push(rings + pairs.iter().map(|p| p.powi(3)).sum::<f64>());
                }
            }
        }
    }
    sorted(all)
}

/// The sorted sums over triples of neighbours of their dot products.
fn four_bodies(vectors: &[Vector]) -> Vec<f64> {
    let mut all = Vec::new();
    for (i, &a) in vectors.iter().enumerate() {
        for (j, &b) in vectors.iter().enumerate().skip(i + 1) {
            for &c in &vectors[j + 1..] {
                let lengths = dot(a, a) + dot(b, b) + dot(c, c);
                let products = [dot(a, b), dot(b, c), dot(a, c)];
                let both = products.iter().map(|p| p.powi(3)).sum::<f64>() + products.iter().product::<f64>();
                all.push(lengths.sin() + both + 0.3 * products.iter().sum::<f64>());
            }
        }
    }
    sorted(all)
}

#[test]
fn counterexamples_are_equal_up_to_their_body_order_and_differ_beyond_it() {
    let of = |test: Test| test.structures().map(|one| star(&one));
    let [a, b] = of(Test::TwoBody).map(|v| two_and_three_bodies(&v));
    assert!(close(&a[0], &b[0]) && !close(&a[1], &b[1]));
    let [a, b] = of(Test::ThreeBody);
    let [x, y] = [two_and_three_bodies(&a), two_and_three_bodies(&b)];
    assert!(close(&x[0], &y[0]) && close(&x[1], &y[1]));
    assert!(!close(&four_bodies(&a), &four_bodies(&b)));
    let [a, b] = of(Test::FourBody);
    let [x, y] = [two_and_three_bodies(&a), two_and_three_bodies(&b)];
    assert!(close(&x[0], &y[0]) && close(&x[1], &y[1]) && close(&four_bodies(&a), &four_bodies(&b)));
    assert!(!close(&five_bodies(&a), &five_bodies(&b)), "they are different");
    let [a, b] = of(Test::Mirrored);
    let reflected: Vec<Vector> = b.iter().map(|v| [v[0], -v[1], v[2]]).collect();
    let near = |u: &Vector| a.iter().any(|v| dot(*u, *v) > 0.999_999 * dot(*v, *v));
    assert!(reflected.iter().all(near));
    // So that no rotation makes one of the other.
    let [x, y] = [handedness(&a), handedness(&b)];
    assert!(x.abs() > 0.1 && (x + y).abs() < 1e-10, "{x} {y}");
}

/// What theory says rank 2, or a second round, adds to the dot products of vectors: V·M·V and V·M²·V of V = Σ w v and M = Σ v⊗v, and sums of
/// (V·v)² and (V·v)³, which messages that come back make. V·M·V and Σ (V·v)² are one polynomial.
#[test]
fn counterexamples_differ_in_sums_over_triples_or_quadruples() {
    let invariants = |vectors: &[Vector]| -> [f64; 4] {
        let weight = |v: Vector| (-dot(v, v)).exp();
        let sum = |of: &dyn Fn(Vector) -> Vector| -> Vector {
            std::array::from_fn(|k| vectors.iter().map(|&v| of(v)[k]).sum())
        };
        let total = sum(&|v| v.map(|x| 3.0 * weight(v) * x));
        let image = sum(&|v| v.map(|x| dot(total, v) * x));
        let cubes = vectors.iter().map(|&v| dot(total, v).powi(3)).sum();
        [dot(total, total), dot(total, image), dot(image, image), cubes]
    };
    let of = |test: Test| test.structures().map(|one| invariants(&star(&one)));
    let differ = |[a, b]: [[f64; 4]; 2]| std::array::from_fn(|k| (a[k] - b[k]).abs() > 1e-9 * a[k].abs());
    assert_eq!(differ(of(Test::ThreeBody)), [false, true, true, true]);
    assert_eq!(differ(of(Test::FourBody)), [false, false, true, true], "{:?}", of(Test::FourBody));
}

#[test]
fn polyhedra_have_their_corners_and_no_tensor_below_their_rank() {
    for (polyhedron, corners) in Polyhedron::ALL.into_iter().zip([4, 6, 8, 12, 20]) {
        let [one, other] = polyhedra(polyhedron).map(|one| star(&one));
        assert_eq!((one.len(), other.len()), (2 * corners, 2 * corners));
        let inner: Vec<Vector> = one.into_iter().take(corners).collect();
        // Σ P_l(cos) over pairs is the squared norm of the tensor of rank l.
        let norm = |l: usize| {
            let all = inner.iter().flat_map(|&a| inner.iter().map(move |&b| dot(a, b) / dot(a, a)));
            all.map(|x| legendre(l, x)).sum::<f64>()
        };
        let lowest = (1..8).find(|&l| norm(l) > 1e-9);
        assert_eq!(lowest, Some(polyhedron.rank()), "{polyhedron:?}");
    }
}

fn legendre(l: usize, x: f64) -> f64 {
    let (mut before, mut now) = (1.0, x);
    for k in 1..l {
        let k = k as f64;
        (before, now) = (now, ((2.0 * k + 1.0) * x * now - k * before) / (k + 1.0));
    }
    if l == 0 { 1.0 } else { now }
}

#[test]
fn energies_tell_apart_what_theory_predicts() {
    let mut wrong = Vec::new();
    for test in Test::all() {
        for rank in Rank::ALL {
            for rounds in 1..=3 {
                let difference = test.measured(rank, rounds, 2).unwrap();
                let (found, predicted) = (Verdict::of(difference), test.predicted(rank, rounds));
                let row =
                    format!("{}, rank {rank}, {rounds} rounds: {difference:e}, {predicted:?}", test.name());
                println!("{row}");
                if found.contradicts(predicted) {
                    wrong.push(row);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn verdicts_contradict_predictions_that_they_miss() {
    let [different, equal] = [Verdict::of(1e-3), Verdict::of(1e-14)];
    assert_eq!((different, equal, Verdict::of(1e-10)), (Verdict::Different, Verdict::Equal, Verdict::Open));
    assert!(different.contradicts(Verdict::Equal) && equal.contradicts(Verdict::Different));
    assert!(!different.contradicts(Verdict::Different) && !equal.contradicts(Verdict::Equal));
    assert!(Verdict::of(f64::NAN).contradicts(Verdict::Open));
}
