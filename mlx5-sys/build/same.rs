//! One set of public names and types, whichever crate the bindings come from.

use quote::quote;
use syn::{Fields, ForeignItem, Ident, ImplItem, Item, Visibility};

/// What a program sees of bindings made by bindgen.
pub struct Interface {
    items: Vec<Item>,
}

impl Interface {
    /// Reads bindgen's output.
    pub fn of(bindings: &bindgen::Bindings) -> syn::Result<Self> {
        Ok(Self { items: syn::parse_file(&bindings.to_string())?.items })
    }

    /// Returns `pub use` of all public names, from the crate or module `source`.
    pub fn exports(&self, source: &str) -> String {
        let source = Ident::new(source, proc_macro2::Span::call_site());
        let names = self.items.iter().filter_map(name);
        quote!(pub use #source::{#(#names),*};).to_string()
    }

    /// Returns declarations that compile where the names in scope have the same types, layouts and
    /// values.
    pub fn checks(&self) -> String {
        self.items.iter().map(|item| check(item).to_string() + "\n").collect()
    }
}

/// The public name of an item. `__BindgenOpaqueArray8` and its like hold the memory of unions; the
/// bindgen of rdma-sys has none.
fn name(item: &Item) -> Option<&Ident> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::ForeignMod(block) => match &block.items[..] {
            [ForeignItem::Fn(function)] => &function.sig.ident,
            _ => unreachable!("bindgen gives each function a block of its own"),
        },
        Item::Mod(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    (name != "_" && !name.to_string().starts_with("__BindgenOpaque")).then_some(name)
}

fn check(item: &Item) -> proc_macro2::TokenStream {
    let Some(name) = name(item) else {
        return match item {
            // Size, alignment and offsets of a structure.
            Item::Const(layout) => quote!(#layout),
            Item::Impl(block) if block.trait_.is_none() && block.generics.params.is_empty() => {
                let owner = &block.self_ty;
                let values = block.items.iter().filter_map(|item| match item {
                    ImplItem::Const(item) => {
                        let (name, value) = (&item.ident, &item.expr);
                        Some(quote!(assert!(#owner::#name.0 == #value.0);))
                    }
                    _ => None,
                });
                quote!(const _: () = { #(#values)* };)
            }
            _ => quote!(),
        };
    };
    match item {
        Item::Const(item) => {
            let (of, value) = (&item.ty, &item.expr);
            quote!(const _: () = { let same: #of = #name; assert!(same == #value); };)
        }
        Item::Enum(item) => {
            let values = item.variants.iter().map(|variant| {
                let (variant, (_, value)) =
                    (&variant.ident, variant.discriminant.as_ref().expect("bindgen gives values"));
                quote!(assert!(#name::#variant as u32 == #value);)
            });
            quote!(const _: () = { #(#values)* };)
        }
        Item::ForeignMod(block) => {
            let Some(ForeignItem::Fn(function)) = block.items.first() else { return quote!() };
            let (arguments, result) = (&function.sig.inputs, &function.sig.output);
            quote!(const _: unsafe extern "C" fn(#arguments) #result = #name;)
        }
        Item::Mod(item) => {
            let (_, inside) = item.content.as_ref().expect("bindgen writes one file");
            let values = inside.iter().filter_map(|item| match item {
                Item::Const(item) => {
                    let (constant, value) = (&item.ident, &item.expr);
                    Some(quote!(assert!(#name::#constant == #value);))
                }
                Item::Type(item) => {
                    let (alias, of) = (&item.ident, &item.ty);
                    Some(quote!(let _: fn(#name::#alias) = |same: #of| _ = same;))
                }
                _ => None,
            });
            quote!(const _: () = { #(#values)* };)
        }
        // `__BindgenUnionField`, a member of a union.
        Item::Struct(item) if !item.generics.params.is_empty() => quote!(),
        Item::Struct(item) => {
            let fields = match &item.fields {
                Fields::Named(fields) => fields
                    .named
                    .iter()
                    .filter_map(|field| {
                        let (name, of) = (field.ident.as_ref()?, &field.ty);
                        // The room of a union, whose type bindgen's versions name differently.
                        let seen = matches!(field.vis, Visibility::Public(_));
                        (seen && name != "bindgen_union_field")
                            .then(|| quote!(let _: *const #of = &raw const (*same).#name;))
                    })
                    .collect(),
                Fields::Unnamed(fields) => fields
                    .unnamed
                    .iter()
                    .enumerate()
                    .map(|(index, field)| {
                        let (index, of) = (syn::Index::from(index), &field.ty);
                        quote!(let _: *const #of = &raw const (*same).#index;)
                    })
                    .collect(),
                Fields::Unit => Vec::new(),
            };
            // SAFETY: the generated function is never called: it compiles only if the fields have
            // these types.
            quote!(const _: unsafe fn(*const #name) = |same| unsafe { #(#fields)* };)
        }
        Item::Type(item) => {
            let of = &item.ty;
            quote!(const _: fn(#name) = |same: #of| _ = same;)
        }
        _ => quote!(compile_error! { "a kind of item that is not compared" }),
    }
}
