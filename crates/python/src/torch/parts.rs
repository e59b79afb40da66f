//! The parameters of a module of PyTorch and of those inside of it, read where they are kept.
//!
//! An operator that stands for several modules may run only while nothing changes what a call of each of them does. To see that in Python
//! takes as long as PyTorch's node of the operator.

use pyo3::{
    intern,
    prelude::*,
    types::{PyDict, PyString},
};

/// A module, or one within it.
struct Part {
    /// The place among the modules of the outer one; none for the outer one itself.
    place: Option<usize>,
    /// The keys from there.
    path: Vec<Py<PyString>>,
    /// What calls of it have to compute: the class attribute `_acts_as` of its type.
    kind: Py<PyAny>,
    /// The parameters that it has to have.
    names: Vec<Py<PyString>>,
    /// Attributes that have to be true.
    options: Vec<Py<PyString>>,
}

/// Modules of known kinds within a module, and the parameters of theirs that one operator takes.
#[pyclass(frozen, module = "gradewise._core")]
pub struct Parts {
    parts: Vec<Part>,
    /// How many modules the outer one has; any number if none.
    children: Option<usize>,
}

/// A place and a path of keys, the class that calls of the module compute, its parameters, and its attributes that have to be true.
type Given = (Option<usize>, Vec<Py<PyString>>, Py<PyAny>, Vec<Py<PyString>>, Vec<Py<PyString>>);

#[pymethods]
impl Parts {
    /// Each part is a place among the modules of the outer one, or none for that one itself, a path of keys from there, what calls of it
    /// compute, the names of its parameters and those of its attributes that have to be true. Parameters are read in this order.
    /// `children` is the number of modules that the outer one has to have.
    #[new]
    #[pyo3(signature = (parts, children=None))]
    fn new(parts: Vec<Given>, children: Option<usize>) -> Self {
        let part = |(place, path, kind, names, options)| Part { place, path, kind, names, options };
        Self { parts: parts.into_iter().map(part).collect(), children }
    }

    /// The parameters; none if a part is missing, computes something else than its kind, is called with hooks or with a `forward` of its own,
    /// or lacks one of the parameters.
    fn read<'py>(
        &self,
        py: Python<'py>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let is_whole = |inside: &Bound<'_, PyDict>| self.children.is_none_or(|count| inside.len() == count);
        let Some(inside) = modules(module)?.filter(is_whole) else { return Ok(None) };
        let inside = inside.values();
        let mut found = Vec::with_capacity(2 * self.parts.len());
        for part in &self.parts {
            let first = match part.place {
                Some(place) if place < inside.len() => inside.get_item(place)?,
                Some(_) => return Ok(None),
                None => module.clone(),
            };
            let Some(module) = descend(first, &part.path)? else { return Ok(None) };
            let state = state(&module)?;
            if !is_called_as(py, &module, &state, part)? {
                return Ok(None);
            }
            if part.names.is_empty() {
                continue;
            }
            let Some(own) = table(&state, intern!(py, "_parameters"))? else { return Ok(None) };
            for name in &part.names {
                match own.get_item(name)? {
                    Some(parameter) if !parameter.is_none() => found.push(parameter),
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(found))
    }
}

fn state<'py>(module: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    Ok(module.getattr(intern!(module.py(), "__dict__"))?.cast_into()?)
}

/// One of the tables of a module; none for a module whose own constructor has not run.
fn table<'py>(
    state: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    Ok(state.get_item(name)?.and_then(|table| table.cast_into().ok()))
}

fn modules<'py>(module: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    table(&state(module)?, intern!(module.py(), "_modules"))
}

/// The module at the end of a path.
fn descend<'py>(mut module: Bound<'py, PyAny>, path: &[Py<PyString>]) -> PyResult<Option<Bound<'py, PyAny>>> {
    for key in path {
        let inside = if module.is_none() { None } else { modules(&module)? };
        let Some(next) = inside.map(|inside| inside.get_item(key)).transpose()?.flatten() else {
            return Ok(None);
        };
        module = next;
    }
    Ok((!module.is_none()).then_some(module))
}

/// Whether a call of a module computes what the part says, and nothing follows it.
fn is_called_as(
    py: Python<'_>,
    module: &Bound<'_, PyAny>,
    state: &Bound<'_, PyDict>,
    part: &Part,
) -> PyResult<bool> {
    let acts_as = module.get_type().getattr_opt(intern!(py, "_acts_as"))?;
    if acts_as.is_none_or(|kind| !kind.is(&part.kind)) || state.contains(intern!(py, "forward"))? {
        return Ok(false);
    }
    let hooks = [
        intern!(py, "_forward_hooks"),
        intern!(py, "_forward_pre_hooks"),
        intern!(py, "_backward_hooks"),
        intern!(py, "_backward_pre_hooks"),
    ];
    for name in hooks {
        if table(state, name)?.is_none_or(|hooks| !hooks.is_empty()) {
            return Ok(false);
        }
    }
    for name in &part.options {
        if !module.getattr(name)?.is_truthy()? {
            return Ok(false);
        }
    }
    if part.names.is_empty() {
        return Ok(true);
    }
    match state.get_item(intern!(py, "_gradewise"))? {
        Some(setting) => setting.getattr(intern!(py, "is_usual"))?.is_truthy(),
        None => Ok(false),
    }
}
