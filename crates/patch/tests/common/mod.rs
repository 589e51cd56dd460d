//! The system's own libraries, as material for tests.

#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::{Object, ObjectSection, ObjectSymbol};

/// A mapped library's code: the bytes of `.text`, and where they are.
pub struct Text {
    pub name: String,
    pub base: u64,
    pub bytes: Vec<u8>,
    /// The addresses that the file has names for.
    pub symbols: BTreeSet<u64>,
}

impl Text {
    /// The code of an ELF file; `None` if there is no such file.
    pub fn read(path: &str) -> Option<Self> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let text = file.section_by_name(".text")?;
        Some(Self {
            name: Path::new(path).file_name()?.to_string_lossy().into_owned(),
            base: text.address(),
            bytes: text.data().ok()?.to_vec(),
            symbols: file
                .symbols()
                .chain(file.dynamic_symbols())
                .map(|symbol| symbol.address())
                .collect(),
        })
    }

    pub fn instructions(&self) -> impl Iterator<Item = Instruction> + '_ {
        Decoder::with_ip(64, &self.bytes, self.base, DecoderOptions::NONE).into_iter()
    }

    /// The window that the monitor would pass for a site.
    pub fn window(&self, site: u64) -> patch::Code<'_> {
        const REACH: usize = 32 << 10;
        let offset = (site - self.base) as usize;
        let from = offset.saturating_sub(REACH);
        let to = (offset + REACH).min(self.bytes.len());
        patch::Code {
            base: self.base + from as u64,
            bytes: &self.bytes[from..to],
        }
    }
}

const DIRS: [&str; 3] = ["/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64"];

/// The libraries with these names that this system has, plus the files named in `PATCH_FILES`
/// (separated by colons).
pub fn libraries(names: &[&str]) -> Vec<Text> {
    let mut found: Vec<Text> = names
        .iter()
        .filter_map(|name| {
            DIRS.iter()
                .find_map(|dir| Text::read(&format!("{dir}/{name}")))
        })
        .collect();
    if let Ok(more) = std::env::var("PATCH_FILES") {
        found.extend(more.split(':').filter_map(Text::read));
    }
    found
}

/// Where a direct jump or call leads.
pub fn direct_target(inst: &Instruction) -> Option<u64> {
    match inst.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::Call
        | FlowControl::XbeginXabortXend => {
            let target = inst.near_branch_target();
            (target != 0).then_some(target)
        }
        _ => None,
    }
}
