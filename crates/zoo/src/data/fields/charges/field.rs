//! Charges that move in a plane, and their fields there.

/// Speed of light, m/s.
pub(super) const LIGHT: f64 = 299_792_458.0;
/// Elementary charge, C.
pub(super) const ELEMENTARY: f64 = 1.602_176_634e-19;
/// Permittivity of the vacuum, F/m (CODATA 2018).
const VACUUM: f64 = 8.854_187_812_8e-12;
/// Limit of iterations for a retarded time: bisection alone reaches machine precision within it.
const MOST_STEPS: usize = 100;
/// Newton's iteration stops after a step below this fraction of the delay.
const SETTLED: f64 = 1e-9;

/// Whether two faults of the published generator are repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Physics {
    /// Orbits ignore their origins, so that all circle the centre of the grid, and oscillating charges report the drift of their velocity
    /// with the wrong sign, so that their fields do not obey Maxwell's equations.
    Published,
    /// Both faults are corrected.
    Physical,
}

/// The motion of a charge in addition to its drift.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Motion {
    /// Along a line: direction (of length 1) · amplitude · cos ωt.
    Oscillating {
        /// The direction, of length 1.
        direction: [f64; 2],
        /// In m.
        amplitude: f64,
        /// ω in 1/s.
        frequency: f64,
    },
    /// On a circle: radius · (cos ωt, sin ωt).
    Orbiting {
        /// In m.
        radius: f64,
        /// ω in 1/s.
        frequency: f64,
    },
}

/// A charge in the plane z = 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Charge {
    /// In C.
    pub charge: f64,
    /// Position at time 0 without `motion`, m.
    pub origin: [f64; 2],
    /// A constant velocity, m/s.
    pub drift: [f64; 2],
    /// The motion in addition to the drift.
    pub motion: Motion,
}

impl Charge {
    /// The position at `time`.
    pub fn position(&self, time: f64, physics: Physics) -> [f64; 2] {
        self.path(time, physics).0
    }

    /// The position and its time derivative. With [`Physics::Published`], [`velocity`](Self::velocity) does not return that derivative.
    fn path(&self, time: f64, physics: Physics) -> ([f64; 2], [f64; 2]) {
        let (moved, moving, origin) = match self.motion {
            Motion::Oscillating { direction, amplitude, frequency } => {
                let (sin, cos) = (frequency * time).sin_cos();
                let (along, speed) = (amplitude * cos, -amplitude * frequency * sin);
                (direction.map(|d| d * along), direction.map(|d| d * speed), self.origin)
            }
            Motion::Orbiting { radius, frequency } => {
                let (sin, cos) = (frequency * time).sin_cos();
                let speed = radius * frequency;
                let origin = if physics == Physics::Published { [0.0; 2] } else { self.origin };
                ([radius * cos, radius * sin], [-speed * sin, speed * cos], origin)
            }
        };
        let place = [0, 1].map(|axis| origin[axis] + moved[axis] + self.drift[axis] * time);
        (place, [0, 1].map(|axis| moving[axis] + self.drift[axis]))
    }

    /// The velocity from which the field of the charge is computed.
    pub fn velocity(&self, time: f64, physics: Physics) -> [f64; 2] {
        let velocity = self.path(time, physics).1;
        match (physics, self.motion) {
            (Physics::Published, Motion::Oscillating { .. }) => {
                [0, 1].map(|axis| velocity[axis] - 2.0 * self.drift[axis])
            }
            _ => velocity,
        }
    }

    /// The acceleration at `time`.
    pub fn acceleration(&self, time: f64) -> [f64; 2] {
        match self.motion {
            Motion::Oscillating { direction, amplitude, frequency } => {
                direction.map(|d| -d * amplitude * frequency * frequency * (frequency * time).cos())
            }
            Motion::Orbiting { radius, frequency } => {
                let (sin, cos) = (frequency * time).sin_cos();
                [cos, sin].map(|along| -radius * frequency * frequency * along)
            }
        }
    }

    /// An upper bound on the speed.
    fn top_speed(&self) -> f64 {
        let own = match self.motion {
            Motion::Oscillating { amplitude, frequency, .. } => amplitude * frequency,
            Motion::Orbiting { radius, frequency } => radius * frequency,
        };
        own.abs() + norm(self.drift)
    }

    /// The retarded time t_r, at which the signal that arrives at `point` at `time` left the charge: |r − w(t_r)| = c(t − t_r). The
    /// difference of both sides increases with t_r if the charge is slower than light, so Newton's steps are kept within a bracket. `guess`
    /// is the initial value.
    ///
    /// `None` for a charge that may reach the speed of light.
    pub fn retarded_time(&self, point: [f64; 2], time: f64, guess: f64, physics: Physics) -> Option<f64> {
        let slowness = LIGHT - self.top_speed();
        if slowness <= 0.0 {
            return None;
        }
        let from = |at: f64| {
            let (place, velocity) = self.path(at, physics);
            ([0, 1].map(|axis| point[axis] - place[axis]), velocity)
        };
        let mut above = time;
        let mut below = time - norm(from(time).0) / slowness * (1.0 + 1e-12);
        let mut at = if (below..=above).contains(&guess) { guess } else { 0.5 * (below + above) };
        for _ in 0..MOST_STEPS {
            let (apart, velocity) = from(at);
            let distance = norm(apart);
            let value = distance - LIGHT * (time - at);
            if value > 0.0 {
                above = at
            } else {
                below = at
            }
            let slope = LIGHT - dot(apart, velocity) / distance.max(f64::MIN_POSITIVE);
            let newton = at - value / slope;
            let within = (below..=above).contains(&newton);
            let next = if within { newton } else { 0.5 * (below + above) };
            // The error after a Newton step is of the order of the step's square, so the remaining error is below rounding.
            let settled = if within { SETTLED } else { 2.0 * f64::EPSILON };
            if (next - at).abs() <= settled * (time - at).abs() {
                return Some(next);
            }
            at = next;
        }
        Some(at)
    }

    /// E_x, E_y and cB_z at `point` at `time`, V/m (Liénard and Wiechert), from the retarded time; not finite at the charge itself.
    pub fn field_from(&self, point: [f64; 2], retarded: f64, physics: Physics) -> [f64; 3] {
        let place = self.position(retarded, physics);
        let apart = [0, 1].map(|axis| point[axis] - place[axis]);
        let distance = norm(apart);
        let velocity = self.velocity(retarded, physics);
        let acceleration = self.acceleration(retarded);
        let u = [0, 1].map(|axis| LIGHT * apart[axis] / distance - velocity[axis]);
        let along = dot(apart, u);
        let factor = self.charge / (4.0 * std::f64::consts::PI * VACUUM) * distance / along.powi(3);
        let near = LIGHT * LIGHT - dot(velocity, velocity);
        // R × (u × a) = u (R·a) − a (R·u).
        let radiated = dot(apart, acceleration);
        let electric = [0, 1].map(|axis| factor * ((near + radiated) * u[axis] - acceleration[axis] * along));
        [electric[0], electric[1], (apart[0] * electric[1] - apart[1] * electric[0]) / distance]
    }

    /// As [`field_from`](Self::field_from), computing the retarded time first.
    pub fn field(&self, point: [f64; 2], time: f64, physics: Physics) -> Option<[f64; 3]> {
        let retarded = self.retarded_time(point, time, time, physics)?;
        Some(self.field_from(point, retarded, physics))
    }
}

fn dot(a: [f64; 2], b: [f64; 2]) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

fn norm(a: [f64; 2]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests;
