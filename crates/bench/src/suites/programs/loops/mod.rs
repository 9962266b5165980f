//! Programs that go over many items.

pub mod blur;
pub mod dot_product;
pub mod filter_strings;
pub mod group_by;
pub mod histogram;
pub mod json_lines;
pub mod k_means;
pub mod mandelbrot;
pub mod map_to_strings;
pub mod matrix_product;
pub mod n_body;
pub mod prefix_sums;
pub mod sieve;
pub mod word_count;
