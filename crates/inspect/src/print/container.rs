//! Containers of the standard libraries as text.

use super::{Printer, text};
use crate::containers::{Collection, Container, Entry, Holder, Items, Part, Text, container};
use crate::dwarf::Language;
use crate::value::Value;

impl Printer<'_> {
    /// What a container holds, if the value is one that is known.
    pub(super) fn container(&self, value: &Value, depth: usize) -> Option<String> {
        if depth >= self.options.depth {
            return None;
        }
        match container(self.inspector, value)? {
            Container::Text(text) => self.text(&text),
            Container::Items(collection, items) => self.collection(collection, &items, depth),
            Container::Holder(holder, parts) => Some(self.holder(holder, &parts, depth)),
            Container::Wrapper(inner) => {
                let mut out = String::new();
                self.print(&mut out, &inner, depth);
                Some(out)
            }
        }
    }

    fn text(&self, found: &Text) -> Option<String> {
        if found.element.language == Language::Rust {
            return self.rust_text(found.start, found.length);
        }
        let width = text::width_of(&found.element)?;
        let limit = (self.options.elements as u64).min(found.length);
        let mut bytes = vec![0; usize::try_from(limit.checked_mul(width)?).ok()?];
        if self.inspector.process.read(found.start, &mut bytes) < bytes.len() {
            return None;
        }
        Some(text::string(
            &bytes,
            width,
            text::prefix_of(&found.element),
            self.options.elements,
            self.options.repeats,
            found.length > limit,
        ))
    }

    fn collection(&self, collection: Collection, items: &Items, depth: usize) -> Option<String> {
        let process = self.inspector.process;
        let count = items.count;
        let rust_map = collection == Collection::RustMap;
        let entry = |entry: Entry| {
            let value = self.inner(&entry.value, depth);
            match entry.key {
                Some(key) if rust_map => format!("{}: {value}", self.inner(&key, depth)),
                Some(key) => format!("[{}] = {value}", self.inner(&key, depth)),
                None => value,
            }
        };
        let (open, close) = match collection {
            Collection::Vec | Collection::Slice | Collection::VecDeque => ('[', ']'),
            _ => ('{', '}'),
        };
        let list = if items.is_indexed() {
            let each = (0..count).map(|index| match items.indexed(process, index) {
                Ok(found) => entry(found),
                Err(e) => format!("<error: {e}>"),
            });
            self.list(each, count, open, close)
        } else {
            let shown = count.min(self.options.elements as u64);
            let found = items.range(process, 0..shown).ok()?;
            self.list(found.into_iter().map(entry), count, open, close)
        };
        Some(match collection {
            Collection::Vec => format!("vec!{list}"),
            Collection::Slice | Collection::RustMap | Collection::Array => list,
            Collection::VecDeque => format!("VecDeque{list}"),
            Collection::Vector { capacity } => {
                format!("std::vector of length {count}, capacity {capacity} = {list}")
            }
            Collection::Deque => format!("std::deque with {count} elements = {list}"),
            Collection::List => format!("std::list = {list}"),
            Collection::Named(word) => {
                let noun = if count == 1 { "element" } else { "elements" };
                format!("{word} with {count} {noun} = {list}")
            }
        })
    }

    fn holder(&self, holder: Holder, parts: &[Part], depth: usize) -> String {
        let shown = |part: &Part| match &part.value {
            Some(value) => self.inner(value, depth),
            None => "{}".to_string(),
        };
        let held = parts.first().map(shown).unwrap_or_default();
        let named = || {
            let each = parts.iter().map(|p| format!("{} = {}", p.name, shown(p)));
            each.collect::<Vec<_>>().join(", ")
        };
        match holder {
            Holder::Optional if parts.is_empty() => "std::optional [no contained value]".into(),
            Holder::Optional => format!("std::optional = {{{held}}}"),
            Holder::UniquePtr => format!("std::unique_ptr = {{{}}}", named()),
            Holder::SharedPtr(uses) => {
                format!("std::shared_ptr (use count {uses}) = {{{}}}", named())
            }
            Holder::WeakPtr(uses) => {
                format!("std::weak_ptr (use count {uses}) = {{{}}}", named())
            }
            Holder::Pair => format!("{{{}}}", named()),
            Holder::Tuple => format!("std::tuple containing = {{{}}}", named()),
            Holder::Variant(_) if parts.is_empty() => "std::variant [no contained value]".into(),
            Holder::Variant(index) => format!("std::variant [index {index}] = {{{held}}}"),
            Holder::Rc(strong, weak) => format!("Rc(strong={strong}, weak={weak}) {held}"),
            Holder::Arc(strong, weak) => format!("Arc(strong={strong}, weak={weak}) {held}"),
            Holder::Cell => format!("Cell({held})"),
            Holder::UnsafeCell => format!("UnsafeCell({held})"),
            Holder::RefCell(0) => format!("RefCell({held})"),
            Holder::RefCell(n) if n > 0 => format!("RefCell({held}) borrowed {n} times"),
            Holder::RefCell(_) => format!("RefCell({held}) mutably borrowed"),
            Holder::Mutex(false) => format!("Mutex({held})"),
            Holder::Mutex(true) => format!("Mutex({held}) locked"),
        }
    }

    /// `{a, b, ...}` of at most as many elements as are shown, with runs of
    /// equal ones counted.
    fn list(
        &self,
        elements: impl Iterator<Item = String>,
        count: u64,
        open: char,
        close: char,
    ) -> String {
        // Counting a gigabyte of zeros is of no use.
        const LONGEST: usize = 1 << 14;
        let (limit, repeats) = (self.options.elements, self.options.repeats);
        let longest = if self.options.glance { limit } else { LONGEST };
        let mut elements = elements.take(longest).peekable();
        let mut parts: Vec<String> = Vec::new();
        let (mut seen, mut room) = (0u64, limit);
        while room > 0
            && let Some(element) = elements.next()
        {
            let mut run = 1usize;
            while elements.next_if_eq(&element).is_some() {
                run += 1;
            }
            if run > repeats {
                parts.push(format!("{element} <repeats {run} times>"));
                seen += run as u64;
                room = room.saturating_sub(repeats);
            } else {
                let shown = run.min(room);
                parts.extend(std::iter::repeat_n(element, shown));
                seen += shown as u64;
                room -= shown;
            }
        }
        if count > seen {
            parts.push("...".to_string());
        }
        format!("{open}{}{close}", parts.join(", "))
    }

    fn inner(&self, value: &Value, depth: usize) -> String {
        let mut text = String::new();
        self.print(&mut text, value, depth + 1);
        text
    }
}
