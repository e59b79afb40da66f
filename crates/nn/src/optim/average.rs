//! Exponential moving average of weights.

use crate::checkpoint::TensorFile;
use crate::{Error, Parameter, Result, module::require_unique};
use gradewise_kernels::{Array, ops::optim};

const SECTION: &str = "ema";

/// An exponential moving average of the values of parameters, `a ← d·a + (1 − d)·p` after every step, starting from
/// their first values (Polyak & Juditsky 1992 in the form used for networks).
#[derive(Clone, Debug)]
pub struct MovingAverage {
    decay: f64,
    parameters: Vec<(String, Parameter)>,
    averages: Vec<Array>,
}

impl MovingAverage {
    /// The averages, by the names of their parameters.
    pub(crate) fn averages(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.parameters.iter().map(|(name, _)| name.as_str()).zip(&self.averages)
    }

    /// Starts from the current values.
    ///
    /// # Errors
    /// [`Error::Argument`] for a decay outside [0, 1); [`Error::DuplicateParameter`].
    pub fn new(decay: f64, parameters: Vec<(String, Parameter)>) -> Result<Self> {
        if !(0.0..1.0).contains(&decay) {
            return Err(Error::Argument {
                operation: "moving average",
                argument: "decay",
                actual: decay.to_string(),
                expected: "at least 0 and less than 1".to_owned(),
            });
        }
        require_unique(&parameters)?;
        // Copies that do not share storage: otherwise the next in-place update would copy the parameter.
        let copy = |(_, p): &(String, Parameter)| -> Result<Array> {
            let values = p.array();
            Ok(Array::from_f64(&values.to_f64_vec()?, values.shape(), values.dtype(), &values.device())?)
        };
        let averages = parameters.iter().map(copy).collect::<Result<_>>()?;
        Ok(Self { decay, parameters, averages })
    }

    /// The decay: the weight of the old average in an update.
    pub(crate) fn decay(&self) -> f64 {
        self.decay
    }

    /// The averages, in the order of the parameters.
    pub(crate) fn arrays(&self) -> &[Array] {
        &self.averages
    }

    /// Updates the averages with the parameters' current values.
    ///
    /// # Errors
    /// From the device.
    pub fn update(&mut self) -> Result<()> {
        for (average, (_, parameter)) in self.averages.iter_mut().zip(&self.parameters) {
            optim::ema(self.decay, average, &parameter.array())?;
        }
        Ok(())
    }

    /// Runs `work` with the averages in place of the parameters, and restores the parameters' values afterwards, also if `work` fails or
    /// panics. Meanwhile, every holder of the same parameters, on any thread, sees the averages.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn apply<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        /// The parameters' own values.
        struct Restore<'a>(&'a [(String, Parameter)], Vec<Array>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                for ((_, parameter), value) in self.0.iter().zip(self.1.drain(..)) {
                    parameter.replace(value);
                }
            }
        }
        let put =
            |((_, parameter), average): (&(String, Parameter), &Array)| parameter.replace(average.clone());
        let own = self.parameters.iter().zip(&self.averages).map(put).collect();
        let _restore = Restore(&self.parameters, own);
        work()
    }

    /// Adds the averages to `tensors`, as `ema::<parameter>`.
    ///
    /// # Errors
    /// From the device.
    pub fn save(&self, tensors: &mut TensorFile) -> Result<()> {
        for ((name, _), average) in self.parameters.iter().zip(&self.averages) {
            tensors.insert_array(format!("{SECTION}::{name}"), average)?;
        }
        Ok(())
    }

    /// Restores what [`MovingAverage::save`] saved, bit for bit.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the file lacks an average, or its shape does not fit; nothing is changed then.
    pub fn load(&mut self, tensors: &TensorFile) -> Result<()> {
        let read = |((name, _), like): (&(String, Parameter), &Array)| {
            tensors.array_of_shape(&format!("{SECTION}::{name}"), like.dims(), like.dtype(), &like.device())
        };
        self.averages = self.parameters.iter().zip(&self.averages).map(read).collect::<Result<_>>()?;
        Ok(())
    }

    /// Whether `tensors` holds averages.
    pub fn is_in(tensors: &TensorFile) -> bool {
        tensors.section(SECTION).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::Device;

    fn parameter(values: &[f64]) -> Parameter {
        Parameter::new(Array::from_slice(values, [values.len()], &Device::Cpu).unwrap())
    }

    #[test]
    fn the_average_follows_its_recurrence_and_is_only_lent_out() {
        let p = parameter(&[1.0, -2.0]);
        let mut average = MovingAverage::new(0.75, vec![("p".to_owned(), p.clone())]).unwrap();
        for values in [[5.0, 6.0], [9.0, -10.0]] {
            p.set(Array::from_slice(&values, [2], &Device::Cpu).unwrap()).unwrap();
            average.update().unwrap();
        }
        let expected = [0.75 * (0.75 + 0.25 * 5.0) + 0.25 * 9.0, 0.75 * (-1.5 + 0.25 * 6.0) - 2.5];
        let seen = average.apply(|| Ok(p.array().to_f64_vec()?)).unwrap();
        assert_eq!(seen, expected);
        assert_eq!(p.array().to_f64_vec().unwrap(), [9.0, -10.0]);
        let failed: Result<()> =
            average.apply(|| Err(Error::Worker { operation: "test", reason: "no".to_owned() }));
        assert!(failed.is_err());
        assert_eq!(p.array().to_f64_vec().unwrap(), [9.0, -10.0]);
        let panicking = || average.apply(|| -> Result<()> { std::panic::resume_unwind(Box::new(())) });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
        assert_eq!(p.array().to_f64_vec().unwrap(), [9.0, -10.0], "after a panic");
        assert!(MovingAverage::new(1.0, Vec::new()).is_err());
    }

    #[test]
    fn averages_survive_a_file() {
        let p = parameter(&[0.1, 0.2, 0.3]);
        let average = MovingAverage::new(0.9, vec![("p".to_owned(), p.clone())]).unwrap();
        let mut file = TensorFile::new();
        assert!(!MovingAverage::is_in(&file));
        average.save(&mut file).unwrap();
        p.set(Array::from_slice(&[7.0, 8.0, 9.0], [3], &Device::Cpu).unwrap()).unwrap();
        let mut other = MovingAverage::new(0.9, vec![("p".to_owned(), p.clone())]).unwrap();
        other.load(&file).unwrap();
        assert_eq!(other.apply(|| Ok(p.array().to_f64_vec()?)).unwrap(), [0.1, 0.2, 0.3]);
        assert!(other.load(&TensorFile::new()).is_err());
    }
}
