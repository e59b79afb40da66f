use super::*;
use std::f64::consts::PI;

fn sum(fields: &[Vec<f64>; 3], of: impl Fn(f64) -> f64) -> f64 {
    fields.iter().flatten().map(|&value| of(value)).sum()
}

/// Values from fdtd 0.2.5.
#[test]
fn steps_are_those_of_the_published_generator() {
    let source = Source {
        start: [1, 2, 3],
        extent: [3, 3, 1],
        electric: 0,
        magnetic: 1,
        amplitude: 0.7,
        period: 13,
        phase: 0.4,
    };
    let mut yee = Yee::new([16; 3], Edges::Published, 0.99 / 3f64.sqrt(), 10.0, vec![source]);
    for _ in 0..40 {
        yee.advance();
    }
    let (electric, magnetic) = (sum(yee.electric(), |e| e * e), sum(yee.magnetic(), |h| h * h));
    assert!((electric - 6.905600140901).abs() < 1e-12, "{electric}");
    assert!((magnetic - 68.615634875848).abs() < 1e-11, "{magnetic}");
    let middle = (8 * 16 + 8) * 16 + 8;
    for (field, expected) in yee.electric().iter().zip([8.0756e-4, -5.4958e-4, -4.5388e-4]) {
        assert!((field[middle] - expected).abs() < 5e-9, "{} {expected}", field[middle]);
    }
}

/// Sets arbitrary field values without symmetry.
fn rough(field: &mut [Vec<f64>; 3], phase: f64) {
    for (axis, values) in field.iter_mut().enumerate() {
        for (at, value) in values.iter_mut().enumerate() {
            *value = ((at * at) as f64 * 0.013 + phase + axis as f64).sin();
        }
    }
}

#[test]
fn a_periodic_grid_keeps_energy_and_divergence() {
    let (extents, permittivity) = ([5, 6, 7], 10.0);
    let mut yee = Yee::new(extents, Edges::Periodic, 0.57, permittivity, vec![]);
    let (electric, magnetic) = yee.fields_mut();
    rough(electric, 0.0);
    rough(magnetic, 0.5);
    // Σ εE·E + H·H, where H·H is the product of H half a step before and half a step after.
    let energy = |before: &Yee, after: &Yee| {
        let mixed: f64 =
            before.magnetic.iter().flatten().zip(after.magnetic.iter().flatten()).map(|(a, b)| a * b).sum();
        permittivity * sum(&before.electric, |e| e * e) + mixed
    };
    let divergence = |fields: &[Vec<f64>; 3], towards: Towards| {
        let mut divergence = vec![0.0; fields[0].len()];
        for (axis, field) in fields.iter().enumerate() {
            add_difference(&mut divergence, field, extents, (axis, towards), 1.0, Edges::Periodic);
        }
        divergence
    };
    let start = [divergence(&yee.electric, Towards::Before), divergence(&yee.magnetic, Towards::After)];
    let mut first = None;
    for _ in 0..200 {
        let before = yee.clone();
        yee.advance();
        let now = energy(&before, &yee);
        let first = *first.get_or_insert(now);
        assert!((now / first - 1.0).abs() < 1e-13, "{now} {first}");
    }
    let end = [divergence(&yee.electric, Towards::Before), divergence(&yee.magnetic, Towards::After)];
    for (start, end) in start.iter().flatten().zip(end.iter().flatten()) {
        assert!((start - end).abs() < 1e-12, "{start} {end}");
    }
}

/// E_y = cos(kx − ωn), H_z = √ε cos(k(x + ½) − ω(n − ½)) with sin(ω/2) = (S/√ε) sin(k/2) solves the scheme exactly.
#[test]
fn a_plane_wave_stays_one() {
    let (cells, permittivity, courant) = (32, 10.0f64, 0.99 / 3f64.sqrt());
    let wave = 4.0 * PI / 32.0;
    let frequency = 2.0 * (courant / permittivity.sqrt() * (wave / 2.0).sin()).asin();
    assert!((frequency - 0.07053916782621884).abs() < 1e-16, "{frequency}");
    let mut yee = Yee::new([cells, 1, 1], Edges::Periodic, courant, permittivity, vec![]);
    let electric = |x: usize, n: f64| (wave * x as f64 - frequency * n).cos();
    let magnetic =
        |x: usize, n: f64| permittivity.sqrt() * (wave * (x as f64 + 0.5) - frequency * (n - 0.5)).cos();
    let (e, h) = yee.fields_mut();
    (0..cells).for_each(|x| (e[1][x], h[2][x]) = (electric(x, 0.0), magnetic(x, 0.0)));
    for _ in 0..500 {
        yee.advance();
    }
    for x in 0..cells {
        assert!((yee.electric()[1][x] - electric(x, 500.0)).abs() < 1e-13);
        assert!((yee.magnetic()[2][x] - magnetic(x, 500.0)).abs() < 1e-13 * 10.0);
    }
    assert!(sum(&yee.electric, f64::abs) - yee.electric()[1].iter().map(|e| e.abs()).sum::<f64>() < 1e-12);
}
