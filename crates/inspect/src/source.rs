//! Source texts, where they are still there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::dwarf::lines::{SourceFile, normalized};
use crate::error::{Error, Result};

/// The lines of a source file.
#[derive(Debug)]
pub struct SourceText {
    text: String,
    starts: Vec<usize>,
}

impl SourceText {
    fn new(text: String) -> Self {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, starts }
    }

    /// A line, counted from 1, without its end.
    pub fn line(&self, number: u64) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = *self.starts.get(at)?;
        if start >= self.text.len() {
            return None;
        }
        let line = self.text.get(start..)?;
        Some(line.lines().next().unwrap_or(""))
    }

    /// How many lines there are.
    pub fn len(&self) -> u64 {
        self.text.lines().count() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Source files that were read, and where others are looked for.
#[derive(Debug, Default)]
pub struct Sources {
    map: Vec<(String, String)>,
    known: Mutex<HashMap<String, Option<Arc<SourceText>>>>,
}

impl Sources {
    pub(crate) fn new(map: Vec<(String, String)>) -> Self {
        Self {
            map,
            known: Mutex::default(),
        }
    }

    /// The path at which a file is looked for.
    pub fn place(&self, file: &SourceFile) -> String {
        let path = normalized(&file.path);
        for (from, to) in &self.map {
            let from = from.trim_end_matches('/');
            // Only whole directories are replaced.
            if let Some(rest) = path.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                return format!("{}{rest}", to.trim_end_matches('/'));
            }
        }
        path
    }

    /// The text of a file.
    pub fn read(&self, file: &SourceFile) -> Result<Arc<SourceText>> {
        let place = self.place(file);
        let mut known = self
            .known
            .lock()
            .map_err(|_| Error::other("another thread failed while reading sources"))?;
        let text = known.entry(place.clone()).or_insert_with(|| {
            let bytes = std::fs::read(&place).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(Arc::new(SourceText::new(text)))
        });
        text.clone().ok_or_else(|| Error::File {
            path: place.into(),
            reason: "the source is not there; a source map can say where it is now".to_string(),
        })
    }
}
