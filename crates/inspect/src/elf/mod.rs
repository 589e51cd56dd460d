//! ELF files: their sections, their symbols, and where their debug
//! information is.
//!
//! An [`image::Image`] reads from its file only what is asked for. Sections
//! that were read stay in memory until the debugger ends: everything made
//! from them (names, DIEs, types) can then be held without lifetimes and
//! shared between the processes of a program, which mostly map the same
//! files. The cost is bounded by the size of the distinct files that were
//! looked into.

pub mod demangle;
pub mod find;
pub mod image;
pub mod symbols;
