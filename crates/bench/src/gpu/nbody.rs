//! Training steps of the paper's n-body model as a workload.

use super::workload::{Prepared, Workload};
use crate::{Case, Error, Pass, Result};
use gradewise_autograd::no_grad;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Placement,
    optim::{Method, Schedule},
    train::{CapturedStep, Trainer, TrainerConfig},
};
use gradewise_zoo::{
    models::{NBody, NBodyBatch, NBodyConfig},
    train::nbody::Example,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const PARTICLES: usize = 5;

pub(super) struct NBodyStep {
    placement: Placement,
    /// The batch, on the host, as from a loader.
    example: Example,
}

impl NBodyStep {
    pub fn new(case: &Case, device: &Device) -> Result<Self> {
        let host = Placement::new(&Device::Cpu, case.dtype);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let nodes = case.batch * PARTICLES;
        let mut draw = |count: usize| {
            gradewise_kernels::Array::randn([count], DType::F64, &Device::Cpu, &mut rng)?.to_f64_vec()
        };
        let (positions, velocities, targets) = (draw(3 * nodes)?, draw(3 * nodes)?, draw(3 * nodes)?);
        let charges: Vec<f64> = draw(nodes)?.into_iter().map(f64::signum).collect();
        let batch = NBodyBatch::new((&positions, &velocities, &charges), PARTICLES, &host)?;
        let targets = batch.targets(&targets)?;
        Ok(Self { placement: Placement::new(device, case.dtype), example: Example { batch, targets } })
    }

    fn model(&self) -> Result<NBody> {
        Ok(NBody::init(&NBodyConfig::default(), &self.placement, &mut ChaCha8Rng::seed_from_u64(4))?)
    }
}

fn loss(model: &NBody, example: &Example) -> gradewise_nn::Result<gradewise_autograd::Tensor> {
    model.loss(&example.batch, &example.targets)
}

impl Workload for NBodyStep {
    /// A step waits for its report, as in training, so its time includes host and device.
    fn prepare(&self, pass: Pass) -> Result<Prepared<'_>> {
        let model = self.model()?;
        if pass == Pass::Forward {
            use gradewise_nn::train::Batch;
            let example = self.example.to_device(&self.placement.device)?;
            let run = move || Ok(no_grad(|| loss(&model, &example)).map(drop)?);
            return Ok(Prepared { run: Box::new(run), graph_bytes: Some(0) });
        }
        let Device::Cuda(device) = &self.placement.device else {
            return Err(Error::Request("training steps are measured on a CUDA device".to_owned()));
        };
        let config = TrainerConfig::new(Method::adam(1e-4), Schedule::Constant { lr: 1e-4, warmup: 0 });
        let mut trainer = Trainer::new(model, config)?;
        let mut step = CapturedStep::new(device, pass == Pass::Graph);
        let mut examples = std::iter::repeat_with(|| Ok(self.example.clone()));
        let mut run = move || Ok(step.step(&mut trainer, &mut examples, loss).map(drop)?);
        // The first step allocates gradients; with capture, the second step is captured.
        run()?;
        // The memory of a captured step's graph is not accessible.
        Ok(Prepared { run: Box::new(run), graph_bytes: (pass == Pass::Both).then_some(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use gradewise_core::Signature;
    use gradewise_kernels::Compute;

    #[test]
    fn the_forward_pass_runs_anywhere_and_steps_say_what_they_need() {
        let case = Case::new(Op::NBody, Signature::CL2, (2, 1), DType::F32, Compute::Exact);
        let step = NBodyStep::new(&case, &Device::Cpu).unwrap();
        (step.prepare(Pass::Forward).unwrap().run)().unwrap();
        assert!(step.prepare(Pass::Both).err().unwrap().to_string().contains("CUDA device"));
    }
}
