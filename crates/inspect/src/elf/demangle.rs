//! Symbol names as the source wrote them.

use std::borrow::Cow;

/// The source's name for a symbol, or the symbol itself.
///
/// Parameters of C++ functions are kept, the hash of Rust's older scheme is
/// not; both as gdb does.
pub fn demangle(symbol: &str) -> Cow<'_, str> {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return Cow::Owned(format!("{name:#}"));
    }
    if symbol.starts_with("_Z") {
        // A name that expands without end is the one danger here.
        let options = cpp_demangle::DemangleOptions::new().recursion_limit(96);
        if let Ok(parsed) = cpp_demangle::Symbol::new(symbol)
            && let Ok(name) = parsed.demangle_with_options(&options)
        {
            return Cow::Owned(familiar(&name));
        }
    }
    Cow::Borrowed(symbol)
}

/// The name of a C++ function without parameters and result, if its symbol
/// can be read.
pub fn cpp_function(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(96);
    cpp_demangle::Symbol::new(symbol)
        .ok()?
        .demangle_with_options(&options)
        .ok()
        .map(|name| familiar(&name))
}

/// What the demangler writes in its own way, in the way of every other tool.
fn familiar(name: &str) -> String {
    const TABLES: [(&str, &str); 5] = [
        ("{vtable(", "vtable for "),
        ("{vtt(", "VTT for "),
        ("{typeinfo(", "typeinfo for "),
        ("{typeinfo name(", "typeinfo name for "),
        ("{static initialization guard(", "guard variable for "),
    ];
    for (open, words) in TABLES {
        if let Some(rest) = name.strip_prefix(open).and_then(|r| r.strip_suffix(")}")) {
            return format!("{words}{}", familiar(rest));
        }
    }
    const LITERALS: [(&str, &str); 7] = [
        ("(unsigned long long)", "ull"),
        ("(unsigned long)", "ul"),
        ("(unsigned int)", "u"),
        ("(unsigned)", "u"),
        ("(long long)", "ll"),
        ("(long)", "l"),
        ("(int)", ""),
    ];
    let mut text = name.to_string();
    for (cast, suffix) in LITERALS {
        let mut from = 0;
        while let Some(found) = text.get(from..).and_then(|t| t.find(cast)) {
            let at = from + found;
            let digits = at + cast.len();
            let len = text.get(digits..).map_or(0, |t| {
                t.bytes()
                    .take_while(|b| b.is_ascii_digit() || *b == b'-')
                    .count()
            });
            if len == 0 {
                from = digits;
                continue;
            }
            text.insert_str(digits + len, suffix);
            text.replace_range(at..digits, "");
            from = at + len;
        }
    }
    text
}
