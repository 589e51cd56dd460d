//! Whether what somebody came to stops it, and what is counted of it.

use inspect::lookup::Location;
use target::Cancel;

use crate::found::{Came, Found};
use crate::group::Group;
use crate::reason::{Reason, Traced};
use crate::stops::What;
use crate::{Error, Result};

impl Group {
    /// Somebody stands where something was found: why that stops it. None: it
    /// does not, it was only passed.
    pub(crate) fn judge(
        &mut self,
        i: usize,
        found: Found,
        traced: &mut Vec<Traced>,
    ) -> Result<Option<Reason>> {
        let mut point = None;
        let mut left = None;
        self.enter(i, None)?;
        match found.came {
            Came::Watch {
                number,
                values,
                back,
            } => {
                if self.counts(i, number, traced)? {
                    // Others here have their counts, though one is enough to stop.
                    for number in found.points {
                        self.counts(i, number, traced)?;
                    }
                    return Ok(Some(Reason::Watch {
                        number,
                        values,
                        back,
                    }));
                }
            }
            Came::Caught(numbers) => {
                let mut caught = None;
                for number in numbers {
                    if self.counts(i, number, traced)? {
                        caught = caught.or(Some(number));
                    }
                }
                return Ok(caught.map(|number| Reason::Caught { number }));
            }
            Came::OutOfScope { number, back } => {
                let text = self.stops.get(number).map(|p| p.text());
                let text = text.unwrap_or_default();
                if !back {
                    self.stops.remove(number);
                }
                return Ok(Some(Reason::OutOfScope { number, text, back }));
            }
            Came::Trouble(trouble) => {
                let (number, condition, source) = (*trouble).clone();
                return Err(Error::Condition {
                    number,
                    condition,
                    source,
                });
            }
            Came::Happened(what, numbers) => {
                let mut caught = None;
                let is_caught = !numbers.is_empty();
                for number in numbers {
                    if self.counts(i, number, traced)? {
                        caught = caught.or(Some(number));
                    }
                }
                return Ok(
                    (caught.is_some() || !is_caught).then_some(Reason::Happened {
                        what,
                        number: caught,
                    }),
                );
            }
            Came::Step => point = Some(Reason::Step),
            Came::Left(caller) => {
                point = Some(Reason::Step);
                left = Some(caller);
            }
            Came::Points => {}
            Came::Exec => return Ok(Some(Reason::Exec)),
            Came::Arrived => return Ok(Some(Reason::Arrived)),
            Came::Start => return Ok(Some(Reason::Start)),
            Came::End => return Ok(Some(Reason::End)),
            Came::Diverged(difference) => return Ok(Some(Reason::Diverged(difference))),
        }
        let mut hit = None;
        let mut entered = left;
        for number in found.points {
            let function = self.inlined_function(i, number)?;
            // What a trace shows is that function's frame as well.
            self.enter(i, function.clone())?;
            if self.counts(i, number, traced)? && hit.is_none() {
                hit = Some(number);
                entered = function;
            }
        }
        self.enter(i, entered)?;
        Ok(hit.map(|number| Reason::Breakpoint { number }).or(point))
    }

    /// Says which inlined function somebody is about to enter.
    fn enter(&mut self, i: usize, function: Option<Location>) -> Result<()> {
        let member = self.members.get_mut(i).ok_or(Error::NoProcesses)?;
        member.enter(function);
        Ok(())
    }

    /// The inlined function that begins where somebody stands, if a breakpoint is
    /// at that.
    fn inlined_function(&mut self, i: usize, number: u32) -> Result<Option<Location>> {
        let point = self.stops.get(number);
        let is_named = point.is_some_and(|point| matches!(point.what, What::Break(_)));
        let Some(address) = self.member(i)?.at.address().filter(|_| is_named) else {
            return Ok(None);
        };
        self.here(i)?;
        let never = Cancel::new();
        let (member, context) = self.with(i, &never)?;
        let plan = member.plan(context)?;
        Ok(plan.inlined_at(number, address).cloned())
    }

    /// A point was come to: whether it is one to stop at.
    pub(crate) fn counts(
        &mut self,
        i: usize,
        number: u32,
        traced: &mut Vec<Traced>,
    ) -> Result<bool> {
        let Ok(point) = self.stops.get_mut(number) else {
            return Ok(false);
        };
        point.hits += 1;
        if point.ignore > 0 {
            point.ignore -= 1;
            return Ok(false);
        }
        if point.traces {
            let frame = self.frame_line(i)?;
            let member = self.member(i)?;
            traced.push(Traced {
                number,
                process: member.id,
                at: member.at,
                frame,
            });
            return Ok(false);
        }
        if point.temporary {
            self.stops.remove(number);
        }
        Ok(true)
    }
}
