use super::*;

fn oscillating() -> Charge {
    let amplitude = 1.5e-9;
    Charge {
        charge: 2.0 * ELEMENTARY,
        origin: [1e-9, 2e-9],
        drift: [0.05 * LIGHT, -0.03 * LIGHT],
        motion: Motion::Oscillating { direction: [0.6, 0.8], amplitude, frequency: 0.25 * LIGHT / amplitude },
    }
}

fn orbiting() -> Charge {
    let radius = 2e-9;
    let motion = Motion::Orbiting { radius, frequency: 0.3 * LIGHT / radius };
    Charge { charge: -ELEMENTARY, origin: [-4e-9, 3e-9], drift: [-0.02 * LIGHT, 0.06 * LIGHT], motion }
}

/// Values from a NumPy implementation of the physical field.
#[test]
fn the_field_is_that_of_the_reference() {
    let (point, time) = ([20e-9, -13e-9], 3e-17);
    let charge = oscillating();
    let retarded = charge.retarded_time(point, time, time, Physics::Physical).unwrap();
    assert!((retarded / -5.389624779717846e-17 - 1.0).abs() < 1e-13, "{retarded:e}");
    let field = charge.field(point, time, Physics::Physical).unwrap();
    for (actual, expected) in field.iter().zip([1014678.5675, -7430841.5447, -5510623.8987]) {
        assert!((actual / expected - 1.0).abs() < 1e-9, "{actual} {expected}");
    }
}

/// q/(4πε₀)·(1 − β²)/(1 − β² sin²θ)^1.5·R/R³ from where the charge is now, and cB = (v/c) × E.
#[test]
fn a_charge_in_uniform_motion_has_the_field_of_the_closed_form() {
    let drift = [0.3 * LIGHT, 0.4 * LIGHT];
    let motion = Motion::Oscillating { direction: [1.0, 0.0], amplitude: 0.0, frequency: 1.0 };
    let charge = Charge { charge: ELEMENTARY, origin: [1e-9, 0.0], drift, motion };
    for (point, time) in [([20e-9, -13e-9], 3e-17), ([-7e-9, 31e-9], -1e-17), ([2e-9, 1e-9], 0.0)] {
        let now = charge.position(time, Physics::Physical);
        let apart = [point[0] - now[0], point[1] - now[1]];
        let (distance, squared) = (norm(apart), dot(drift, drift) / LIGHT.powi(2));
        let sine = (apart[0] * drift[1] - apart[1] * drift[0]) / distance / norm(drift);
        let scale = ELEMENTARY / (4.0 * std::f64::consts::PI * VACUUM) * (1.0 - squared)
            / (1.0 - squared * sine * sine).powf(1.5)
            / distance.powi(3);
        let electric = apart.map(|x| scale * x);
        let magnetic = (drift[0] * electric[1] - drift[1] * electric[0]) / LIGHT;
        let field = charge.field(point, time, Physics::Physical).unwrap();
        let size = norm(electric);
        for (actual, expected) in field.iter().zip([electric[0], electric[1], magnetic]) {
            assert!((actual - expected).abs() < 1e-13 * size, "{actual} {expected}");
        }
    }
}

/// ∂cB_z/∂(ct) = ∂E_x/∂y − ∂E_y/∂x, by sixth-order finite differences: the residual relative to the sizes of the terms.
fn faraday(charge: &Charge, point: [f64; 2], time: f64, physics: Physics) -> f64 {
    let step = 1e-10;
    let derivative = |of: &dyn Fn(f64) -> f64| {
        let weights = [(1.0, 0.75), (2.0, -0.15), (3.0, 1.0 / 60.0)];
        weights.iter().map(|(at, weight)| weight * (of(at * step) - of(-at * step))).sum::<f64>() / step
    };
    let field = |x: f64, y: f64, ct: f64| {
        charge.field([point[0] + x, point[1] + y], time + ct / LIGHT, physics).unwrap()
    };
    let terms = [
        derivative(&|h| field(0.0, 0.0, h)[2]),
        -derivative(&|h| field(0.0, h, 0.0)[0]),
        derivative(&|h| field(h, 0.0, 0.0)[1]),
    ];
    terms.iter().sum::<f64>().abs() / terms.iter().map(|term| term.abs()).sum::<f64>()
}

#[test]
fn physical_fields_obey_faradays_law_and_published_ones_do_not() {
    let points = [([20e-9, -13e-9], 3e-17), ([-15e-9, 4e-9], 0.0), ([6e-9, 18e-9], 1e-16)];
    let worst = |charge: &Charge, physics: Physics| {
        points.iter().map(|&(point, time)| faraday(charge, point, time, physics)).fold(0.0, f64::max)
    };
    for charge in [oscillating(), orbiting()] {
        let physical = worst(&charge, Physics::Physical);
        assert!(physical < 1e-7, "{physical:e}");
    }
    // The published sign of the drift violates Faraday's law.
    assert!(worst(&oscillating(), Physics::Published) > 3e-3);
    // An orbit around another centre is a valid motion.
    assert!(worst(&orbiting(), Physics::Published) < 1e-7);
    assert_ne!(orbiting().position(0.0, Physics::Published), orbiting().position(0.0, Physics::Physical));
}

#[test]
fn a_charge_as_fast_as_light_is_refused() {
    let fast = Charge { drift: [LIGHT, 0.0], ..orbiting() };
    assert_eq!(fast.field([0.0; 2], 0.0, Physics::Physical), None);
    // Every guess leads to the same time.
    let (charge, point) = (oscillating(), [3e-9, 3e-9]);
    let times: Vec<f64> = [-1e-15, -2e-17, 0.0, 1e-15]
        .iter()
        .map(|&guess| charge.retarded_time(point, 1e-17, guess, Physics::Physical).unwrap())
        .collect();
    assert!(times.iter().all(|time| (time - times[0]).abs() < 1e-30), "{times:?}");
}
