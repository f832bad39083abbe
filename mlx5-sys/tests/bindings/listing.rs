//! Bindings as the files in `src/bindings` have them.

use std::io::Write;
use std::process::{Command, Stdio};

use mlx5_sys::load::Library;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{ForeignItem, ForeignItemFn, Ident, Item, ItemType, LitStr, Signature, Token, Type};

use crate::versions;

/// Types and constants, and functions apart from them.
pub struct Listing {
    pub items: Vec<Item>,
    pub functions: Vec<Signature>,
}

/// What `functions!` is given in a file.
struct Declared(Vec<Signature>);

impl Parse for Declared {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<Ident>()?;
        input.parse::<Token![;]>()?;
        let mut functions = Vec::new();
        while !input.is_empty() {
            input.parse::<LitStr>()?;
            functions.push(input.parse::<ForeignItemFn>()?.sig);
        }
        Ok(Self(functions))
    }
}

impl Listing {
    /// Reads a file of `src/bindings`.
    pub fn of_file(text: &str) -> Self {
        let (mut items, mut functions) = (Vec::new(), Vec::new());
        for item in syn::parse_file(text).unwrap().items {
            match item {
                Item::Macro(item) => functions.extend(item.mac.parse_body::<Declared>().unwrap().0),
                item => items.push(item),
            }
        }
        Self { items, functions }
    }

    /// Reads bindgen's output. Leaves out checks of layouts, and the names of unnamed enums, which
    /// are numbers that differ between versions of the C library.
    pub fn of_bindgen(text: &str) -> Self {
        let (mut items, mut functions) = (Vec::new(), Vec::new());
        let all = syn::parse_file(text).unwrap().items;
        let aliases = all.iter().filter_map(|item| match item {
            Item::Type(alias) if is_unnamed(alias) => Some(alias.clone()),
            _ => None,
        });
        let unnamed: Vec<ItemType> = aliases.collect();
        for item in all {
            match item {
                Item::Const(layout) if layout.ident == "_" => {}
                Item::Type(alias) if is_unnamed(&alias) => {}
                Item::ForeignMod(block) => functions.extend(block.items.into_iter().map(signature)),
                Item::Const(mut constant) => {
                    name_type(&mut constant.ty, &unnamed);
                    items.push(Item::Const(constant));
                }
                item => items.push(item),
            }
        }
        Self { items, functions }
    }

    /// Returns the text of the file.
    pub fn text(&self, library: Library) -> String {
        let items = &self.items;
        let mut text =
            "// Written by `cargo xtask bindings --write`, from the headers of rdma-core 44.\n\n"
                .to_owned();
        text += &formatted(&quote!(#(#items)*).to_string());
        if self.functions.is_empty() {
            return text;
        }
        text += &format!("\ncrate::load::functions! {{\n    {library:?};\n");
        for function in &self.functions {
            let version = versions::default_version(library, &function.ident.to_string());
            text += &format!("    {version:?} {};\n", compact(&quote!(#function).to_string()));
        }
        text + "}\n"
    }
}

/// Whether bindgen has made this alias for an enum without a name.
fn is_unnamed(alias: &ItemType) -> bool {
    alias.ident.to_string().starts_with("_bindgen_ty_")
}

/// Replaces the alias of an unnamed enum by its type.
fn name_type(used: &mut Type, unnamed: &[ItemType]) {
    let Type::Path(path) = &*used else { return };
    if let Some(alias) = unnamed.iter().find(|alias| path.path.is_ident(&alias.ident)) {
        *used = (*alias.ty).clone();
    }
}

fn signature(item: ForeignItem) -> Signature {
    match item {
        ForeignItem::Fn(function) => function.sig,
        _ => panic!("the headers declare functions only"),
    }
}

/// Writes a function's tokens, which have blanks between all of them, as people do.
fn compact(tokens: &str) -> String {
    let mut text = tokens.to_owned();
    for (apart, together) in [
        (" :: ", "::"),
        (" : ", ": "),
        ("* mut ", "*mut "),
        ("* const ", "*const "),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
        (",)", ")"),
        ("->", " ->"),
        ("  ->", " ->"),
        (" - >", " ->"),
    ] {
        text = text.replace(apart, together);
    }
    text
}

/// Returns Rust's formatting of a text.
fn formatted(text: &str) -> String {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", "use_small_heuristics=Max"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustup component add rustfmt");
    rustfmt.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = rustfmt.wait_with_output().unwrap();
    assert!(output.status.success(), "rustfmt failed");
    String::from_utf8(output.stdout).unwrap()
}
