//! Conditions as steps over registers and memory.
//!
//! A condition that is tested a hundred thousand times is not to be looked up
//! as often: what it comes to at one address is put into steps that anybody
//! can follow who has registers and memory. They may say less than the
//! expression (there are none for strings, floating-point numbers or
//! containers), but what they say is what [`super::eval`] says.

use gimli::constants as c;

use super::{Binary, Expression, Node, NodeKind, Unary};
use super::{eval, types};
use crate::frames::Frame;
use crate::scope::Scope;
use crate::target::GENERAL;
use crate::types::{Kind, MemberLocation, Ty};
use crate::value::is_signed;

/// A step of a condition, on a stack of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Pushes a number.
    Constant(u64),
    /// Pushes a register, by DWARF's number (0 to 16).
    Register(u16),
    /// So many bytes of memory (1, 2, 4 or 8) instead of their address.
    Load(u8),
    /// Keeps so many bits, and fills the rest with the sign or with zeroes.
    Extend {
        /// From 1 to 64.
        bits: u8,
        /// With the sign.
        signed: bool,
    },
    /// The sum of two.
    Add,
    /// The difference of two.
    Subtract,
    /// The product of two.
    Multiply,
    /// The quotient of two.
    Divide {
        /// Of signed numbers.
        signed: bool,
    },
    /// What a division leaves.
    Remainder {
        /// Of signed numbers.
        signed: bool,
    },
    /// The first moved left by the second.
    ShiftLeft,
    /// The first moved right by the second.
    ShiftRight {
        /// The sign is kept.
        signed: bool,
    },
    /// The bits that both have.
    And,
    /// The bits that one has.
    Or,
    /// The bits that differ.
    Xor,
    /// The bits turned round.
    Complement,
    /// 1 if it is zero, else 0.
    Not,
    /// 1 if two are equal, else 0.
    Equal,
    /// 1 if the first is less, else 0.
    Less {
        /// As signed numbers.
        signed: bool,
    },
    /// Goes on at another step.
    Jump(usize),
    /// Goes to another step if what it pops is not zero.
    JumpIf(usize),
    /// Pushes the last once more.
    Duplicate,
    /// Drops the last.
    Drop,
    /// The last two change places.
    Swap,
    /// Here nothing can be said.
    Fail,
}

/// What is on the stack for a part of an expression.
pub(super) enum Operand {
    /// Its address.
    At(Ty),
    /// Its value, as wide as a word.
    Is(Ty),
}

impl Expression {
    /// The steps to its truth, for threads at the address where `scope` is
    /// the innermost frame. `None`: it takes more than that.
    pub fn compile(&self, scope: &Scope<'_>) -> Option<Vec<Step>> {
        let frame = scope.frame().filter(|f| f.physical == 0)?;
        let mut builder = Builder {
            scope,
            frame,
            steps: Vec::new(),
            fails: Vec::new(),
        };
        let root = builder.operand(&self.root)?;
        builder.load(root)?;
        // Whoever follows them is done at their end.
        let end = builder.steps.len() + 1;
        builder
            .steps
            .push(Step::Jump(end + usize::from(!builder.fails.is_empty())));
        for at in std::mem::take(&mut builder.fails) {
            *builder.steps.get_mut(at)? = Step::JumpIf(end);
        }
        if builder.steps.contains(&Step::JumpIf(end)) {
            builder.steps.push(Step::Fail);
        }
        Some(builder.steps)
    }
}

pub(super) struct Builder<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) frame: &'a Frame,
    pub(super) steps: Vec<Step>,
    /// Jumps to where nothing can be said.
    pub(super) fails: Vec<usize>,
}

/// Bits of a type that is a number, and whether it has a sign.
pub(super) fn number(ty: &Ty) -> Option<(u8, bool)> {
    let peeled = ty.peeled().complete();
    let fits = match &peeled.kind {
        Kind::Base(encoding) => matches!(
            *encoding,
            c::DW_ATE_signed
                | c::DW_ATE_unsigned
                | c::DW_ATE_signed_char
                | c::DW_ATE_unsigned_char
                | c::DW_ATE_boolean
                | c::DW_ATE_UTF
                | c::DW_ATE_address
        ),
        Kind::Enum(_) | Kind::Pointer(_) => true,
        _ => false,
    };
    let size = peeled
        .size_of()
        .filter(|s| fits && matches!(s, 1 | 2 | 4 | 8))?;
    Some((size as u8 * 8, is_signed(&peeled)))
}

/// What a pointer leads to.
fn pointed(ty: &Ty) -> Option<Ty> {
    match &ty.peeled().kind {
        Kind::Pointer(to) => Some(to.get()),
        _ => None,
    }
}

impl Builder<'_> {
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Brings what is on the stack into the range of a type.
    pub(super) fn fit(&mut self, ty: &Ty) -> Option<()> {
        let (bits, signed) = number(ty)?;
        if bits < 64 {
            self.push(Step::Extend { bits, signed });
        }
        Some(())
    }

    /// What a reference refers to.
    fn referenced(&mut self, operand: Operand) -> Option<Operand> {
        let (Operand::At(ty) | Operand::Is(ty)) = &operand;
        let to = match &ty.peeled().kind {
            Kind::Reference(to) | Kind::RvalueReference(to) => to.get(),
            _ => return Some(operand),
        };
        if matches!(operand, Operand::At(_)) {
            self.push(Step::Load(8));
        }
        Some(Operand::At(to))
    }

    /// The value instead of the address.
    fn load(&mut self, operand: Operand) -> Option<Ty> {
        match self.referenced(operand)? {
            Operand::Is(ty) => number(&ty).map(|_| ty),
            Operand::At(ty) => {
                let (bits, signed) = number(&ty)?;
                self.push(Step::Load(bits / 8));
                if signed {
                    self.fit(&ty)?;
                }
                Some(ty)
            }
        }
    }

    fn value(&mut self, node: &Node) -> Option<Ty> {
        let operand = self.operand(node)?;
        self.load(operand)
    }

    /// The value of a part that is the same everywhere.
    fn constant(&mut self, node: &Node) -> Option<Operand> {
        let value = eval::evaluate(self.scope, node).ok()?;
        number(&value.ty)?;
        let number = value.integer(self.scope.inspector.process).ok()?;
        self.push(Step::Constant(number as u64));
        Some(Operand::Is(value.ty))
    }

    fn operand(&mut self, node: &Node) -> Option<Operand> {
        match &node.kind {
            NodeKind::Integer(..)
            | NodeKind::Character(_)
            | NodeKind::Boolean(_)
            | NodeKind::Constant(..) => self.constant(node),
            NodeKind::Local(die) => {
                let module = self.frame.module?;
                self.variable(*die, module, Some(self.frame))
            }
            NodeKind::Global(die, module) => self.variable(*die, *module, None),
            NodeKind::Symbol(address, ty) => {
                self.push(Step::Constant(address.0));
                Some(Operand::At(ty.clone()))
            }
            NodeKind::Register(name) => self.register(name, node),
            NodeKind::Cast(ty, inner) => self.cast(ty, inner),
            NodeKind::Unary(operator, inner) => self.unary(*operator, inner),
            NodeKind::Binary(operator, left, right) => self.binary(*operator, left, right),
            NodeKind::Member(inner, name) => self.member(inner, name),
            NodeKind::Index(inner, index) => self.index(inner, index),
            _ => None,
        }
    }

    fn register(&mut self, name: &str, node: &Node) -> Option<Operand> {
        let number = match name {
            "pc" | "rip" => 16,
            "sp" => 7,
            "fp" => 6,
            name => GENERAL.iter().position(|r| *r == name)? as u16,
        };
        let ty = eval::evaluate(self.scope, node).ok()?.ty;
        self.push(Step::Register(number));
        Some(Operand::Is(ty))
    }

    fn cast(&mut self, ty: &Ty, inner: &Node) -> Option<Operand> {
        self.value(inner)?;
        let to = ty.peeled().complete();
        if matches!(to.kind, Kind::Base(c::DW_ATE_boolean)) {
            self.push(Step::Not);
            self.push(Step::Not);
        }
        self.fit(ty)?;
        Some(Operand::Is(ty.clone()))
    }

    fn unary(&mut self, operator: Unary, inner: &Node) -> Option<Operand> {
        let operand = self.operand(inner)?;
        match operator {
            Unary::Address => match self.referenced(operand)? {
                Operand::At(ty) => Some(Operand::Is(ty.pointer())),
                Operand::Is(_) => None,
            },
            Unary::Dereference => {
                let operand = self.referenced(operand)?;
                if let Operand::At(ty) = &operand
                    && let Kind::Array { element, .. } = &ty.peeled().kind
                {
                    return Some(Operand::At(element.get()));
                }
                let ty = self.load(operand)?;
                let to = pointed(&ty)?;
                (!matches!(to.peeled().kind, Kind::Void)).then_some(Operand::At(to))
            }
            Unary::Not => {
                let ty = self.load(operand)?;
                let boolean = matches!(ty.peeled().kind, Kind::Base(c::DW_ATE_boolean));
                if types::is_rust(self.scope) && !boolean {
                    return None;
                }
                self.push(Step::Not);
                Some(Operand::Is(types::truth_type(self.scope)))
            }
            Unary::Minus | Unary::Plus | Unary::Complement => {
                let ty = self.load(operand)?;
                let ty = types::promoted(self.scope, &ty);
                match operator {
                    Unary::Minus => {
                        self.push(Step::Complement);
                        self.push(Step::Constant(1));
                        self.push(Step::Add);
                    }
                    Unary::Complement => self.push(Step::Complement),
                    _ => {}
                }
                self.fit(&ty)?;
                Some(Operand::Is(ty))
            }
        }
    }

    fn binary(&mut self, operator: Binary, left: &Node, right: &Node) -> Option<Operand> {
        if matches!(operator, Binary::BothTrue | Binary::OneTrue) {
            self.value(left)?;
            if operator == Binary::BothTrue {
                self.push(Step::Not);
            }
            let decided = self.steps.len();
            self.push(Step::Fail);
            self.value(right)?;
            self.push(Step::Not);
            self.push(Step::Not);
            let over = self.steps.len();
            self.push(Step::Fail);
            *self.steps.get_mut(decided)? = Step::JumpIf(self.steps.len());
            self.push(Step::Constant(u64::from(operator == Binary::OneTrue)));
            *self.steps.get_mut(over)? = Step::Jump(self.steps.len());
            return Some(Operand::Is(types::truth_type(self.scope)));
        }
        let a = self.value(left)?;
        let between = self.steps.len();
        let b = self.value(right)?;
        let (p, q) = (pointed(&a), pointed(&b));
        if p.is_some() || q.is_some() {
            return self.pointers(operator, (&a, p), (&b, q), right);
        }
        let literal = matches!(right.kind, NodeKind::Integer(..));
        let ty = types::common(self.scope, &a, &b, literal);
        let (bits, signed) = number(&ty)?;
        // Both are computed in the common type.
        if number(&a) != Some((bits, signed)) && bits < 64 {
            let rest = self.steps.split_off(between);
            self.push(Step::Extend { bits, signed });
            // Jumps within the right side move by one.
            for step in rest {
                self.push(match step {
                    Step::Jump(to) => Step::Jump(to + 1),
                    Step::JumpIf(to) => Step::JumpIf(to + 1),
                    other => other,
                });
            }
            for fail in self.fails.iter_mut().filter(|at| **at >= between) {
                *fail += 1;
            }
        }
        if number(&b) != Some((bits, signed)) {
            self.fit(&ty)?;
        }
        let step = match operator {
            Binary::Add => Step::Add,
            Binary::Subtract => Step::Subtract,
            Binary::Multiply => Step::Multiply,
            Binary::Divide => Step::Divide { signed },
            Binary::Remainder => Step::Remainder { signed },
            Binary::ShiftLeft => Step::ShiftLeft,
            Binary::ShiftRight => Step::ShiftRight { signed },
            Binary::And => Step::And,
            Binary::Or => Step::Or,
            Binary::Xor => Step::Xor,
            _ => {
                self.compare(operator, signed)?;
                return Some(Operand::Is(types::truth_type(self.scope)));
            }
        };
        self.push(step);
        self.fit(&ty)?;
        Some(Operand::Is(ty))
    }

    fn compare(&mut self, operator: Binary, signed: bool) -> Option<()> {
        let less = Step::Less { signed };
        let steps: &[Step] = match operator {
            Binary::Equal => &[Step::Equal],
            Binary::NotEqual => &[Step::Equal, Step::Not],
            Binary::Less => &[less],
            Binary::GreaterEqual => &[less, Step::Not],
            Binary::Greater => &[Step::Swap, less],
            Binary::LessEqual => &[Step::Swap, less, Step::Not],
            _ => return None,
        };
        self.steps.extend_from_slice(steps);
        Some(())
    }

    fn pointers(
        &mut self,
        operator: Binary,
        (a, p): (&Ty, Option<Ty>),
        (b, q): (&Ty, Option<Ty>),
        right: &Node,
    ) -> Option<Operand> {
        let size = |ty: &Ty| ty.size_of().unwrap_or(1).max(1);
        match (operator, &p, &q) {
            (Binary::Add | Binary::Subtract, Some(to), None) => {
                self.push(Step::Constant(size(to)));
                self.push(Step::Multiply);
                self.push(if operator == Binary::Add {
                    Step::Add
                } else {
                    Step::Subtract
                });
                Some(Operand::Is(to.clone().pointer()))
            }
            (Binary::Add, None, Some(_)) | (Binary::Subtract, ..) => None,
            _ => {
                // Addresses have no sign; a negative number is none.
                let is_plain = |ty: &Ty, pointer: &Option<Ty>, node: Option<&Node>| {
                    pointer.is_some()
                        || number(ty).is_some_and(|(_, signed)| !signed)
                        || node.is_some_and(|n| matches!(n.kind, NodeKind::Integer(..)))
                };
                if !is_plain(a, &p, None) || !is_plain(b, &q, Some(right)) {
                    return None;
                }
                self.compare(operator, false)?;
                Some(Operand::Is(types::truth_type(self.scope)))
            }
        }
    }

    fn member(&mut self, inner: &Node, name: &str) -> Option<Operand> {
        let operand = self.operand(inner)?;
        let mut operand = self.referenced(operand)?;
        for _ in 0..4 {
            let (Operand::At(ty) | Operand::Is(ty)) = &operand;
            if let Some(to) = pointed(ty) {
                self.load(operand)?;
                operand = Operand::At(to);
            }
        }
        let Operand::At(ty) = operand else {
            return None;
        };
        let label = if name.bytes().all(|b| b.is_ascii_digit()) {
            format!("__{name}")
        } else {
            name.to_string()
        };
        let (offset, ty) = field(&ty, &label, 12)?;
        self.push(Step::Constant(offset));
        self.push(Step::Add);
        Some(Operand::At(ty))
    }

    fn index(&mut self, inner: &Node, index: &Node) -> Option<Operand> {
        let operand = self.operand(inner)?;
        let operand = self.referenced(operand)?;
        let (Operand::At(ty) | Operand::Is(ty)) = &operand;
        let (element, is_array) = match (&operand, &ty.peeled().kind) {
            (Operand::At(_), Kind::Array { element, .. }) => (element.get(), true),
            (_, Kind::Pointer(to)) => (to.get(), false),
            _ => return None,
        };
        let size = match (element.size_of(), is_array) {
            (Some(size), true) => size,
            (None, true) => return None,
            (size, false) => size.unwrap_or(1).max(1),
        };
        if !is_array {
            self.load(operand)?;
        }
        let ty = self.value(index)?;
        // Arrays have no elements before their first.
        if is_array && number(&ty).is_some_and(|(_, signed)| signed) {
            self.push(Step::Duplicate);
            self.push(Step::Constant(0));
            self.push(Step::Less { signed: true });
            self.fails.push(self.steps.len());
            self.push(Step::Fail);
        }
        self.push(Step::Constant(size));
        self.push(Step::Multiply);
        self.push(Step::Add);
        Some(Operand::At(element))
    }
}

/// Where a member is in a structure, also in anonymous members and base
/// classes, and its type.
fn field(ty: &Ty, name: &str, depth: usize) -> Option<(u64, Ty)> {
    let depth = depth.checked_sub(1)?;
    let aggregate = ty.aggregate()?;
    let place = |member: &crate::types::Member| match member.place {
        MemberLocation::Offset(offset) if member.bits.is_none() => Some(offset),
        _ => None,
    };
    let mut named = aggregate.members.iter();
    if let Some(member) = named.find(|m| m.name == Some(name) && m.fixed.is_none() && !m.base) {
        return Some((place(member)?, member.ty.get()));
    }
    let mut inner = aggregate
        .members
        .iter()
        .filter(|m| m.base || m.name.is_none());
    inner.find_map(|member| {
        let (within, ty) = field(&member.ty.get(), name, depth)?;
        Some((place(member)?.wrapping_add(within), ty))
    })
}
