//! `#[derive(Module)]`, `#[derive(DeepClone)]` and `#[derive(Builder)]`, which `gradewise_nn` re-exports.
#![forbid(unsafe_code)]

mod bounds;
mod builder;
mod deep_clone;
mod module;

use syn::{DeriveInput, Error, parse_macro_input};

/// Implements `Module` for a struct: each field is visited under its name, parameters as parameters and modules as parts; lists, arrays and
/// tuples number their elements, maps name them by their keys in ascending order, options are visited if they are `Some`, `PhantomData`
/// holds nothing. Type parameters get the bounds that their fields need.
///
/// - `#[module(skip)]` on a field that holds no parameters;
/// - `#[module(rename = "norm1")]` for another name than the field's;
/// - `#[module(flatten)]` for a part whose parameters are the struct's own, without a prefix;
/// - `#[module(crate = "gradewise::nn")]` on the struct where `gradewise_nn` is known by another path.
///
/// Two fields of one name are an error of the compiler.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `Clone` for a struct or an enum with parameters, as a deep copy: the copy has parameters of its own with the same values, so
/// either trains without the other. What shared a parameter within the original shares its copy: tied weights stay tied, and an `Arc` of a
/// module is copied once for all its handles. Fields with `#[module(skip)]` are cloned, an `Arc` among them as a handle.
///
/// `#[derive(Clone)]` instead would copy the layers of a struct, but its own parameters as further handles to those of the original.
#[proc_macro_derive(DeepClone, attributes(module))]
pub fn derive_deep_clone(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    deep_clone::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Writes the constructor and the setters of a struct of settings. For `SmootherBuilder` that is `Smoother::new`, which returns the
/// builder and has the builder's doc comment, and a setter for each field with a default, which has the field's. What the builder builds
/// is written by hand.
///
/// ```
/// use gradewise_derive::Builder;
///
/// /// A moving average.
/// struct Smoother {
///     weights: Vec<f64>,
/// }
///
/// /// Settings of a [`Smoother`] over `taps` values.
/// #[derive(Builder)]
/// struct SmootherBuilder {
///     taps: usize,
///     /// Whether the weights sum to 1; yes by default.
///     #[builder(default = true)]
///     normalize: bool,
///     /// The weight of each value; 1 by default.
///     #[builder(default, strip_option)]
///     weight: Option<f64>,
/// }
///
/// impl SmootherBuilder {
///     fn build(self) -> Smoother {
///         let sum = if self.normalize { self.taps as f64 } else { 1.0 };
///         Smoother { weights: vec![self.weight.unwrap_or(1.0) / sum; self.taps] }
///     }
/// }
///
/// assert_eq!(Smoother::new(2).build().weights, [0.5, 0.5]);
/// assert_eq!(Smoother::new(2).normalize(false).weight(3.0).build().weights, [3.0, 3.0]);
/// ```
///
/// A field without a default is an argument of `new`, in the order of the fields. Other fields say:
///
/// - `#[builder(default)]` for the default of the field's type, or `#[builder(default = …)]` for an expression, in which earlier fields
///   are known by their names;
/// - `strip_option`: the setter of an `Option<T>` takes a `T`;
/// - `by_ref`: the setter or `new` takes a reference (to `Vec<T>`, a slice) and clones what it refers to;
/// - `skip`: no setter, because one is written by hand or the field has none.
///
/// The constructor and the setters are as visible as the struct.
#[proc_macro_derive(Builder, attributes(builder))]
pub fn derive_builder(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    builder::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}
