//! Bilinear products given by a table of signed terms: `out[o] = Σ ±a[i]·b[k]`, position by position.
//!
//! The geometric product is one ([`Table::geometric`]); so are its gradients, whose tables are permutations of its
//! own ([`Table::grad_a`], [`Table::grad_b`]). Being closed under differentiation, this is the primitive from which
//! the fused operators are re-expressed when higher derivatives are asked for.

pub(crate) mod cpu;
mod cuda;

use crate::ops::clifford::algebra::contract::{alike, exact, with_real};
use crate::{Array, Device, Result};
use gradewise_core::{DType, PerAxis};

pub use crate::ops::clifford::algebra::table::{Table, TableTerm};

const NAME: &str = "table_product";

/// Whether two factors fit the table and each other, and their dtype. For the products that tables make: their callers know them by
/// other names.
///
/// # Errors
/// As [`forward`], which calls this.
pub fn check(operation: &'static str, table: &Table, factors: [(&'static str, &Array); 2]) -> Result<DType> {
    let rest = factors[0].1.shape().get(1..).unwrap_or(&[]);
    for ((argument, array), leading) in factors.into_iter().zip([table.a, table.b]) {
        let mut expected = PerAxis::from_elem(leading, 1);
        expected.extend_from_slice(rest);
        exact(operation, argument, array, &expected, || {
            format!("`{argument}` has {leading} components along its first axis; the other axes agree")
        })?;
    }
    alike(operation, &factors)
}

/// The product of `a` `[table.a, …]` and `b` `[table.b, …]`, which agree in all but the leading axis.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(table: &Table, a: &Array, b: &Array) -> Result<Array> {
    let dtype = check(NAME, table, [("a", a), ("b", b)])?;
    let rest = PerAxis::from(a.shape().get(1..).unwrap_or(&[]));
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    if let Device::Cuda(device) = a.device() {
        return cuda::forward(&device, table, &a, &b);
    }
    let mut shape = vec![table.out];
    shape.extend_from_slice(&rest);
    let line = rest.iter().product();
    with_real!(dtype, NAME, T => {
        let (a_slice, b_slice) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        Array::build::<T>(shape, &a.device(), |out| cpu::forward(table, line, a_slice, b_slice, out))
    })
}
