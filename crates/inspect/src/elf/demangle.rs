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
            return Cow::Owned(name);
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
}
