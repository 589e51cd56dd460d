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

/// The name of a C++ function with its parameters and without its result, if
/// its symbol can be read.
pub fn cpp_signature(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let options = cpp_demangle::DemangleOptions::new()
        .no_return_type()
        .recursion_limit(96);
    cpp_demangle::Symbol::new(symbol)
        .ok()?
        .demangle_with_options(&options)
        .ok()
        .map(|name| familiar(&name))
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
    // A list of template arguments may end in one that stands for none.
    let mut text = name.replace(", >", ">");
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
    unabbreviated(text)
}

/// A name with the templates that the short names of the standard library
/// stand for: `std::string` as it was before `std::__cxx11`, and the streams.
fn unabbreviated(mut text: String) -> String {
    const SHORT: [(&str, &str, &str); 4] = [
        (
            "string",
            "basic_string",
            "<char, std::char_traits<char>, std::allocator<char> >",
        ),
        (
            "istream",
            "basic_istream",
            "<char, std::char_traits<char> >",
        ),
        (
            "ostream",
            "basic_ostream",
            "<char, std::char_traits<char> >",
        ),
        (
            "iostream",
            "basic_iostream",
            "<char, std::char_traits<char> >",
        ),
    ];
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    for (short, template, arguments) in SHORT {
        let wanted = format!("std::{short}");
        let mut from = 0;
        while let Some(found) = text.get(from..).and_then(|t| t.find(&wanted)) {
            let at = from + found;
            let end = at + wanted.len();
            from = end;
            let (before, after) = (text.get(..at), text.get(end..));
            let (Some(before), Some(after)) = (before, after) else {
                break;
            };
            if before.ends_with(|c| in_name(c) || c == ':') || after.starts_with(in_name) {
                continue;
            }
            // Constructors are called what the class is called.
            let own = ["::", "::~"].into_iter().find(|own| {
                let name = after.strip_prefix(own).and_then(|a| a.strip_prefix(short));
                name.is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
            });
            if let Some(own) = own {
                let start = end + own.len();
                text.replace_range(start..start + short.len(), template);
            }
            let closes = text.get(end..).is_some_and(|rest| rest.starts_with('>'));
            let space = if closes { " " } else { "" };
            let whole = format!("std::{template}{arguments}{space}");
            from = at + whole.len();
            text.replace_range(at..end, &whole);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn short_names_of_the_library_are_written_out() {
        let string = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        let cases = [
            (
                "_ZNSs6appendERKSs",
                format!("{string}::append({string} const&)"),
            ),
            (
                "_ZNSsC1ERKSs",
                format!("{string}::basic_string({string} const&)"),
            ),
            ("_ZNSsD1Ev", format!("{string}::~basic_string()")),
            (
                "_ZNSt6vectorISsSaISsEE1fEv",
                format!("std::vector<{string}, std::allocator<{string} > >::f()"),
            ),
            (
                "_ZNSo3putEc",
                "std::basic_ostream<char, std::char_traits<char> >::put(char)".to_string(),
            ),
            (
                "_ZSt12__get_helperILm1EcJEERKT0_RKSt11_Tuple_implIXT_EJS0_DpT1_EE",
                "char const& std::__get_helper<1ul, char>(std::_Tuple_impl<1ul, char> const&)"
                    .to_string(),
            ),
            ("_ZN9my_stringC1Ev", "my_string::my_string()".to_string()),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol), name);
        }
    }
}
