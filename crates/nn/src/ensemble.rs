//! Ensembles: the mean over several models is the prediction, their spread an estimate of its uncertainty.

use crate::{Error, Result, checkpoint::Checkpoint};

/// Several models of one kind.
///
/// ```
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::{Array, Device};
/// use gradewise_autograd::{Tensor, no_grad};
/// use gradewise_nn::{Ensemble, Module, checkpoint::Checkpoint, layers::{Layer, MvLinear}, train::{Trainer, TrainerConfig}};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let fresh = |seed| MvLinear::new(1, 1, Signature::CL3).init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed));
/// let run = |seed| Trainer::new(fresh(seed)?, TrainerConfig::default())?.checkpoint("layer", serde_json::Value::Null);
/// let together = Checkpoint::ensemble(&[(0, run(0)?), (1, run(1)?)])?;
///
/// let ensemble = Ensemble::from_checkpoint(&together, |checkpoint| {
///     let layer = fresh(0)?;
///     layer.load(&|name| checkpoint.tensors.find_array(name, DType::F32, &Device::Cpu))?;
///     Ok::<_, gradewise_nn::Error>(layer)
/// })?;
/// let x = Tensor::new(Array::from_f64(&[1.0; 8], [8, 1, 1], DType::F32, &Device::Cpu)?);
/// let predicted = ensemble.predict(|layer| {
///     Ok::<_, gradewise_nn::Error>(no_grad(|| layer.forward(&x))?.array().to_f64_vec()?)
/// })?;
/// assert_eq!((predicted.mean.len(), predicted.deviation.map(|spread| spread.len())), (8, Some(8)));
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ensemble<M>(Vec<M>);

/// The prediction of an ensemble.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The mean of each number over the models.
    pub mean: Vec<f64>,
    /// The sample standard deviation of each number over the models, in that number's unit. It is large where the models disagree, which is
    /// where training data are scarce. `None` for a single model.
    pub deviation: Option<Vec<f64>>,
}

impl<M> Ensemble<M> {
    /// An ensemble of these models.
    ///
    /// # Errors
    /// [`Error::Argument`] for no model at all.
    pub fn new(models: Vec<M>) -> Result<Self> {
        if models.is_empty() {
            return Err(Error::Argument {
                operation: "Ensemble",
                argument: "models",
                actual: "none".to_owned(),
                expected: "at least one".to_owned(),
            });
        }
        Ok(Self(models))
    }

    /// The models of a checkpoint, one or several, each made by `load`.
    ///
    /// # Errors
    /// As [`Checkpoint::models`]; those of `load`.
    pub fn from_checkpoint<E: From<Error>>(
        checkpoint: &Checkpoint,
        load: impl FnMut(&Checkpoint) -> Result<M, E>,
    ) -> Result<Self, E> {
        Ok(Self::new(checkpoint.models()?.iter().map(load).collect::<Result<_, E>>()?)?)
    }

    /// The models.
    pub fn models(&self) -> &[M] {
        &self.0
    }

    /// Mean and spread of the numbers that `predict` gets from each model.
    ///
    /// # Errors
    /// [`Error::Argument`] if the models' predictions differ in length; those of `predict`.
    pub fn predict<E: From<Error>>(
        &self,
        predict: impl FnMut(&M) -> Result<Vec<f64>, E>,
    ) -> Result<Prediction, E> {
        let each = self.0.iter().map(predict).collect::<Result<Vec<_>, E>>()?;
        Ok(Prediction::of(&each)?)
    }
}

impl Prediction {
    /// Mean and spread of the predictions of several models.
    ///
    /// # Errors
    /// [`Error::Argument`] for no prediction, or for predictions of different lengths.
    pub fn of(each: &[Vec<f64>]) -> Result<Self> {
        let lengths: Vec<usize> = each.iter().map(Vec::len).collect();
        let Some(&numbers) = lengths.first().filter(|first| lengths.iter().all(|length| length == *first))
        else {
            return Err(Error::Argument {
                operation: "Ensemble",
                argument: "predictions",
                actual: format!("{lengths:?} numbers"),
                expected: "as many from each model, and at least one model".to_owned(),
            });
        };
        let models = each.len() as f64;
        let mean_at = |k: usize| each.iter().map(|predictions| predictions[k]).sum::<f64>() / models;
        let mean: Vec<f64> = (0..numbers).map(mean_at).collect();
        let deviation_at = |(k, mean): (usize, &f64)| {
            let squares: f64 = each.iter().map(|predictions| (predictions[k] - mean).powi(2)).sum();
            (squares / (models - 1.0)).sqrt()
        };
        let deviation = (each.len() > 1).then(|| mean.iter().enumerate().map(deviation_at).collect());
        Ok(Self { mean, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_spread_are_those_of_the_models() {
        let ensemble = Ensemble::new(vec![1.0, 2.0, 6.0]).unwrap();
        let predicted = ensemble.predict(|model| Ok::<_, Error>(vec![*model, 5.0])).unwrap();
        assert_eq!(predicted.mean, [3.0, 5.0]);
        let deviation = predicted.deviation.unwrap();
        assert!((deviation[0] - 7f64.sqrt()).abs() < 1e-15 && deviation[1] == 0.0);
        assert_eq!(Prediction::of(&[vec![4.0]]).unwrap(), Prediction { mean: vec![4.0], deviation: None });
    }

    #[test]
    fn what_is_no_ensemble_is_refused() {
        assert!(Ensemble::<f64>::new(Vec::new()).is_err());
        let message = Prediction::of(&[vec![1.0], vec![1.0, 2.0]]).unwrap_err().to_string();
        assert!(message.contains("[1, 2]"), "{message}");
    }
}
