//! Where processes are to stop, as the user said it: breakpoints, watched
//! variables, events that are caught.
//!
//! A point says what is meant, in whom and when; what it is in a process as it
//! stands is looked up when that process is moved (`plan`), so it holds for
//! every program that the process executes, in both directions, and for
//! processes that come later.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use inspect::Inspector;
use inspect::lookup::Location;
use protocol::id::{Addr, ProcessId, ThreadNo};
use target::Watch;

use crate::caught::Caught;
use crate::member::Member;
use crate::watched::Watched;
use crate::{Error, Result};

/// Something to stop at. All have one row of numbers.
#[derive(Clone, Debug)]
pub struct Point {
    pub number: u32,
    pub what: What,
    /// In which processes.
    pub whom: Whom,
    /// In which thread only.
    pub thread: Option<ThreadNo>,
    /// It counts only if this expression is true there.
    pub condition: Option<String>,
    /// It is deleted when it has stopped somebody.
    pub temporary: bool,
    pub enabled: bool,
    /// It is passed; that it was is told with the next stop.
    pub traces: bool,
    pub hits: u64,
    /// So many times it is passed over yet.
    pub ignore: u64,
    /// What who shows it is to do when it is come to.
    pub commands: Vec<String>,
}

/// What there is to stop at.
#[derive(Clone, Debug)]
pub enum What {
    /// A place in the code, as the user wrote it.
    Break(String),
    /// An instruction, for who looks places up by themselves: in the program
    /// that a process executes now. If there are conditions (in the language of
    /// [`protocol::condition`]), one of them must hold.
    Code {
        address: Addr,
        conditions: Vec<Arc<[u8]>>,
    },
    /// A variable.
    Watch(Box<Watched>),
    /// Memory, for who knows what is there.
    Memory { address: Addr, length: u64 },
    /// Events.
    Catch(Caught),
}

/// In whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Whom {
    #[default]
    All,
    /// The process of this name, on any host if it names none, or all that
    /// execute the program of this name.
    Named(String),
    Process(ProcessId),
}

impl Point {
    /// What it is about, as the user wrote it.
    pub fn text(&self) -> String {
        match &self.what {
            What::Break(text) => text.clone(),
            What::Watch(watched) => watched.text.clone(),
            What::Catch(caught) => caught.text.clone(),
            What::Code { address, .. } | What::Memory { address, .. } => format!("*{address:#x}"),
        }
    }

    /// Whether it is one of this process's.
    pub(crate) fn concerns(&self, member: &Member) -> bool {
        let is_its = match &self.whom {
            Whom::All => true,
            Whom::Named(name) => member.is_called(name),
            Whom::Process(process) => *process == member.id,
        };
        let is_there = match &self.what {
            What::Watch(watched) => watched.process == member.id,
            What::Catch(caught) => caught.is_in(member.id),
            What::Break(_) | What::Code { .. } | What::Memory { .. } => true,
        };
        self.enabled && is_its && is_there
    }

    /// Stands for everything that says where it stops.
    fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.number, &self.whom, self.thread, &self.condition).hash(&mut hash);
        match &self.what {
            What::Break(text) => (0, text).hash(&mut hash),
            What::Code {
                address,
                conditions,
            } => (1, address, conditions).hash(&mut hash),
            // These do not change: their number stands for them.
            What::Watch(_) => 2.hash(&mut hash),
            What::Catch(_) => 3.hash(&mut hash),
            What::Memory { address, length } => (4, address, length).hash(&mut hash),
        }
        hash.finish()
    }
}

/// What a process is to stop at: equal if nothing of it has changed.
pub(crate) type Key = Vec<u64>;

/// All points.
#[derive(Clone, Debug, Default)]
pub struct StopTable {
    points: Vec<Point>,
    last: u32,
}

impl StopTable {
    /// Adds a point; `settle` says more of it. Returns its number.
    pub fn add(&mut self, what: What, settle: impl FnOnce(&mut Point)) -> u32 {
        self.last += 1;
        let mut point = Point {
            number: self.last,
            what,
            whom: Whom::All,
            thread: None,
            condition: None,
            temporary: false,
            enabled: true,
            traces: false,
            hits: 0,
            ignore: 0,
            commands: Vec::new(),
        };
        settle(&mut point);
        let number = point.number;
        self.points.push(point);
        number
    }

    /// A number that no point has or will have, for what is numbered with them.
    pub fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Takes over what another table, of the same program at another time, has of
    /// places in the code: they are now those of that one. Whoever they are for is
    /// called by `whom` here. What else there is stays, and no number comes twice.
    pub fn adopt(&mut self, other: &StopTable, whom: impl Fn(&Whom) -> Whom) {
        let is_place = |point: &Point| matches!(point.what, What::Break(_));
        self.points.retain(|point| !is_place(point));
        let places = other.points.iter().filter(|point| is_place(point));
        self.points.extend(places.map(|point| Point {
            whom: whom(&point.whom),
            ..point.clone()
        }));
        self.points.sort_by_key(|point| point.number);
        self.last = self.last.max(other.last);
    }

    /// In order of their numbers.
    pub fn all(&self) -> &[Point] {
        &self.points
    }

    pub fn get(&self, number: u32) -> Option<&Point> {
        self.points.iter().find(|p| p.number == number)
    }

    pub fn get_mut(&mut self, number: u32) -> Result<&mut Point> {
        let mut points = self.points.iter_mut();
        let found = points.find(|p| p.number == number);
        found.ok_or(Error::NoPoint(number))
    }

    /// False: there is none of this number.
    pub fn remove(&mut self, number: u32) -> bool {
        let before = self.points.len();
        self.points.retain(|p| p.number != number);
        self.points.len() < before
    }

    pub fn retain(&mut self, keep: impl FnMut(&Point) -> bool) {
        self.points.retain(keep);
    }

    /// Those of a process.
    pub(crate) fn of<'t>(&'t self, member: &'t Member) -> impl Iterator<Item = &'t Point> {
        self.points.iter().filter(|p| p.concerns(member))
    }

    pub(crate) fn key(&self, member: &Member) -> Key {
        self.of(member).map(Point::fingerprint).collect()
    }

    /// Whether somebody who looks places up by themselves can have one more
    /// instruction, or more memory, for a process.
    pub fn has_room(&self, process: ProcessId, what: &What) -> bool {
        let own = || {
            let its = self.points.iter().filter(move |p| {
                matches!(&p.whom, Whom::Process(id) if *id == process) && p.enabled
            });
            its.map(|p| &p.what).chain([what])
        };
        let mut addresses: Vec<Addr> = own()
            .filter_map(|what| match what {
                What::Code { address, .. } => Some(*address),
                _ => None,
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        // More than fits need not be counted.
        let memory = own().filter_map(|what| match what {
            What::Memory { address, length } => Some((*address, (*length).min(Watch::MOST + 1))),
            _ => None,
        });
        let parts = memory.flat_map(|(address, length)| Watch::split(address, length));
        let pieces = parts.flat_map(Watch::pieces).count();
        addresses.len() <= protocol::replay::BREAKPOINTS && pieces <= protocol::replay::WATCHES
    }
}

/// An address that a place in the code stands for.
#[derive(Clone, Debug)]
pub struct CodeLocation {
    pub address: Addr,
    /// The source line there.
    pub line: Option<inspect::frames::SourceLocation>,
    /// The inlined function that is meant, if it is one.
    pub inlined: Option<Location>,
}

/// What a user names as a place in the code, in a process as it stands.
pub fn locations(inspector: &Inspector<'_>, text: &str) -> Result<Vec<CodeLocation>> {
    let found = inspector.resolve(text, None);
    if let Some(address) = address_in(text)
        && found.is_err()
    {
        // Code that is of no file.
        let mut mapped = inspector.mappings().iter();
        return match mapped.find(|m| (m.start..m.end).contains(&address)) {
            Some(mapping) if mapping.executable => Ok(vec![CodeLocation {
                address,
                line: None,
                inlined: None,
            }]),
            Some(_) => Err(Error::Location(format!(
                "what is at {address:#x} is not code"
            ))),
            None => Err(Error::Location(format!(
                "nothing is mapped at {address:#x}"
            ))),
        };
    }
    Ok(found?
        .into_iter()
        .map(|location| CodeLocation {
            address: location.address,
            line: location.place.clone(),
            inlined: Some(location).filter(|location| location.instance.is_some()),
        })
        .collect())
}

/// The address that a place is, if it is one: `*0x1234`.
pub fn address_in(place: &str) -> Option<Addr> {
    let number = u64::from_str_radix(place.strip_prefix("*0x")?, 16);
    number.ok().map(Addr)
}
