//! Operations on tensors of PyTorch: forward, backward, and backward once more.

use crate::{
    errors::raised,
    torch::{Here, Torch, own},
};
use gradewise_autograd::{Attributes, Axis, Kept, Prepared};
use gradewise_core::Shape;
use gradewise_kernels::{Array, ops};
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

    /// What mixed precision does with the inputs, as in settings: "16-bit" (to its dtype), "f32", "widest", or "first" (to the dtype of
    /// the first).
    #[getter]
    fn rule(&self) -> &'static str {
        self.0.rule().name()
    }

    /// The sizes of the output: each the number and the axis of an input, or a number; None for operations that do not tell.
    #[getter]
    fn output_axes(&self) -> Option<Vec<Size>> {
        self.0.output_axes().map(sizes)
    }

    /// For each array that the forward pass may leave, its sizes likewise; None for one that it does not leave with these attributes.
    #[getter]
    fn saved_axes(&self) -> Vec<Option<Vec<Size>>> {
        self.0.saved_axes().into_iter().map(|axes| axes.map(sizes)).collect()
    }

    /// Whether the backward pass reads the output.
    #[getter]
    fn reads_output(&self) -> bool {
        self.0.reads_output()
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

    /// Whether there are kernels for inputs of these shapes in a dtype, such as "f32", on a device, such as "cuda:0".
    fn serves(&self, py: Python<'_>, shapes: Vec<Vec<usize>>, dtype: &str, device: &str) -> PyResult<bool> {
        let fail = |error: gradewise_kernels::Error| raised(py, error);
        let dtype = dtype.parse().map_err(|error: gradewise_core::Error| fail(error.into()))?;
        let device = device.parse().map_err(fail)?;
        let shapes: Vec<Shape> = shapes.into_iter().map(Shape::from).collect();
        self.0.serves(&shapes, dtype, &device).map_err(|error| raised(py, error))
    }

    /// The gradients of the inputs that `needs` selects. If `packed` is given, the gradients of the inputs from `packed[0]` to before
    /// `packed[1]` are one tensor: concatenated, each starting at a multiple of 4.
    #[pyo3(signature = (inputs, output, saved, grad, needs, packed=None))]
    #[allow(clippy::too_many_arguments)]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        inputs: Tensors<'py>,
        output: Bound<'py, PyAny>,
        saved: Option<Tensors<'py>>,
        grad: Bound<'py, PyAny>,
        needs: Vec<bool>,
        packed: Option<(usize, usize)>,
    ) -> PyResult<Optional<'py>> {
        let (torch, here, arrays) = Self::arrays(py, &inputs)?;
        let count = inputs.len();
        let [output, grad] =
            [(&output, count), (&grad, count + 1)].map(|(tensor, index)| torch.borrow(&here, tensor, index));
        let (output, grad) = (output?, grad?);
        let saved =
            saved.map(|saved| saved.iter().map(|tensor| torch.borrow(&here, tensor, count + 2)).collect());
        let saved: Option<Vec<Array>> = saved.transpose()?;
        let gradients = py.detach(|| {
            here.run(|| {
                let mut gradients = self.0.backward(&arrays, &output, saved, &grad, &needs)?;
                let Some((first, end)) = packed else { return own_some(gradients) };
                let parts = gradients.drain(first.min(gradients.len())..end.min(gradients.len()));
                let pack = pack(&parts.collect::<Vec<_>>(), &arrays[first..end])?;
                gradients.insert(first, Some(pack));
                own_some(gradients)
            })
        });
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

/// The number and the axis of an input, or a number.
#[derive(IntoPyObject)]
enum Size {
    Of((usize, isize)),
    Fixed(usize),
}

fn sizes(axes: Vec<Axis>) -> Vec<Size> {
    let size = |axis| match axis {
        Axis::Of { operand, axis } => Size::Of((operand, axis)),
        Axis::Size(size) => Size::Fixed(size),
    };
    axes.into_iter().map(size).collect()
}

/// [`own`] of the arrays that are present.
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

/// Gradients of `inputs` one behind the other, each beginning at a multiple of 4: the array whose parts they are, if a kernel laid them out
/// so, or a new one.
fn pack(gradients: &[Option<Array>], inputs: &[Array]) -> gradewise_autograd::Result<Array> {
    let room = |array: &Array| array.elements().next_multiple_of(4);
    let total: usize = inputs.iter().map(room).sum();
    let mut place = 0;
    let mut is_laid_out = true;
    for (gradient, input) in gradients.iter().zip(inputs) {
        is_laid_out &= gradient.as_ref().is_some_and(|gradient| {
            let is_part = gradients[0].as_ref().is_some_and(|first| gradient.shares_storage(first));
            is_part && gradient.is_contiguous() && gradient.storage_offset() == place
        });
        place += room(input);
    }
    if let Some(Some(first)) = gradients.first()
        && is_laid_out
        && first.storage_bytes() == total * first.dtype().size()
    {
        return Ok(first.whole_storage());
    }
    let mut flat = Vec::new();
    for (gradient, input) in gradients.iter().zip(inputs) {
        let zeros = |count: usize| Array::zeros([count], input.dtype(), &input.device());
        flat.push(match gradient {
            Some(gradient) => gradient.reshape([gradient.elements()])?,
            None => zeros(input.elements())?,
        });
        flat.push(zeros(room(input) - input.elements())?);
    }
    Ok(ops::concat(&flat.iter().collect::<Vec<_>>(), 0)?)
}
