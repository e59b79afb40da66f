//! `#[derive(DeepClone)]`.

use crate::{
    bounds::{bounded, names},
    module::{Options, library},
};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Member, Path, Result, spanned::Spanned};

/// A field's copy: of an `Arc` of a module what it holds is copied, anything else is cloned.
fn copy(library: &Path, field: &Field, value: &TokenStream) -> Result<TokenStream> {
    let options = Options::of(field)?;
    let span = field.ty.span();
    Ok(if !options.skip && names(&field.ty, &|ident| ident == "Arc") {
        quote_spanned!(span=> #library::Copied::copied(#value))
    } else {
        quote_spanned!(span=> ::core::clone::Clone::clone(#value))
    })
}

fn members(fields: &Fields) -> Vec<Member> {
    fields.members().collect()
}

pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let (library, ident) = (library(input)?, &input.ident);
    let (body, fields): (TokenStream, Vec<&Field>) = match &input.data {
        Data::Struct(data) => {
            let members = members(&data.fields);
            let copies = data
                .fields
                .iter()
                .zip(&members)
                .map(|(field, member)| copy(&library, field, &quote!(&self.#member)))
                .collect::<Result<Vec<_>>>()?;
            (quote!(Self { #(#members: #copies),* }), data.fields.iter().collect())
        }
        Data::Enum(data) => {
            let mut arms = Vec::new();
            for variant in &data.variants {
                let (name, members) = (&variant.ident, members(&variant.fields));
                let bound: Vec<Ident> = (0..members.len()).map(|n| format_ident!("field_{n}")).collect();
                let copies = variant
                    .fields
                    .iter()
                    .zip(&bound)
                    .map(|(field, bound)| copy(&library, field, &quote!(#bound)))
                    .collect::<Result<Vec<_>>>()?;
                arms.push(quote! {
                    Self::#name { #(#members: #bound),* } => Self::#name { #(#members: #copies),* },
                });
            }
            let all = data.variants.iter().flat_map(|variant| variant.fields.iter()).collect();
            (quote!(match self { #(#arms)* }), all)
        }
        Data::Union(_) => {
            return Err(Error::new(ident.span(), "DeepClone can be derived for structs and enums"));
        }
    };
    let clone = |field: &&Field| (field.ty.clone(), quote!(::core::clone::Clone));
    let generics = bounded(&input.generics, ident, fields.iter().map(clone));
    let (generics, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::core::clone::Clone for #ident #arguments #conditions {
            fn clone(&self) -> Self {
                #library::copying(|| #body)
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
    fn fields_are_cloned_together_and_what_an_arc_holds_is_copied() {
        let text = expanded(
            "struct Net<L> { first: L, blocks: Vec<Arc<Block>>, #[module(skip)] table: Arc<Table>, next: Option<Box<Net<L>>> }",
        )
        .unwrap();
        assert!(text.contains(":: gradewise_nn :: copying (|| Self"), "{text}");
        assert!(text.contains("blocks : :: gradewise_nn :: Copied :: copied (& self . blocks)"), "{text}");
        assert!(text.contains("table : :: core :: clone :: Clone :: clone (& self . table)"), "{text}");
        assert!(text.contains("where L : :: core :: clone :: Clone {"), "no bound on itself: {text}");
    }

    #[test]
    fn variants_of_every_form_are_served() {
        let text = expanded("enum Layer { None, One(Linear), Two { a: Linear, b: Linear } }").unwrap();
        assert!(text.contains("Self :: None { } => Self :: None { }"), "{text}");
        assert!(text.contains("Self :: One { 0 : field_0 } => Self :: One { 0 :"), "{text}");
        assert!(text.contains("Self :: Two { a : field_0 , b : field_1 }"), "{text}");
        let error = expanded("union Odd { a: u8 }").unwrap_err().to_string();
        assert!(error.contains("structs and enums"), "{error}");
    }
}
