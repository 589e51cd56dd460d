//! The times at which threads of a process got to a place in the source.

use std::collections::HashMap;

use inspect::expr::Expression;
use inspect::lookup::Location;
use inspect::scope::Scope;
use inspect::{Inspector, ThreadId};
use protocol::id::{Addr, ProcessId, ThreadNo};
use target::{Cancel, MapsVersion, Position};

use super::{Moment, Passed, Trouble, Was, was};
use crate::conditions::INLINED_MAX;
use crate::found::{Came, Found, Search};
use crate::member::{Context, Member};
use crate::program::Program;
use crate::stops::{StopTable, What, locations};

/// What a thread does at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It gets there; of a function, it is called.
    At,
    /// It returns from a function.
    Return,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'q> {
    pub deed: Deed,
    /// The function or line.
    pub place: &'q str,
    /// Only if this holds there; of a return, where the function was called.
    pub condition: Option<&'q str>,
    /// What is to be evaluated there.
    pub value: Option<&'q str>,
}

/// A call that has not returned yet.
struct Pending {
    thread: ThreadNo,
    /// Where it returns to, its frame's address, and the point there.
    address: Addr,
    cfa: Addr,
    point: u32,
    /// Which of those asked about.
    asked: usize,
}

type Parsed = HashMap<(MapsVersion, Option<Addr>), Expression>;

fn value_here(
    member: &mut Member,
    program: &Program,
    text: &str,
    inlined: Option<&Location>,
    parsed: &mut Parsed,
) -> Result<Was, Trouble> {
    let library = program.library();
    let layout = member.layout(library)?;
    let target = member.target()?;
    let maps = target.maps_version();
    let looked = target.look();
    let inspector = Inspector::with_layout(library, &*looked, layout);
    let mut stack = inspector.stack(ThreadId(target.thread().0), 10 + INLINED_MAX)?;
    if let Some(location) = inlined {
        stack = stack.entering(location);
    }
    let scope = Scope::new(&inspector, &stack, 0).ok_or(crate::Error::NoFrame)?;
    let pc = scope.frame().map(|frame| frame.pc);
    let expression = match parsed.entry((maps, pc)) {
        std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::hash_map::Entry::Vacant(free) => {
            free.insert(Expression::parse(&scope, text)?)
        }
    };
    match was(&scope, expression) {
        Ok(was) => Ok(was),
        Err(inspect::Error::OptimizedOut) => Err(Trouble::OptimizedOut),
        Err(error) => Ok(Was::Unknown(error.to_string())),
    }
}

/// The place that the innermost frame returns to.
fn returns(member: &mut Member, program: &Program) -> Result<Option<(Addr, Addr)>, Trouble> {
    let found = member.look(program.library(), |inspector, target| {
        let stack = inspector.stack(ThreadId(target.thread().0), 2 + INLINED_MAX);
        stack
            .ok()
            .and_then(|stack| inspector.return_place(&stack, 0))
    })?;
    Ok(found)
}

/// Whether the place is one of any program that the process executed, and why
/// not.
fn is_there(member: &mut Member, program: &Program, place: &str) -> Result<(), Trouble> {
    let never = Cancel::new();
    let images = member.images.clone().unwrap_or_default();
    let mut ends: Vec<Position> = images
        .iter()
        .skip(1)
        .map(|image| Position::Event(image.first.previous()))
        .collect();
    ends.push(Position::Event(member.last));
    let mut trouble = None;
    for end in ends {
        member.seek(end, &never)?;
        let looked = member.look(program.library(), |inspector, _| {
            let bare = inspector.main_module();
            let bare = bare.is_some_and(|main| main.module.info().is_none());
            (locations(inspector, place).map(|_| ()), bare)
        })?;
        match looked {
            (Ok(()), _) => return Ok(()),
            (Err(error), bare) => {
                let error = Trouble::from(error);
                trouble = Some(match (&error, bare) {
                    (Trouble::NoName { near: None, .. }, true) => Trouble::NoDebugInformation,
                    _ => error,
                });
            }
        }
    }
    trouble.map_or(Ok(()), Err)
}

/// One of the places that are asked about.
struct Asked<'q> {
    passing: Passing<'q>,
    /// The point at the place.
    entry: u32,
    parsed: Parsed,
    found: Vec<Passed>,
    failed: Option<Trouble>,
}

impl Asked<'_> {
    /// A thread passed: with what was to be evaluated there.
    fn pass(
        &mut self,
        member: &mut Member,
        program: &Program,
        moment: Moment,
        inlined: Option<&Location>,
    ) {
        let was = match self.passing.value {
            Some(text) => match value_here(member, program, text, inlined, &mut self.parsed) {
                Ok(was) => Some(was),
                Err(trouble) => {
                    self.failed.get_or_insert(trouble);
                    return;
                }
            },
            None => None,
        };
        self.found.push(Passed { moment, was });
    }
}

/// Each time a thread of a process got to a place, or returned from it, in order: of
/// several places, found in one run.
pub fn passes(
    program: &Program,
    process: ProcessId,
    passings: &[Passing<'_>],
    cancel: &Cancel,
) -> Result<Vec<Result<Vec<Passed>, Trouble>>, Trouble> {
    let ix = super::index(program, process)?;
    let mut member = Member::new(program.history()?, process, ix);
    if member.is_empty() {
        return Ok(passings.iter().map(|_| Ok(Vec::new())).collect());
    }
    member.open(program, cancel)?;
    let mut stops = StopTable::default();
    let mut asked: Vec<Asked<'_>> = passings
        .iter()
        .map(|passing| Asked {
            entry: stops.add(What::Break(passing.place.to_string()), |point| {
                point.condition = passing.condition.map(str::to_string);
            }),
            passing: *passing,
            parsed: Parsed::new(),
            found: Vec::new(),
            failed: None,
        })
        .collect();
    let end = member.end();
    let mut pending: Vec<Pending> = Vec::new();
    loop {
        let context = Context {
            program,
            stops: &stops,
            execs: true,
            cancel,
            company: None,
        };
        let mut found = match member.next_stop(context, end)? {
            Search::Found(found) => found,
            Search::Nothing => break,
            Search::Interrupted(_) => return Err(Trouble::Cancelled),
        };
        member.at = found.at;
        while let Came::Trouble(trouble) = &found.came {
            let (number, _, error) = (**trouble).clone();
            for own in asked.iter_mut().filter(|own| own.entry == number) {
                own.failed = Some(error.clone().into());
            }
            stops.remove(number);
            // Others may be at the same place, and are there all the same.
            let context = Context {
                program,
                stops: &stops,
                execs: true,
                cancel,
                company: None,
            };
            let plan = member.plan(context)?;
            found = match member.points_here(context, &plan)? {
                Ok(points) => Found {
                    came: Came::Points,
                    points,
                    ..found
                },
                Err(trouble) => member.trouble(trouble)?,
            };
        }
        match found.came {
            Came::Exec => {
                // Nobody returns from what was replaced.
                pending.clear();
                stops.retain(|point| asked.iter().any(|own| own.entry == point.number));
                asked.iter_mut().for_each(|own| own.parsed.clear());
                continue;
            }
            Came::Diverged(difference) => return Err(Trouble::Diverged(difference)),
            _ => {}
        }
        let moment = Moment {
            at: found.at,
            thread: member.thread()?,
            by_event: false,
        };
        let (address, rsp) = (found.at.address(), member.stack_pointer()?);
        // What was called first, so that a function that was entered where
        // another returned to is not taken for that.
        let mine = |own: &Pending| own.thread == moment.thread && Some(own.cfa) <= rsp;
        if pending
            .iter()
            .any(|own| mine(own) && Some(own.address) == address)
        {
            let is_back = |own: &&Pending| Some(own.address) == address && Some(own.cfa) == rsp;
            let returned: Vec<usize> = pending
                .iter()
                .filter(|own| mine(own))
                .filter(is_back)
                .map(|own| own.asked)
                .collect();
            // Those that were left in another way are gone, too.
            let gone: Vec<u32> = pending
                .extract_if(.., |own| mine(own))
                .map(|own| own.point)
                .collect();
            stops.retain(|point| {
                !gone.contains(&point.number) || pending.iter().any(|p| p.point == point.number)
            });
            for (i, own) in asked.iter_mut().enumerate() {
                if returned.contains(&i) {
                    own.pass(&mut member, program, moment, None);
                }
            }
        }
        for (i, own) in asked.iter_mut().enumerate() {
            if !found.points.contains(&own.entry) {
                continue;
            }
            if own.passing.deed == Deed::At {
                let plan = member.plan(Context {
                    program,
                    stops: &stops,
                    execs: true,
                    cancel,
                    company: None,
                })?;
                let inlined = address.and_then(|address| plan.inlined_at(own.entry, address));
                own.pass(&mut member, program, moment, inlined);
                continue;
            }
            let Some((address, cfa)) = returns(&mut member, program)? else {
                continue;
            };
            let known = pending.iter().find(|own| own.address == address);
            let point = match known {
                Some(own) => own.point,
                None => stops.add(
                    What::Code {
                        address,
                        conditions: Vec::new(),
                    },
                    |_| {},
                ),
            };
            pending.push(Pending {
                thread: moment.thread,
                address,
                cfa,
                point,
                asked: i,
            });
        }
    }
    let mut answers = Vec::new();
    for own in asked {
        answers.push(match own.failed {
            Some(failed) => Err(failed),
            None if own.found.is_empty() => {
                is_there(&mut member, program, own.passing.place).map(|()| own.found)
            }
            None => Ok(own.found),
        });
    }
    Ok(answers)
}
