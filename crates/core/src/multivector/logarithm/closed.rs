//! Closed forms of the logarithm, where ⟨R⟩₄² is a number.
//!
//! A rotor R = exp B is w + V with the even-graded w = ⟨R⟩₀ + ⟨R⟩₄ = C(B²) and the bivector V = ⟨R⟩₂ = S(B²) B. Where
//! P = ⟨R⟩₄ has a number π as its square, all of this happens in two commuting copies of the numbers (π > 0), in the
//! complex numbers (π < 0) or in the dual numbers (π = 0), and B = h V with h = √z / sinh √z where cosh √z = w.

use super::super::{Multivector, functions::sinhc_root_derivative};
use crate::{CliffordAlgebra, Real};

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The closed forms, the likeliest first. They may lose digits near full and half turns, and there may be none at such.
    pub(super) fn closed_logs(&self) -> impl Iterator<Item = Self> {
        let closed = self.select(|grade| grade > 4).is_negligible_beside(self);
        let pitch = self.grade(4);
        let square = if closed { pitch.square_if_scalar() } else { None };
        let scale = self.sizes()[0];
        // Rounding noise in the pitch of a simple rotor, and a nearly null pitch, are taken for zero. Beside a large rotor a
        // small pitch may yet count.
        let one_plane = square.is_some_and(|square| square.is_negligible(&(scale * scale)));
        let order = if one_plane { [1, 2] } else { [2, 1] };
        order.into_iter().filter_map(move |planes| {
            let square = square?;
            if planes == 1 {
                self.log_of_one_plane(&pitch)
            } else if square > T::zero() {
                self.log_of_two_planes(&pitch, square)
            } else if square < T::zero() {
                Some(self.log_of_boost_and_rotation(&pitch, square))
            } else {
                None
            }
        })
    }

    /// The logarithm where ⟨R⟩₄² = 0: a simple rotor, or a screw motion.
    fn log_of_one_plane(&self, pitch: &Self) -> Option<Self> {
        let (cosine, bivector) = (self.scalar_part(), self.grade(2));
        let square = bivector.times(&bivector).scalar_part();
        let length = square.abs().sqrt();
        if cosine < T::zero() && square >= T::zero() {
            let plane = (bivector.is_zero() && pitch.is_zero()).then(|| self.half_turn()).flatten();
            return plane.map(|plane| plane.scaled(&T::from_f64(core::f64::consts::PI)));
        }
        // B = x · bivector for the angle (or rapidity) x·length; its square is s.
        let angle = if square < T::zero() { length.atan2(cosine) } else { length.asinh() };
        let sine = if angle == T::zero() { T::one() } else { length / angle };
        let s = if square < T::zero() { -(angle * angle) } else { angle * angle };
        // bivector = (S + S′ Q) B and ⟨R⟩₄ = C′ Q = ½ S Q, to be solved for B with Q² = 0.
        let q = pitch.scaled(&(T::from_f64(2.0) / sine));
        let factor = q.scaled(&(-sinhc_root_derivative(s) / (sine * sine))).plus_scalar(sine.recip());
        Some(factor.times(&bivector).grade(2))
    }

    /// The logarithm where ⟨R⟩₄² > 0. The unit J = ⟨R⟩₄ / √π has the square 1, and ½ (1 ± J) split R into two rotors, each
    /// a number and a bivector.
    fn log_of_two_planes(&self, pitch: &Self, square: T) -> Option<Self> {
        let half = T::from_f64(0.5);
        let root = square.sqrt();
        let (unit, bivector) = (pitch.scaled(&root.recip()), self.grade(2));
        let mut log = Self::zero_in(self.algebra());
        for sign in [T::one(), -T::one()] {
            // x ↦ ½ (1 ± J) x, of elements that commute with J.
            let split = |x: &Self| x.sum(&unit.times(x).scaled(&sign)).scaled(&half).grade(2);
            // Twice: rounding errors beside a large part for the other sign are no longer in this one.
            let part = split(&split(&bivector));
            let cosine = self.scalar_part() + sign * root;
            // part² = u ½ (1 ± J).
            let u = part.times(&part).scalar_part() * T::from_f64(2.0);
            let noise = T::from_f64(16.0) * T::epsilon() * self.size();
            if cosine < T::zero() && part.size() <= noise {
                // Only what commutes with J can be split.
                let within = |x: &Self| split(&x.sum(&unit.times(x).times(&unit)).scaled(&half));
                let plane = self.half_turn_among(within)?;
                log = log.sum(&plane.scaled(&T::from_f64(core::f64::consts::PI)));
            } else if u < T::zero() {
                let sine = (-u).sqrt();
                log = log.sum(&part.scaled(&(sine.atan2(cosine) / sine)));
            } else if cosine > T::zero() {
                let sine = u.sqrt();
                let factor = if sine == T::zero() { T::one() } else { sine.asinh() / sine };
                log = log.sum(&part.scaled(&factor));
            } else {
                return None;
            }
        }
        Some(log)
    }

    /// The logarithm where ⟨R⟩₄² < 0. The unit i = ⟨R⟩₄ / √−π has the square −1, so w and V² are complex numbers.
    fn log_of_boost_and_rotation(&self, pitch: &Self, square: T) -> Self {
        let root = (-square).sqrt();
        let (unit, bivector) = (pitch.scaled(&root.recip()), self.grade(2));
        let (w_re, w_im) = (self.scalar_part(), root);
        let v_square = bivector.times(&bivector);
        let (u_re, u_im) = (v_square.scalar_part(), -v_square.times(&unit).scalar_part());
        // r = √(V²) = sinh(x + iy), w = cosh(x + iy).
        let (r_re, r_im) = complex_sqrt(u_re, u_im);
        let y = r_im.atan2(w_re);
        let cosh = r_im.hypot(w_re);
        let x = ((r_re * w_re + w_im * r_im) / cosh).asinh();
        // h = (x + iy) / r.
        let norm = r_re * r_re + r_im * r_im;
        let (h_re, h_im) = ((x * r_re + y * r_im) / norm, (y * r_re - x * r_im) / norm);
        bivector.scaled(&h_re).sum(&unit.times(&bivector).scaled(&h_im)).grade(2)
    }

    /// The basis bivectors.
    fn basis_planes(&self) -> impl Iterator<Item = Self> {
        let n = self.algebra.signature().dimension();
        let planes = (n + 1)..=(n + n * n.saturating_sub(1) / 2);
        planes.filter_map(|blade| Self::blade_in(&self.algebra, blade, T::one()).ok())
    }

    /// The first basis bivector that squares to −1.
    fn half_turn(&self) -> Option<Self> {
        self.basis_planes().find(|plane| plane.times(plane).scalar_part() < T::zero())
    }

    /// Of the parts that `split` takes of the basis bivectors, the one that turns most, of such a length that its square
    /// is −1 there.
    fn half_turn_among(&self, split: impl Fn(&Self) -> Self) -> Option<Self> {
        let turning = |plane: Self| {
            let part = split(&plane);
            let square = part.times(&part).scalar_part() * T::from_f64(2.0);
            (square < T::from_f64(-0.01)).then_some((part, square))
        };
        let most = self
            .basis_planes()
            .filter_map(turning)
            .min_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal));
        most.map(|(part, square)| part.scaled(&(-square).sqrt().recip()))
    }
}

/// A square root of re + i im, without cancellation.
fn complex_sqrt<T: Real>(re: T, im: T) -> (T, T) {
    let half = T::from_f64(0.5);
    let length = re.hypot(im);
    let large = ((length + re.abs()) * half).sqrt();
    if large == T::zero() {
        return (T::zero(), T::zero());
    }
    let small = im * half / large;
    if re >= T::zero() { (large, small) } else { (small, large) }
}
