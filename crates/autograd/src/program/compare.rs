//! Whether two recordings are the same program.

use super::{Contents, Program};
use crate::{Error, Result};

/// Refuses recordings that differ: their function looked at the numbers.
pub(super) fn require_alike(a: &Program, b: &Program) -> Result<()> {
    for (one, other) in a.steps.iter().zip(&b.steps) {
        if one.operation != other.operation {
            let (one, other) = (one.operation, other.operation);
            return Err(depends(one, format!("for other numbers, `{other}` stands in its place")));
        }
        if one != other {
            let what = "its indices, masks or sizes follow from the numbers".to_owned();
            return Err(depends(one.operation, what));
        }
    }
    if a.steps.len() != b.steps.len() {
        let message = format!("{} operations, and {} for other numbers", a.steps.len(), b.steps.len());
        return Err(depends("record", message));
    }
    for (index, (one, other)) in a.buffers.iter().zip(&b.buffers).enumerate() {
        let (Contents::Constant(first, name), Contents::Constant(second, _)) =
            (&one.contents, &other.contents)
        else {
            continue;
        };
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        let same =
            first.address() == second.address() || bits(first.to_f64_vec()?) == bits(second.to_f64_vec()?);
        if !same {
            let reader = a.steps.iter().find(|step| step.inputs.iter().any(|view| view.buffer == index));
            let name = name.as_ref().map_or_else(String::new, |name| format!(" `{name}`"));
            let message = format!("it reads numbers{name} that were computed outside of recorded operations");
            return Err(depends(reader.map_or("record", |step| step.operation), message));
        }
    }
    if a.outputs != b.outputs {
        return Err(depends("record", "results lie elsewhere for other numbers".to_owned()));
    }
    Ok(())
}

fn depends(operation: &'static str, reason: String) -> Error {
    Error::DependsOnNumbers { operation, reason }
}
