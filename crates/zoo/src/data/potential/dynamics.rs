//! Motion under forces of any origin.

use gradewise_nn::Result;

/// Positions and velocities of many systems, `[systems, 3, particles]`, of particles of mass 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Motion {
    /// Positions.
    pub loc: Vec<f64>,
    /// Velocities.
    pub vel: Vec<f64>,
}

impl Motion {
    /// Kinetic energy of each system, of `particles` particles.
    pub fn kinetic(&self, particles: usize) -> Vec<f64> {
        let system = |vel: &[f64]| 0.5 * vel.iter().map(|v| v * v).sum::<f64>();
        self.vel.chunks_exact((3 * particles).max(1)).map(system).collect()
    }
}

/// Advances systems by `steps` steps of length `dt` under `forces` of the positions, by the velocity Störmer–Verlet method. It is
/// symplectic and of second order, so energy errors stay bounded if forces are the gradient of an energy. `seen` is called with each state,
/// including the first.
///
/// # Errors
/// Those of `forces` and `seen`.
pub fn velocity_verlet(
    motion: &mut Motion,
    (steps, dt): (usize, f64),
    mut forces: impl FnMut(&[f64]) -> Result<Vec<f64>>,
    mut seen: impl FnMut(usize, &Motion) -> Result<()>,
) -> Result<()> {
    let kick =
        |vel: &mut [f64], force: &[f64]| vel.iter_mut().zip(force).for_each(|(v, f)| *v += 0.5 * dt * f);
    let mut force = forces(&motion.loc)?;
    seen(0, motion)?;
    for step in 1..=steps {
        kick(&mut motion.vel, &force);
        motion.loc.iter_mut().zip(&motion.vel).for_each(|(x, v)| *x += dt * v);
        force = forces(&motion.loc)?;
        kick(&mut motion.vel, &force);
        seen(step, motion)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked on a harmonic oscillator, whose motion is known.
    #[test]
    fn halving_the_step_quarters_the_error() {
        let error = |steps: usize| {
            let mut motion = Motion { loc: vec![1.0, 0.0, 0.0], vel: vec![0.0, 0.5, 0.0] };
            let dt = 3.0 / steps as f64;
            velocity_verlet(&mut motion, (steps, dt), |x| Ok(x.iter().map(|x| -x).collect()), |_, _| Ok(()))
                .unwrap();
            (motion.loc[0] - 3f64.cos()).hypot(motion.loc[1] - 0.5 * 3f64.sin())
        };
        let ratio = error(50) / error(100);
        assert!((ratio - 4.0).abs() < 0.05, "{ratio}");
    }
}
