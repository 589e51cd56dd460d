//! What can be seen of a process where it stands: its threads, its memory, what
//! is mapped.

use std::path::PathBuf;
use std::sync::Arc;

use ::target::{Handler, Region, ThreadState};
use protocol::instruction::Form;
use protocol::layout::{MONITOR_BASE, MONITOR_END};
use protocol::replay::{COUNTER_SITES, COUNTERS_BASE, CounterSite, site};

use protocol::id::Addr;

use super::Session;
use crate::Error;
use crate::stopped::CodeFiles;

impl Session {
    /// The threads of the process, as they stand.
    pub fn threads(&self) -> Vec<ThreadState> {
        self.here()
            .map(|image| image.current.threads(&image.file))
            .unwrap_or_default()
    }

    /// The thread that is about to do its event, as it stands.
    pub fn running(&self) -> Option<ThreadState> {
        let number = self.thread();
        self.threads().into_iter().find(|t| t.number == number)
    }

    /// What the process does with signal 1 and those that follow.
    pub fn handlers(&self) -> Vec<Handler> {
        self.here()
            .map(|image| image.current.handlers(&image.file))
            .unwrap_or_default()
    }

    /// Reads memory: how many bytes from `address` on could be had.
    pub fn read(&self, address: Addr, out: &mut [u8]) -> usize {
        self.here()
            .map_or(0, |image| image.current.read(address, out))
    }

    /// Reads memory that has code: instructions that the monitor replaced are as
    /// the program has them.
    pub fn read_code(&self, address: Addr, out: &mut [u8]) -> usize {
        self.read_code_with(&self.counter_sites(), address, out)
    }

    /// Reads code for who has asked which are replaced: that takes longer than the
    /// rest.
    pub fn read_code_with(&self, sites: &[u64], address: Addr, out: &mut [u8]) -> usize {
        let got = self.read(address, out);
        for (place, form) in sites.iter().copied().filter_map(Form::of_word) {
            for (at, byte) in (place + form.opcode_at()..).zip(form.original()) {
                let into = at.wrapping_sub(address.0) as usize;
                if let Some(place) = out.get_mut(..got).and_then(|out| out.get_mut(into)) {
                    *place = *byte;
                }
            }
        }
        got
    }

    /// The instructions that the monitor has replaced now, each as one word
    /// ([`Form::at`]).
    pub fn counter_sites(&self) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut count = [0; 8];
        if self.read(Addr(COUNTERS_BASE), &mut count) != count.len() {
            return Vec::new();
        }
        let count = (word(&count) as usize).min(COUNTER_SITES);
        let mut table = vec![0; count * size_of::<CounterSite>()];
        let got = self.read(Addr(COUNTERS_BASE).plus(8), &mut table);
        table.truncate(got);
        table
            .chunks_exact(size_of::<CounterSite>())
            .filter_map(|entry| {
                let (address, rest) = entry.split_at_checked(8)?;
                let rest = word(rest);
                let (form, state) = (Form::from_byte(rest as u8)?, (rest >> 32) as u32);
                (state == site::REPLACED).then(|| form.at(word(address)))
            })
            .collect()
    }

    /// What is mapped, the monitor's own memory left out.
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let Some(image) = self.here() else {
            return Ok(Vec::new());
        };
        let maps = image.current.maps()?;
        let mut regions: Vec<Region> = maps
            .lines()
            .filter_map(|line| self.region(line))
            .filter(|r| r.range.end.0 <= MONITOR_BASE || r.range.start.0 >= MONITOR_END)
            .collect();
        // It is in the monitor, but the program's to call.
        let start = Addr(self.image.vdso);
        let vdso = Region {
            range: start..start.plus(self.image.vdso_len),
            writable: false,
            executable: true,
            offset: 0,
            file: None,
            is_vdso: true,
        };
        let at = regions.partition_point(|r| r.range.start < start);
        regions.insert(at, vdso);
        Ok(regions)
    }

    /// The regions that have a program's code from a file.
    pub(crate) fn mapped_code(&self) -> Arc<[Region]> {
        let version = self.maps_version();
        let mut known = self.mapped.borrow_mut();
        if let Some((for_this, regions)) = &*known
            && *for_this == version
        {
            return Arc::clone(regions);
        }
        let regions = self.regions().unwrap_or_default().into_iter();
        let code = regions.filter(|r| r.executable && !r.writable && r.file.is_some());
        let code: Arc<[Region]> = code.collect();
        *known = Some((version, Arc::clone(&code)));
        code
    }

    pub(crate) fn code_files(&self) -> &CodeFiles {
        self.shared.code()
    }

    fn region(&self, line: &str) -> Option<Region> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let path = words.nth(2).unwrap_or("");
        let id = path
            .rsplit_once('/')
            .filter(|(dir, _)| dir.ends_with(recording::FILES))
            .and_then(|(_, id)| id.parse::<u64>().ok());
        let address = |digits| u64::from_str_radix(digits, 16).ok().map(Addr);
        Some(Region {
            range: address(start)?..address(end)?,
            writable: rights.contains('w'),
            executable: rights.contains('x'),
            offset,
            file: id.and_then(|id| self.captured(id)),
            is_vdso: false,
        })
    }

    fn captured(&self, id: u64) -> Option<(PathBuf, PathBuf)> {
        use std::os::unix::ffi::OsStrExt;
        let recording = self.shared.recording();
        let info = recording.files().iter().find(|f| f.id == id)?;
        let original = PathBuf::from(std::ffi::OsStr::from_bytes(&info.path));
        Some((recording.captured_path(id), original))
    }
}
