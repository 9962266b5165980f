//! A file system for SQLite that loses power.
