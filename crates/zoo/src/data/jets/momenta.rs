//! The numbers of jets of any length.

use super::FourMomentum;

/// Four-momenta of jets, those of a jet one after the other.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Momenta {
    numbers: Numbers,
    /// The first particle of each jet, and the number of all.
    starts: Vec<usize>,
}

/// Published files are in single precision: 1.2 million jets of 50 particles are 1 GB so, without a change of any number.
#[derive(Clone, PartialEq, Debug)]
enum Numbers {
    /// As long as every number is one of single precision.
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Momenta {
    pub fn new() -> Self {
        Self { numbers: Numbers::Single(Vec::new()), starts: vec![0] }
    }

    /// The number of jets.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of particles of a jet.
    pub fn particles(&self, jet: usize) -> usize {
        self.starts[jet + 1] - self.starts[jet]
    }

    /// The particles of a jet.
    pub fn jet(&self, jet: usize) -> impl ExactSizeIterator<Item = FourMomentum> {
        (self.starts[jet]..self.starts[jet + 1]).map(|particle| {
            FourMomentum(std::array::from_fn(|axis| match &self.numbers {
                Numbers::Single(numbers) => numbers[4 * particle + axis].into(),
                Numbers::Double(numbers) => numbers[4 * particle + axis],
            }))
        })
    }

    /// Adds a jet.
    pub fn push(&mut self, jet: impl IntoIterator<Item = FourMomentum>) {
        let mut particles = self.starts[self.len()];
        for momentum in jet {
            self.push_numbers(momentum.0);
            particles += 1;
        }
        self.starts.push(particles);
    }

    fn push_numbers(&mut self, numbers: [f64; 4]) {
        let is_exact = numbers.iter().all(|&number| f64::from(number as f32) == number);
        if let Numbers::Single(singles) = &mut self.numbers {
            if is_exact {
                singles.extend(numbers.map(|number| number as f32));
                return;
            }
            self.numbers = Numbers::Double(singles.iter().map(|&number| number.into()).collect());
        }
        if let Numbers::Double(doubles) = &mut self.numbers {
            doubles.extend(numbers);
        }
    }

    /// Drops all jets but the first.
    pub fn truncate(&mut self, jets: usize) {
        self.starts.truncate(jets + 1);
        let numbers = 4 * self.starts[self.len()];
        match &mut self.numbers {
            Numbers::Single(singles) => singles.truncate(numbers),
            Numbers::Double(doubles) => doubles.truncate(numbers),
        }
    }

    /// Frees what growing has reserved.
    pub fn shrink_to_fit(&mut self) {
        self.starts.shrink_to_fit();
        match &mut self.numbers {
            Numbers::Single(singles) => singles.shrink_to_fit(),
            Numbers::Double(doubles) => doubles.shrink_to_fit(),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Single(singles) => size_of::<f32>() * singles.capacity(),
            Numbers::Double(doubles) => size_of::<f64>() * doubles.capacity(),
        };
        numbers + size_of::<usize>() * self.starts.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_as_they_are_and_take_half_where_they_can() {
        let single = [FourMomentum([5.0, 3.0, 0.0, 4.0]), FourMomentum([1.5, 0.0, 1.0, -0.5])];
        let double = [FourMomentum([0.1, 0.0, 0.0, -0.1])];
        let mut momenta = Momenta::new();
        momenta.push(single);
        momenta.push([]);
        momenta.shrink_to_fit();
        assert_eq!(momenta.bytes(), 8 * 4 + 3 * 8, "eight numbers of 4 bytes, three starts");
        momenta.push(double);
        assert!(matches!(momenta.numbers, Numbers::Double(_)));
        assert_eq!((momenta.len(), momenta.particles(0), momenta.particles(1)), (3, 2, 0));
        assert!(momenta.jet(0).eq(single) && momenta.jet(2).eq(double));
        momenta.truncate(1);
        assert!(momenta.len() == 1 && momenta.jet(0).eq(single));
        momenta.truncate(9);
        assert_eq!(momenta.len(), 1);
    }
}
