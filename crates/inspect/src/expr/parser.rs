//! From words to a tree, with C's precedences and Rust's additions.

use protocol::id::Addr;

use super::lexer::Token;
use crate::dwarf::Language;
use crate::dwarf::die::Die;
use crate::error::{Error, Result};
use crate::inspector::Loaded;
use crate::scope::Scope;
use crate::types::Ty;

/// An operator with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    Minus,
    Plus,
    Not,
    Complement,
    Dereference,
    Address,
}

/// An operator with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BothTrue,
    OneTrue,
}

/// A part of an expression.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its column, from 0.
    pub column: usize,
}

/// What a part of an expression is.
#[derive(Debug, Clone)]
pub enum NodeKind {
    Integer(u128, String),
    Float(f64, String),
    Character(u32),
    Text(Vec<u8>),
    Boolean(bool),
    /// A name that was not looked up yet.
    Name(String),
    /// A variable of the frame's function.
    Local(Die),
    /// A variable outside of functions.
    Global(Die, Loaded),
    /// A function or a symbol without debug information.
    Symbol(Addr, Ty),
    /// A constant of an enumeration.
    Constant(Ty, i128),
    Register(String),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Cast(Ty, Box<Node>),
    SizeOf(Box<Node>),
    Type(Ty),
    Member(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Slice(Box<Node>, Option<Box<Node>>, Option<Box<Node>>, bool),
    At(Box<Node>, Box<Node>),
}

/// Nesting deeper than this is refused.
const MAX_DEPTH: usize = 100;

struct Parser<'a> {
    scope: &'a Scope<'a>,
    tokens: &'a [(Token, usize)],
    at: usize,
    depth: usize,
}

/// Reads a whole expression or a type.
pub fn parse(scope: &Scope<'_>, tokens: &[(Token, usize)]) -> Result<Node> {
    let mut parser = Parser {
        scope,
        tokens,
        at: 0,
        depth: 0,
    };
    if tokens.is_empty() {
        return Err(parser.wrong("The expression is empty."));
    }
    if let Some(ty) = parser.whole_type() {
        return Ok(Node {
            kind: NodeKind::Type(ty),
            column: 0,
        });
    }
    let node = parser.expression()?;
    match parser.peek() {
        None => Ok(node),
        Some(Token::Sign(sign)) if sign.ends_with('=') || matches!(*sign, "++" | "--") => {
            Err(assignment())
        }
        Some(_) => Err(parser.wrong("A syntax error in expression.")),
    }
}

fn assignment() -> Error {
    Error::ReadOnly {
        what: "an assignment",
        advice: "compare with ==, or change the program and record it again",
    }
}

const TYPE_WORDS: &[&str] = &[
    "struct", "union", "enum", "class", "unsigned", "signed", "const", "volatile", "void", "char",
    "short", "int", "long", "float", "double", "_Bool", "bool",
];

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|(t, _)| t)
    }

    fn column(&self) -> usize {
        match self.tokens.get(self.at) {
            Some((_, column)) => *column,
            None => self.tokens.last().map_or(0, |(_, column)| column + 1),
        }
    }

    fn wrong(&self, message: impl Into<String>) -> Error {
        Error::Expression {
            message: message.into(),
            column: self.column() + 1,
        }
    }

    fn sign(&mut self, sign: &str) -> bool {
        if matches!(self.peek(), Some(Token::Sign(s)) if *s == sign) {
            self.at += 1;
            return true;
        }
        false
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.sign(sign) {
            return Ok(());
        }
        Err(self.wrong(format!("`{sign}` is missing.")))
    }

    fn expression(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("The expression is nested too deeply."));
        }
        let node = self.choice();
        self.depth -= 1;
        node
    }

    fn choice(&mut self) -> Result<Node> {
        let condition = self.binary(0)?;
        if !self.sign("?") {
            if let Some(Token::Sign(sign)) = self.peek()
                && sign.ends_with('=')
                && !matches!(*sign, "==" | "!=" | "<=" | ">=")
            {
                return Err(assignment());
            }
            return Ok(condition);
        }
        let column = condition.column;
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(Node {
            kind: NodeKind::Choice(Box::new(condition), Box::new(yes), Box::new(no)),
            column,
        })
    }

    fn binary(&mut self, level: u8) -> Result<Node> {
        let mut left = self.unary()?;
        loop {
            let Some(Token::Sign(sign)) = self.peek() else {
                return Ok(left);
            };
            let (operator, power) = match *sign {
                "||" => (Some(Binary::OneTrue), 1),
                "&&" => (Some(Binary::BothTrue), 2),
                "|" => (Some(Binary::Or), 3),
                "^" => (Some(Binary::Xor), 4),
                "&" => (Some(Binary::And), 5),
                "==" => (Some(Binary::Equal), 6),
                "!=" => (Some(Binary::NotEqual), 6),
                "<" => (Some(Binary::Less), 7),
                "<=" => (Some(Binary::LessEqual), 7),
                ">" => (Some(Binary::Greater), 7),
                ">=" => (Some(Binary::GreaterEqual), 7),
                "<<" => (Some(Binary::ShiftLeft), 8),
                ">>" => (Some(Binary::ShiftRight), 8),
                "@" => (None, 9),
                "+" => (Some(Binary::Add), 10),
                "-" => (Some(Binary::Subtract), 10),
                "*" => (Some(Binary::Multiply), 11),
                "/" => (Some(Binary::Divide), 11),
                "%" => (Some(Binary::Remainder), 11),
                _ => return Ok(left),
            };
            if power <= level {
                return Ok(left);
            }
            let column = self.column();
            self.at += 1;
            let right = self.binary(power)?;
            let kind = match operator {
                Some(operator) => NodeKind::Binary(operator, Box::new(left), Box::new(right)),
                None => NodeKind::At(Box::new(left), Box::new(right)),
            };
            left = Node { kind, column };
        }
    }

    fn unary(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("The expression is nested too deeply."));
        }
        let node = self.unary_inner();
        self.depth -= 1;
        node
    }

    fn unary_inner(&mut self) -> Result<Node> {
        let column = self.column();
        if let Some(Token::Sign(sign)) = self.peek() {
            let operator = match *sign {
                "-" => Some(Unary::Minus),
                "+" => Some(Unary::Plus),
                "!" => Some(Unary::Not),
                "~" => Some(Unary::Complement),
                "*" => Some(Unary::Dereference),
                "&" => Some(Unary::Address),
                "++" | "--" => return Err(assignment()),
                _ => None,
            };
            if let Some(operator) = operator {
                self.at += 1;
                // `&mut x`
                if operator == Unary::Address
                    && self.peek() == Some(&Token::Name("mut".to_string()))
                {
                    self.at += 1;
                }
                let operand = self.unary()?;
                return Ok(Node {
                    kind: NodeKind::Unary(operator, Box::new(operand)),
                    column,
                });
            }
            if *sign == "(" {
                let before = self.at;
                self.at += 1;
                if let Some(ty) = self.type_name()
                    && self.sign(")")
                {
                    let operand = self.unary()?;
                    return Ok(Node {
                        kind: NodeKind::Cast(ty, Box::new(operand)),
                        column,
                    });
                }
                self.at = before;
            }
        }
        if self.peek() == Some(&Token::Name("sizeof".to_string())) {
            self.at += 1;
            let before = self.at;
            if self.sign("(") {
                if let Some(ty) = self.type_name()
                    && self.sign(")")
                {
                    let inner = Node {
                        kind: NodeKind::Type(ty),
                        column,
                    };
                    return Ok(Node {
                        kind: NodeKind::SizeOf(Box::new(inner)),
                        column,
                    });
                }
                self.at = before;
            }
            let operand = self.unary()?;
            return Ok(Node {
                kind: NodeKind::SizeOf(Box::new(operand)),
                column,
            });
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Node> {
        let mut node = self.primary()?;
        loop {
            let column = self.column();
            if self.sign(".") || self.sign("->") {
                let name = match self.peek() {
                    Some(Token::Name(name)) => name.clone(),
                    Some(Token::Integer(n, _)) => n.to_string(),
                    _ => return Err(self.wrong("The name of a member is missing.")),
                };
                self.at += 1;
                node = Node {
                    kind: NodeKind::Member(Box::new(node), name),
                    column,
                };
            } else if self.sign("[") {
                node = self.subscript(node, column)?;
            } else if matches!(self.peek(), Some(Token::Sign("("))) {
                return Err(Error::ReadOnly {
                    what: "calling a function",
                    advice: "print what it would use instead, or set a breakpoint in it",
                });
            } else if matches!(self.peek(), Some(Token::Sign("++" | "--"))) {
                return Err(assignment());
            } else if self.peek() == Some(&Token::Name("as".to_string())) {
                self.at += 1;
                let ty = self
                    .type_name()
                    .ok_or_else(|| self.wrong("A type is missing behind `as`."))?;
                node = Node {
                    kind: NodeKind::Cast(ty, Box::new(node)),
                    column,
                };
            } else {
                return Ok(node);
            }
        }
    }

    fn subscript(&mut self, node: Node, column: usize) -> Result<Node> {
        let range = |p: &mut Self| p.sign("..") || p.sign("..=");
        let inclusive = |p: &Self| {
            matches!(
                p.tokens.get(p.at.wrapping_sub(1)),
                Some((Token::Sign("..="), _))
            )
        };
        let first = if matches!(self.peek(), Some(Token::Sign(".." | "..="))) {
            None
        } else {
            Some(Box::new(self.expression()?))
        };
        if range(self) {
            let closed = inclusive(self);
            let end = if matches!(self.peek(), Some(Token::Sign("]"))) {
                None
            } else {
                Some(Box::new(self.expression()?))
            };
            self.expect("]")?;
            return Ok(Node {
                kind: NodeKind::Slice(Box::new(node), first, end, closed),
                column,
            });
        }
        self.expect("]")?;
        match first {
            Some(index) => Ok(Node {
                kind: NodeKind::Index(Box::new(node), index),
                column,
            }),
            None => Err(self.wrong("An index is missing.")),
        }
    }

    fn primary(&mut self) -> Result<Node> {
        let column = self.column();
        let Some(token) = self.peek() else {
            return Err(self.wrong("The expression ends too early."));
        };
        let kind = match token {
            Token::Integer(value, suffix) => NodeKind::Integer(*value, suffix.clone()),
            Token::Float(value, suffix) => NodeKind::Float(*value, suffix.clone()),
            Token::Character(value) => NodeKind::Character(*value),
            Token::Text(text) => NodeKind::Text(text.clone()),
            Token::Dollar(name) => NodeKind::Register(name.clone()),
            Token::Name(name) if name == "true" => NodeKind::Boolean(true),
            Token::Name(name) if name == "false" => NodeKind::Boolean(false),
            Token::Name(_) | Token::Sign("::") => {
                let name = self.path()?;
                return Ok(Node {
                    kind: NodeKind::Name(name),
                    column,
                });
            }
            Token::Sign("(") => {
                self.at += 1;
                let node = self.expression()?;
                self.expect(")")?;
                return Ok(node);
            }
            Token::Sign(sign) => {
                return Err(self.wrong(format!("A syntax error in expression, near `{sign}`.")));
            }
        };
        self.at += 1;
        Ok(Node { kind, column })
    }

    /// `a::b<c>::d`, as one name; `file.c::name` too.
    fn path(&mut self) -> Result<String> {
        let mut name = String::new();
        // A path from the root.
        self.sign("::");
        loop {
            match self.peek() {
                Some(Token::Name(word)) => {
                    name.push_str(word);
                    self.at += 1;
                }
                _ => return Err(self.wrong("A name is missing.")),
            }
            // A file's name has a dot in it and `::` behind.
            let dotted = matches!(self.peek(), Some(Token::Sign(".")))
                && matches!(self.tokens.get(self.at + 2), Some((Token::Sign("::"), _)));
            if dotted && let Some((Token::Name(ending), _)) = self.tokens.get(self.at + 1) {
                name.push('.');
                name.push_str(ending);
                self.at += 2;
            }
            let before = self.at;
            if let Some(arguments) = self.template_arguments() {
                name.push_str(&arguments);
            } else {
                self.at = before;
            }
            if !self.sign("::") {
                return Ok(name);
            }
            name.push_str("::");
        }
    }

    /// `<int, a::b>` if a `>` closes it and a type of that name can exist.
    fn template_arguments(&mut self) -> Option<String> {
        if !self.sign("<") {
            return None;
        }
        let mut text = String::from("<");
        let mut depth = 1;
        for _ in 0..64 {
            let token = self.peek()?;
            self.at += 1;
            match token {
                Token::Name(word) => {
                    if text.ends_with(|c: char| c.is_alphanumeric()) {
                        text.push(' ');
                    }
                    text.push_str(word);
                }
                Token::Integer(n, _) => text.push_str(&n.to_string()),
                Token::Sign(",") => text.push_str(", "),
                Token::Sign("<") => {
                    depth += 1;
                    text.push('<');
                }
                Token::Sign(">") => {
                    depth -= 1;
                    text.push('>');
                }
                Token::Sign(">>") => {
                    depth -= 2;
                    text.push_str("> >");
                }
                Token::Sign(sign @ ("::" | "*" | "&" | "[" | "]" | ";")) => text.push_str(sign),
                _ => return None,
            }
            if depth <= 0 {
                return matches!(
                    self.peek(),
                    Some(Token::Sign("::" | "*" | ")" | "&")) | None
                )
                .then_some(text);
            }
        }
        None
    }

    /// The text as nothing but a type.
    fn whole_type(&mut self) -> Option<Ty> {
        let ty = self.type_name();
        if ty.is_some() && self.peek().is_none() {
            return ty;
        }
        self.at = 0;
        None
    }

    /// A type, if one is here; otherwise nothing is taken.
    fn type_name(&mut self) -> Option<Ty> {
        let before = self.at;
        let found = self.type_inner();
        if found.is_none() {
            self.at = before;
        }
        found
    }

    fn type_inner(&mut self) -> Option<Ty> {
        let rust = self.scope.frame().map(|f| f.language()) == Some(Language::Rust);
        // Rust: `*const T`, `*mut T`, `&T`, `[T; n]`.
        if rust && (self.sign("*") || self.sign("&")) {
            if matches!(self.peek(), Some(Token::Name(w)) if w == "const" || w == "mut") {
                self.at += 1;
            }
            return Some(self.type_inner()?.pointer());
        }
        let mut words: Vec<String> = Vec::new();
        while let Some(Token::Name(word)) = self.peek() {
            let known = TYPE_WORDS.contains(&word.as_str());
            let tagged = words
                .last()
                .is_some_and(|w| matches!(w.as_str(), "struct" | "union" | "enum" | "class"));
            if known && !tagged {
                words.push(word.clone());
                self.at += 1;
                continue;
            }
            let plain = words
                .iter()
                .all(|w| matches!(w.as_str(), "const" | "volatile"));
            if tagged || plain {
                words.push(self.path().ok()?);
            }
            break;
        }
        words.retain(|w| !matches!(w.as_str(), "const" | "volatile"));
        if words.is_empty() {
            return None;
        }
        let name = words.join(" ");
        // A variable of that name hides a type.
        if words.len() == 1 && self.scope.find(&name).is_some() {
            return None;
        }
        let near = self.scope.frame().and_then(|f| f.function).map(|f| f.die);
        let mut ty = super::types::base_type(&name, rust)
            .or_else(|| self.scope.inspector.find_type(&name, near))?;
        loop {
            if matches!(self.peek(), Some(Token::Name(w)) if w == "const" || w == "volatile") {
                self.at += 1;
            } else if self.sign("*") {
                ty = ty.pointer();
            } else if self.sign("&") {
                return Some(ty.pointer());
            } else if matches!(self.peek(), Some(Token::Sign("["))) {
                let Some((Token::Integer(n, _), _)) = self.tokens.get(self.at + 1) else {
                    return None;
                };
                let count = u64::try_from(*n).ok()?;
                self.at += 2;
                if !self.sign("]") {
                    return None;
                }
                ty = ty.array(count);
            } else {
                return Some(ty);
            }
        }
    }
}
