//! NumPy's legacy generator of random numbers, by which published data sets were drawn.
//!
//! NumPy freezes this stream (`numpy.random.RandomState`, NEP 19): a seed gives the same numbers in every release. This implementation
//! repeats it bit for bit where the platform's logarithm is glibc's; elsewhere normal deviates may differ in the last bit.

use rand_mt::Mt;

/// `numpy.random.RandomState`.
#[derive(Clone, Debug)]
pub struct RandomState {
    words: Mt,
    /// The second of the pair of normal deviates drawn last, if it has not been returned yet.
    cached: Option<f64>,
}

impl RandomState {
    /// `RandomState(seed)` with a whole number, as `numpy.random.seed(seed)`.
    pub fn new(seed: u32) -> Self {
        Self { words: Mt::new(seed), cached: None }
    }

    /// A word of the Mersenne Twister MT19937.
    pub fn word(&mut self) -> u32 {
        self.words.next_u32()
    }

    /// `random_sample()`: uniform on [0, 1), with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        let high = f64::from(self.word() >> 5);
        let low = f64::from(self.word() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// `standard_normal()`, by Marsaglia's polar method: the second deviate of a pair is returned first, and the first is cached for the
    /// next call.
    pub fn normal(&mut self) -> f64 {
        if let Some(cached) = self.cached.take() {
            return cached;
        }
        let (first, second, square) = self.point_in_disc();
        let factor = (-2.0 * square.ln() / square).sqrt();
        self.cached = Some(factor * first);
        factor * second
    }

    /// Advances the stream as if [`normal`](Self::normal) had been called `count` times.
    pub fn skip_normals(&mut self, count: usize) {
        let mut left = count;
        if left > 0 && self.cached.take().is_some() {
            left -= 1;
        }
        for _ in 0..left / 2 {
            self.point_in_disc();
        }
        if !left.is_multiple_of(2) {
            self.normal();
        }
    }

    /// A point of the unit disc without its centre, and the square of its distance from there.
    fn point_in_disc(&mut self) -> (f64, f64, f64) {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square != 0.0 {
                return (x, y, square);
            }
        }
    }

    /// `choice(len, p=probabilities)`: an index, by the cumulative probabilities.
    pub fn choice(&mut self, probabilities: &[f64]) -> usize {
        let mut total = 0.0;
        let cumulative: Vec<f64> = probabilities
            .iter()
            .map(|probability| {
                total += probability;
                total
            })
            .collect();
        let sample = self.uniform();
        cumulative.iter().filter(|&&bound| bound / total <= sample).count()
    }

    /// A whole number from 0 to `largest`, as `randint(0, largest + 1)`: rejection sampling of words that are masked to the bits of
    /// `largest`. A range of one number draws nothing.
    pub fn below_or_at(&mut self, largest: u32) -> u32 {
        if largest == 0 {
            return 0;
        }
        let mask = u32::MAX >> largest.leading_zeros();
        loop {
            let drawn = self.word() & mask;
            if drawn <= largest {
                return drawn;
            }
        }
    }

    /// `permutation(len)`, of at most 2³² items: a Fisher–Yates shuffle from the last item down.
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            let other = self.below_or_at(u32::try_from(last).unwrap_or(u32::MAX)) as usize;
            order.swap(last, other);
        }
        order
    }

    /// `scipy.stats.special_ortho_group(3).rvs(count)`, where SciPy composes two Householder reflections of normal vectors (Stewart 1980;
    /// later releases take a QR decomposition, and draw other numbers): uniform rotations, by rows.
    pub fn rotations(&mut self, count: usize) -> Vec<[[f64; 3]; 3]> {
        let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let mut rotations = vec![identity; count];
        let mut signs = vec![[0.0; 2]; count];
        for first in 0..2 {
            for (rotation, signs) in rotations.iter_mut().zip(&mut signs) {
                let mut x = [0.0; 3];
                x[first..].iter_mut().for_each(|x| *x = self.normal());
                let square: f64 = x.iter().map(|x| x * x).sum();
                let head = x[first];
                signs[first] = if head == 0.0 { 1.0 } else { head.signum() };
                x[first] += signs[first] * square.sqrt();
                let scale = ((square - head * head + x[first] * x[first]) / 2.0).sqrt();
                x.iter_mut().for_each(|x| *x /= scale);
                for row in rotation {
                    let along: f64 = row.iter().zip(x).map(|(r, x)| r * x).sum();
                    row.iter_mut().zip(x).for_each(|(r, x)| *r -= along * x);
                }
            }
        }
        for (rotation, [a, b]) in rotations.iter_mut().zip(signs) {
            // The last sign makes the determinant 1.
            for (row, sign) in rotation.iter_mut().zip([a, b, a * b]) {
                row.iter_mut().for_each(|r| *r *= sign);
            }
        }
        rotations
    }
}

#[cfg(test)]
mod tests {
    use super::RandomState;

    // Values printed by NumPy itself.

    #[test]
    fn words_and_uniform_numbers() {
        let mut state = RandomState::new(43);
        let words: Vec<u32> = (0..5).map(|_| state.word()).collect();
        assert_eq!(words, [494_155_588, 2_134_003_008, 2_615_920_895, 442_015_537, 572_909_845]);
        let mut state = RandomState::new(43);
        let samples: [f64; 3] = std::array::from_fn(|_| state.uniform());
        let bits = [0x3fbd_7437_4fe6_49a8, 0x3fe3_7d79_1c69_627c, 0x3fc1_12f4_8261_5f80];
        assert_eq!(samples.map(f64::to_bits), bits);
    }

    #[test]
    fn normal_deviates_and_choices() {
        let mut state = RandomState::new(43);
        let normals: [f64; 6] = std::array::from_fn(|_| state.normal());
        let expected = [
            0.25739992534469336,
            -0.9084814327806611,
            -0.37850310605882326,
            -0.5349155987755707,
            0.8580733460716252,
            -0.41300998231472696,
        ];
        for (normal, expected) in normals.iter().zip(expected) {
            assert!((normal - expected).abs() <= 2.0 * f64::EPSILON, "{normal} {expected}");
        }
        let mut state = RandomState::new(43);
        let choices: Vec<i32> = (0..10).map(|_| [-1, 0, 1][state.choice(&[0.5, 0.0, 0.5])]).collect();
        assert_eq!(choices, [-1, 1, -1, -1, -1, 1, 1, 1, -1, 1]);
    }

    #[test]
    fn whole_numbers_are_numpys() {
        let mut state = RandomState::new(43);
        let drawn: [u32; 3] = std::array::from_fn(|_| state.below_or_at((1 << 31) - 2));
        assert_eq!(drawn, [494_155_588, 2_134_003_008, 468_437_247]);
        let mut state = RandomState::new(43);
        let drawn: [u32; 8] = std::array::from_fn(|_| 2 + state.below_or_at(3));
        assert_eq!(drawn, [2, 2, 5, 3, 3, 4, 2, 5]);
        let mut untouched = state.clone();
        assert_eq!((state.below_or_at(0), state.word()), (0, untouched.word()));
    }

    #[test]
    fn permutations_and_rotations_are_uniform() {
        let mut state = RandomState::new(1);
        let mut counts = [[0; 4]; 4];
        for _ in 0..4000 {
            let order = state.permutation(4);
            order.iter().enumerate().for_each(|(place, &thing)| counts[place][thing] += 1);
        }
        assert!(counts.as_flattened().iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        let rotations = state.rotations(4000);
        let (mut mean, mut squares) = ([[0.0; 3]; 3], [[0.0; 3]; 3]);
        for r in &rotations {
            let dot = |i: usize, j: usize| (0..3).map(|k| r[i][k] * r[j][k]).sum::<f64>();
            for i in 0..3 {
                for j in 0..3 {
                    assert!((dot(i, j) - f64::from(u8::from(i == j))).abs() < 1e-12);
                    mean[i][j] += r[i][j] / 4000.0;
                    squares[i][j] += r[i][j] * r[i][j] / 4000.0;
                }
            }
            let minor = |a: usize, b: usize| r[1][a] * r[2][b] - r[1][b] * r[2][a];
            let determinant = r[0][0] * minor(1, 2) - r[0][1] * minor(0, 2) + r[0][2] * minor(0, 1);
            assert!((determinant - 1.0).abs() < 1e-12);
        }
        // Each entry has mean 0 and mean square 1/3.
        assert!(mean.as_flattened().iter().all(|mean| mean.abs() < 0.05), "{mean:?}");
        assert!(squares.as_flattened().iter().all(|square| (square - 1.0 / 3.0).abs() < 0.03), "{squares:?}");
    }

    #[test]
    fn skipping_is_drawing() {
        for before in 0..3 {
            for count in 0..6 {
                let mut drawn = RandomState::new(5);
                for _ in 0..before {
                    drawn.normal();
                }
                let mut skipped = drawn.clone();
                for _ in 0..count {
                    drawn.normal();
                }
                skipped.skip_normals(count);
                assert_eq!(drawn.normal().to_bits(), skipped.normal().to_bits(), "{count} after {before}");
                assert_eq!(drawn.uniform().to_bits(), skipped.uniform().to_bits());
            }
        }
    }
}
