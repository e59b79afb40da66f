use super::*;
use std::f64::consts::PI;

/// Values from a NumPy implementation of the same scheme, which agrees with PhiFlow 2.1 within the tolerance of PhiFlow's solver.
#[test]
fn steps_are_those_of_the_reference() {
    let n = 32;
    let smoke = |k: usize| {
        let [x, y] = [k / n, k % n].map(|index| (index as f64 + 0.5) / n as f64);
        ((2.0 * PI * x).cos() + 0.5 * (2.0 * PI * y).cos() + 0.25 * (2.0 * PI * (x + y)).sin()).abs()
    };
    let start = (0..n * n).map(smoke).collect();
    let mut smoke = Smoke::new(Flow::PUBLISHED, n, start, [vec![0.0; n * n], vec![0.0; n * n]]).unwrap();
    let rows: [(usize, [f64; 6]); 3] = [
        (1, [0.686653638853, 13.1465153589, 41.2926360316, 1.2539051419, -0.0585890281, -0.1285855298]),
        (4, [0.683004957038, 189.3319629, 583.0821327, 1.3289581459, -0.1909106774, -0.5653426829]),
        (16, [0.552001929171, 238.3316791, 315.6973646, 0.1975782711, 0.0292079679, 0.1930414631]),
    ];
    let mut step = 0;
    for (steps, expected) in rows {
        while step < steps {
            smoke.advance();
            step += 1;
        }
        let [u, v] = smoke.velocity();
        let squares = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
        let mean = smoke.smoke().iter().sum::<f64>() / (n * n) as f64;
        let actual = [mean, squares(u), squares(v), smoke.smoke()[3 * n + 5], u[16 * n + 9], v[7 * n + 16]];
        for (actual, expected) in actual.iter().zip(expected) {
            assert!(
                (actual - expected).abs() < 1e-9 * expected.abs().max(0.5),
                "{steps}: {actual} {expected}"
            );
        }
        let fastest = u.iter().chain(v).fold(0f64, |fastest, speed| fastest.max(speed.abs()));
        let worst = smoke.divergence().iter().fold(0f64, |worst, value| worst.max(value.abs()));
        assert!(worst <= 1e-13 * fastest, "{steps}: {worst:e} at speeds of {fastest}");
    }
}

/// Taylor and Green's vortices u = sin kx cos ky, v = −cos kx sin ky in a periodic box keep their form and decay as exp(−2νk²t).
fn taylor_green(n: usize, time: f64, viscosity: f64) -> (Smoke, f64) {
    let side = 2.0 * PI;
    // A constant Courant number: a fifth of a cell per step at the largest speed.
    let steps = (time * n as f64 / (0.2 * side)).ceil();
    let flow = Flow { side, viscosity, buoyancy: 0.0, step: time / steps, boundary: Boundary::Periodic };
    let dx = side / n as f64;
    let field = |of: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        (0..n * n).map(|k| of((k / n) as f64 * dx, (k % n) as f64 * dx)).collect()
    };
    let half = dx / 2.0;
    let u = field(&|x, y| x.sin() * (y + half).cos());
    let v = field(&|x, y| -(x + half).cos() * y.sin());
    let exact =
        |values: &[f64], decay: f64| -> Vec<f64> { values.iter().map(|value| value * decay).collect() };
    let mut smoke = Smoke::new(flow, n, vec![0.0; n * n], [u.clone(), v.clone()]).unwrap();
    for _ in 0..steps as usize {
        smoke.advance();
    }
    let decay = (-2.0 * viscosity * time).exp();
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let [own_u, own_v] = smoke.velocity();
    let error = distance(own_u, &exact(&u, decay)) + distance(own_v, &exact(&v, decay));
    let error = (error / (2 * n * n) as f64).sqrt();
    (smoke, error)
}

#[test]
fn vortices_decay_and_the_error_is_of_first_order() {
    let errors = [16, 32, 64].map(|n| taylor_green(n, 0.5, 0.05).1);
    for pair in errors.windows(2) {
        let order = (pair[0] / pair[1]).log2();
        assert!((0.8..1.3).contains(&order), "order {order}: {errors:?}");
    }
    // The numerical diffusion does not depend on the viscosity, so the ratio of energies is exp(−4Δν k²t).
    let energy = |viscosity: f64| {
        let (smoke, _) = taylor_green(64, 0.5, viscosity);
        let [u, v] = smoke.velocity();
        u.iter().chain(v).map(|value| value * value).sum::<f64>()
    };
    let ratio = energy(0.1) / energy(0.02);
    let expected = (-4.0 * 0.08 * 0.5f64).exp();
    assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} {expected}");
}

#[test]
fn walls_hold_and_smoke_without_buoyancy_stays() {
    let n = 12;
    let start: Vec<f64> = (0..n * n).map(|k| (k as f64 * 0.7).sin().abs()).collect();
    let still = [vec![0.0; n * n], vec![0.0; n * n]];
    let flow = Flow { buoyancy: 0.0, ..Flow::PUBLISHED };
    let mut quiet = Smoke::new(flow, n, start.clone(), still.clone()).unwrap();
    quiet.advance();
    assert_eq!(quiet.smoke(), start);
    let mut smoke = Smoke::new(Flow::PUBLISHED, n, start.clone(), still).unwrap();
    for _ in 0..5 {
        smoke.advance();
    }
    let [u, v] = smoke.velocity();
    assert!((0..n).all(|k| u[k] == 0.0 && v[k * n] == 0.0));
    assert!(u.iter().chain(v).any(|speed| speed.abs() > 0.01));
    // Advected values stay within the range of the initial values.
    let highest = start.iter().copied().fold(0.0, f64::max);
    assert!(smoke.smoke().iter().all(|&value| (0.0..=highest).contains(&value)));
    assert!(Smoke::new(Flow::PUBLISHED, 3, vec![0.0; 9], [vec![0.0; 9], vec![0.0; 8]]).is_err());
}
