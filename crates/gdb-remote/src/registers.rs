//! The registers of x86-64 in gdb's standard order, and their description.
//!
//! gdb does not ask again for the description of a second process on the same
//! connection, so it must be the one that it takes for amd64 Linux by itself:
//! core, sse, linux, segments.

use crate::hex;

/// What a thread has in its registers. What is not known is not made up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15.
    pub general: [u64; 16],
    pub rip: u64,
    pub eflags: u64,
    /// cs, ss.
    pub cs: u16,
    pub ss: u16,
    /// The system call the thread is in; -1: none.
    pub orig_rax: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub xmm: [[u64; 2]; 16],
}

const GENERAL: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
const SEGMENTS: [&str; 6] = ["cs", "ss", "ds", "es", "fs", "gs"];
const CONTROL: [&str; 8] = [
    "fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop",
];

/// How many there are.
pub const COUNT: usize = 60;

impl Registers {
    /// The value of a register, by gdb's number for it, in memory's order of
    /// bytes. `Err`: it is not known, and so many bytes long. `None`: there is
    /// no such register.
    pub fn value(&self, number: usize) -> Option<Result<Vec<u8>, usize>> {
        let word = |value: u64| Some(Ok(value.to_le_bytes().to_vec()));
        let short = |value: u32| Some(Ok(value.to_le_bytes().to_vec()));
        match number {
            0..=15 => word(*self.general.get(number)?),
            16 => word(self.rip),
            17 => short(self.eflags as u32),
            18 => short(self.cs.into()),
            19 => short(self.ss.into()),
            // ds, es, fs, gs: Linux keeps 0 in them in 64-bit programs.
            20..=23 => short(0),
            24..=31 => Some(Err(10)),
            32..=39 => Some(Err(4)),
            40..=55 => {
                let halves = self.xmm.get(number - 40)?;
                let bytes = halves.iter().flat_map(|half| half.to_le_bytes());
                Some(Ok(bytes.collect()))
            }
            56 => Some(Err(4)),
            57 => word(self.orig_rax),
            58 => word(self.fs_base),
            59 => word(self.gs_base),
            _ => None,
        }
    }

    /// Gives a register, by gdb's number for it, another value. False: it has none
    /// that could be set, or not of this length.
    pub fn set(&mut self, number: usize, bytes: &[u8]) -> bool {
        let word = bytes.try_into().map(u64::from_le_bytes);
        let place = match number {
            0..=15 => self.general.get_mut(number),
            16 => Some(&mut self.rip),
            57 => Some(&mut self.orig_rax),
            58 => Some(&mut self.fs_base),
            59 => Some(&mut self.gs_base),
            17 => {
                let flags = bytes.try_into().map(u32::from_le_bytes);
                return flags.is_ok_and(|flags| {
                    self.eflags = flags.into();
                    true
                });
            }
            // The segments: only what they are can be set.
            18..=23 => return self.value(number) == Some(Ok(bytes.to_vec())),
            40..=55 => {
                let (Some(halves), &[low, high]) =
                    (self.xmm.get_mut(number - 40), bytes.as_chunks::<8>().0)
                else {
                    return false;
                };
                *halves = [u64::from_le_bytes(low), u64::from_le_bytes(high)];
                return bytes.len() == 16;
            }
            _ => None,
        };
        match (place, word) {
            (Some(place), Ok(word)) => {
                *place = word;
                true
            }
            _ => false,
        }
    }

    /// Gives all of them other values, in digits; those whose digits are `x` stay as
    /// they are.
    pub fn set_all(&mut self, digits: &[u8]) -> bool {
        let mut rest = digits;
        for number in 0..COUNT {
            let length = match self.value(number) {
                Some(Ok(bytes)) => bytes.len(),
                Some(Err(length)) => length,
                None => continue,
            };
            let Some((own, more)) = rest.split_at_checked(2 * length) else {
                return false;
            };
            rest = more;
            let is_known = self.value(number).is_some_and(|value| value.is_ok());
            if !is_known || own.starts_with(b"x") {
                continue;
            }
            let Some(bytes) = hex::decode(own) else {
                return false;
            };
            if !self.set(number, &bytes) {
                return false;
            }
        }
        true
    }

    /// One of them in digits.
    pub fn text(&self, number: usize) -> Option<String> {
        Some(match self.value(number)? {
            Ok(bytes) => hex::encode(&bytes),
            Err(length) => "x".repeat(2 * length),
        })
    }

    /// All of them in digits: the answer to `g`.
    pub fn all(&self) -> String {
        (0..COUNT).filter_map(|number| self.text(number)).collect()
    }

    /// Those that are told with each stop: rbp, rsp, rip.
    pub fn expedited(&self) -> Vec<(usize, Vec<u8>)> {
        [6, 7, 16]
            .into_iter()
            .filter_map(|number| Some((number, self.value(number)?.ok()?)))
            .collect()
    }
}

/// `target.xml`.
pub fn description() -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target>\n\
         <architecture>i386:x86-64</architecture>\n<osabi>GNU/Linux</osabi>\n\
         <feature name=\"org.gnu.gdb.i386.core\">\n\
         <flags id=\"i386_eflags\" size=\"4\">\n",
    );
    for (name, bit) in [
        ("CF", 0),
        ("", 1),
        ("PF", 2),
        ("AF", 4),
        ("ZF", 6),
        ("SF", 7),
        ("TF", 8),
        ("IF", 9),
        ("DF", 10),
        ("OF", 11),
        ("NT", 14),
        ("RF", 16),
        ("VM", 17),
        ("AC", 18),
        ("VIF", 19),
        ("VIP", 20),
        ("ID", 21),
    ] {
        xml.push_str(&format!(
            "<field name=\"{name}\" start=\"{bit}\" end=\"{bit}\"/>\n"
        ));
    }
    xml.push_str("</flags>\n");
    let mut number = 0;
    let mut register = |xml: &mut String, name: &str, bits: u32, kind: &str, group: &str| {
        let group = match group {
            "" => String::new(),
            group => format!(" group=\"{group}\""),
        };
        xml.push_str(&format!(
            "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\" regnum=\"{number}\"{group}/>\n"
        ));
        number += 1;
    };
    for name in GENERAL {
        let kind = match name {
            "rbp" | "rsp" => "data_ptr",
            _ => "int64",
        };
        register(&mut xml, name, 64, kind, "");
    }
    register(&mut xml, "rip", 64, "code_ptr", "");
    register(&mut xml, "eflags", 32, "i386_eflags", "");
    for name in SEGMENTS {
        register(&mut xml, name, 32, "int32", "");
    }
    for i in 0..8 {
        register(&mut xml, &format!("st{i}"), 80, "i387_ext", "");
    }
    for name in CONTROL {
        register(&mut xml, name, 32, "int", "float");
    }
    xml.push_str("</feature>\n<feature name=\"org.gnu.gdb.i386.sse\">\n");
    for (id, kind, count) in [
        ("v4f", "ieee_single", 4),
        ("v2d", "ieee_double", 2),
        ("v16i8", "int8", 16),
        ("v8i16", "int16", 8),
        ("v4i32", "int32", 4),
        ("v2i64", "int64", 2),
    ] {
        xml.push_str(&format!(
            "<vector id=\"{id}\" type=\"{kind}\" count=\"{count}\"/>\n"
        ));
    }
    xml.push_str("<union id=\"vec128\">\n");
    for (name, kind) in [
        ("v4_float", "v4f"),
        ("v2_double", "v2d"),
        ("v16_int8", "v16i8"),
        ("v8_int16", "v8i16"),
        ("v4_int32", "v4i32"),
        ("v2_int64", "v2i64"),
        ("uint128", "uint128"),
    ] {
        xml.push_str(&format!("<field name=\"{name}\" type=\"{kind}\"/>\n"));
    }
    xml.push_str("</union>\n<flags id=\"i386_mxcsr\" size=\"4\">\n");
    for (name, bit) in [
        ("IE", 0),
        ("DE", 1),
        ("ZE", 2),
        ("OE", 3),
        ("UE", 4),
        ("PE", 5),
        ("DAZ", 6),
        ("IM", 7),
        ("DM", 8),
        ("ZM", 9),
        ("OM", 10),
        ("UM", 11),
        ("PM", 12),
        ("FZ", 15),
    ] {
        xml.push_str(&format!(
            "<field name=\"{name}\" start=\"{bit}\" end=\"{bit}\"/>\n"
        ));
    }
    xml.push_str("</flags>\n");
    for i in 0..16 {
        register(&mut xml, &format!("xmm{i}"), 128, "vec128", "");
    }
    register(&mut xml, "mxcsr", 32, "i386_mxcsr", "vector");
    xml.push_str("</feature>\n<feature name=\"org.gnu.gdb.i386.linux\">\n");
    register(&mut xml, "orig_rax", 64, "int", "system");
    xml.push_str("</feature>\n<feature name=\"org.gnu.gdb.i386.segments\">\n");
    register(&mut xml, "fs_base", 64, "int", "");
    register(&mut xml, "gs_base", 64, "int", "");
    xml.push_str("</feature>\n</target>\n");
    xml
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn the_description_and_the_values_agree() {
        let xml = description();
        let registers = Registers::default();
        for number in 0..COUNT {
            let mark = format!("regnum=\"{number}\"");
            let line = xml.lines().find(|line| line.contains(&mark)).unwrap();
            let bits = line.split("bitsize=\"").nth(1).unwrap();
            let bits: usize = bits.split('"').next().unwrap().parse().unwrap();
            let length = match registers.value(number).unwrap() {
                Ok(bytes) => bytes.len(),
                Err(length) => length,
            };
            assert_eq!(length * 8, bits, "{line}");
        }
        assert!(!xml.contains(&format!("regnum=\"{COUNT}\"")));
        assert_eq!(registers.value(COUNT), None);
    }

    /// gdb's layout of amd64 Linux: 16 + 1 words, 7 shorts, 8 times ten bytes,
    /// 8 shorts, 16 times 16 bytes, a short, three words.
    #[test]
    fn all_of_them_have_the_size_that_gdb_expects() {
        assert_eq!(
            Registers::default().all().len(),
            2 * (17 * 8 + 7 * 4 + 80 + 32 + 256 + 4 + 24)
        );
    }
}
