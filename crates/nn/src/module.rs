//! Modules: how parameters are found by name.

use crate::{Error, Parameter, Result};
use gradewise_kernels::{Array, Shape};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    marker::PhantomData,
    sync::Arc,
};

/// What a field of a struct with `#[derive(Module)]` can be: a [`Parameter`], a [`Module`], and lists, arrays, tuples, maps and options of
/// them; `PhantomData` holds none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a parameter nor a module",
    note = "mark a field that holds no parameters with #[module(skip)]"
)]
pub trait Part {
    /// Reports the parameters of this part under `name`.
    fn report(&self, name: &str, visitor: &mut Visitor<'_>);
}

impl Part for Parameter {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        visitor.parameter(name, self);
    }
}

impl<M: Module + ?Sized> Part for M {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        visitor.module(name, self);
    }
}

impl<P: Part> Part for Option<P> {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        if let Some(part) = self {
            part.report(name, visitor);
        }
    }
}

impl<P: Part> Part for Vec<P> {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        for (index, part) in self.iter().enumerate() {
            part.report(&format!("{name}.{index}"), visitor);
        }
    }
}

impl<P: Part, const N: usize> Part for [P; N] {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        for (index, part) in self.iter().enumerate() {
            part.report(&format!("{name}.{index}"), visitor);
        }
    }
}

/// Names the parts by their keys, in the order of the keys.
impl<K: Ord + fmt::Display, P: Part> Part for BTreeMap<K, P> {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        for (key, part) in self {
            part.report(&format!("{name}.{key}"), visitor);
        }
    }
}

/// Names the parts by their keys, in the order of the keys, so that it is the same in every process.
impl<K: Ord + fmt::Display, P: Part, S> Part for HashMap<K, P, S> {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        let mut parts: Vec<(&K, &P)> = self.iter().collect();
        parts.sort_by_key(|&(key, _)| key);
        for (key, part) in parts {
            part.report(&format!("{name}.{key}"), visitor);
        }
    }
}

/// No part.
impl<T: ?Sized> Part for PhantomData<T> {
    fn report(&self, _: &str, _: &mut Visitor<'_>) {}
}

macro_rules! tuples {
    ($($($part:ident $index:tt),+;)*) => {$(
        impl<$($part: Part),+> Part for ($($part,)+) {
            fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
                $(self.$index.report(&format!("{name}.{}", $index), visitor);)+
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<M: Module + ?Sized> Module for Arc<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

/// Anything with parameters: a layer, a model.
///
/// Derive it: fields are visited under their names, lists and tuples number their elements, maps name them by their keys, and a field
/// without parameters is marked `#[module(skip)]`. Models that are cloned derive [`DeepClone`](macro@crate::DeepClone) beside it.
///
/// ```
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::Device;
/// use gradewise_nn::{Module, Placement, Result, layers::{MvLinear, MvSilu}};
/// use rand::Rng;
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// #[derive(Module)]
/// struct Net {
///     #[module(skip)]
///     width: usize,
///     first: MvLinear,
///     blocks: Vec<MvSilu>,
///     #[module(rename = "readout")]
///     last: Option<MvLinear>,
/// }
///
/// let (place, mut rng) = (Placement::new(&Device::Cpu, DType::F32), ChaCha8Rng::seed_from_u64(1));
/// let net = Net {
///     width: 4,
///     first: MvLinear::new(2, 4, Signature::CL2).init(&place, &mut rng)?,
///     blocks: vec![MvSilu::new(4, Signature::CL2).init(&place)?],
///     last: Some(MvLinear::new(4, 1, Signature::CL2).bias(None).init(&place, &mut rng)?),
/// };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["first.weight", "first.bias", "blocks.0.a", "blocks.0.b", "readout.weight"]);
/// # assert_eq!(net.width, 4);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
///
/// Type parameters and maps need nothing more:
///
/// ```
/// use gradewise_nn::Module;
/// use std::{collections::BTreeMap, marker::PhantomData};
///
/// #[derive(Module)]
/// struct Heads<L, Unit> {
///     pair: (L, Option<L>),
///     heads: BTreeMap<String, L>,
///     unit: PhantomData<Unit>,
/// }
/// ```
///
/// A field that is neither a part nor skipped does not compile:
///
/// ```compile_fail,E0277
/// use gradewise_nn::Module;
///
/// #[derive(Module)]
/// struct Net {
///     width: usize,
/// }
/// ```
///
/// Nor does an enum, whose parts depend on the variant:
///
/// ```compile_fail
/// use gradewise_nn::{Module, layers::Linear};
///
/// #[derive(Module)]
/// enum Either {
///     One(Linear),
///     Two(Linear, Linear),
/// }
/// ```
pub trait Module {
    /// Reports every parameter to `visitor`, each under its name.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// The parameters with their full names, in the order of [`visit`](Self::visit), such as `("layers.0.weight", …)`.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut found = Vec::new();
        let mut collect =
            |name: &str, parameter: &Parameter| found.push((name.to_owned(), parameter.clone()));
        self.visit(&mut Visitor { prefix: String::new(), found: &mut collect });
        found
    }

    /// The parameters with their full names, which are checked to be unique: needed where a name identifies a parameter, as in a file.
    ///
    /// # Errors
    /// [`Error::DuplicateParameter`].
    fn unique_parameters(&self) -> Result<Vec<(String, Parameter)>> {
        let parameters = self.named_parameters();
        require_unique(&parameters)?;
        Ok(parameters)
    }

    /// The parameters without their names.
    fn parameters(&self) -> Vec<Parameter> {
        self.named_parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }

    /// Number of trainable numbers.
    fn parameter_count(&self) -> usize {
        self.parameters()
            .iter()
            .filter(|p| p.is_trained())
            .map(|parameter| parameter.shape().elements())
            .sum()
    }

    /// Replaces every parameter by the array of its name, converted to the parameter's dtype and device.
    ///
    /// `values` must return an array of the parameter's shape for every name (`None` means missing); axes of size 1 may differ (the Python
    /// reference of [`CliffordLayer`](crate::layers::CliffordLayer) stores a bias as `[1, 1, features]`). `values` is called once for each
    /// name. Nothing changes unless everything fits.
    ///
    /// # Errors
    /// [`Error::DuplicateParameter`], [`Error::ReferenceLayout`], [`Error::MissingParameters`] or [`Error::ParameterShape`]; those of
    /// `values`.
    fn load(&self, values: &dyn Fn(&str) -> Result<Option<Array>>) -> Result<()> {
        let parameters = self.unique_parameters()?;
        require_own_layout(&parameters, values)?;
        let (mut missing, mut misfit) = (Vec::new(), None);
        let mut prepared = Vec::with_capacity(parameters.len());
        for (name, parameter) in &parameters {
            let Some(array) = values(name)? else {
                missing.push(name.clone());
                continue;
            };
            let current = parameter.array();
            let significant =
                |shape: &Shape| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
            if significant(array.shape()) != significant(current.shape()) {
                misfit.get_or_insert_with(|| Error::ParameterShape {
                    name: name.clone(),
                    actual: array.shape().clone(),
                    expected: current.shape().clone(),
                });
            } else if missing.is_empty() && misfit.is_none() {
                let array = array.reshape(current.shape())?.cast(current.dtype())?;
                prepared.push(array.to_device(&current.device())?);
            }
        }
        if !missing.is_empty() {
            return Err(Error::MissingParameters { names: missing });
        }
        if let Some(misfit) = misfit {
            return Err(misfit);
        }
        for ((_, parameter), array) in parameters.iter().zip(prepared) {
            parameter.set(array)?;
        }
        Ok(())
    }
}

/// Refuses the state dict of a model of the Python reference by Ruhe et al. Its weights have the names and, in square layers, the shapes of
/// this library's, but their axes are in another order. It is recognised by the tables of the algebra that its modules store.
fn require_own_layout(
    parameters: &[(String, Parameter)],
    values: &dyn Fn(&str) -> Result<Option<Array>>,
) -> Result<()> {
    const TABLE: &str = "algebra.cayley";
    let modules = parameters.iter().map(|(name, _)| name.rsplit_once('.').map_or("", |(module, _)| module));
    let mut asked = HashSet::new();
    for module in std::iter::once("").chain(modules) {
        let table = if module.is_empty() { TABLE.to_owned() } else { format!("{module}.{TABLE}") };
        if asked.insert(module) && values(&table)?.is_some() {
            return Err(Error::ReferenceLayout { table });
        }
    }
    Ok(())
}

/// Refuses two parameters of the same name.
pub(crate) fn require_unique(parameters: &[(String, Parameter)]) -> Result<()> {
    let mut seen = HashSet::with_capacity(parameters.len());
    match parameters.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(Error::DuplicateParameter { name: name.clone() }),
        None => Ok(()),
    }
}

/// Receives the parameters of a [`Module`].
pub struct Visitor<'a> {
    prefix: String,
    found: &'a mut dyn FnMut(&str, &Parameter),
}

impl Visitor<'_> {
    /// Reports a parameter of the current module.
    pub fn parameter(&mut self, name: &str, parameter: &Parameter) {
        let full = format!("{}{name}", self.prefix);
        (self.found)(&full, parameter);
    }

    /// Reports the parameters of a part, their names prefixed with `name` and a dot. Parts need different names; those of a list are
    /// for [`modules`](Self::modules).
    pub fn module(&mut self, name: impl fmt::Display, part: &(impl Module + ?Sized)) {
        let length = self.prefix.len();
        self.prefix.push_str(&format!("{name}."));
        part.visit(self);
        self.prefix.truncate(length);
    }

    /// Reports the parameters of each of a list of parts, their names prefixed with `name`, the position and dots: `layers.0.weight`,
    /// `layers.1.weight`, …
    pub fn modules<'p, P: Module + ?Sized + 'p>(
        &mut self,
        name: impl fmt::Display,
        parts: impl IntoIterator<Item = &'p P>,
    ) {
        for (index, part) in parts.into_iter().enumerate() {
            self.module(format_args!("{name}.{index}"), part);
        }
    }
}
