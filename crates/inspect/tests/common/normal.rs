//! Frames of gdb's without what it cannot know.

/// A frame with dots for the structures that gdb cannot read; it has no value
/// for them, and dots are shown for structures anyway.
pub fn unread(line: &str) -> String {
    let mark = "=<error reading variable: ";
    let mut out = line.to_string();
    while let Some(at) = out.find(mark) {
        let end = out[at..].find('>').map_or(out.len(), |e| at + e + 1);
        out.replace_range(at..end, "=...");
    }
    out
}

/// A frame without `x=x@entry=1` and `, x@entry=1`. gdb gives parameters of
/// inlined functions entry values, out of what the function around them was
/// called with: `to_string (__val=0, __val@entry=-8176)`.
pub fn without_entry_values(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("@entry=") {
        let (before, after) = rest.split_at(at);
        let after = &after["@entry=".len()..];
        let name = before.rfind(['=', ' ', '(']).map_or(0, |i| i + 1);
        if before[..name].ends_with('=') {
            // x=x@entry=1
            out.push_str(&before[..name]);
            rest = after;
        } else {
            // , x@entry=1
            out.push_str(before[..name].trim_end_matches([',', ' ']));
            let end = after.find([',', ')']).unwrap_or(after.len());
            rest = &after[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Names without the hash that gdb writes behind a crate's name in symbols of
/// Rust: `__rustc[b7974e8690430dd9]::__rust_alloc`.
pub fn without_hashes(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let hash = after.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(0);
        rest = match after.split_at(hash) {
            (_, behind) if hash >= 14 && behind.starts_with("]::") => &behind[1..],
            _ => {
                out.push('[');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

/// Characters of Rust themselves, where gdb escapes what is not ASCII:
/// `'\u{005555}'` is `'啕'`.
pub fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("'\\") {
        out.push_str(before);
        let number = after.split_once('\'').and_then(|(escape, behind)| {
            let hex = escape.strip_prefix('x').or_else(|| {
                let number = escape.strip_prefix("u{")?;
                number.strip_suffix('}')
            })?;
            let number = u32::from_str_radix(hex, 16).ok().filter(|n| *n > 0x9f)?;
            Some((char::from_u32(number)?, behind))
        });
        rest = match number {
            Some((character, behind)) => {
                out.push_str(&format!("'{character}'"));
                behind
            }
            None => {
                out.push_str("'\\");
                after
            }
        };
    }
    out.push_str(rest);
    out
}

/// A frame without the types of its parameters, which gdb writes behind the
/// name of a template with an empty pack of arguments: `f<1ul>(int&) (x=...)`.
pub fn without_signature(line: &str) -> String {
    let shortened = line.replace("> >", ">>");
    let Some((name, rest)) = shortened.split_once(">(") else {
        return shortened;
    };
    match rest.split_once(") (") {
        Some((_, arguments)) => format!("{name}> ({arguments}"),
        None => shortened,
    }
}
