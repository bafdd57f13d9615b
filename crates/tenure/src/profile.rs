//! A profile: one policy row, one file format. Nothing outside this folder knows which is used.

pub mod native;
