//! What was found out about a recording, kept beside it.

pub(crate) mod build;
pub(crate) mod file;
pub(crate) mod layout;
