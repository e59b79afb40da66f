//! Between the published arrays `[..., channels, components]` and streams `[components, tokens, channels]`.

use gradewise_core::Algebra;
use gradewise_transformers::Space;

/// Blades of the published packages: by the grade, then by the generators, which are in the package's order.
pub struct Published {
    /// For each published component, the one here, and the sign between them.
    blades: Vec<(usize, f64)>,
}

impl Published {
    /// `generators` are the numbers here of the published generators.
    fn new(algebra: &Algebra, generators: [u16; 4]) -> Self {
        let mut masks: Vec<u16> = (0..16).collect();
        masks.sort_by_key(|mask| {
            let numbers: Vec<u16> = (0..4).filter(|g| mask >> g & 1 == 1).collect();
            (numbers.len(), numbers)
        });
        let place = |mask: &u16| {
            let here: Vec<u16> =
                (0..4).filter(|g| mask >> g & 1 == 1).map(|g: u16| generators[usize::from(g)]).collect();
            let pairs = (0..here.len()).flat_map(|a| (a + 1..here.len()).map(move |b| (a, b)));
            let swaps = pairs.filter(|&(a, b)| here[a] > here[b]).count();
            let blade = algebra.blade_of_mask(here.iter().map(|g| 1 << g).sum()).unwrap();
            (blade, if swaps % 2 == 0 { 1.0 } else { -1.0 })
        };
        Self { blades: masks.iter().map(place).collect() }
    }

    /// Of vectors: t, x, y, z.
    pub fn vectors() -> Self {
        Self { blades: (0..4).map(|component| (component, 1.0)).collect() }
    }

    /// The number of components.
    pub fn len(&self) -> usize {
        self.blades.len()
    }

    /// Of lgatr: t, x, y, z.
    pub fn space_time() -> Self {
        Self::new(Space::space_time().algebra(), [0, 1, 2, 3])
    }

    /// Of gatr: the generator that squares to 0, then x, y, z.
    pub fn projective() -> Self {
        Self::new(Space::projective().algebra(), [3, 0, 1, 2])
    }

    /// `[tokens, channels, components]` as `[components, tokens, channels]`.
    pub fn enter(&self, values: &[f64]) -> Vec<f64> {
        let size = values.len() / self.len();
        let mut made = vec![0.0; values.len()];
        for (published, &(blade, sign)) in self.blades.iter().enumerate() {
            for at in 0..size {
                made[blade * size + at] = sign * values[at * self.len() + published];
            }
        }
        made
    }

    /// The inverse of [`enter`](Self::enter).
    pub fn leave(&self, values: &[f64]) -> Vec<f64> {
        let size = values.len() / self.len();
        let mut made = vec![0.0; values.len()];
        for (published, &(blade, sign)) in self.blades.iter().enumerate() {
            for at in 0..size {
                made[at * self.len() + published] = sign * values[blade * size + at];
            }
        }
        made
    }
}
