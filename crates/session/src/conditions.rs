//! Conditions of points: tested where a process is, and put into the language
//! that a process tests by itself.
//!
//! An expression is first evaluated in full; what is simple enough is then
//! compiled for that address, and from then on passed without a word from here.

use std::collections::HashMap;
use std::sync::Arc;

use inspect::expr::Expression;
use inspect::lookup::Location;
use inspect::scope::Scope;
use inspect::{Inspector, Library, ThreadId};
use protocol::condition;
use protocol::id::Addr;
use target::{MapsVersion, Registers, Target};

use crate::bytecode::encode;
use crate::stops::{Point, What};

/// Functions are inlined into each other less deeply.
pub(crate) const INLINED_MAX: usize = 100;

/// Conditions whose names were looked up, by point and address.
pub(crate) type Conditions = HashMap<(u32, Option<Addr>), (MapsVersion, Asked)>;

/// A condition whose names were looked up.
pub(crate) struct Asked {
    text: String,
    expression: Expression,
    /// In the language of the process, if it is simple enough.
    code: Option<Arc<[u8]>>,
}

impl Asked {
    pub fn is_of(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn code(&self) -> Option<Arc<[u8]>> {
        self.code.clone()
    }
}

/// Why a condition cannot be tested: the point, its condition, and what is wrong.
pub(crate) type Trouble = (u32, String, inspect::Error);

/// Tests conditions, and remembers what it found out about them.
pub(crate) struct Judge<'j> {
    pub library: &'j Library,
    pub layout: &'j mut Option<(MapsVersion, Arc<inspect::inspector::Layout>)>,
    pub known: &'j mut Conditions,
}

impl Judge<'_> {
    /// Whether a point is one to stop at, where a process is that came to it; of an
    /// inlined function, if it is in one.
    pub fn holds(
        &mut self,
        target: &dyn Target,
        point: &Point,
        inlined: Option<&Location>,
    ) -> Result<bool, Trouble> {
        if point.thread.is_some_and(|thread| thread != target.thread()) {
            return Ok(false);
        }
        if let What::Code { conditions, .. } = &point.what
            && !conditions.is_empty()
            && !codes_hold(target, conditions)
        {
            return Ok(false);
        }
        let Some(text) = &point.condition else {
            return Ok(true);
        };
        let held = self.expression_holds(target, point.number, text, inlined);
        held.map_err(|error| (point.number, text.clone(), error))
    }

    /// The names in it are looked up once for each address.
    fn expression_holds(
        &mut self,
        target: &dyn Target,
        number: u32,
        text: &str,
        inlined: Option<&Location>,
    ) -> inspect::Result<bool> {
        let maps = target.maps_version();
        let looked = target.look();
        let inspector = match &*self.layout {
            Some((for_this, layout)) if *for_this == maps => {
                Inspector::with_layout(self.library, &*looked, Arc::clone(layout))
            }
            _ => {
                let inspector = Inspector::new(self.library, &*looked);
                *self.layout = Some((maps, inspector.layout()));
                inspector
            }
        };
        // One frame is enough for most; what the caller passed needs more.
        let mut held = Ok(false);
        for frames in [1, 10] {
            let mut stack = inspector.stack(ThreadId(target.thread().0), frames)?;
            if let Some(location) = inlined {
                // Names are those of the function that is meant.
                stack = inspector
                    .stack(ThreadId(target.thread().0), frames + INLINED_MAX)?
                    .entering(location);
            }
            let Some(scope) = Scope::new(&inspector, &stack, 0) else {
                return Ok(false);
            };
            held = self.holds_in(&scope, maps, number, text);
            if held.is_ok() {
                break;
            }
        }
        held
    }

    fn holds_in(
        &mut self,
        scope: &Scope<'_>,
        maps: MapsVersion,
        number: u32,
        text: &str,
    ) -> inspect::Result<bool> {
        let pc = scope.frame().map(|frame| frame.pc);
        if let Some((for_this, asked)) = self.known.get(&(number, pc))
            && *for_this == maps
            && asked.is_of(text)
        {
            return asked.expression.holds(scope);
        }
        let expression = Expression::parse(scope, text)?;
        let held = expression.holds(scope)?;
        let code = expression.compile(scope).and_then(|steps| encode(&steps));
        let asked = Asked {
            text: text.to_string(),
            expression,
            code,
        };
        self.known.insert((number, pc), (maps, asked));
        Ok(held)
    }
}

/// Whether one of these holds. What cannot be evaluated is left to who wrote it.
fn codes_hold(target: &dyn Target, conditions: &[Arc<[u8]>]) -> bool {
    let Some(running) = target.running() else {
        return true;
    };
    let mut conditions = conditions.iter();
    conditions.any(|code| {
        !condition::is_false(&Machine {
            code,
            registers: &running.registers,
            target,
        })
    })
}

/// A condition, where a process is.
struct Machine<'a> {
    code: &'a [u8],
    registers: &'a Registers,
    target: &'a dyn Target,
}

impl condition::Machine for Machine<'_> {
    fn code(&self, at: usize) -> Option<u8> {
        self.code.get(at).copied()
    }

    fn register(&self, number: u16) -> Option<u64> {
        self.registers.by_gdb_number(number)
    }

    fn memory(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let into = bytes.get_mut(..size)?;
        (self.target.read(Addr(address), into) == size).then(|| u64::from_le_bytes(bytes))
    }
}
