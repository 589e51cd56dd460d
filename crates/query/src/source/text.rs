//! Names of functions, short enough to be read.

/// Whether a source file is a library's that came with the language.
pub(super) fn is_library(path: &str) -> bool {
    const MARKS: [&str; 8] = [
        "/rustc/",
        "/rustlib/",
        "/.cargo/registry/",
        "/usr/include/",
        "/usr/lib/",
        "/usr/local/go/",
        "/sysdeps/",
        "/nptl/",
    ];
    MARKS.iter().any(|mark| path.contains(mark)) || path.starts_with("./")
}

/// A function's name without the types it is made for, which take more room than
/// they tell.
pub(super) fn without_generics(name: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0usize;
    let mut last = ' ';
    for c in name.chars() {
        let is_arrow = std::mem::replace(&mut last, c) == '-' && c == '>';
        match c {
            // Of a generic: `<T as Trait>::f` and `operator<` are something else.
            '<' if depth > 0 || plain.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
                if depth == 0 && plain.ends_with("operator") {
                    plain.push(c);
                } else {
                    depth += 1;
                }
            }
            '>' if depth > 0 && !is_arrow => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    match depth {
        0 => plain,
        _ => name.to_string(),
    }
}

/// The last two parts of a path: a function, and what it belongs to.
pub(super) fn last_parts(name: &str) -> &str {
    let path = name.split(['(', '<']).next().unwrap_or(name);
    match path.rmatch_indices("::").nth(1) {
        Some((at, separator)) => name.get(at + separator.len()..).unwrap_or(name),
        None => name,
    }
}

/// The last part of a function's name that says something, as a name.
pub(super) fn short(name: &str) -> Option<String> {
    // Without what is in angle brackets and round ones.
    let mut plain = String::new();
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts = plain.split("::").flat_map(|part| part.split('.'));
    let named = parts.filter(|part| !part.is_empty() && !part.starts_with('{'));
    let last = named.last()?.trim();
    recording::names::is_name(last).then(|| last.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_left_out_of_names() {
        for (function, name) in [
            ("serve", "serve"),
            ("send<bank::Reply>", "send"),
            ("ask<Vec<u8>, Option<T>>", "ask"),
            ("map<int, std::less<int> >::find(int)", "map::find(int)"),
            ("<T as Trait>::f", "<T as Trait>::f"),
            (
                "operator<(A const&, B const&)",
                "operator<(A const&, B const&)",
            ),
            ("map<T, fn(T) -> U>", "map"),
            ("odd<T", "odd<T"),
        ] {
            assert_eq!(without_generics(function), name, "{function}");
        }
        for (function, name) in [
            ("serve", "serve"),
            ("Line::send", "Line::send"),
            ("bank::line::Line::send", "Line::send"),
            ("a::b::c(x::y::z)", "b::c(x::y::z)"),
            ("<a::B as c::D>::f", "<a::B as c::D>::f"),
        ] {
            assert_eq!(last_parts(function), name, "{function}");
        }
    }

    #[test]
    fn functions_are_named_by_what_says_something() {
        for (function, name) in [
            ("worker", "worker"),
            ("bank::worker::serve", "serve"),
            ("bank::main::{closure#0}", "main"),
            ("bank::serve::{{closure}}", "serve"),
            ("Pool<int>::work(int, char const*)", "work"),
            ("main.handle.func1", "func1"),
        ] {
            assert_eq!(short(function).as_deref(), Some(name), "{function}");
        }
    }
}
