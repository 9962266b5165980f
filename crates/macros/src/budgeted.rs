//! `#[budgeted]`: ticks at the head of a function and of its loops.
//!
//! What is looked at: the function's own code. What is not: items inside, which are functions of their own and may be
//! marked themselves, and what stands in the arguments of other macros, which is not yet code.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Error, Expr, FnArg, ImplItem, Item, ItemFn, Path, Stmt, Token, parse_quote};

const NO_CLOSURES: &str = "`#[budgeted]` cannot charge a closure, which may run in another job or after this \
                           one; move its code into a function with `#[budgeted]` of its own, or write a loop";
const NO_CONST: &str =
    "a `const fn` cannot be `#[budgeted]`: it may run where there are no jobs; charge its caller";
const NO_DROP: &str = "`Drop::drop` cannot be `#[budgeted]`: a destructor must neither wait nor unwind; do what takes \
                       long before the value is dropped";
const NO_FUNCTION: &str = "`#[budgeted]` belongs on a function with a body";

/// The function in `function`, with ticks.
pub fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream, Error> {
    let Arguments { jobtree } = syn::parse2(arguments)?;
    let mut function = parse_function(function)?;
    if let Some(constness) = function.sig.constness {
        return Err(Error::new(constness.span(), NO_CONST));
    }
    if is_drop(&function) {
        return Err(Error::new(function.sig.ident.span(), NO_DROP));
    }
    let mut ticks = Ticks {
        jobtree,
        is_async: function.sig.asyncness.is_some(),
        errors: None,
    };
    ticks.visit_block_mut(&mut function.block);
    ticks.put_into(&mut function.block);
    match ticks.errors {
        Some(errors) => Err(errors),
        None => Ok(function.into_token_stream()),
    }
}

fn parse_function(function: TokenStream) -> Result<ItemFn, Error> {
    let place = function.clone();
    syn::parse2::<ItemFn>(function).map_err(|error| match syn::parse2::<Item>(place.clone()) {
        Ok(Item::Impl(found)) if implements_drop(&found) => {
            Error::new_spanned(found.self_ty, NO_DROP)
        }
        Ok(_) => Error::new_spanned(place, NO_FUNCTION),
        // It is no item at all, or one without a body, as in a trait.
        Err(_) if syn::parse2::<syn::TraitItemFn>(place.clone()).is_ok() => {
            Error::new_spanned(place, NO_FUNCTION)
        }
        Err(_) => error,
    })
}

/// Returns `true` if the function looks like `Drop::drop`. The attribute does not see the `impl` around it.
fn is_drop(function: &ItemFn) -> bool {
    let signature = &function.sig;
    let takes_itself = match signature.inputs.first() {
        Some(FnArg::Receiver(receiver)) => {
            receiver.mutability.is_some() && receiver.reference.is_some()
        }
        _ => false,
    };
    signature.ident == "drop"
        && takes_itself
        && signature.inputs.len() == 1
        && matches!(signature.output, syn::ReturnType::Default)
}

fn implements_drop(found: &syn::ItemImpl) -> bool {
    let name = found
        .trait_
        .as_ref()
        .and_then(|(_, path, _)| path.segments.last());
    name.is_some_and(|name| name.ident == "Drop")
}

/// `crate = path`, or nothing.
struct Arguments {
    jobtree: Path,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments, Error> {
        if input.is_empty() {
            return Ok(Arguments {
                jobtree: parse_quote!(::jobtree),
            });
        }
        if !input.peek(Token![crate]) {
            return Err(input.error("the only argument of `#[budgeted]` is `crate = path`"));
        }
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        let jobtree = input.call(Path::parse_mod_style)?;
        if !input.is_empty() {
            return Err(input.error("the only argument of `#[budgeted]` is `crate = path`"));
        }
        Ok(Arguments { jobtree })
    }
}

/// Walks through a function's code and puts ticks into loops.
struct Ticks {
    jobtree: Path,
    /// `true` if the code that is read may await.
    is_async: bool,
    errors: Option<Error>,
}

impl Ticks {
    fn put_into(&self, block: &mut Block) {
        // The place of the block, so that a reader of a backtrace finds the loop.
        let span = Span::mixed_site().located_at(block.brace_token.span.open());
        let jobtree = &self.jobtree;
        let tick = if self.is_async {
            quote_spanned!(span=> #jobtree::tick_async().await;)
        } else {
            quote_spanned!(span=> #jobtree::tick();)
        };
        let tick: Stmt = parse_quote!(#tick);
        block.stmts.insert(0, tick);
    }

    fn error(&mut self, span: Span, message: &str) {
        let error = Error::new(span, message);
        match &mut self.errors {
            Some(errors) => errors.combine(error),
            None => self.errors = Some(error),
        }
    }
}

impl VisitMut for Ticks {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Closure(closure) => {
                let span = closure.or1_token.span();
                self.error(span, NO_CLOSURES);
                return;
            }
            // Run by the compiler.
            Expr::Const(_) => return,
            Expr::Async(block) => {
                let outside = std::mem::replace(&mut self.is_async, true);
                self.visit_block_mut(&mut block.block);
                self.is_async = outside;
                return;
            }
            _ => {}
        }
        visit_mut::visit_expr_mut(self, expression);
        match expression {
            Expr::ForLoop(found) => self.put_into(&mut found.body),
            Expr::While(found) => self.put_into(&mut found.body),
            Expr::Loop(found) => self.put_into(&mut found.body),
            _ => {}
        }
    }

    /// Items inside are not part of the function; but those that could never be charged are told so, too.
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Fn(function) => {
                if let Some(constness) = function.sig.constness {
                    self.error(constness.span(), NO_CONST);
                }
            }
            Item::Impl(found) if implements_drop(found) => {
                let drop = found.items.iter().find_map(|item| match item {
                    ImplItem::Fn(function) => Some(function.sig.ident.span()),
                    _ => None,
                });
                self.error(drop.unwrap_or_else(|| found.span()), NO_DROP);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    /// Returns the expansion of a function, or the errors.
    fn expanded(function: TokenStream) -> Result<String, Vec<String>> {
        expanded_with(TokenStream::new(), function)
    }

    fn expanded_with(arguments: TokenStream, function: TokenStream) -> Result<String, Vec<String>> {
        match expand(arguments, function) {
            Ok(tokens) => Ok(tokens.to_string()),
            Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
        }
    }

    fn error_of(function: TokenStream) -> String {
        let errors = expanded(function).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].clone()
    }

    #[test]
    fn ticks_stand_at_the_head_of_the_function_and_of_each_loop() {
        let expansion = expanded(quote! {
            pub fn work<T: Copy>(items: &[T]) -> usize {
                let mut count = 0;
                'outer: for item in items {
                    while more() {
                        if count > 3 { continue 'outer; }
                        count += 1;
                    }
                    let last = loop { break count; };
                }
                count
            }
        });
        let expected = quote! {
            pub fn work<T: Copy>(items: &[T]) -> usize {
                ::jobtree::tick();
                let mut count = 0;
                'outer: for item in items {
                    ::jobtree::tick();
                    while more() {
                        ::jobtree::tick();
                        if count > 3 { continue 'outer; }
                        count += 1;
                    }
                    let last = loop { ::jobtree::tick(); break count; };
                }
                count
            }
        };
        assert_eq!(expansion, Ok(expected.to_string()));
    }

    #[test]
    fn asynchronous_code_awaits() {
        let expansion = expanded(quote! {
            async fn work(&self) {
                for _ in 0..3 {}
                async move { loop {} }.await;
            }
        });
        let expected = quote! {
            async fn work(&self) {
                ::jobtree::tick_async().await;
                for _ in 0..3 { ::jobtree::tick_async().await; }
                async move { loop { ::jobtree::tick_async().await; } }.await;
            }
        };
        assert_eq!(expansion, Ok(expected.to_string()));
    }

    #[test]
    fn an_async_block_in_a_plain_function_awaits_and_the_rest_does_not() {
        let expansion = expanded(quote! {
            fn work() -> impl Future {
                let future = async { loop { while a() {} } };
                loop { return future; }
            }
        });
        let expected = quote! {
            fn work() -> impl Future {
                ::jobtree::tick();
                let future = async {
                    loop {
                        ::jobtree::tick_async().await;
                        while a() { ::jobtree::tick_async().await; }
                    }
                };
                loop { ::jobtree::tick(); return future; }
            }
        };
        assert_eq!(expansion, Ok(expected.to_string()));
    }

    #[test]
    fn the_crate_may_have_another_name() {
        let expansion = expanded_with(
            quote!(crate = a::b),
            quote!(
                fn work() {}
            ),
        );
        let expected = quote!(
            fn work() {
                a::b::tick();
            }
        );
        assert_eq!(expansion, Ok(expected.to_string()));
        for wrong in [quote!(fast), quote!(crate = a, b), quote!(crate = 3)] {
            assert!(
                expanded_with(
                    wrong,
                    quote!(
                        fn work() {}
                    )
                )
                .is_err()
            );
        }
    }

    #[test]
    fn functions_inside_and_constants_are_left_alone() {
        let expansion = expanded(quote! {
            fn work() {
                fn inner() { loop {} }
                let constant = const { loop { break 1; } };
            }
        });
        let expected = quote! {
            fn work() {
                ::jobtree::tick();
                fn inner() { loop {} }
                let constant = const { loop { break 1; } };
            }
        };
        assert_eq!(expansion, Ok(expected.to_string()));
    }

    #[test]
    fn every_closure_is_an_error() {
        let errors = expanded(quote! {
            fn work() {
                let add = |a, b| a + b;
                for item in items.iter().map(move |item| add(item, 1)) {}
                let later = async || ();
            }
        })
        .unwrap_err();
        assert_eq!(errors, vec![NO_CLOSURES; 3]);
    }

    #[test]
    fn a_const_function_is_an_error() {
        assert_eq!(
            error_of(quote!(
                const fn work() {}
            )),
            NO_CONST
        );
        let inside = quote!(
            fn work() {
                const fn inner() {}
            }
        );
        assert_eq!(error_of(inside), NO_CONST);
    }

    #[test]
    fn a_destructor_is_an_error() {
        assert_eq!(
            error_of(quote!(
                fn drop(&mut self) {}
            )),
            NO_DROP
        );
        let whole = quote!(impl Drop for Thing { fn drop(&mut self) {} });
        assert_eq!(error_of(whole.clone()), NO_DROP);
        assert_eq!(error_of(quote!(fn work() { #whole })), NO_DROP);
        // Only the real one.
        assert!(
            expanded(quote!(
                fn drop(&mut self, count: usize) {}
            ))
            .is_ok()
        );
        assert!(
            expanded(quote!(
                fn drop<T>(value: T) {}
            ))
            .is_ok()
        );
    }

    #[test]
    fn only_functions_with_a_body_can_be_charged() {
        assert_eq!(
            error_of(quote!(
                struct Thing;
            )),
            NO_FUNCTION
        );
        assert_eq!(
            error_of(quote!(
                fn work(&self);
            )),
            NO_FUNCTION
        );
        assert_eq!(
            error_of(quote!(impl Thing { fn work(&self) {} })),
            NO_FUNCTION
        );
    }
}
