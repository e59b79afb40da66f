//! The memory of a computation by operation.

use gradewise_autograd::{Result, Tensor, footprint, observe::Pass, stack};
use gradewise_kernels::{DType, Device, memory};

const BYTES: usize = 4 * 4096;

// One test: the counters of the host are one for the process.
#[test]
fn every_operation_has_its_peak_and_what_it_leaves_behind() -> Result<()> {
    let x = Tensor::full([64, 64], 0.5, DType::F32, &Device::Cpu)?.requires_grad();
    let before = memory::stats();
    let (gradients, found) = footprint(&Device::Cpu, || -> Result<_> {
        let y = x.exp()?;
        assert_eq!(memory::holders().iter().find(|holder| holder.operation == "exp").unwrap().bytes, BYTES);
        y.sin()?.sum_all()?.backward()
    })?;
    let gradients = gradients?;
    let row = |operation: &str, pass| {
        found.operations.iter().find(|row| (row.operation, row.pass) == (operation, pass)).unwrap().clone()
    };
    let (exp, sin) = (row("exp", Pass::Forward), row("sin", Pass::Forward));
    assert_eq!((exp.calls, exp.peak, exp.kept), (1, BYTES, BYTES as i64));
    assert_eq!((sin.calls, sin.peak, sin.needs), (1, 2 * BYTES, BYTES));
    assert!(row("sin", Pass::Backward).peak >= 3 * BYTES);
    assert!(found.operations[0].peak == found.total.peak, "the highest comes first");
    // The gradient of x alone is left.
    assert_eq!(gradients.get(&x)?.array().elements() * 4, BYTES);
    assert!(found.total.allocated >= BYTES as i64, "{:?}", found.total);
    let text = found.to_string();
    assert!(text.contains("exp") && text.contains("16.0 KiB") && text.contains("peak of all: "), "{text}");
    drop(gradients);
    assert_eq!(memory::stats().allocated, before.allocated);
    assert!(memory::stats().peak >= found.total.peak, "a peak that was hidden meanwhile counts");

    // Large gradients do not wait to be added up together: one sum and what arrives, of six.
    let x = Tensor::ones([1 << 21], DType::F32, &Device::Cpu)?.requires_grad();
    let factor = Tensor::full([1 << 21], 0.5, DType::F32, &Device::Cpu)?;
    let terms: Vec<Tensor> = (0..6).map(|_| x.mul(&factor)?.sum_all()).collect::<Result<_>>()?;
    let loss = stack(&terms.iter().collect::<Vec<_>>(), 0)?.sum_all()?;
    let (gradients, found) = footprint(&Device::Cpu, || loss.backward())?;
    assert_eq!(gradients?.get(&x)?.to_vec::<f32>()?[..2], [3.0, 3.0]);
    assert!(found.total.peak < 3 * (4 << 21), "{found}");
    Ok(())
}
