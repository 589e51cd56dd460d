//! Values: a type and where its bytes are.
//!
//! Memory is not read before it is needed: a megabyte of array costs nothing
//! until its elements are looked at.

use protocol::id::Addr;

use crate::dwarf::die::Die;
use crate::error::{Error, Result};
use crate::target::{Process, read_exact};
use crate::types::{Count, Kind, Member, MemberLocation, Ty, Variant, VariantPart};

/// Where a value's bytes are.
#[derive(Debug, Clone)]
pub enum Data {
    /// In the process's memory.
    Memory(Addr),
    /// Here: from registers, constants or pieces of several places.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// For each byte whether it is missing, if any is.
        missing: Option<Vec<bool>>,
        /// The register that holds all of it.
        register: Option<u16>,
    },
    /// A pointer that the optimizer removed, to a variable that still has a
    /// value.
    Synthetic {
        /// The variable.
        target: Die,
        /// Bytes from its start.
        offset: i64,
    },
    /// Nowhere.
    OptimizedOut,
}

/// A value.
#[derive(Debug, Clone)]
pub struct Value {
    /// Its type.
    pub ty: Ty,
    /// Where its bytes are.
    pub data: Data,
    /// For a bit-field: first bit in the bytes, and width.
    pub bits: Option<(u64, u64)>,
}

/// No single value that must be read whole is longer.
const MAX_WHOLE: u64 = 1 << 24;

impl Value {
    /// A value in memory.
    pub fn in_memory(ty: Ty, address: Addr) -> Self {
        Self {
            ty,
            data: Data::Memory(address),
            bits: None,
        }
    }

    /// A value that is only here.
    pub fn from_bytes(ty: Ty, bytes: Vec<u8>) -> Self {
        Self {
            ty,
            data: Data::Bytes {
                bytes,
                missing: None,
                register: None,
            },
            bits: None,
        }
    }

    /// An integer of a type.
    pub fn from_integer(ty: Ty, value: i128) -> Self {
        let size = ty.size_of().unwrap_or(8).min(16) as usize;
        let bytes = value.to_le_bytes();
        Self::from_bytes(ty, bytes.get(..size).unwrap_or(&bytes).to_vec())
    }

    /// A value that the compiler did not keep.
    pub fn optimized_out(ty: Ty) -> Self {
        Self {
            ty,
            data: Data::OptimizedOut,
            bits: None,
        }
    }

    /// Its address, if it is in memory.
    pub fn address(&self) -> Option<Addr> {
        match self.data {
            Data::Memory(address) => Some(address),
            _ => None,
        }
    }

    /// Its size.
    pub fn size(&self) -> u64 {
        self.ty.size_of().unwrap_or(0)
    }

    /// Whether nothing of it was kept.
    pub fn is_optimized_out(&self) -> bool {
        match &self.data {
            Data::OptimizedOut => true,
            Data::Bytes {
                missing: Some(missing),
                ..
            } => !missing.is_empty() && missing.iter().all(|m| *m),
            _ => false,
        }
    }

    /// Its bytes.
    pub fn bytes(&self, process: &dyn Process) -> Result<Vec<u8>> {
        let size = self.size();
        if size > MAX_WHOLE {
            return Err(Error::other(format!(
                "the value has {size} bytes; print a part of it"
            )));
        }
        let size = size as usize;
        match &self.data {
            Data::Memory(address) => {
                let mut bytes = vec![0; size];
                read_exact(process, *address, &mut bytes)?;
                Ok(bytes)
            }
            Data::Bytes { bytes, missing, .. } => {
                if let Some(missing) = missing
                    && missing.iter().take(size).any(|m| *m)
                {
                    return Err(Error::OptimizedOut);
                }
                let mut bytes = bytes.clone();
                bytes.resize(size, 0);
                Ok(bytes)
            }
            Data::Synthetic { .. } => Err(Error::other("a synthetic pointer has no bits")),
            Data::OptimizedOut => Err(Error::OptimizedOut),
        }
    }

    /// This value with its bytes read, so that its parts need no more reads;
    /// only where that is cheap.
    pub fn fetched(&self, process: &dyn Process) -> Self {
        if let Data::Memory(_) = self.data
            && self.size() <= 1 << 16
            && let Ok(bytes) = self.bytes(process)
        {
            return Self {
                data: Data::Bytes {
                    bytes,
                    missing: None,
                    register: None,
                },
                ..self.clone()
            };
        }
        self.clone()
    }

    /// The part of it at a byte offset.
    pub fn part(&self, ty: Ty, offset: u64) -> Self {
        let data = match &self.data {
            Data::Memory(address) => Data::Memory(address.plus(offset)),
            Data::Bytes { bytes, missing, .. } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let len = usize::try_from(ty.size_of().unwrap_or(0)).unwrap_or(0);
                let end = start.saturating_add(len).min(bytes.len());
                match bytes.get(start..end) {
                    Some(part) if part.len() == len => Data::Bytes {
                        bytes: part.to_vec(),
                        missing: missing
                            .as_ref()
                            .and_then(|m| m.get(start..end))
                            .map(<[bool]>::to_vec)
                            .filter(|m| m.iter().any(|b| *b)),
                        register: None,
                    },
                    _ => Data::OptimizedOut,
                }
            }
            Data::Synthetic { .. } | Data::OptimizedOut => Data::OptimizedOut,
        };
        Self {
            ty,
            data,
            bits: None,
        }
    }

    /// A member of it. `None` for static members.
    pub fn member(&self, process: &dyn Process, member: &Member) -> Result<Self> {
        let ty = member.ty.get();
        let offset = match member.place {
            MemberLocation::Offset(offset) => offset,
            MemberLocation::Expression(expression) => {
                let object = self.address().ok_or(Error::OptimizedOut)?;
                let machine = crate::location::Machine {
                    process,
                    registers: None,
                    bias: 0,
                    die: None,
                    frame: None,
                    object: None,
                };
                let encoding = gimli::Encoding {
                    address_size: 8,
                    format: gimli::Format::Dwarf32,
                    version: 4,
                };
                let address = crate::location::evaluate_word(
                    &machine,
                    gimli::Expression(expression),
                    encoding,
                    Some(object.0),
                )?;
                return Ok(Self::in_memory(ty, Addr(address)));
            }
        };
        if let Some((start, width)) = member.bits {
            // Enough bytes for the bits, wherever they begin.
            let first = start / 8;
            let within = start % 8;
            let len = (within + width).div_ceil(8);
            let window = Ty::base("", len, gimli::constants::DW_ATE_unsigned, ty.language);
            let part = self.part(window, first);
            return Ok(Self {
                ty,
                data: part.data,
                bits: Some((within, width)),
            });
        }
        Ok(self.part(ty, offset))
    }

    /// The value as an integer, sign extended if its type is signed.
    pub fn integer(&self, process: &dyn Process) -> Result<i128> {
        let peeled = self.ty.peeled();
        let signed = is_signed(&peeled);
        if let Some((start, width)) = self.bits {
            let len = (start + width).div_ceil(8);
            let window = Ty::base("", len, gimli::constants::DW_ATE_unsigned, peeled.language);
            let bytes = Self {
                ty: window,
                data: self.data.clone(),
                bits: None,
            }
            .bytes(process)?;
            let mut raw = [0u8; 16];
            for (to, from) in raw.iter_mut().zip(&bytes) {
                *to = *from;
            }
            let width = width.clamp(1, 127) as u32;
            let value = (u128::from_le_bytes(raw) >> start) & ((1u128 << width) - 1);
            return Ok(if signed {
                ((value << (128 - width)) as i128) >> (128 - width)
            } else {
                value as i128
            });
        }
        let bytes = self.bytes(process)?;
        Ok(integer_from(&bytes, signed))
    }

    /// The value as an address.
    pub fn pointer(&self, process: &dyn Process) -> Result<Addr> {
        Ok(Addr(self.integer(process)? as u64))
    }

    /// The address it stands for: of arrays and functions their own, of
    /// anything else the one it holds.
    pub fn to_address(&self, process: &dyn Process) -> Result<Addr> {
        match (&self.ty.peeled().kind, self.address()) {
            (Kind::Array { .. } | Kind::Function { .. }, Some(address)) => Ok(address),
            _ => self.pointer(process),
        }
    }

    /// The shape that the discriminant of an enumeration of Rust chooses.
    pub(crate) fn chosen<'v>(
        &self,
        process: &dyn Process,
        part: &'v VariantPart,
    ) -> Option<&'v Variant> {
        let number = match &part.discriminant {
            Some(member) => self.member(process, member).ok()?.integer(process).ok(),
            None => None,
        };
        let fits = |v: &&Variant| {
            number.is_some_and(|n| v.values.iter().any(|&(low, high)| low <= n && n <= high))
        };
        part.variants
            .iter()
            .find(fits)
            .or_else(|| part.variants.iter().find(|v| v.values.is_empty()))
    }

    /// What an enumeration of Rust has in the shape that it has now.
    pub(crate) fn variant(&self, process: &dyn Process) -> Option<Self> {
        let aggregate = self.ty.aggregate()?;
        let variant = self.chosen(process, aggregate.variants.as_ref()?)?;
        self.member(process, &variant.member).ok()
    }

    /// The member of this name, also in anonymous members and base classes.
    pub fn field(&self, process: &dyn Process, name: &str) -> Option<Self> {
        self.field_within(process, name, 12)
    }

    fn field_within(&self, process: &dyn Process, name: &str, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let aggregate = self.ty.aggregate()?;
        if let Some(member) = aggregate
            .members
            .iter()
            .find(|m| m.name == Some(name) && m.fixed.is_none() && !m.base)
        {
            return self.member(process, member).ok();
        }
        aggregate
            .members
            .iter()
            .filter(|m| m.base || m.name.is_none())
            .find_map(|m| {
                self.member(process, m)
                    .ok()?
                    .field_within(process, name, depth)
            })
    }

    /// The member of this name anywhere inside of it, not through pointers.
    pub(crate) fn inside(&self, process: &dyn Process, name: &str) -> Option<Self> {
        self.inside_within(process, name, 8)
    }

    fn inside_within(&self, process: &dyn Process, name: &str, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        if let Some(found) = self.field(process, name) {
            return Some(found);
        }
        let aggregate = self.ty.aggregate()?;
        let members = aggregate.members.iter().filter(|m| m.fixed.is_none());
        members
            .filter(|m| m.ty.get().aggregate().is_some())
            .find_map(|m| {
                let part = self.member(process, m).ok()?;
                part.inside_within(process, name, depth)
            })
    }

    /// What a pointer or reference leads to.
    pub fn target(&self, process: &dyn Process) -> Result<Self> {
        let ty = self
            .ty
            .target()
            .ok_or_else(|| Error::other("Attempt to take contents of a non-pointer value."))?;
        Ok(Self::in_memory(ty, self.pointer(process)?))
    }

    /// The number of elements of an array.
    pub fn count(&self) -> Option<u64> {
        match &self.ty.peeled().kind {
            Kind::Array { count, .. } => match count {
                Count::Known(n) => Some(*n),
                _ => Some(0),
            },
            _ => None,
        }
    }

    /// An element of an array.
    pub fn element(&self, index: u64) -> Option<Self> {
        match &self.ty.peeled().kind {
            Kind::Array { element, .. } => {
                let ty = element.get();
                let size = ty.size_of()?;
                Some(self.part(ty, index.wrapping_mul(size)))
            }
            _ => None,
        }
    }
}

/// Whether integers of a type have a sign.
pub fn is_signed(peeled: &Ty) -> bool {
    use gimli::constants as c;
    match &peeled.kind {
        Kind::Base(encoding) => matches!(*encoding, c::DW_ATE_signed | c::DW_ATE_signed_char),
        // Without negative constants it has no sign, whatever it is stored as.
        Kind::Enum(e) => !e.unsigned,
        _ => false,
    }
}

/// An integer from its bytes, least significant first.
pub fn integer_from(bytes: &[u8], signed: bool) -> i128 {
    let mut raw = [0u8; 16];
    for (to, from) in raw.iter_mut().zip(bytes) {
        *to = *from;
    }
    let value = u128::from_le_bytes(raw);
    let width = (bytes.len().min(16) * 8) as u32;
    if signed && width > 0 && width < 128 {
        ((value << (128 - width)) as i128) >> (128 - width)
    } else {
        value as i128
    }
}
