//! `#[derive(Module)]`.

use crate::bounds::bounded;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use std::collections::HashMap;
use syn::{Data, DeriveInput, Error, Field, Index, LitStr, Member, Path, Result, spanned::Spanned};

/// What the attributes of a field say.
#[derive(Default)]
pub struct Options {
    pub skip: bool,
    flatten: bool,
    rename: Option<LitStr>,
}

impl Options {
    pub fn of(field: &Field) -> Result<Self> {
        let mut options = Self::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    options.skip = true;
                } else if meta.path.is_ident("flatten") {
                    options.flatten = true;
                } else if meta.path.is_ident("rename") {
                    options.rename = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("expected skip, flatten or rename = \"…\""));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

/// The path by which the struct knows the library.
pub fn library(input: &DeriveInput) -> Result<Path> {
    let mut library: Path = syn::parse_str("::gradewise_nn")?;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected crate = \"…\""));
            }
            library = meta.value()?.parse::<LitStr>()?.parse()?;
            Ok(())
        })?;
    }
    Ok(library)
}

pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "Module can be derived for structs; for an enum, implement `visit` with a match";
        return Err(Error::new(input.ident.span(), message));
    };
    let library = library(input)?;
    let mut names: HashMap<String, Span> = HashMap::new();
    let (mut visits, mut bounds) = (Vec::new(), Vec::new());
    for (position, field) in data.fields.iter().enumerate() {
        let options = Options::of(field)?;
        let (member, own) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.to_string()),
            None => (Member::Unnamed(Index::from(position)), position.to_string()),
        };
        if options.skip {
            continue;
        }
        // Errors about a field's type point to the field.
        let span = field.ty.span();
        if options.flatten {
            bounds.push((field.ty.clone(), quote!(#library::Module)));
            visits.push(quote_spanned!(span=> #library::Module::visit(&self.#member, visitor);));
            continue;
        }
        let (name, at) = match &options.rename {
            Some(name) => (name.value(), name.span()),
            None => (own.trim_start_matches("r#").to_owned(), span),
        };
        if names.insert(name.clone(), at).is_some() {
            return Err(Error::new(at, format!("two fields are visited as `{name}`; rename one of them")));
        }
        bounds.push((field.ty.clone(), quote!(#library::Part)));
        visits.push(quote_spanned!(span=> #library::Part::report(&self.#member, #name, visitor);));
    }
    let visitor = if visits.is_empty() { quote!(_visitor) } else { quote!(visitor) };
    let ident = &input.ident;
    let generics = bounded(&input.generics, ident, bounds);
    let (generics, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics #library::Module for #ident #arguments #conditions {
            fn visit(&self, #visitor: &mut #library::Visitor<'_>) {
                #(#visits)*
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String> {
        expand(&syn::parse_str(text)?).map(|tokens| tokens.to_string())
    }

    #[test]
    fn fields_are_visited_by_their_names() {
        let text = expanded(
            "struct Net { first: Linear, #[module(skip)] width: usize, #[module(rename = \"b\")] bias: Parameter, \
             #[module(flatten)] rest: Rest }",
        )
        .unwrap();
        assert!(text.contains("report (& self . first , \"first\" , visitor)"), "{text}");
        assert!(text.contains("report (& self . bias , \"b\" , visitor)"), "{text}");
        assert!(text.contains("visit (& self . rest , visitor)"), "{text}");
        assert!(!text.contains("width"), "{text}");
    }

    #[test]
    fn generics_tuples_and_other_paths_are_served() {
        let text =
            expanded("#[module(crate = \"gradewise::nn\")] struct Pair<L: Layer>(L, L) where L: Sync;")
                .unwrap();
        assert!(
            text.contains("impl < L : Layer > gradewise :: nn :: Module for Pair < L > where L : Sync"),
            "{text}"
        );
        assert!(text.contains("where L : Sync , L : gradewise :: nn :: Part"), "{text}");
        assert!(text.contains("self . 0 , \"0\"") && text.contains("self . 1 , \"1\""), "{text}");
    }

    #[test]
    fn what_cannot_be_derived_is_refused() {
        for (text, part) in [
            ("enum Either { A, B }", "implement `visit` with a match"),
            ("struct Twice { a: P, #[module(rename = \"a\")] b: P }", "two fields are visited as `a`"),
            ("struct Odd { #[module(ignore)] a: P }", "expected skip, flatten or rename"),
            ("#[module(path = \"x\")] struct Odd;", "expected crate"),
        ] {
            let error = expanded(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
