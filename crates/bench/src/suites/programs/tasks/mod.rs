//! Programs of jobs that wait, talk to each other and are cancelled.

pub mod broadcast;
pub mod cancel_tree;
pub mod contended_mutex;
pub mod crawl;
pub mod fan_out;
pub mod first_answer;
pub mod many_producers;
pub mod one_at_a_time;
pub mod pipeline;
pub mod request_answer;
pub mod skynet;
pub mod timers;
