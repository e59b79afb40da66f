//! What generic types must satisfy.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Generics, Ident, Type};

/// Whether a type has a name that is wanted.
pub fn names(ty: &Type, wanted: &dyn Fn(&Ident) -> bool) -> bool {
    fn among(tokens: TokenStream, wanted: &dyn Fn(&Ident) -> bool) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => wanted(&ident),
            TokenTree::Group(group) => among(group.stream(), wanted),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
    }
    among(ty.to_token_stream(), wanted)
}

/// The types of fields that depend on a type parameter, each of which needs `bound`. A type that names the struct itself needs none: it
/// would ask for what is being implemented.
pub fn bounded(
    generics: &Generics,
    itself: &Ident,
    fields: impl IntoIterator<Item = (Type, TokenStream)>,
) -> Generics {
    let parameters: Vec<&Ident> = generics.type_params().map(|parameter| &parameter.ident).collect();
    let mut bounded = generics.clone();
    for (ty, bound) in fields {
        if names(&ty, &|ident| parameters.contains(&ident)) && !names(&ty, &|ident| ident == itself) {
            bounded.make_where_clause().predicates.push(syn::parse_quote!(#ty: #bound));
        }
    }
    bounded
}
