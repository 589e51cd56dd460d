//! Debug information, read where it is needed.
//!
//! [`info::DebugInfo`] is the debug information of one file. It knows its
//! units from their headers alone; a unit is parsed when an address or a name
//! leads to it, a function's blocks when a frame is in it, a line table when
//! a line is asked for. Only a search by name must look at everything, once,
//! and it uses all processors for that ([`names`]).
//!
//! Addresses in here are link-time addresses, as the file has them.

pub mod blocks;
pub mod die;
pub mod info;
pub mod lines;
pub mod names;
pub mod scopes;
pub mod unit;

/// How bytes of debug information are read.
pub type Slice = gimli::EndianSlice<'static, gimli::LittleEndian>;

/// The words a program was written in, as far as printing differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// C, and anything without a manner of its own.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Assembly.
    Assembly,
}

impl Language {
    pub(crate) fn from_dwarf(language: gimli::DwLang) -> Self {
        use gimli::constants as c;
        match language {
            c::DW_LANG_C_plus_plus
            | c::DW_LANG_C_plus_plus_03
            | c::DW_LANG_C_plus_plus_11
            | c::DW_LANG_C_plus_plus_14
            | c::DW_LANG_C_plus_plus_17
            | c::DW_LANG_C_plus_plus_20 => Self::Cpp,
            c::DW_LANG_Rust => Self::Rust,
            c::DW_LANG_Go => Self::Go,
            c::DW_LANG_Mips_Assembler => Self::Assembly,
            _ => Self::C,
        }
    }

    /// Whether names have paths (`a::b`).
    pub(crate) fn has_paths(self) -> bool {
        matches!(self, Self::Cpp | Self::Rust)
    }
}
