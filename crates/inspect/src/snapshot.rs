//! Values that are kept, to be compared with what is there later.
//!
//! Whether a watched value has changed is a question about its bytes, not
//! about the text it is shown as.

use crate::error::{Error, Result};
use crate::target::Process;
use crate::types::name_of;
use crate::value::{Data, Value};

/// A value as it was, independent of the process it is from.
///
/// Two are equal if they have the same type and the same bytes (of a
/// bit-field: the same bits), or if both were optimized out.
#[derive(Debug, Clone)]
pub struct Snapshot {
    value: Value,
    bits: Option<i128>,
}

impl Snapshot {
    /// The value as it was. What it points to is not kept.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.value, &other.value);
        if a.size() != b.size() || name_of(&a.ty) != name_of(&b.ty) {
            return false;
        }
        if self.bits.is_some() || other.bits.is_some() {
            return self.bits == other.bits;
        }
        match (&a.data, &b.data) {
            (
                Data::Bytes { bytes, missing, .. },
                Data::Bytes {
                    bytes: others,
                    missing: gone,
                    ..
                },
            ) => bytes == others && missing == gone,
            (Data::OptimizedOut, Data::OptimizedOut) => true,
            (
                Data::Synthetic { target, offset },
                Data::Synthetic {
                    target: other,
                    offset: at,
                },
            ) => target == other && offset == at,
            _ => false,
        }
    }
}

impl Eq for Snapshot {}

impl Value {
    /// The value as it is now, to be kept.
    pub fn snapshot(&self, process: &dyn Process) -> Result<Snapshot> {
        let bits = match self.bits {
            Some(_) => match self.integer(process) {
                Ok(number) => Some(number),
                Err(Error::OptimizedOut) => None,
                Err(e) => return Err(e),
            },
            None => None,
        };
        let mut value = self.clone();
        if let Data::Memory(_) = value.data {
            value.data = Data::Bytes {
                bytes: self.bytes(process)?,
                missing: None,
                register: None,
            };
        }
        Ok(Snapshot { value, bits })
    }
}
