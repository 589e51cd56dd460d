//! Line tables, in gdb's reading of them.
//!
//! gdb keeps one list of rows for each source file of a unit, not one for the
//! unit, and looks an address up in all of them. Which row wins, what is
//! dropped (lines that only repeat with another discriminator, rows of a file
//! that a statement of another file overrides at the same address), and where
//! a row's range ends all follow from that; so the same is done here.

use super::info::DebugInfo;
use super::unit::Unit;

/// A source file of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// As messages show it: as the compiler was given it.
    pub name: String,
    /// With the directory it was compiled in.
    pub path: String,
}

/// A row: from its address on, code belongs to the line. Line 0 ends the
/// range of the row before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Link-time address.
    pub address: u64,
    /// Line, or 0.
    pub line: u32,
    /// Whether a statement begins here.
    pub is_stmt: bool,
}

/// A line and the addresses that were made from it around one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSpan {
    /// Index into [`LineTable::files`].
    pub file: usize,
    /// The line.
    pub line: u32,
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Whether the row begins a statement.
    pub is_stmt: bool,
}

/// The lines of a unit.
#[derive(Debug, Default)]
pub struct LineTable {
    /// The source files, each once.
    pub files: Vec<SourceFile>,
    /// The rows of each file, by address.
    pub rows: Vec<Vec<Row>>,
    /// File numbers of the program to indexes of `files`.
    numbers: Vec<usize>,
    first_number: u64,
}

/// More rows than this in one unit is damage.
const MAX_ROWS: usize = 1 << 26;

fn join(directory: &str, name: &str) -> String {
    if name.starts_with('/') || directory.is_empty() {
        name.to_string()
    } else {
        format!("{}/{name}", directory.trim_end_matches('/'))
    }
}

/// A path without `.` and `..` in it, for comparing.
pub fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|p| *p != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

impl LineTable {
    pub(crate) fn read(info: &'static DebugInfo, unit: &'static Unit) -> Self {
        let mut table = Self::default();
        let _ = table.fill(info, unit);
        for rows in &mut table.rows {
            // An end comes before a beginning at the same address.
            rows.sort_by_key(|row| (row.address, row.line != 0));
        }
        table
    }

    fn fill(&mut self, info: &'static DebugInfo, unit: &'static Unit) -> Option<()> {
        let parsed = unit.parsed(info)?;
        let program = parsed.line_program.clone()?;
        self.collect_files(info, unit, program.header());
        let mut rows = program.rows();

        let mut recorded = 0usize;
        let mut last_file: Option<usize> = None;
        let mut last_line = 0u64;
        let mut last_address = u64::MAX;
        let mut statement_here = false;
        let mut discriminated = false;
        let mut dropped = false;
        let mut fresh = true;
        while let Ok(Some((_, row))) = rows.next_row() {
            let row = *row;
            let address = row.address();
            let line = row.line().map_or(0, |line| line.get());
            if fresh {
                // Code that the linker dropped is at 0 or just below the top.
                dropped = address == 0 || address >= u64::MAX - 1;
                last_file = None;
                last_line = 0;
                last_address = u64::MAX;
                statement_here = false;
                discriminated = false;
                fresh = false;
            }
            if line != last_line {
                discriminated = false;
            }
            discriminated |= row.discriminator() != 0;
            let end = row.end_sequence();
            let file = self.number(row.file_index());
            if let Some(file) = file.filter(|_| !dropped) {
                let changed = last_file != Some(file);
                let ignored = !end
                    && ((changed && last_address == address && !row.is_stmt() && statement_here)
                        || line == 0);
                if ((changed && !ignored) || end)
                    && let Some(rows) = last_file.and_then(|f| self.rows.get_mut(f))
                {
                    finish(rows, address);
                }
                if !end && !ignored {
                    if (changed || line != last_line || !discriminated)
                        && let Some(rows) = self.rows.get_mut(file)
                    {
                        rows.push(Row {
                            address,
                            line: u32::try_from(line).unwrap_or(u32::MAX),
                            is_stmt: row.is_stmt(),
                        });
                        recorded += 1;
                        last_line = line;
                    }
                    last_file = Some(file);
                }
            }
            if last_address != address {
                statement_here = false;
                last_address = address;
            }
            statement_here |= row.is_stmt();
            if end {
                fresh = true;
            }
            if recorded > MAX_ROWS {
                break;
            }
        }
        Some(())
    }

    fn collect_files(
        &mut self,
        info: &'static DebugInfo,
        unit: &'static Unit,
        header: &gimli::LineProgramHeader<super::Slice>,
    ) {
        let parsed = unit.parsed(info);
        let text = |slice: Option<super::Slice>| {
            slice.map_or(String::new(), |s| s.to_string_lossy().into_owned())
        };
        let compiled_in = text(parsed.and_then(|p| p.comp_dir));
        let primary = text(parsed.and_then(|p| p.name));
        let primary_path = normalized(&join(&compiled_in, &primary));
        self.first_number = u64::from(header.version() < 5);
        let mut seen = std::collections::HashMap::new();
        for entry in header.file_names() {
            let name = unit.string(info, entry.path_name()).unwrap_or("");
            let directory = match entry.directory_index() {
                0 if header.version() < 5 => "",
                _ => entry
                    .directory(header)
                    .and_then(|value| unit.string(info, value))
                    .unwrap_or(""),
            };
            let mut shown = join(directory, name);
            let path = join(&compiled_in, &shown);
            if normalized(&path) == primary_path {
                shown.clone_from(&primary);
            }
            let index = *seen.entry(path.clone()).or_insert_with(|| {
                self.files.push(SourceFile { name: shown, path });
                self.rows.push(Vec::new());
                self.files.len() - 1
            });
            self.numbers.push(index);
        }
    }

    fn number(&self, number: u64) -> Option<usize> {
        let at = number.checked_sub(self.first_number)?;
        self.numbers.get(usize::try_from(at).ok()?).copied()
    }

    /// The file with this number, as `DW_AT_decl_file` has it.
    pub fn file(&self, number: u64) -> Option<&SourceFile> {
        self.files.get(self.number(number)?)
    }

    /// The line that the code at `address` was made from.
    pub fn at(&self, address: u64) -> Option<LineSpan> {
        let mut best: Option<(usize, Row)> = None;
        let mut best_end: Option<u64> = None;
        for (file, rows) in self.rows.iter().enumerate() {
            let after = rows.partition_point(|row| row.address <= address);
            let item = rows.get(after);
            let previous = after.checked_sub(1);
            if let Some(at) = previous
                && let Some(&row) = rows.get(at)
                && row.line != 0
                && best.is_none_or(|(_, b)| row.address > b.address)
            {
                let mut chosen = row;
                let mut at = at;
                while !chosen.is_stmt
                    && let Some(&earlier) = at.checked_sub(1).and_then(|i| rows.get(i))
                    && earlier.address == row.address
                    && earlier.line != 0
                {
                    at -= 1;
                    chosen = earlier;
                }
                best = Some((file, if chosen.is_stmt { chosen } else { row }));
                if best_end.is_some_and(|end| end <= row.address) {
                    best_end = None;
                }
            }
            if let (Some((_, row)), Some(next)) = (best, item)
                && next.address > row.address
                && best_end.is_none_or(|end| end > next.address)
            {
                best_end = Some(next.address);
            }
        }
        let (file, row) = best?;
        let end = best_end.unwrap_or(row.address + 1);
        (address < end.max(row.address + 1)).then_some(LineSpan {
            file,
            line: row.line,
            start: row.address,
            end,
            is_stmt: row.is_stmt,
        })
    }
}

/// Ends the range of a file's last row at `address`, dropping rows that would
/// be empty.
fn finish(rows: &mut Vec<Row>, address: u64) {
    while rows.last().is_some_and(|row| row.address == address) {
        rows.pop();
    }
    if rows.last().is_none_or(|row| row.line == 0) {
        return;
    }
    rows.push(Row {
        address,
        line: 0,
        is_stmt: true,
    });
}
