//! From entry to type.

use gimli::{AttributeValue, constants as c};

use super::{
    Aggregate, AggregateKind, Count, Enumeration, Kind, Member, MemberLocation, Qualifier,
    TemplateArgument, Ty, Type, TypeRef, Variant, VariantPart,
};
use crate::dwarf::die::{Die, Entry};
use crate::dwarf::names::NameKind;
use crate::dwarf::{Language, scopes};

impl Ty {
    /// The type that an entry describes.
    pub fn from_die(die: Die) -> Self {
        let key = die.global();
        if let Ok(types) = die.info.types.lock()
            && let Some(known) = types.get(&key)
        {
            return Self::Known(known);
        }
        let Some(ty) = die.read().and_then(|entry| read(&entry)) else {
            return Self::void();
        };
        // Two threads may both have read it; they agree, and one is kept.
        match die.info.types.lock() {
            Ok(mut types) => {
                Self::Known(types.entry(key).or_insert_with(|| Box::leak(Box::new(ty))))
            }
            Err(_) => Self::Made(std::sync::Arc::new(ty)),
        }
    }

    /// The full description of a structure that is only declared here.
    pub fn complete(&self) -> Self {
        let (incomplete, name, die) = match (&self.kind, &self.name, self.die) {
            (Kind::Struct(a), Some(name), Some(die)) => (a.incomplete, name, die),
            (Kind::Enum(e), Some(name), Some(die)) => (e.incomplete, name, die),
            _ => return self.clone(),
        };
        if !incomplete {
            return self.clone();
        }
        let last = die.read().and_then(|e| e.name()).unwrap_or(name);
        die.info
            .names()
            .find(die.info, last, NameKind::Type)
            .filter(|found| *found != die)
            .map(Self::from_die)
            .find(|ty| {
                ty.name.as_ref() == Some(name)
                    && match &ty.kind {
                        Kind::Struct(a) => !a.incomplete,
                        Kind::Enum(e) => !e.incomplete,
                        _ => false,
                    }
            })
            .unwrap_or_else(|| self.clone())
    }
}

fn target(entry: &Entry) -> TypeRef {
    entry.type_die().map_or(TypeRef::Void, TypeRef::Die)
}

fn read(entry: &Entry) -> Option<Type> {
    let language = entry.die.language();
    let mut size = entry.number(c::DW_AT_byte_size);
    let mut name = scopes::full_name(entry);
    let kind = match entry.tag() {
        c::DW_TAG_base_type => {
            if size.is_none() {
                size = entry.number(c::DW_AT_bit_size).map(|b| b.div_ceil(8));
            }
            if matches!(language, Language::C | Language::Cpp) {
                name = entry.name().map(|n| base_name(n).to_string());
            }
            match entry.value(c::DW_AT_encoding) {
                Some(AttributeValue::Encoding(encoding)) => Kind::Base(encoding),
                _ => Kind::Base(c::DW_ATE_unsigned),
            }
        }
        c::DW_TAG_unspecified_type => {
            if entry.name() == Some("void") || language == Language::C {
                Kind::Void
            } else {
                Kind::Unspecified
            }
        }
        c::DW_TAG_pointer_type => Kind::Pointer(target(entry)),
        c::DW_TAG_reference_type => Kind::Reference(target(entry)),
        c::DW_TAG_rvalue_reference_type => Kind::RvalueReference(target(entry)),
        c::DW_TAG_const_type => Kind::Qualified(Qualifier::Const, target(entry)),
        c::DW_TAG_volatile_type => Kind::Qualified(Qualifier::Volatile, target(entry)),
        c::DW_TAG_restrict_type => Kind::Qualified(Qualifier::Restrict, target(entry)),
        c::DW_TAG_atomic_type => Kind::Qualified(Qualifier::Atomic, target(entry)),
        c::DW_TAG_typedef => Kind::Typedef(target(entry)),
        c::DW_TAG_structure_type => structure(entry, AggregateKind::Struct),
        c::DW_TAG_class_type | c::DW_TAG_interface_type => structure(entry, AggregateKind::Class),
        c::DW_TAG_union_type => structure(entry, AggregateKind::Union),
        c::DW_TAG_enumeration_type => enumeration(entry, language),
        c::DW_TAG_array_type => array(entry),
        c::DW_TAG_subroutine_type | c::DW_TAG_subprogram => function(entry),
        c::DW_TAG_ptr_to_member_type => {
            let class = entry
                .reference(c::DW_AT_containing_type)
                .map_or(TypeRef::Void, TypeRef::Die);
            let to = target(entry);
            if size.is_none() {
                let code = matches!(to.get().peeled().kind, Kind::Function { .. });
                size = Some(if code { 16 } else { 8 });
            }
            Kind::MemberPointer { class, target: to }
        }
        c::DW_TAG_subrange_type => match entry.type_die() {
            Some(die) => Kind::Typedef(TypeRef::Die(die)),
            None => Kind::Base(c::DW_ATE_unsigned),
        },
        _ => return None,
    };
    Some(Type {
        name,
        size,
        kind,
        language,
        die: Some(entry.die),
    })
}

/// C's integers as people write them, which is also how gdb shows them.
fn base_name(name: &str) -> &str {
    match name {
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        other => other,
    }
}

fn structure(entry: &Entry, kind: AggregateKind) -> Kind {
    let mut aggregate = Aggregate {
        kind,
        members: Vec::new(),
        variants: None,
        arguments: Vec::new(),
        incomplete: entry.flag(c::DW_AT_declaration),
        has_methods: false,
    };
    for child in entry.children() {
        match child.tag() {
            c::DW_TAG_member | c::DW_TAG_inheritance => {
                aggregate.members.push(member(&child));
            }
            // DWARF 5 has static members as variables.
            c::DW_TAG_variable => {
                let mut found = member(&child);
                found.fixed = Some(child.die);
                aggregate.members.push(found);
            }
            c::DW_TAG_variant_part => aggregate.variants = Some(variants(&child)),
            c::DW_TAG_template_type_parameter | c::DW_TAG_template_value_parameter => {
                aggregate.arguments.push(TemplateArgument {
                    name: child.name(),
                    ty: target(&child),
                    value: child.signed(c::DW_AT_const_value),
                });
            }
            c::DW_TAG_GNU_template_parameter_pack => {
                for inner in child.children() {
                    aggregate.arguments.push(TemplateArgument {
                        name: inner.name(),
                        ty: target(&inner),
                        value: inner.signed(c::DW_AT_const_value),
                    });
                }
            }
            c::DW_TAG_subprogram => aggregate.has_methods = true,
            _ => {}
        }
    }
    Kind::Struct(Box::new(aggregate))
}

fn member(entry: &Entry) -> Member {
    let base = entry.tag() == c::DW_TAG_inheritance;
    let mut place = MemberLocation::Offset(0);
    match entry.value(c::DW_AT_data_member_location) {
        Some(AttributeValue::Exprloc(expression)) => {
            // `DW_OP_plus_uconst N` is only an old way to say N.
            place = match expression.0.slice().split_first() {
                Some((0x23, rest)) => MemberLocation::Offset(leb128(rest)),
                _ => MemberLocation::Expression(expression.0),
            };
        }
        Some(_) => {
            if let Some(offset) = entry.number(c::DW_AT_data_member_location) {
                place = MemberLocation::Offset(offset);
            }
        }
        None => {}
    }
    let mut bits = None;
    if let Some(width) = entry.number(c::DW_AT_bit_size) {
        let start = if let Some(at) = entry.number(c::DW_AT_data_bit_offset) {
            at
        } else {
            // The older form counts from the most significant bit of a unit.
            let unit = entry
                .number(c::DW_AT_byte_size)
                .or_else(|| target(entry).get().size_of())
                .unwrap_or(4);
            let from_top = entry.signed(c::DW_AT_bit_offset).unwrap_or(0);
            let offset = match place {
                MemberLocation::Offset(offset) => offset,
                MemberLocation::Expression(_) => 0,
            };
            let low = (unit as i64 * 8)
                .saturating_sub(from_top)
                .saturating_sub(width as i64);
            (offset.wrapping_mul(8)).wrapping_add_signed(low)
        };
        bits = Some((start, width));
        place = MemberLocation::Offset(start / 8);
    }
    let elsewhere = entry.flag(c::DW_AT_external) || entry.flag(c::DW_AT_declaration);
    let fixed = (elsewhere && !base).then_some(entry.die);
    Member {
        name: entry.name(),
        ty: target(entry),
        place,
        bits,
        base,
        virtual_base: base
            && matches!(
                entry.value(c::DW_AT_virtuality),
                Some(AttributeValue::Virtuality(v)) if v != c::DW_VIRTUALITY_none
            ),
        artificial: entry.flag(c::DW_AT_artificial),
        access: match entry.value(c::DW_AT_accessibility) {
            Some(AttributeValue::Accessibility(access)) => access.0,
            _ => 0,
        },
        fixed,
    }
}

fn leb128(bytes: &[u8]) -> u64 {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn variants(part: &Entry) -> VariantPart {
    let discriminant = part
        .reference(c::DW_AT_discr)
        .and_then(Die::read)
        .map(|e| member(&e));
    let unsigned = discriminant.as_ref().is_some_and(|d| {
        matches!(
            d.ty.get().peeled().kind,
            Kind::Base(c::DW_ATE_unsigned | c::DW_ATE_unsigned_char)
        )
    });
    let size = discriminant
        .as_ref()
        .and_then(|d| d.ty.get().size_of())
        .unwrap_or(8);
    // Constants are written in the fewest bytes that hold them, signed or
    // not; the discriminant's own type says what they mean.
    let fit = |value: i128| -> i128 {
        if unsigned {
            let bits = (size * 8).min(127) as u32;
            value & ((1i128 << bits) - 1)
        } else {
            value
        }
    };
    let mut found = Vec::new();
    for child in part.children() {
        if child.tag() != c::DW_TAG_variant {
            continue;
        }
        let mut values = Vec::new();
        if let Some(value) = discriminant_value(&child) {
            values.push((fit(value), fit(value)));
        }
        if let Some(AttributeValue::Block(list)) = child.value(c::DW_AT_discr_list) {
            values.extend(
                discriminant_list(list.slice())
                    .into_iter()
                    .map(|(a, b)| (fit(a), fit(b))),
            );
        }
        for inner in child.children() {
            if inner.tag() == c::DW_TAG_member {
                found.push(Variant {
                    values: values.clone(),
                    member: member(&inner),
                });
            }
        }
    }
    VariantPart {
        discriminant,
        variants: found,
    }
}

fn discriminant_value(entry: &Entry) -> Option<i128> {
    Some(match entry.value(c::DW_AT_discr_value)? {
        AttributeValue::Data1(v) => i128::from(v),
        AttributeValue::Data2(v) => i128::from(v),
        AttributeValue::Data4(v) => i128::from(v),
        AttributeValue::Data8(v) => i128::from(v),
        AttributeValue::Data16(v) => v as i128,
        AttributeValue::Udata(v) => i128::from(v),
        AttributeValue::Sdata(v) => i128::from(v),
        AttributeValue::Block(bytes) => {
            let mut value = [0u8; 16];
            for (to, from) in value.iter_mut().zip(bytes.slice()) {
                *to = *from;
            }
            i128::from_le_bytes(value)
        }
        _ => return None,
    })
}

fn discriminant_list(mut bytes: &[u8]) -> Vec<(i128, i128)> {
    let mut take = || -> Option<i128> {
        let end = bytes.iter().position(|b| b & 0x80 == 0)? + 1;
        let value = leb128(bytes.get(..end)?);
        bytes = bytes.get(end..)?;
        Some(i128::from(value))
    };
    let mut found = Vec::new();
    while let Some(kind) = take() {
        let (Some(low), high) = (take(), (kind == 1).then(&mut take)) else {
            break;
        };
        found.push((low, high.flatten().unwrap_or(low)));
    }
    found
}

fn enumeration(entry: &Entry, language: Language) -> Kind {
    let underlying = target(entry);
    let mut constants = Vec::new();
    let mut negative = false;
    let mut flags = true;
    let size = entry.number(c::DW_AT_byte_size).unwrap_or(4);
    let signed = match &underlying.get().peeled().kind {
        Kind::Base(encoding) => {
            matches!(*encoding, c::DW_ATE_signed | c::DW_ATE_signed_char)
        }
        _ => true,
    };
    for child in entry.children() {
        if child.tag() != c::DW_TAG_enumerator {
            continue;
        }
        let Some(name) = child.name() else { continue };
        let value = match child.value(c::DW_AT_const_value) {
            Some(AttributeValue::Data1(v)) if signed && size == 1 => i128::from(v as i8),
            Some(AttributeValue::Data1(v)) => i128::from(v),
            Some(AttributeValue::Data2(v)) if signed && size == 2 => i128::from(v as i16),
            Some(AttributeValue::Data2(v)) => i128::from(v),
            Some(AttributeValue::Data4(v)) if signed && size == 4 => i128::from(v as i32),
            Some(AttributeValue::Data4(v)) => i128::from(v),
            Some(AttributeValue::Data8(v)) if signed => i128::from(v as i64),
            Some(AttributeValue::Data8(v)) => i128::from(v),
            Some(AttributeValue::Sdata(v)) => i128::from(v),
            Some(AttributeValue::Udata(v)) => i128::from(v),
            _ => continue,
        };
        if value < 0 {
            negative = true;
            flags = false;
        } else if value.count_ones() > 1 || value > i128::from(i64::MAX) {
            // Only single bits are flags, as gdb decides; zero is a name for
            // none of them, and the highest bit is a sign to it.
            flags = false;
        }
        constants.push((name, value));
    }
    Kind::Enum(Box::new(Enumeration {
        constants,
        scoped: entry.flag(c::DW_AT_enum_class) || language == Language::Rust,
        underlying,
        flags,
        unsigned: !negative,
        incomplete: entry.flag(c::DW_AT_declaration),
    }))
}

fn array(entry: &Entry) -> Kind {
    let mut counts = Vec::new();
    for child in entry.children() {
        match child.tag() {
            c::DW_TAG_subrange_type => counts.push(count(&child)),
            c::DW_TAG_enumeration_type => {
                let n = child
                    .children()
                    .iter()
                    .filter(|e| e.tag() == c::DW_TAG_enumerator)
                    .count();
                counts.push(Count::Known(n as u64));
            }
            _ => {}
        }
    }
    if counts.is_empty() {
        counts.push(Count::Unknown);
    }
    let vector = entry.flag(c::DW_AT_GNU_vector);
    let language = entry.die.language();
    let mut element = target(entry);
    // The last dimension is the innermost array.
    let (first, rest) = match counts.split_first() {
        Some((first, rest)) => (*first, rest),
        None => (Count::Unknown, &[][..]),
    };
    for count in rest.iter().rev() {
        let kind = Kind::Array {
            element,
            count: *count,
            vector,
        };
        element = TypeRef::Made(Ty::make(None, None, kind, language));
    }
    Kind::Array {
        element,
        count: first,
        vector,
    }
}

fn count(subrange: &Entry) -> Count {
    let lower = subrange.signed(c::DW_AT_lower_bound).unwrap_or(0);
    match subrange.value(c::DW_AT_count) {
        Some(AttributeValue::Exprloc(expression)) => {
            return Count::Number(subrange.die, expression.0);
        }
        Some(_) => {
            if let Some(count) = subrange.number(c::DW_AT_count) {
                return Count::Known(count);
            }
        }
        None => {}
    }
    match subrange.value(c::DW_AT_upper_bound) {
        Some(AttributeValue::Exprloc(expression)) => Count::Upper(subrange.die, expression.0),
        Some(
            value @ (AttributeValue::UnitRef(_)
            | AttributeValue::DebugInfoRef(_)
            | AttributeValue::DebugInfoRefSup(_)),
        ) => subrange
            .resolve(value)
            .map_or(Count::Unknown, Count::UpperIn),
        Some(_) => match subrange.signed(c::DW_AT_upper_bound) {
            // C's `char a[0]` has -1, in as many bytes as the compiler chose.
            Some(-1 | 0xffff_ffff) => Count::Known(0),
            Some(upper) => Count::Known(
                u64::try_from(upper.saturating_sub(lower).saturating_add(1)).unwrap_or(0),
            ),
            None => Count::Unknown,
        },
        None => Count::Unknown,
    }
}

fn function(entry: &Entry) -> Kind {
    let mut parameters = Vec::new();
    let mut variadic = false;
    for child in entry.children() {
        match child.tag() {
            c::DW_TAG_formal_parameter => {
                let ty = target(&child);
                // `this` cannot be changed.
                if child.flag(c::DW_AT_artificial) && entry.die.language() == Language::Cpp {
                    let this = ty.get().qualified(Qualifier::Const);
                    parameters.push(TypeRef::Made(this));
                } else {
                    parameters.push(ty);
                }
            }
            c::DW_TAG_unspecified_parameters => variadic = true,
            _ => {}
        }
    }
    let prototyped = entry
        .inherited(|e| e.value(c::DW_AT_prototyped))
        .is_some_and(|v| matches!(v, AttributeValue::Flag(true)));
    Kind::Function {
        result: target(entry),
        parameters,
        variadic,
        prototyped: prototyped || entry.die.language() != Language::C,
    }
}
