//! Types of the program, as its debug information describes them.
//!
//! A [`Type`] is read from its entry once and kept; what it refers to is read
//! when it is followed ([`TypeRef::get`]), so that a type costs what is
//! looked at and not what can be reached. Types that only an expression needs
//! (a pointer for `&x`, an array for `p@3`) are made beside them.

mod describe;
mod name;
mod read;

use std::sync::Arc;

use gimli::DwAte;

use crate::dwarf::die::Die;
use crate::dwarf::{Language, Slice};

pub use describe::describe;
pub use name::of as name_of;

/// A handle to a type.
#[derive(Clone)]
pub enum Ty {
    /// From debug information.
    Known(&'static Type),
    /// Made for an expression.
    Made(Arc<Type>),
}

impl std::ops::Deref for Ty {
    type Target = Type;
    fn deref(&self) -> &Type {
        match self {
            Self::Known(ty) => ty,
            Self::Made(ty) => ty,
        }
    }
}

impl std::fmt::Debug for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ty({})", name_of(self))
    }
}

/// A type that another refers to.
#[derive(Clone)]
pub enum TypeRef {
    /// `void`, or none.
    Void,
    /// The type of an entry.
    Die(Die),
    /// This one.
    Made(Ty),
}

impl std::fmt::Debug for TypeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Void => f.write_str("void"),
            Self::Die(die) => write!(f, "{die:?}"),
            Self::Made(ty) => write!(f, "{ty:?}"),
        }
    }
}

impl TypeRef {
    /// The type.
    pub fn get(&self) -> Ty {
        match self {
            Self::Void => Ty::void(),
            Self::Die(die) => Ty::from_die(*die),
            Self::Made(ty) => ty.clone(),
        }
    }

    pub(crate) fn is_void(&self) -> bool {
        matches!(self, Self::Void)
    }
}

/// A word before a type that changes only how it may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qualifier {
    /// `const`.
    Const,
    /// `volatile`.
    Volatile,
    /// `restrict`.
    Restrict,
    /// `_Atomic`.
    Atomic,
}

/// `struct`, `class` or `union`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateKind {
    /// `struct`.
    Struct,
    /// `class`.
    Class,
    /// `union`.
    Union,
}

/// Where a member is.
#[derive(Debug, Clone, Copy)]
pub enum MemberLocation {
    /// Bytes from the start.
    Offset(u64),
    /// To be computed from the object's address (virtual base classes).
    Expression(Slice),
}

/// A member of a structure.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name; none for anonymous ones.
    pub name: Option<&'static str>,
    /// The type.
    pub ty: TypeRef,
    /// Where it is.
    pub place: MemberLocation,
    /// Bits from the start of the structure, and width, if it is a bit-field.
    pub bits: Option<(u64, u64)>,
    /// Whether it is a base class.
    pub base: bool,
    /// Whether that is a virtual base class.
    pub virtual_base: bool,
    /// Whether the compiler made it up.
    pub artificial: bool,
    /// `DW_ACCESS_*`, 0 if not said.
    pub access: u8,
    /// The entry, for static members.
    pub fixed: Option<Die>,
}

/// One shape of an enumeration with fields.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The discriminants for which it is chosen; none for the default.
    pub values: Vec<(i128, i128)>,
    /// What is there then.
    pub member: Member,
}

/// The part of a structure that has one of several shapes.
#[derive(Debug, Clone)]
pub struct VariantPart {
    /// What says which.
    pub discriminant: Option<Member>,
    /// The shapes.
    pub variants: Vec<Variant>,
}

/// An argument of a template.
#[derive(Debug, Clone)]
pub struct TemplateArgument {
    /// The parameter's name.
    pub name: Option<&'static str>,
    /// Its type, or the type of its value.
    pub ty: TypeRef,
    /// The value, if it is one.
    pub value: Option<i64>,
}

/// A structure, class or union.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Which.
    pub kind: AggregateKind,
    /// Members and base classes, in order.
    pub members: Vec<Member>,
    /// Shapes, for Rust's enumerations.
    pub variants: Option<VariantPart>,
    /// Template arguments.
    pub arguments: Vec<TemplateArgument>,
    /// Whether only its name is known.
    pub incomplete: bool,
    /// Whether it has functions.
    pub has_methods: bool,
}

/// An enumeration of constants.
#[derive(Debug, Clone)]
pub struct Enumeration {
    /// Names and values, in order.
    pub constants: Vec<(&'static str, i128)>,
    /// `enum class`.
    pub scoped: bool,
    /// The integer it is stored as.
    pub underlying: TypeRef,
    /// Whether its values are combinations of single bits.
    pub flags: bool,
    /// Whether it has no negative value.
    pub unsigned: bool,
    /// Whether only its name is known.
    pub incomplete: bool,
}

/// How many elements an array has.
#[derive(Debug, Clone, Copy)]
pub enum Count {
    /// It does not say.
    Unknown,
    /// So many.
    Known(u64),
    /// An expression gives the greatest index.
    Upper(Die, Slice),
    /// An expression gives the number.
    Number(Die, Slice),
    /// A variable holds the greatest index.
    UpperIn(Die),
}

/// What a type is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Nothing.
    Void,
    /// A number, character or truth value.
    Base(DwAte),
    /// Pointer.
    Pointer(TypeRef),
    /// C++ reference.
    Reference(TypeRef),
    /// C++ rvalue reference.
    RvalueReference(TypeRef),
    /// With a qualifier.
    Qualified(Qualifier, TypeRef),
    /// Another name for a type.
    Typedef(TypeRef),
    /// Structure, class or union.
    Struct(Box<Aggregate>),
    /// Enumeration.
    Enum(Box<Enumeration>),
    /// Array.
    Array {
        /// Of what.
        element: TypeRef,
        /// How many.
        count: Count,
        /// Whether it is a vector register's type.
        vector: bool,
    },
    /// Function.
    Function {
        /// What it gives.
        result: TypeRef,
        /// What it takes.
        parameters: Vec<TypeRef>,
        /// Whether it takes more.
        variadic: bool,
        /// Whether parameters were declared.
        prototyped: bool,
    },
    /// Pointer to a member of a class.
    MemberPointer {
        /// The class.
        class: TypeRef,
        /// The member.
        target: TypeRef,
    },
    /// `decltype(nullptr)` and its like.
    Unspecified,
}

/// A type.
#[derive(Debug, Clone)]
pub struct Type {
    /// Its full name, if it has one.
    pub name: Option<String>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// What it is.
    pub kind: Kind,
    /// The language it is from.
    pub language: Language,
    /// Where it was read.
    pub die: Option<Die>,
}

/// Names for names are followed at most so far: they can be circular in
/// damaged files.
const MAX_CHAIN: usize = 64;

impl Ty {
    fn make(name: Option<&str>, size: Option<u64>, kind: Kind, language: Language) -> Self {
        Self::Made(Arc::new(Type {
            name: name.map(str::to_string),
            size,
            kind,
            language,
            die: None,
        }))
    }

    /// `void`.
    pub fn void() -> Self {
        Self::make(Some("void"), Some(1), Kind::Void, Language::C)
    }

    /// Code of which nothing but the address is known.
    pub fn code() -> Self {
        let kind = Kind::Function {
            result: TypeRef::Void,
            parameters: Vec::new(),
            variadic: false,
            prototyped: false,
        };
        let name = "<text variable, no debug info>";
        Self::make(Some(name), Some(1), kind, Language::C)
    }

    /// A base type that needs no debug information.
    pub fn base(name: &str, size: u64, encoding: DwAte, language: Language) -> Self {
        Self::make(Some(name), Some(size), Kind::Base(encoding), language)
    }

    /// A pointer to this type.
    pub fn pointer(self) -> Self {
        let language = self.language;
        Self::make(None, Some(8), Kind::Pointer(TypeRef::Made(self)), language)
    }

    /// An array of this type.
    pub fn array(self, count: u64) -> Self {
        let language = self.language;
        let kind = Kind::Array {
            element: TypeRef::Made(self),
            count: Count::Known(count),
            vector: false,
        };
        Self::make(None, None, kind, language)
    }

    /// This type with a qualifier.
    pub fn qualified(self, qualifier: Qualifier) -> Self {
        let (language, size) = (self.language, self.size);
        Self::make(
            None,
            size,
            Kind::Qualified(qualifier, TypeRef::Made(self)),
            language,
        )
    }

    /// Without qualifiers and other names.
    pub fn peeled(&self) -> Self {
        let mut at = self.clone();
        for _ in 0..MAX_CHAIN {
            let next = match &at.kind {
                Kind::Typedef(to) | Kind::Qualified(_, to) => to.get(),
                _ => return at,
            };
            at = next;
        }
        Self::void()
    }

    /// Without qualifiers.
    pub fn unqualified(&self) -> Self {
        let mut at = self.clone();
        for _ in 0..MAX_CHAIN {
            let next = match &at.kind {
                Kind::Qualified(_, to) => to.get(),
                _ => return at,
            };
            at = next;
        }
        Self::void()
    }

    /// Its size in bytes, if it is known.
    pub fn size_of(&self) -> Option<u64> {
        self.size_within(MAX_CHAIN)
    }

    fn size_within(&self, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        match &self.kind {
            Kind::Typedef(to) | Kind::Qualified(_, to) => to.get().size_within(depth),
            Kind::Array { element, count, .. } => match count {
                Count::Known(count) => element.get().size_within(depth)?.checked_mul(*count),
                Count::Unknown => Some(0),
                _ => self.size,
            },
            Kind::Pointer(_) | Kind::Reference(_) | Kind::RvalueReference(_) => {
                Some(self.size.unwrap_or(8))
            }
            Kind::Function { .. } | Kind::Void => Some(1),
            // A unit may only declare what another defines: the size is the
            // definition's.
            Kind::Struct(a) if a.incomplete && self.size.is_none() => self.complete().size,
            Kind::Enum(e) => self
                .size
                .or_else(|| e.underlying.get().size_within(depth))
                .or_else(|| self.complete().size),
            _ => self.size,
        }
    }

    /// The type of what it points to or refers to.
    pub fn target(&self) -> Option<Self> {
        match &self.peeled().kind {
            Kind::Pointer(to) | Kind::Reference(to) | Kind::RvalueReference(to) => Some(to.get()),
            _ => None,
        }
    }

    /// The structure it is, if it is one.
    pub fn aggregate(&self) -> Option<Aggregate> {
        match &self.peeled().complete().kind {
            Kind::Struct(aggregate) => Some((**aggregate).clone()),
            _ => None,
        }
    }
}
