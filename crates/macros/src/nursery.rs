//! `nursery!`: a scope for jobs as a block with two statements of its own.
//!
//! The block is rewritten as tokens, before anything is parsed: `spawn f(x)` is no Rust, wherever it stands. A statement of
//! ours begins where a statement can begin (at the head of a block, after a semicolon, after a closing brace) and goes on
//! to the next semicolon or the end of its block. All the rest stays as it is.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Path, Token, parse_quote};

/// The block in `input` as a call of `jobtree::nursery`.
pub fn expand(input: TokenStream) -> Result<TokenStream, Error> {
    let Input {
        jobtree,
        name,
        block,
    } = syn::parse2(input)?;
    let scope = name.unwrap_or_else(|| Ident::new("nursery", Span::mixed_site()));
    let block = Rewriter { scope: &scope }.rewrite(block)?;
    Ok(quote_spanned! {Span::mixed_site()=>
        #jobtree::nursery(|#scope| ::core::result::Result::Ok({ #block }))
    })
}

/// `crate = path;` and `|name|`, each if it is there, and the block.
struct Input {
    jobtree: Path,
    name: Option<Ident>,
    block: TokenStream,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> Result<Input, Error> {
        let mut jobtree: Path = parse_quote!(::jobtree);
        if input.peek(Token![crate]) && input.peek2(Token![=]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            jobtree = input.call(Path::parse_mod_style)?;
            input.parse::<Token![;]>()?;
        }
        let mut name = None;
        if input.peek(Token![|]) {
            input.parse::<Token![|]>()?;
            name = Some(input.parse()?);
            input.parse::<Token![|]>()?;
        }
        Ok(Input {
            jobtree,
            name,
            block: input.parse()?,
        })
    }
}

struct Rewriter<'a> {
    /// The name of the scope in the expansion.
    scope: &'a Ident,
}

impl Rewriter<'_> {
    /// Rewrites the statements of a block, and of the blocks in it.
    fn rewrite(&self, block: TokenStream) -> Result<TokenStream, Error> {
        let mut rest = block.into_iter().peekable();
        let mut rewritten = TokenStream::new();
        let mut begins_statement = true;
        while let Some(token) = rest.next() {
            let is_spawn = begins_statement && is_ident(&token, "spawn");
            if is_spawn && rest.peek().is_some_and(can_be_spawned) {
                let started = until_semicolon(&mut rest);
                rewritten.extend(self.spawn(token.span(), started)?);
                continue;
            }
            if begins_statement && is_ident(&token, "let") {
                let statement = until_semicolon(&mut rest);
                rewritten.extend(self.binding(token, statement)?);
                continue;
            }
            begins_statement = ends_statement(&token);
            rewritten.extend([self.inside(token)?]);
        }
        Ok(rewritten)
    }

    /// A token, rewritten inside if it is a group.
    fn inside(&self, token: TokenTree) -> Result<TokenTree, Error> {
        let TokenTree::Group(group) = token else {
            return Ok(token);
        };
        let mut rewritten = Group::new(group.delimiter(), self.rewrite_group(&group)?);
        rewritten.set_span(group.span());
        Ok(TokenTree::Group(rewritten))
    }

    fn rewrite_group(&self, group: &Group) -> Result<TokenStream, Error> {
        if group.delimiter() == Delimiter::Brace {
            return self.rewrite(group.stream());
        }
        // No statements here, but maybe blocks.
        group
            .stream()
            .into_iter()
            .map(|token| self.inside(token))
            .collect()
    }

    /// `spawn …`: a job whose value nobody wants.
    fn spawn(&self, place: Span, started: TokenStream) -> Result<TokenStream, Error> {
        let scope = self.scope;
        let Started {
            arguments,
            movement,
            expression,
        } = self.started(place, started)?;
        let span = Span::mixed_site().located_at(place);
        Ok(quote_spanned! {span=>
            {
                #arguments
                #scope.launch(#movement || {
                    #expression;
                    ::core::result::Result::Ok(())
                });
            }
        })
    }

    /// `let … = async …;`: a job whose value is wanted. Any other binding stays as it is.
    fn binding(&self, keyword: TokenTree, statement: TokenStream) -> Result<TokenStream, Error> {
        let tokens: Vec<TokenTree> = statement.into_iter().collect();
        let Some(start) = start_of_async_call(&tokens) else {
            let tokens = tokens.into_iter().map(|token| self.inside(token));
            let tokens: TokenStream = tokens.collect::<Result<_, Error>>()?;
            return Ok(quote!(#keyword #tokens;));
        };
        let (pattern, started) = tokens.split_at(start);
        let place = started[0].span();
        let Started {
            arguments,
            movement,
            expression,
        } = self.started(place, started[1..].iter().cloned().collect())?;
        let pattern: TokenStream = pattern.iter().cloned().collect();
        let scope = self.scope;
        let span = Span::mixed_site().located_at(place);
        Ok(quote_spanned! {span=>
            #keyword #pattern {
                #arguments
                #scope.spawn(#movement || ::core::result::Result::Ok(#expression))
            };
        })
    }

    /// Reads the work of a job: a call, whose arguments are evaluated before, or a block.
    fn started(&self, place: Span, tokens: TokenStream) -> Result<Started, Error> {
        let mut tokens = tokens.into_iter().peekable();
        let is_moved = tokens.next_if(|token| is_ident(token, "move")).is_some();
        let tokens: TokenStream = tokens
            .map(|token| self.inside(token))
            .collect::<Result<_, Error>>()?;
        if tokens.is_empty() {
            return Err(Error::new(place, NOTHING_TO_RUN));
        }
        let mut expression: Expr = syn::parse2(tokens)?;
        let arguments = take_arguments(&mut expression);
        // A block borrows what it names, unless told otherwise; a call has its own arguments.
        let is_borrowing = matches!(expression, Expr::Block(_)) && !is_moved;
        Ok(Started {
            arguments,
            movement: (!is_borrowing).then(<Token![move]>::default),
            expression,
        })
    }
}

const NOTHING_TO_RUN: &str = "what shall run? write a call or a block, as in `spawn f(x);`";

/// The work of a job.
struct Started {
    /// Bindings for what is evaluated first.
    arguments: TokenStream,
    movement: Option<Token![move]>,
    expression: Expr,
}

/// Replaces the arguments of a call by names, and returns their bindings.
fn take_arguments(expression: &mut Expr) -> TokenStream {
    let arguments = match expression {
        Expr::Try(tried) => return take_arguments(&mut tried.expr),
        Expr::Call(call) => &mut call.args,
        Expr::MethodCall(call) => &mut call.args,
        _ => return TokenStream::new(),
    };
    let mut bindings = TokenStream::new();
    for (index, argument) in arguments.iter_mut().enumerate() {
        let name = format_ident!("argument_{index}", span = Span::mixed_site());
        let value = std::mem::replace(argument, parse_quote!(#name));
        bindings.extend(quote!(let #name = #value;));
    }
    bindings
}

/// The place of `async` in `… = async f(x)`. An `async` block or closure is Rust's own.
fn start_of_async_call(tokens: &[TokenTree]) -> Option<usize> {
    let is_call = |window: &[TokenTree]| {
        let is_block = match &window[2] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            token => is_ident(token, "move") || is_punct(token, '|'),
        };
        is_punct(&window[0], '=') && is_ident(&window[1], "async") && !is_block
    };
    tokens.windows(3).position(is_call).map(|equals| equals + 1)
}

/// Returns `true` if `spawn` before this token begins a statement of ours, and is no name of the program's.
fn can_be_spawned(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(_) => true,
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        // A path from the root: `::a::b()`.
        TokenTree::Punct(punct) => {
            punct.as_char() == ':' && punct.spacing() == proc_macro2::Spacing::Joint
        }
        TokenTree::Literal(_) => false,
    }
}

/// Returns `true` if a statement can begin after this token.
fn ends_statement(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    }
}

/// The tokens up to the next semicolon, which is taken, too.
fn until_semicolon(rest: &mut impl Iterator<Item = TokenTree>) -> TokenStream {
    rest.take_while(|token| !is_punct(token, ';')).collect()
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the expansion of a block.
    fn expanded(block: TokenStream) -> String {
        expand(block).unwrap().to_string()
    }

    /// The call around a block.
    fn scope(block: &TokenStream) -> String {
        quote!(::jobtree::nursery(|nursery| ::core::result::Result::Ok({ #block }))).to_string()
    }

    #[test]
    fn plain_rust_stays_as_it_is() {
        let block = quote! {
            let a = [1, 2];
            let b = async { a };
            let c = async move |x| x;
            let spawn = 3;
            spawn.to_string();
            thread::spawn(f);
            match a { spawn => {} }
            if let Some(x) = y { x; } else { z }
        };
        assert_eq!(expanded(block.clone()), scope(&block));
    }

    #[test]
    fn a_spawned_call_gets_its_arguments_at_once() {
        let launched = quote! {
            {
                let argument_0 = x;
                let argument_1 = &y[1];
                nursery.launch(move || {
                    a::f(argument_0, argument_1)?;
                    ::core::result::Result::Ok(())
                });
            }
        };
        assert_eq!(expanded(quote!(spawn a::f(x, &y[1])?;)), scope(&launched));
        // The semicolon may be missing at the end of a block.
        assert_eq!(expanded(quote!(spawn a::f(x, &y[1])?)), scope(&launched));
    }

    #[test]
    fn blocks_borrow_unless_told_otherwise() {
        let borrowing = quote! {
            { nursery.launch(|| { { work(); }; ::core::result::Result::Ok(()) }); }
        };
        assert_eq!(expanded(quote!(spawn { work(); })), scope(&borrowing));
        let moving = quote! {
            { nursery.launch(move || { { work(); }; ::core::result::Result::Ok(()) }); }
        };
        assert_eq!(expanded(quote!(spawn move { work(); })), scope(&moving));
    }

    #[test]
    fn an_async_call_is_a_job_with_a_handle() {
        let started = quote! {
            let y: Handle<u8> = {
                let argument_0 = 1;
                nursery.spawn(move || ::core::result::Result::Ok(this.g(argument_0)))
            };
            y.join()?
        };
        let block = quote! {
            let y: Handle<u8> = async this.g(1);
            y.join()?
        };
        assert_eq!(expanded(block), scope(&started));
    }

    #[test]
    fn statements_are_found_in_inner_blocks() {
        let launched = quote! {
            {
                nursery.launch(move || { f(); ::core::result::Result::Ok(()) });
            }
        };
        let block = quote! {
            for x in [1] { if x { spawn f(); } spawn f(); }
            g(match x { _ => { spawn f() } });
        };
        let expected = quote! {
            for x in [1] { if x { #launched } #launched }
            g(match x { _ => { #launched } });
        };
        assert_eq!(expanded(block), scope(&expected));
    }

    #[test]
    fn the_scope_and_the_crate_may_be_named() {
        let expected = quote!(a::b::nursery(|n| ::core::result::Result::Ok({
            n.cancel("x");
        })));
        let block = quote!(crate = a::b; |n| n.cancel("x"););
        assert_eq!(expanded(block), expected.to_string());
    }

    #[test]
    fn nothing_to_run_is_an_error() {
        let error = expand(quote!(spawn move;)).unwrap_err();
        assert_eq!(error.to_string(), NOTHING_TO_RUN);
        assert!(expand(quote!(spawn f(x) g(y);)).is_err());
    }
}
