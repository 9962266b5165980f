//! The macros of jobtree. Programs use them through `jobtree`, which exports them beside what they expand to.
//!
//! Each macro is a function from tokens to tokens in a module of its own, tested there; here they meet the compiler.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod budgeted;
mod nursery;

use proc_macro::TokenStream;

/// Charges a function for what it does: an operation when it is entered, and one in each round of each of its loops.
///
/// So a function that computes for long gives way to others at the end of its turn, and ends when its job is cancelled.
/// It puts a [`tick`](https://docs.rs/jobtree) at the head of the function and of every `for`, `while` and `loop` in it; in
/// `async` functions and blocks the awaiting form.
///
/// ```
/// use jobtree::budgeted;
///
/// #[budgeted]
/// fn collatz(mut number: u64) -> u32 {
///     let mut steps = 0;
///     while number != 1 {
///         number = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
///         steps += 1;
///     }
///     steps
/// }
///
/// #[budgeted]
/// async fn sum(numbers: &[u32]) -> u32 {
///     let mut sum = 0;
///     for number in numbers {
///         sum += number;
///     }
///     sum
/// }
///
/// assert_eq!(collatz(27), 111);
/// assert_eq!(jobtree::block_on(sum(&[1, 2, 3]))?, 6);
/// # Ok::<(), jobtree::Cancelled>(())
/// ```
///
/// Functions that it calls are not charged, unless they are marked, too; loops inside of other macros' arguments are not
/// seen. What cannot be charged is an error, so that nobody relies on it. A closure may run anywhere, in another job or
/// after this one:
///
/// ```compile_fail
/// #[jobtree::budgeted]
/// fn sum(numbers: &[u32]) -> u32 {
///     numbers.iter().map(|number| number + 1).sum()
/// }
/// ```
///
/// A `const fn` may run where there are no jobs:
///
/// ```compile_fail
/// #[jobtree::budgeted]
/// const fn twice(number: u32) -> u32 {
///     number * 2
/// }
/// ```
///
/// And a destructor must neither wait nor unwind:
///
/// ```compile_fail
/// struct Buffer;
///
/// impl Drop for Buffer {
///     #[jobtree::budgeted]
///     fn drop(&mut self) {}
/// }
/// ```
///
/// `#[budgeted(crate = path)]` says where `jobtree` is to be found, if it has another name.
#[proc_macro_attribute]
pub fn budgeted(arguments: TokenStream, function: TokenStream) -> TokenStream {
    budgeted::expand(arguments.into(), function.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// A scope for jobs, as a block: what is started in it has ended when it is over.
///
/// * `spawn f(x);` starts a job that calls `f(x)`. Its value is dropped; with `spawn f(x)?;` its error is the job's, and so
///   the scope's.
/// * `let y = async g(z);` starts a job whose value somebody wants: `y` is a `JobHandle`, and `y.join()?` waits for it.
///   With `async g(z)?` an error of `g` is the job's.
/// * Everything else is plain Rust, `?` ends the scope with an error, and the value of the block is that of the scope. The
///   whole is an `Outcome`.
///
/// Both may stand in blocks inside, such as that of a loop. Arguments are evaluated at once, by the one who starts the job;
/// they may borrow what outlives the scope. `spawn { … }` and `spawn move { … }` start a block.
///
/// ```
/// use jobtree::{JobError, nursery};
///
/// fn length(word: &str) -> usize {
///     word.len()
/// }
///
/// fn check(word: &str) -> Result<(), std::fmt::Error> {
///     if word.is_empty() { Err(std::fmt::Error) } else { Ok(()) }
/// }
///
/// let words = ["one", "two", "three"];
/// let total = nursery! {
///     for word in &words {
///         spawn check(word)?;
///     }
///     let first = async length(words[0]);
///     let last = async length(words[2]);
///     first.join()? + last.join()?
/// }?;
/// assert_eq!(total, 8);
///
/// let outcome = nursery! { spawn check("")?; };
/// assert!(matches!(outcome, Err(JobError::Failed(_))));
/// # Ok::<(), JobError>(())
/// ```
///
/// With a name for the scope first, it can be used directly: `nursery! { |n| n.cancel("enough"); }`.
///
/// A job cannot outlive the block, nor borrow what does not:
///
/// ```compile_fail,E0597
/// # use jobtree::nursery;
/// # fn print(text: &str) {}
/// nursery! {
///     let text = String::from("gone before its reader");
///     spawn print(&text);
/// };
/// ```
#[proc_macro]
pub fn nursery(block: TokenStream) -> TokenStream {
    nursery::expand(block.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
