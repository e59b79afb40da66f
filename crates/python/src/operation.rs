//! Operations on tensors of PyTorch: forward, backward, and backward once more.

use crate::{
    errors::raised,
    torch::{Here, Torch, own},
};
use gradewise_autograd::{Attributes, Kept, Prepared, Rule};
use gradewise_kernels::Array;
use pyo3::prelude::*;

/// An operation of the registry with its attributes.
#[pyclass(frozen, module = "gradewise._core")]
pub struct Operation(Prepared);

type Tensors<'py> = Vec<Bound<'py, PyAny>>;
type Optional<'py> = Vec<Option<Bound<'py, PyAny>>>;

impl Operation {
    fn arrays<'py>(
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<(&'py Torch, Here, Vec<Array>)> {
        let torch = Torch::get(py)?;
        let here = torch.here(py, tensors)?;
        let arrays = tensors.iter().enumerate().map(|(index, tensor)| torch.borrow(&here, tensor, index));
        let arrays = arrays.collect::<PyResult<_>>()?;
        Ok((torch, here, arrays))
    }
}

#[pymethods]
impl Operation {
    /// The operation `name` with attributes as JSON.
    #[new]
    fn new(py: Python<'_>, name: &str, attributes: &str) -> PyResult<Self> {
        let attributes: Attributes =
            attributes.parse().map_err(|error: gradewise_autograd::Error| raised(py, error))?;
        Prepared::new(name, &attributes).map(Self).map_err(|error| raised(py, error))
    }

    /// The name of the operation.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// What mixed precision does with the inputs: "full" (to float32), "short" (to the 16-bit dtype), or "widest".
    #[getter]
    fn rule(&self) -> &'static str {
        match self.0.rule() {
            Rule::Full => "full",
            Rule::Short => "short",
            Rule::Widest => "widest",
        }
    }

    /// The output, and what the backward pass reads again; None if that has to be found once more.
    fn forward<'py>(
        &self,
        py: Python<'py>,
        inputs: Tensors<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Tensors<'py>>)> {
        let (torch, here, arrays) = Self::arrays(py, &inputs)?;
        let kept = py.detach(|| {
            here.run(|| {
                let Kept { output, saved } = self.0.forward(&arrays)?;
                let is_saved = saved.is_some();
                let arrays = own(std::iter::once(output).chain(saved.unwrap_or_default()))?;
                Ok::<_, gradewise_autograd::Error>((is_saved, arrays))
            })
        });
        let (is_saved, arrays) = kept.map_err(|error| raised(py, error))?;
        let mut tensors = arrays.iter().map(|array| torch.give(py, &here, array));
        let output = tensors.next().unwrap_or_else(|| Ok(py.None().into_bound(py)))?;
        let saved = tensors.collect::<PyResult<_>>()?;
        Ok((output, is_saved.then_some(saved)))
    }

    /// The gradients of the inputs for which `needs` says so.
    #[pyo3(signature = (inputs, output, saved, grad, needs))]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        inputs: Tensors<'py>,
        output: Bound<'py, PyAny>,
        saved: Option<Tensors<'py>>,
        grad: Bound<'py, PyAny>,
        needs: Vec<bool>,
    ) -> PyResult<Optional<'py>> {
        let (torch, here, arrays) = Self::arrays(py, &inputs)?;
        let count = inputs.len();
        let [output, grad] =
            [(&output, count), (&grad, count + 1)].map(|(tensor, index)| torch.borrow(&here, tensor, index));
        let (output, grad) = (output?, grad?);
        let saved =
            saved.map(|saved| saved.iter().map(|tensor| torch.borrow(&here, tensor, count + 2)).collect());
        let saved: Option<Vec<Array>> = saved.transpose()?;
        let gradients =
            py.detach(|| here.run(|| own_some(self.0.backward(&arrays, &output, saved, &grad, &needs)?)));
        let gradients = gradients.map_err(|error| raised(py, error))?;
        given(py, torch, &here, &gradients)
    }

    /// For gradients of some of the gradients that `backward` returned: the gradients of the inputs for which `needs` says so, and
    /// behind them that of `grad`, if `needs_grad`.
    fn backward_twice<'py>(
        &self,
        py: Python<'py>,
        inputs: Tensors<'py>,
        grad: Bound<'py, PyAny>,
        gradients: Optional<'py>,
        needs: Vec<bool>,
        needs_grad: bool,
    ) -> PyResult<Optional<'py>> {
        let (torch, here, arrays) = Self::arrays(py, &inputs)?;
        let grad = torch.borrow(&here, &grad, inputs.len())?;
        let borrow = |tensor: &Option<Bound<'py, PyAny>>| {
            tensor.as_ref().map(|tensor| torch.borrow(&here, tensor, inputs.len() + 1)).transpose()
        };
        let gradients = gradients.iter().map(borrow).collect::<PyResult<Vec<_>>>()?;
        let result = py.detach(|| {
            here.run(|| {
                let (mut inputs, grad) =
                    self.0.backward_twice(&arrays, &grad, &gradients, &needs, needs_grad)?;
                inputs.push(grad);
                own_some(inputs)
            })
        });
        given(py, torch, &here, &result.map_err(|error| raised(py, error))?)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// [`own`] of the arrays that there are.
fn own_some(arrays: Vec<Option<Array>>) -> gradewise_autograd::Result<Vec<Option<Array>>> {
    let there: Vec<bool> = arrays.iter().map(Option::is_some).collect();
    let mut owned = own(arrays.into_iter().flatten())?.into_iter();
    Ok(there.into_iter().map(|there| if there { owned.next() } else { None }).collect())
}

fn given<'py>(
    py: Python<'py>,
    torch: &Torch,
    here: &Here,
    arrays: &[Option<Array>],
) -> PyResult<Optional<'py>> {
    arrays.iter().map(|array| array.as_ref().map(|array| torch.give(py, here, array)).transpose()).collect()
}
