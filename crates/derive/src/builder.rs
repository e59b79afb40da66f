//! `#[derive(Builder)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Field, Fields, GenericArgument, PathArguments, Result, Token,
    Type,
};

/// What the attributes of a field say.
#[derive(Default)]
struct Options {
    /// The value in `new`; a field without one is an argument.
    default: Option<TokenStream>,
    skip: bool,
    strip_option: bool,
    by_ref: bool,
}

impl Options {
    fn of(field: &Field) -> Result<Self> {
        let mut options = Self::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("builder")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("default") {
                    options.default = Some(match meta.input.peek(Token![=]) {
                        true => meta.value()?.parse::<Expr>()?.into_token_stream(),
                        false => quote!(::core::default::Default::default()),
                    });
                } else if meta.path.is_ident("skip") {
                    options.skip = true;
                } else if meta.path.is_ident("strip_option") {
                    options.strip_option = true;
                } else if meta.path.is_ident("by_ref") {
                    options.by_ref = true;
                } else {
                    return Err(meta.error("expected default, default = …, skip, strip_option or by_ref"));
                }
                Ok(())
            })?;
        }
        let refused = match (&options.default, options.skip) {
            (None, true) => Some("a field without a setter needs a default"),
            (None, false) if options.strip_option => Some("strip_option is for setters: give a default"),
            (Some(_), true) if options.strip_option || options.by_ref => {
                Some("a field without a setter has nothing to convert")
            }
            _ => None,
        };
        match refused {
            Some(message) => Err(Error::new_spanned(field, message)),
            None => Ok(options),
        }
    }

    /// The type in which the field's value is passed, and the field's value made from `name`, which is of that type.
    fn conversion(&self, field: &Field, name: &impl ToTokens) -> Result<(TokenStream, TokenStream)> {
        let whole = &field.ty;
        let inner = match self.strip_option {
            true => argument_of(whole, "Option")
                .ok_or_else(|| Error::new_spanned(whole, "strip_option is for a field of type Option<…>"))?,
            false => whole,
        };
        let (passed, value) = match (self.by_ref, argument_of(inner, "Vec")) {
            (true, Some(element)) => (quote!(&[#element]), quote!(#name.to_vec())),
            (true, None) => (quote!(&#inner), quote!(::core::clone::Clone::clone(#name))),
            (false, _) => (inner.to_token_stream(), name.to_token_stream()),
        };
        let value = if self.strip_option { quote!(::core::option::Option::Some(#value)) } else { value };
        Ok((passed, value))
    }
}

/// `T` of `Generic<T>`.
fn argument_of<'a>(ty: &'a Type, generic: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == generic)?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(argument)) => Some(argument),
            _ => None,
        },
        _ => None,
    }
}

fn docs(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc"))
}

pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let (builder, visibility) = (&input.ident, &input.vis);
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => return Err(Error::new_spanned(builder, "Builder is derived for structs with named fields")),
        },
        _ => return Err(Error::new_spanned(builder, "Builder is derived for structs with named fields")),
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "Builder is derived for structs without generics"));
    }
    let target = match builder.to_string().strip_suffix("Builder") {
        Some(target) if !target.is_empty() => format_ident!("{target}", span = builder.span()),
        _ => {
            let message = "the builder of a type has the type's name and the suffix `Builder`";
            return Err(Error::new_spanned(builder, message));
        }
    };

    let (mut arguments, mut values, mut setters) = (Vec::new(), Vec::new(), Vec::new());
    for field in fields {
        let (name, ty, options) = (&field.ident, &field.ty, Options::of(field)?);
        let (passed, value) = options.conversion(field, name)?;
        let Some(default) = &options.default else {
            arguments.push(quote!(#name: #passed));
            if options.by_ref {
                values.push(quote!(let #name: #ty = #value;));
            }
            continue;
        };
        values.push(quote!(let #name: #ty = #default;));
        if options.skip {
            continue;
        }
        let docs = docs(&field.attrs);
        setters.push(quote! {
            #(#docs)*
            #[must_use]
            #visibility fn #name(mut self, #name: #passed) -> Self {
                self.#name = #value;
                self
            }
        });
    }
    let (names, docs) = (fields.iter().map(|field| &field.ident), docs(&input.attrs));
    let constructor = quote! {
        #[automatically_derived]
        impl #target {
            #(#docs)*
            #visibility fn new(#(#arguments),*) -> #builder {
                #(#values)*
                #builder { #(#names),* }
            }
        }
    };
    if setters.is_empty() {
        return Ok(constructor);
    }
    Ok(quote! {
        #constructor

        #[automatically_derived]
        impl #builder {
            #(#setters)*
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
    fn doc_comments_are_carried_over() {
        let text = expanded(
            "/// Settings of a [`Net`].\n#[derive(Clone)] pub struct NetBuilder { \
             /// Not copied: an argument.\nwidth: usize, \
             /// Whether there is a bias.\n#[builder(default = true)] bias: bool }",
        )
        .unwrap();
        let (constructor, setters) = text.split_once("impl NetBuilder").unwrap();
        assert!(constructor.contains("Settings of a [`Net`]."), "{text}");
        assert!(constructor.contains("pub fn new (width : usize) -> NetBuilder"), "{text}");
        assert!(setters.contains("Whether there is a bias."), "{text}");
        assert!(setters.contains("# [must_use] pub fn bias (mut self , bias : bool) -> Self"), "{text}");
        assert!(!text.contains("Not copied") && !text.contains("derive (Clone)"), "{text}");
    }

    #[test]
    fn the_visibility_is_that_of_the_struct() {
        let text = expanded("pub(crate) struct NetBuilder { #[builder(default)] width: usize }").unwrap();
        assert_eq!(text.matches("pub (crate) fn").count(), 2, "{text}");
        let text = expanded("struct NetBuilder { #[builder(default, skip)] width: usize }").unwrap();
        assert!(!text.contains("pub") && !text.contains("impl NetBuilder"), "{text}");
    }

    #[test]
    fn what_cannot_be_derived_is_refused() {
        const NAMED: &str = "structs with named fields";
        for (text, part) in [
            ("enum NetBuilder { A, B }", NAMED),
            ("struct NetBuilder(usize);", NAMED),
            ("struct NetBuilder;", NAMED),
            ("struct NetBuilder<T> { a: T }", "structs without generics"),
            ("struct Settings { a: usize }", "the suffix `Builder`"),
            ("struct Builder { a: usize }", "the suffix `Builder`"),
            ("struct NetBuilder { #[builder(optional)] a: usize }", "expected default, default = …, skip"),
            ("struct NetBuilder { #[builder(default = )] a: usize }", "expected an expression"),
            ("struct NetBuilder { #[builder(skip)] a: usize }", "needs a default"),
            ("struct NetBuilder { #[builder(strip_option)] a: Option<u8> }", "give a default"),
            ("struct NetBuilder { #[builder(default, strip_option)] a: u8 }", "of type Option<…>"),
            ("struct NetBuilder { #[builder(default, skip, by_ref)] a: Vec<u8> }", "nothing to convert"),
        ] {
            let error = expanded(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
