//! Steps by lines where functions are inlined: one over functions goes over those too, as
//! if they were called.

use inspect::frames::{Frame, Stack, frame_of, user_frame};
use inspect::lookup::Location;

use crate::Result;
use crate::conditions::INLINED_MAX;
use crate::found::{Came, Found, Search};
use crate::member::{Context, Member};

/// See [`Member::stepped_frame`].
pub(crate) struct SteppedFrame {
    pub frame: Frame,
    /// How many frames it is of, of those that are inlined into one another, from outside;
    /// none if what is inlined is gone into.
    pub depth: Option<usize>,
}

/// How many frames are of the code that runs: of functions that are inlined into one another.
fn inlined_frames(stack: &Stack) -> usize {
    let frames = stack.frames.iter();
    frames.take_while(|frame| frame.physical == 0).count()
}

impl Member {
    /// The frame that a step by lines is of. One over functions is of the user's function
    /// where code of the library is inlined into that, and goes over what is inlined.
    pub fn stepped_frame(
        &mut self,
        context: Context<'_>,
        into: bool,
    ) -> Result<Option<SteppedFrame>> {
        let entered = self.entered().cloned();
        self.look_at_stack(context, 1 + INLINED_MAX, |_, stack| {
            let shown = || entered.as_ref().and_then(|f| frame_of(stack, f));
            let level = match into {
                true => 0,
                false => shown().unwrap_or_else(|| user_frame(stack)),
            };
            let here = inlined_frames(stack);
            Some(SteppedFrame {
                frame: stack.frames.get(level)?.clone(),
                depth: (!into).then(|| here.saturating_sub(level)),
            })
        })
    }

    /// The frame as deep among those that are inlined into one another, or the innermost.
    pub fn frame_at(
        &mut self,
        context: Context<'_>,
        depth: Option<usize>,
    ) -> Result<Option<Frame>> {
        let Some(depth) = depth else {
            return self.top(context);
        };
        self.look_at_stack(context, 1 + INLINED_MAX, |_, stack| {
            let here = inlined_frames(stack);
            stack.frames.get(here.saturating_sub(depth)).cloned()
        })
    }

    /// A step over functions ended where a line begins with what is inlined into it: that is
    /// not entered yet.
    pub fn outside(
        &mut self,
        context: Context<'_>,
        depth: Option<usize>,
        search: Search,
    ) -> Result<Search> {
        let (Search::Found(found), Some(depth)) = (&search, depth) else {
            return Ok(search);
        };
        if !matches!(found.came, Came::Step) {
            return Ok(search);
        }
        let own = self.look_at_stack(context, 1 + INLINED_MAX, |_, stack| {
            let here = inlined_frames(stack);
            let level = here.checked_sub(depth).filter(|level| *level > 0)?;
            let frame = stack.frames.get(level)?;
            Some(Location {
                address: frame.pc,
                function: None,
                place: None,
                module: String::new(),
                inlined: false,
                instance: Some(frame.function_block()?.die),
            })
        })?;
        Ok(match own {
            Some(own) => Search::Found(Found {
                came: Came::Left(own),
                ..found.clone()
            }),
            None => search,
        })
    }

    /// Whether it stands where a function begins that is inlined there, and is not in it yet.
    pub fn stands_outside(&mut self, context: Context<'_>) -> Result<bool> {
        let Some(entered) = self.entered().cloned() else {
            return Ok(false);
        };
        let level = self.look_at_stack(context, 1 + INLINED_MAX, |_, stack| {
            frame_of(stack, &entered)
        })?;
        Ok(level.is_some_and(|level| level > 0))
    }
}
