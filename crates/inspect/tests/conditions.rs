//! Conditions put into steps say what the expressions say.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use common::Build;
use inspect::core::CoreFile;
use inspect::expr::{Expression, Step};
use inspect::scope::Scope;
use inspect::target::Registers;
use inspect::{Inspector, Library, Options, Process, ThreadId};
use protocol::id::Addr;

/// Follows steps; `None` where nothing can be said.
fn follow(steps: &[Step], registers: &Registers, process: &dyn Process) -> Option<u64> {
    let mut stack = Vec::new();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        at += 1;
        let mut two = || {
            let (b, a): (u64, u64) = (stack.pop().unwrap(), stack.pop().unwrap());
            (a, b)
        };
        let result = match *step {
            Step::Constant(number) => number,
            Step::Register(16) => registers.rip,
            Step::Register(number) => registers.general[usize::from(number)],
            Step::Load(size) => {
                let mut bytes = [0; 8];
                let address = stack.pop().unwrap();
                let into = &mut bytes[..usize::from(size)];
                if process.read(Addr(address), into) != into.len() {
                    return None;
                }
                u64::from_le_bytes(bytes)
            }
            Step::Extend { bits, signed } => {
                let unused = 64 - u32::from(bits);
                let value = stack.pop().unwrap() << unused;
                if signed {
                    (value as i64 >> unused) as u64
                } else {
                    value >> unused
                }
            }
            Step::Complement => !stack.pop().unwrap(),
            Step::Not => u64::from(stack.pop().unwrap() == 0),
            Step::Duplicate => *stack.last().unwrap(),
            Step::Drop => {
                stack.pop().unwrap();
                continue;
            }
            Step::Swap => {
                let (a, b) = two();
                stack.extend([b, a]);
                continue;
            }
            Step::Jump(to) => {
                at = to;
                continue;
            }
            Step::JumpIf(to) => {
                if stack.pop().unwrap() != 0 {
                    at = to;
                }
                continue;
            }
            Step::Fail => return None,
            step => {
                let (a, b) = two();
                let (x, y) = (a as i64, b as i64);
                let by = u32::try_from(b).unwrap_or(64).min(64);
                match step {
                    Step::Add => a.wrapping_add(b),
                    Step::Subtract => a.wrapping_sub(b),
                    Step::Multiply => a.wrapping_mul(b),
                    Step::Divide { signed: true } => x.checked_div(y)? as u64,
                    Step::Divide { .. } => a.checked_div(b)?,
                    Step::Remainder { signed: true } => x.checked_rem(y)? as u64,
                    Step::Remainder { .. } => a.checked_rem(b)?,
                    Step::ShiftLeft => a.checked_shl(by).unwrap_or(0),
                    Step::ShiftRight { signed: true } => {
                        x.checked_shr(by).unwrap_or(x >> 63) as u64
                    }
                    Step::ShiftRight { .. } => a.checked_shr(by).unwrap_or(0),
                    Step::And => a & b,
                    Step::Or => a | b,
                    Step::Xor => a ^ b,
                    Step::Equal => u64::from(a == b),
                    Step::Less { signed: true } => u64::from(x < y),
                    Step::Less { .. } => u64::from(a < b),
                    other => panic!("{other:?} has one operand"),
                }
            }
        };
        stack.push(result);
    }
    assert_eq!(stack.len(), 1, "{steps:?}");
    stack.pop()
}

/// Conditions on a variable, whatever it is.
fn conditions(scope: &Scope<'_>, name: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "@",
        "!@",
        "@ == 0",
        "@ != 7",
        "@ > 3",
        "@ <= -1",
        "@ < 0x80000000",
        "@ >= 4000000000",
        "@ + 1 == 5",
        "3 * @ - 2 > 7 && @ != 9",
        "@ == 1 || @ / 2 > 4",
        "@ % 3 == 1",
        "(@ & 6) << 2 >= @ >> 1",
        "(@ ^ 5 | 2) == 7",
        "-@ > 2",
        "~@ == 3",
        "@ == @",
        "*@",
        "*@ == 0",
        "*@ > 100",
        "@[0] == 1",
        "@[1] > @[0]",
        "@[-1] == 0",
        "@[*@] == 0",
        "&@ == 0",
        "(@ > 1) == (@ > 2) && !(@ == 8)",
        "$rsp > 100 && @ == 2",
        "0 == @",
        "2 < @ && 7 > @",
        "(@ || @) && @[0]",
    ]
    .iter()
    .map(|form| form.replace('@', name))
    .collect();
    let value = scope
        .find(name)
        .and_then(|local| scope.read(local.die).ok());
    let ty = value.map(|value| value.target(scope.inspector.process).unwrap_or(value).ty);
    let members = ty.as_ref().and_then(|ty| ty.aggregate());
    for member in members
        .iter()
        .flat_map(|a| &a.members)
        .filter_map(|m| m.name)
    {
        let member = member.trim_start_matches("__");
        for form in [
            "@",
            "@ == 0",
            "@ > 5",
            "@ + 3 < 100",
            "*@ == 65",
            "@[0]",
            "@ != 0 && @ < 9",
        ] {
            all.push(form.replace('@', &format!("{name}.{member}")));
        }
    }
    all
}

fn compare(build: Build, least: usize) {
    if !common::has("gdb") {
        return;
    }
    let library = Library::new(Options::default());
    let (mut compiled, mut all, mut held, mut silent) = (0, 0, 0, 0);
    for answer in &build.stops(10, 3) {
        let path = answer["core"].as_str().unwrap();
        let core = CoreFile::open(path.as_ref()).unwrap();
        let inspector = Inspector::new(&library, &core);
        for thread in answer["threads"].as_array().unwrap() {
            let tid = ThreadId(thread["tid"].as_u64().unwrap() as u32);
            let registers = core.registers(tid).unwrap();
            let stack = inspector.stack(tid, 10).unwrap();
            let Some(scope) = Scope::new(&inspector, &stack, 0) else {
                continue;
            };
            let variables = scope.locals().into_iter().chain(scope.arguments());
            let mut texts: Vec<String> = variables
                .flat_map(|local| conditions(&scope, local.name))
                .collect();
            // Outside of functions, and what needs none of it.
            texts.extend(
                ["global_count > 3", "total == 0", "counter < 2", "$rip == 5"].map(String::from),
            );
            for text in texts {
                let Ok(expression) = Expression::parse(&scope, &text) else {
                    continue;
                };
                all += 1;
                let Some(steps) = expression.compile(&scope) else {
                    continue;
                };
                compiled += 1;
                let said = follow(&steps, &registers, &core).map(|value| value != 0);
                match (said, expression.holds(&scope)) {
                    (Some(said), Ok(holds)) => {
                        assert_eq!(said, holds, "{path}: {text}: {steps:?}");
                        held += usize::from(holds);
                    }
                    (Some(said), Err(error)) => {
                        assert!(said, "{path}: {text}: {error}: {steps:?}");
                    }
                    (None, _) => silent += 1,
                }
            }
        }
    }
    eprintln!("{build:?}: {compiled} of {all}, {held} hold, {silent} say nothing");
    assert!(compiled >= least, "only {compiled} of {all}");
    assert!(held > compiled / 20 && silent < compiled / 2);
}

macro_rules! conditions {
    ($($name:ident: $source:literal, $level:literal, $least:literal;)*) => {$(
        #[test]
        fn $name() {
            compare(Build { source: $source, level: $level }, $least);
        }
    )*};
}

conditions! {
    c_unoptimized: "basics.c", 0, 300;
    c_optimized: "basics.c", 2, 100;
    cpp_unoptimized: "shapes.cpp", 0, 300;
    cpp_optimized: "shapes.cpp", 2, 100;
    rust_unoptimized: "values.rs", 0, 100;
    rust_optimized: "values.rs", 2, 20;
}
