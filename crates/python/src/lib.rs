//! The Python package `gradewise`: what its modules call.
//!
//! Operators are those of the registry of `gradewise-autograd`: nothing is computed here. Arrays come and go without a copy.

mod algebra;
mod array;
mod composite;
mod errors;
mod jax;
mod operation;
#[cfg(feature = "program")]
mod potential;
mod program;
mod registry;
mod threads;
mod torch;

use pyo3::prelude::*;

/// Operators of gradewise on arrays of other libraries; the modules of the package `gradewise` are its users.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::algebra::{PyAlgebra, PyMultivector, PyRotor};
    #[pymodule_export]
    use crate::array::{PyArray, from_dlpack, run};
    #[pymodule_export]
    use crate::composite::{Composite, History};
    #[pymodule_export]
    use crate::jax::{jax_handlers, output_shape};
    #[pymodule_export]
    use crate::operation::Operation;
    #[cfg(feature = "program")]
    #[pymodule_export]
    use crate::potential::Potential;
    #[pymodule_export]
    use crate::program::{main, toml_to_json};
    #[pymodule_export]
    use crate::registry::{operations, operators, samples, squared_norms, table_terms, targets};
    #[pymodule_export]
    use crate::threads::{get_num_threads, set_num_threads};
    #[pymodule_export]
    use crate::torch::edges::Edges;
    #[pymodule_export]
    use crate::torch::parts::Parts;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        crate::threads::watch_forks();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
