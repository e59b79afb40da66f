//! Forward-mode derivatives, by two backward passes.

use crate::{BackwardOptions, Error, Result, Tensor, add_n, grad, mode, tensor::require_given_gradient};

/// The value of `function` at `inputs` and its derivative along `tangents`, one tangent for each input: y = f(x) and ẏ = J·v, of the
/// shape of y.
///
/// The vector-Jacobian product Jᵀu is linear in u, so the vector-Jacobian product of *that* map is J·v: two backward passes, of which the
/// first records its graph (Townsend 2017, "A new trick for calculating Jacobian vector products"). It is exact, for every operation that
/// can be differentiated twice, as all of the [registry](crate::registry) can, on every device, and for compositions of them; it takes the
/// time and the memory of a recorded backward pass, which is more than a forward-mode rule for each operation would. Neither result has a
/// history.
///
/// ```
/// use gradewise_autograd::{Tensor, jvp};
/// use gradewise_kernels::Device;
///
/// let x = Tensor::from_slice(&[2.0, 3.0], [2], &Device::Cpu)?;
/// let v = Tensor::from_slice(&[1.0, 10.0], [2], &Device::Cpu)?;
/// let (y, along) = jvp(&[&x], &[&v], |x| x[0].square())?;
/// assert_eq!(y.to_vec::<f64>()?, [4.0, 9.0]);
/// assert_eq!(along.to_vec::<f64>()?, [4.0, 60.0]);
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for another number of tangents than of inputs; a tangent of another shape, dtype or device than its input; an
/// operation without second derivatives; whatever the function returns.
pub fn jvp(
    inputs: &[&Tensor],
    tangents: &[&Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<(Tensor, Tensor)> {
    const NAME: &str = "jvp";
    if inputs.len() != tangents.len() {
        let message = format!("{} tangents for {} inputs; each has one", tangents.len(), inputs.len());
        return Err(Error::Argument { operation: NAME, message });
    }
    for (index, (input, tangent)) in inputs.iter().zip(tangents).enumerate() {
        require_given_gradient(|| format!("{NAME}: tangent {index}"), tangent, input)?;
    }
    mode::with_mode(true, || {
        let leaves: Vec<Tensor> = inputs.iter().map(|input| input.requires_grad()).collect();
        let output = function(&leaves)?;
        let still = || Tensor::zeros(output.shape(), output.dtype(), &output.device());
        if !output.is_grad_required() {
            return Ok((output.detach(), still()?));
        }
        // Where u is does not matter: Jᵀu is linear in it.
        let cotangent = still()?.requires_grad();
        let wanted: Vec<&Tensor> = leaves.iter().collect();
        let options = BackwardOptions { seed: Some(cotangent.clone()), create_graph: true };
        let mut terms = Vec::with_capacity(tangents.len());
        for (gradient, tangent) in grad(&output, &wanted, &options)?.into_iter().zip(tangents) {
            if let Some(gradient) = gradient.filter(Tensor::is_grad_required) {
                terms.push(gradient.mul(&tangent.detach())?.sum_all()?);
            }
        }
        let derivative = if terms.is_empty() {
            None
        } else {
            let along = add_n(&terms.iter().collect::<Vec<_>>())?;
            grad(&along, &[&cotangent], &BackwardOptions::default())?.into_iter().next().flatten()
        };
        Ok((output.detach(), derivative.map_or_else(still, Ok)?))
    })
}
