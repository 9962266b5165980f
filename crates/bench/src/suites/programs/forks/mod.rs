//! Programs that divide their work again and again.

pub mod bfs;
pub mod convex_hull;
pub mod directories;
pub mod expression;
pub mod knapsack;
pub mod merge_sort;
pub mod n_queens;
pub mod quicksort_strings;
pub mod strassen;
pub mod suffix_array;
pub mod tree_walk;
