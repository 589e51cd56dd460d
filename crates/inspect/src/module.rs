//! Files that processes map, and what is known of them.
//!
//! A [`Library`] opens each distinct file once, however many processes map
//! it. Several threads may share one (`Arc<Library>`), and several libraries
//! share what was read of files: there is one table of them for the whole
//! debugger, since nothing of them is ever given back (see [`crate::elf`] for
//! why). What a debugger keeps therefore grows with the files it has seen, not
//! with the sessions that looked at them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, OnceLock};

use crate::dwarf::info::DebugInfo;
use crate::elf::find;
use crate::elf::image::Image;
use crate::elf::symbols::Symbols;
use crate::error::{Error, Result};
use crate::source::Sources;
use crate::target::Content;
use crate::unwind::cfi::Cfi;

/// An executable or library.
#[derive(Debug)]
pub struct Module {
    /// The path in the program's eyes.
    pub name: String,
    /// The file.
    pub image: Image,
    directories: Vec<PathBuf>,
    debug: OnceLock<Option<Image>>,
    info: OnceLock<Option<&'static DebugInfo>>,
    symbols: OnceLock<Symbols>,
    cfi: OnceLock<Cfi>,
}

impl Module {
    fn new(name: &str, image: Image, directories: Vec<PathBuf>) -> Self {
        Self {
            name: name.to_string(),
            image,
            directories,
            debug: OnceLock::new(),
            info: OnceLock::new(),
            symbols: OnceLock::new(),
            cfi: OnceLock::new(),
        }
    }

    /// The separate file with its debug information, if there is one.
    pub fn debug_image(&self) -> Option<&Image> {
        self.debug
            .get_or_init(|| find::debug_file(&self.image, &self.name, &self.directories))
            .as_ref()
    }

    /// Files that are where its debug information should be, and are of another build.
    pub fn mismatched(&self) -> Vec<PathBuf> {
        find::mismatched(&self.image, &self.name, &self.directories)
    }

    /// The debug information, if there is any.
    pub fn info(&self) -> Option<&'static DebugInfo> {
        *self.info.get_or_init(|| {
            let image = self.debug_image().unwrap_or(&self.image);
            let shared = find::supplementary(image, &self.directories)
                .and_then(|image| DebugInfo::load(&image, None));
            DebugInfo::load(image, shared)
        })
    }

    /// The symbols.
    pub fn symbols(&self) -> &Symbols {
        self.symbols
            .get_or_init(|| Symbols::load(&self.image, self.debug_image()))
    }

    /// The rules for unwinding.
    pub fn cfi(&self) -> &Cfi {
        self.cfi
            .get_or_init(|| Cfi::load(&self.image, || self.debug_image()))
    }
}

/// Where things are looked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories with separate debug information.
    pub debug_directories: Vec<PathBuf>,
    /// Beginnings of source paths and what to read instead, in order.
    pub source_map: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            source_map: Vec::new(),
        }
    }
}

/// What tells files apart. Copies of recordings are links to one file.
#[derive(Debug, PartialEq, Eq, Hash)]
enum FileIdentity {
    File {
        device: u64,
        inode: u64,
        length: u64,
        modified: Option<std::time::SystemTime>,
    },
    Bytes(u64, usize),
}

/// What tells modules apart: the file, what the program calls it, and where
/// its debug information is looked for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    content: FileIdentity,
    name: String,
    directories: Vec<PathBuf>,
}

/// Every module that was opened; none for files that could not be read.
static MODULES: LazyLock<Mutex<HashMap<Key, Option<&'static Module>>>> =
    LazyLock::new(Mutex::default);

/// Where the files of programs come from, shared by all their processes.
#[derive(Debug, Default)]
pub struct Library {
    options: Options,
    /// Source texts.
    pub sources: Sources,
}

impl Library {
    /// A library that looks where `options` says.
    pub fn new(options: Options) -> Self {
        Self {
            sources: Sources::new(options.source_map.clone()),
            options,
        }
    }

    /// The module of a mapped file. `memory` reads it from the process where
    /// there is no file.
    pub fn module(
        &self,
        name: &str,
        content: &Content,
        memory: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<&'static Module> {
        let bytes;
        let distinct = match content {
            Content::File(path) => {
                bytes = None;
                let data = std::fs::metadata(path).map_err(|e| Error::File {
                    path: path.clone(),
                    reason: e.to_string(),
                })?;
                FileIdentity::File {
                    device: data.dev(),
                    inode: data.ino(),
                    length: data.len(),
                    modified: data.modified().ok(),
                }
            }
            Content::Bytes(found) => {
                bytes = Some(found.to_vec());
                FileIdentity::Bytes(hash(found), found.len())
            }
            Content::Memory => {
                let found = memory().ok_or_else(|| Error::other(format!("no file for {name}")))?;
                let distinct = FileIdentity::Bytes(hash(&found), found.len());
                bytes = Some(found);
                distinct
            }
        };
        let missing = || Error::NotElf {
            name: name.to_string(),
            reason: "it could not be read before".to_string(),
        };
        let key = Key {
            content: distinct,
            name: name.to_string(),
            directories: self.options.debug_directories.clone(),
        };
        let mut modules = MODULES
            .lock()
            .map_err(|_| Error::other("another thread failed while reading symbols"))?;
        if let Some(known) = modules.get(&key) {
            return known.ok_or_else(missing);
        }
        let image = match (content, bytes) {
            (_, Some(bytes)) => Image::from_bytes(name, bytes),
            (Content::File(path), None) => Image::open(path),
            _ => return Err(missing()),
        };
        let module = match image {
            Ok(image) => {
                let directories = self.options.debug_directories.clone();
                let module = Module::new(name, image, directories);
                let module: &'static Module = Box::leak(Box::new(module));
                Ok(module)
            }
            Err(e) => Err(e),
        };
        modules.insert(key, module.as_ref().ok().copied());
        module
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
