//! What was found out about a recording, kept beside it.

pub(crate) mod build;
mod channels;
pub(crate) mod file;
pub(crate) mod layout;
mod links;
pub(crate) mod waits;
