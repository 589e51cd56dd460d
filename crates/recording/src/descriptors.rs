//! What the descriptors of a process lead to.
//!
//! Followed from the events alone: calls that make, copy, rename and close
//! descriptors. A forked process starts with its parent's, so that following
//! a process begins with following its ancestors up to where they forked.

mod births;
mod follow;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::syscall::Type;

use crate::event::Event;

pub use births::Births;
pub use follow::{decides_type, may_change, rights};
pub use target::{Descriptor, Standard, Target};

/// The descriptors of one process at one point of its log. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    table: Arc<BTreeMap<i32, Descriptor>>,
    cwd: Arc<Vec<u8>>,
    /// Numbers of pseudo-terminals, by the descriptor of their master side.
    terminals: BTreeMap<i32, u32>,
    /// Those that may have changed since [`Descriptors::changed`].
    touched: Vec<i32>,
    /// Any may have.
    touched_many: bool,
}

impl Descriptors {
    /// The descriptor `fd`.
    pub fn get(&self, fd: i32) -> Option<&Descriptor> {
        self.table.get(&fd)
    }

    /// What descriptor `fd` leads to, in words.
    pub fn describe(&self, fd: i32) -> Option<String> {
        self.get(fd)?.describe()
    }

    /// The working directory (empty if unknown).
    pub fn cwd(&self) -> &[u8] {
        &self.cwd
    }

    /// The type of an event, now that it is known what its descriptor leads
    /// to: reading a file is not receiving.
    pub fn type_of(&self, event: &Event<'_>) -> Type {
        let decides = decides_type(event).and_then(|fd| self.get(fd));
        match decides.is_some_and(Descriptor::is_file) {
            true => Type::File,
            false => event.type_(),
        }
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (i32, &Descriptor)> {
        self.table.iter().map(|(fd, descriptor)| (*fd, descriptor))
    }

    /// The descriptors that may have changed since this was asked last; `None`
    /// if any may have gone.
    pub fn changed(&mut self) -> Option<Vec<i32>> {
        let touched = std::mem::take(&mut self.touched);
        match std::mem::take(&mut self.touched_many) {
            true => None,
            false => Some(touched),
        }
    }

    fn touch(&mut self, fd: i32) {
        // Who does not ask does not pay for it.
        const MOST: usize = 64;
        match self.touched.len() < MOST {
            true => self.touched.push(fd),
            false => self.touched_many = true,
        }
    }

    fn set(&mut self, fd: i64, descriptor: Descriptor) {
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
            Arc::make_mut(&mut self.table).insert(fd, descriptor);
            self.terminals.remove(&fd);
            self.touch(fd);
        }
    }

    fn change(&mut self, fd: u64, how: impl FnOnce(&mut Descriptor)) {
        let fd = fd as i32;
        if self.table.contains_key(&fd)
            && let Some(descriptor) = Arc::make_mut(&mut self.table).get_mut(&fd)
        {
            how(descriptor);
            self.touch(fd);
        }
    }

    fn copy(&mut self, from: u64, to: i64, cloexec: bool) {
        let copied = match self.get(from as i32) {
            Some(descriptor) => Descriptor {
                cloexec,
                ..descriptor.clone()
            },
            None => Descriptor::new(Target::Unknown, cloexec),
        };
        self.set(to, copied);
    }

    fn absolute(&self, dir: Option<u64>, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        const AT_FDCWD: i32 = -100;
        let base = match dir.map(|fd| fd as i32) {
            None | Some(AT_FDCWD) => Some(self.cwd.as_slice()),
            Some(fd) => match self.get(fd).map(|descriptor| &descriptor.target) {
                Some(Target::Path(path)) => Some(path.as_slice()),
                _ => None,
            },
        };
        let mut path = path;
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        match base {
            Some(base) if !base.is_empty() && path.is_empty() => base.to_vec(),
            Some(base) if !base.is_empty() => {
                [base.strip_suffix(b"/").unwrap_or(base), b"/", path].concat()
            }
            _ => path.to_vec(),
        }
    }
}
