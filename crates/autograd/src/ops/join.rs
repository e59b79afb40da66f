//! Joining tensors.

use crate::{Attributes, Error, Result, Tensor};
use gradewise_kernels::{Array, ops};

/// The tensors one after the other along `axis`; their other sizes agree.
///
/// # Errors
/// No tensors, an axis out of range, sizes, dtypes or devices that differ.
pub fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let attributes = move || Attributes::new().with("axis", axis);
    let forward = move |x: &[Array]| Ok(ops::concat(&x.iter().collect::<Vec<_>>(), axis)?);
    Tensor::operate("concat", tensors, attributes, forward, move |context, grad| {
        let mut start = 0;
        context
            .inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let range = start..start + input.shape()[axis];
                start = range.end;
                context.needs(index).then(|| grad.slice(axis, range)).transpose()
            })
            .collect()
    })
}

/// Tensors of one shape along a new axis.
///
/// # Errors
/// As [`concat()`].
pub fn stack(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::Argument {
            operation: "stack",
            message: "no tensors were given; stack needs at least one".to_owned(),
        });
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.shape() != first.shape()) {
        return Err(Error::Argument {
            operation: "stack",
            message: format!("shapes differ: {} and {}", first.shape(), other.shape()),
        });
    }
    let expanded = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    concat(&expanded.iter().collect::<Vec<_>>(), axis)
}
