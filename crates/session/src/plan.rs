//! What a process is to stop at, where it is now: the points of the table, looked
//! up in what it has mapped.

use std::sync::Arc;

use inspect::lookup::Location;
use protocol::id::Addr;
use target::{Condition, Watch};

use crate::member::{Context, Member};
use crate::stops::{Point, StopTable, What, address_in, locations};
use crate::watched::FrameKey;
use crate::{Error, Result};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Addresses of breakpoints, with their numbers.
    pub addresses: Vec<(Addr, u32)>,
    /// What inlined functions those that are in one are of.
    pub inlined: Vec<(u32, Location)>,
    pub watches: Vec<Watch>,
    /// The point that each of those belongs to.
    pub watched: Vec<u32>,
    /// Breakpoints may be in code that is mapped later.
    pub mapped: bool,
    /// Where the loader comes by when it has mapped something, in a process that is
    /// alive.
    pub loader: Vec<Addr>,
    /// The frames of watched variables, with their points.
    pub frames: Vec<(u32, FrameKey)>,
    /// Something is watched in a program that it executes later.
    pub watches_later: bool,
}

impl Plan {
    /// The inlined function that a breakpoint is of, at an address.
    pub fn inlined_at(&self, number: u32, address: Addr) -> Option<&Location> {
        let mut all = self.inlined.iter();
        let found = all.find(|(n, location)| *n == number && location.address == address);
        found.map(|(_, location)| location)
    }

    /// The point that a part of watched memory belongs to.
    pub fn watched_by<'s>(&self, part: usize, stops: &'s StopTable) -> Option<&'s Point> {
        stops.get(*self.watched.get(part)?)
    }

    /// What a process stops at on its way, and `others`, in order.
    pub fn breakpoints(&self, others: &[Addr]) -> Result<Vec<Addr>> {
        let own = self.addresses.iter().map(|(address, _)| *address);
        let mut all: Vec<Addr> = own
            .chain(others.iter().chain(&self.loader).copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        if all.len() > protocol::replay::BREAKPOINTS {
            return Err(Error::TooManyPlaces(all.len()));
        }
        Ok(all)
    }
}

impl Member {
    /// What it is to stop at, where the process is now.
    pub fn plan(&mut self, context: Context<'_>) -> Result<Arc<Plan>> {
        let maps = self.target()?.maps_version();
        let key = context.stops.key(self);
        if let Some((for_maps, for_key, plan)) = &self.plan
            && *for_maps == maps
            && *for_key == key
        {
            return Ok(Arc::clone(plan));
        }
        let mut plan = Plan::default();
        let mut names = Vec::new();
        for point in context.stops.of(self) {
            let number = point.number;
            match &point.what {
                What::Break(text) => match address_in(text) {
                    // Whatever may be there at the time.
                    Some(address) => plan.addresses.push((address, number)),
                    None => names.push((number, text.clone())),
                },
                What::Code { address, .. } => plan.addresses.push((*address, number)),
                What::Watch(watched) if watched.image == maps.image => {
                    plan.watches.extend(&watched.parts);
                    plan.watched.extend(watched.parts.iter().map(|_| number));
                    let frame = watched.frame.clone();
                    plan.frames.extend(frame.map(|frame| (number, frame)));
                }
                What::Memory { address, length } => {
                    let parts = Watch::split(*address, *length);
                    let before = plan.watches.len();
                    plan.watches.extend(parts);
                    let count = plan.watches.len() - before;
                    plan.watched.extend(std::iter::repeat_n(number, count));
                }
                What::Watch(watched) => plan.watches_later |= watched.image > maps.image,
                What::Catch(_) => {}
            }
        }
        if !names.is_empty() {
            plan.mapped = true;
            let is_alive = context.program.is_alive();
            let (found, loader) = self.look(context.program.library(), |inspector, _| {
                let loader = is_alive.then(|| inspector.find_functions("_dl_debug_state"));
                let loader = loader.and_then(|found| found.ok()).unwrap_or_default();
                let found = names.iter().flat_map(|(number, text)| {
                    let found = locations(inspector, text).unwrap_or_default();
                    found.into_iter().map(|place| (*number, place))
                });
                (found.collect::<Vec<_>>(), loader)
            })?;
            plan.loader = loader.iter().map(|place| place.address).collect();
            for (number, place) in found {
                plan.addresses.push((place.address, number));
                let inlined = place.inlined.map(|location| (number, location));
                plan.inlined.extend(inlined);
            }
        }
        plan.addresses.sort_by_key(|(_, number)| *number);
        let plan = Arc::new(plan);
        self.plan = Some((maps, key, Arc::clone(&plan)));
        Ok(plan)
    }

    /// What the process can test by itself: conditions of breakpoints that are in
    /// its language, or were tested here once. An address is left out if somebody
    /// else wants to stop there (`others`), whatever holds.
    pub fn passable(
        &self,
        context: Context<'_>,
        plan: &Plan,
        others: &[Addr],
    ) -> Result<Vec<Condition>> {
        let maps = self.target()?.maps_version();
        let codes = |address: Addr, number: u32| -> Option<Vec<Arc<[u8]>>> {
            let point = context.stops.get(number)?;
            // Each thread comes by.
            if point.thread.is_some() {
                return None;
            }
            match &point.what {
                What::Code { conditions, .. } if point.condition.is_none() => {
                    (!conditions.is_empty()).then(|| conditions.clone())
                }
                _ => {
                    let text = point.condition.as_deref()?;
                    let (for_maps, asked) = self.conditions.get(&(number, Some(address)))?;
                    let is_its = *for_maps == maps && asked.is_of(text);
                    Some(vec![asked.code().filter(|_| is_its)?])
                }
            }
        };
        let mut all = Vec::new();
        for (address, number) in &plan.addresses {
            let mut same = plan.addresses.iter().filter(|(a, _)| a == address);
            let is_free = same.all(|(_, number)| codes(*address, *number).is_some());
            if !is_free || others.contains(address) {
                continue;
            }
            let own = codes(*address, *number).unwrap_or_default();
            all.extend(own.into_iter().map(|code| Condition {
                address: *address,
                code,
            }));
        }
        Ok(all)
    }
}
