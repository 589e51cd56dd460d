//! A value as what it says: a number or a text, whatever it is made of.
//!
//! For those who compare values with each other rather than show them. Of a text only
//! what belongs to it is read, so that whoever notes what is read (to watch it) notes no
//! more than that.

use protocol::id::Addr;

use crate::containers::{Container, container};
use crate::error::{Error, Result};
use crate::expr::real;
use crate::scope::Scope;
use crate::target::Process;
use crate::types::Kind;
use crate::value::Value;

/// What a value says.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    /// A whole number, something that is true or false, an address.
    Number(i128),
    /// A number with a fraction.
    Real(f64),
    /// A text, without what ends it.
    Text(Vec<u8>),
    /// A text that is longer than was asked for.
    LongText,
    /// Neither a number nor a text.
    Other,
}

/// Bytes that are read at once.
const WORD: u64 = 8;

/// A text that ends with a zero, or with what it is stored in.
fn ended_text(process: &dyn Process, address: Addr, most: u64) -> Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    loop {
        let done = text.len() as u64;
        if done >= most {
            return Ok(None);
        }
        let at = address.plus(done);
        // Words as they lie, so that none is part of two pages.
        let room = (WORD - at.within(WORD)).min(most - done);
        let mut word = [0; WORD as usize];
        let part = word.get_mut(..room as usize).unwrap_or_default();
        if process.read(at, part) < part.len() {
            return Err(Error::Memory { address: at });
        }
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend(part.iter().take(end));
                return Ok(Some(text));
            }
            None => text.extend_from_slice(part),
        }
    }
}

impl Scope<'_> {
    /// What a value says; texts of up to `most` bytes.
    pub fn plain(&self, value: &Value, most: u64) -> Result<Plain> {
        let process = self.inspector.process;
        let ty = value.ty.peeled().complete();
        let is_text = |text: Option<Vec<u8>>| text.map_or(Plain::LongText, Plain::Text);
        match &ty.kind {
            Kind::Base(encoding) if crate::print::is_float(*encoding) => {
                real(self, value).map(Plain::Real)
            }
            Kind::Pointer(to) if crate::print::text::width_of(&to.get()) == Some(1) => {
                match value.pointer(process)? {
                    // No text: a number that can be asked for.
                    Addr::NULL => Ok(Plain::Number(0)),
                    address => ended_text(process, address, most + 1).map(is_text),
                }
            }
            Kind::Base(_) | Kind::Enum(_) | Kind::Pointer(_) => {
                value.integer(process).map(Plain::Number)
            }
            Kind::Array { element, .. }
                if crate::print::text::width_of(&element.get()) == Some(1) =>
            {
                let Some(address) = value.address() else {
                    return Ok(Plain::Other);
                };
                let size = value.size();
                // What fills its array is a text as well.
                match ended_text(process, address, size.min(most + 1))? {
                    Some(text) => Ok(Plain::Text(text)),
                    None if size > most => Ok(Plain::LongText),
                    None => value.bytes(process).map(Plain::Text),
                }
            }
            _ => {
                let Some(Container::Text(text)) = container(self.inspector, value) else {
                    return Ok(Plain::Other);
                };
                if text.length > most {
                    return Ok(Plain::LongText);
                }
                let mut bytes = vec![0; text.length as usize];
                crate::target::read_exact(process, text.start, &mut bytes)?;
                Ok(Plain::Text(bytes))
            }
        }
    }
}
