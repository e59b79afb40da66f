//! Writes one case to a file, for another program to check.

use super::operators;
use crate::{Case, Error, Op, Result};
use gradewise_kernels::Device;
use gradewise_nn::checkpoint::TensorFile;
use std::path::Path;

/// Runs a case once and writes its inputs (`input.NAME`), the seed gradient (`seed`), its output (`output`) and its gradients (`grad.NAME`)
/// as safetensors; the case is in the metadata.
///
/// # Errors
/// From the device; a training step, which has no output; a file that cannot be written.
pub fn dump(case: &Case, device: &Device, path: impl AsRef<Path>) -> Result<()> {
    if case.op == Op::NBody {
        return Err(Error::Request(
            "a training step has no output to write: dump another operator".to_owned(),
        ));
    }
    let operator = operators::build(case, device)?;
    let (output, gradients) = case.compute.scope(|| operator.both())?;
    let mut file = TensorFile::new();
    file.metadata.insert("case".to_owned(), case.to_string());
    file.metadata.insert("op".to_owned(), case.op.to_string());
    let signature = case.signature;
    file.metadata.insert("signature".to_owned(), format!("{},{},{}", signature.p, signature.q, signature.r));
    file.insert_array("seed", operator.seed.array())?;
    file.insert_array("output", output.array())?;
    for ((name, input), gradient) in operator.inputs.iter().zip(&gradients) {
        file.insert_array(format!("input.{name}"), input.array())?;
        file.insert_array(format!("grad.{name}"), gradient.array())?;
    }
    Ok(file.write(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::{DType, Signature};
    use gradewise_kernels::Compute;

    #[test]
    fn a_dump_has_inputs_output_and_gradients() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer.safetensors");
        let case = Case::new(Op::Layer, Signature::CL2, (4, 3), DType::F32, Compute::Exact);
        dump(&case, &Device::Cpu, &path).unwrap();
        let file = TensorFile::read(&path).unwrap();
        assert_eq!(file.metadata["signature"], "2,0,0");
        for name in ["seed", "output", "input.x", "grad.x", "input.gp_weight", "grad.linear_bias"] {
            assert!(file.get(name).is_some(), "{name}");
        }
        let nbody = Case::new(Op::NBody, Signature::CL3, (1, 1), DType::F32, Compute::Exact);
        assert!(dump(&nbody, &Device::Cpu, &path).is_err());
    }
}
