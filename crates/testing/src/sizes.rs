//! A layer of 0 features, channels or taps is refused by its own name and that of the argument. Its outputs would be empty or constant, and
//! nothing downstream would say why.

use std::fmt::Display;

/// Makes a layer of these sizes, and drops it.
type Make<E> = Box<dyn Fn(&[usize]) -> Result<(), E>>;

/// A layer, the names of its sizes, sizes that it accepts, and its constructor.
pub struct Layer<E> {
    name: &'static str,
    sizes: Vec<(&'static str, usize)>,
    make: Make<E>,
}

/// A row of the table of a crate's layers.
pub fn layer<E>(
    name: &'static str,
    sizes: &[(&'static str, usize)],
    make: impl Fn(&[usize]) -> Result<(), E> + 'static,
) -> Layer<E> {
    Layer { name, sizes: sizes.to_vec(), make: Box::new(make) }
}

/// Makes each layer of its sizes, and with each of them 0. `refused` gives the operation and the argument of an error that refuses an
/// argument. Networks that are `composed` of layers may be refused in the name of one of them.
///
/// # Panics
/// If a layer refuses its sizes, accepts a 0, or refuses it by another name.
pub fn zeros_are_refused_by_name<E: Display>(
    layers: &[Layer<E>],
    composed: &[&str],
    refused: impl Fn(&E) -> Option<(&'static str, &'static str)>,
) {
    for Layer { name: layer, sizes, make } in layers {
        let whole: Vec<usize> = sizes.iter().map(|&(_, size)| size).collect();
        make(&whole).unwrap_or_else(|error| panic!("{layer} of {sizes:?}: {error}"));
        for (position, &(name, _)) in sizes.iter().enumerate() {
            let mut zero = whole.clone();
            zero[position] = 0;
            let error = make(&zero).expect_err(&format!("{layer} accepts 0 {name}"));
            let (operation, argument) =
                refused(&error).unwrap_or_else(|| panic!("{layer}, {name}: another kind of error: {error}"));
            let composed = composed.contains(layer);
            assert!(composed || operation == *layer, "{layer}, {name}: named {operation}");
            let general = ["config", "multipliers", "size"].contains(&argument);
            assert!(composed || general || argument == name, "{layer}: {argument} instead of {name}");
        }
    }
}

/// Compares the types that the sources of modules re-export with the layers of a table. `exempt` are those without sizes of their own:
/// settings, functions of tensors, and what other layers are made of.
///
/// # Panics
/// If a type is neither in the table nor exempt, or both.
pub fn every_type_is_listed<E>(layers: &[Layer<E>], exempt: &[&str], modules: &[&str]) {
    let is_listed = |name: &str| layers.iter().any(|layer| layer.name == name);
    for statement in
        modules.iter().flat_map(|module| module.split(';')).filter(|text| text.contains("pub use "))
    {
        let names = statement.rsplit("::").next().unwrap_or_default();
        for name in names.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            let is_type = name.starts_with(char::is_uppercase)
                && !name.ends_with("Builder")
                && !name.ends_with("Config");
            assert!(
                !is_type || exempt.contains(&name) != is_listed(name),
                "{name} is missing in the table, or in it and exempt"
            );
        }
    }
}
