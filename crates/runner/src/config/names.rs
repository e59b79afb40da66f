//! Settings that take one of a few names.

use gradewise_kernels::{DType, memory::census::Detail};
use gradewise_nn::choices;

choices! {
    /// Which weights are reported.
    pub enum Select {
        /// Those after the last step
        Last = "last",
        /// The best on the valid split, which are kept in best.safetensors
        Best = "best",
    }
}

choices! {
    /// What `time_budget` is the time of.
    pub enum BudgetOf {
        /// The whole run; warm-up and decay of the learning rate follow it
        Run = "run",
        /// This process; the learning rate follows the steps alone
        Process = "process",
    }
}

choices! {
    /// The fallback if there are fewer GPUs than `min_devices`.
    pub enum Fallback {
        /// Nothing: it is an error
        None = "none",
        /// The CPU, in one process
        Cpu = "cpu",
    }
}

choices! {
    /// How devices share the work.
    pub enum Strategy {
        /// Each device computes its part of every batch
        DataParallel = "data-parallel",
    }
}

choices! {
    /// The details recorded for each live array, for reports about growing memory.
    pub enum Census {
        /// Nothing
        Off = "off",
        /// The operation that made it
        Operations = "operations",
        /// Also the line of code; slow
        Sites = "sites",
    }
}

choices! {
    /// Mixed precision.
    pub enum Precision {
        /// Everything in the dtype of the run
        Full = "full",
        /// Products in bf16, weights in f32
        Bf16 = "bf16" | "bf16-mixed",
        /// Products in f16, weights in f32, the loss scaled
        F16 = "f16" | "f16-mixed",
    }
}

impl Census {
    /// The level of detail, if any.
    pub fn detail(self) -> Option<Detail> {
        match self {
            Self::Off => None,
            Self::Operations => Some(Detail::Operations),
            Self::Sites => Some(Detail::Sites),
        }
    }
}

impl Precision {
    /// The dtype of products, if it differs from the storage.
    pub fn products(self) -> Option<DType> {
        match self {
            Self::Full => None,
            Self::Bf16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
        }
    }
}
