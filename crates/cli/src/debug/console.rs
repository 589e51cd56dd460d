//! The console: it takes lines, from a script or from who types them, has them done by
//! others, and is never kept waiting for longer than is wished.
//!
//! A line that takes longer than its time goes on in the background as a job with a number.
//! What can be asked meanwhile is asked of a prompt beside the busy one; what cannot is
//! refused, and told which job is in the way.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::commands::{Next, PROMPT, Prompt, not_here, number, word_and_rest};
use super::job::{Job, Outcome};
use super::limits::duration;
use super::screen::say;
use super::table::{Command, Meanwhile, find};
use super::voice::Voice;
use super::worker::{Heard, Worker};
use crate::failure::Failure;

/// So long a line that is typed may take before it goes on in the background.
const TYPED: Duration = Duration::from_secs(30);
/// So long it is waited for a job that is stopped, before it goes on stopping alone.
const STOPPING: Duration = Duration::from_secs(5);
/// So long it is waited for jobs to stop when the console is left.
const LEAVING: Duration = Duration::from_secs(20);

/// How long a line may take: as somebody has said, or as is usual.
#[derive(Debug, Default)]
pub struct TimeLimit(Mutex<Option<Option<Duration>>>);

impl TimeLimit {
    fn get(&self, usual: Option<Duration>) -> Option<Duration> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.unwrap_or(usual)
    }

    /// `set time-limit TIME|none`.
    pub fn set(&self, text: &str) -> Result<(), Failure> {
        let limit = match text {
            "none" | "off" => None,
            "" => {
                return Err(Failure::new("set the time limit to what?")
                    .hint("`set time-limit 10s`, `set time-limit none`"));
            }
            text => Some(Duration::from_nanos(duration(text)?)),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit);
        match limit {
            None => say!("A command is waited for however long it takes."),
            Some(limit) => say!(
                "A command that takes longer than {} goes on in the background.",
                length(limit)
            ),
        }
    }
}

/// See the module.
pub struct Console {
    /// Who may move the program, and what that is doing.
    mover: Worker,
    moves: Option<Arc<Job>>,
    /// Who looks while a job is under way, and what that is doing.
    looker: Option<(Arc<Job>, Worker)>,
    looks: Option<Arc<Job>>,
    last: u32,
    voice: Voice,
    heard: Receiver<Heard>,
    hears: Sender<Heard>,
    limit: Arc<TimeLimit>,
    /// How long a line may take if nobody has said.
    usual: Option<Duration>,
    prompt: &'static str,
    /// All went well.
    good: bool,
    quits: bool,
    /// Ctrl-C has ended a waiting.
    is_left: bool,
}

/// What came of a line.
pub struct Done {
    pub well: bool,
    /// It was stopped by Ctrl-C.
    pub is_interrupted: bool,
}

impl Console {
    pub fn new(
        mover: Worker,
        (hears, heard): (Sender<Heard>, Receiver<Heard>),
        limit: Arc<TimeLimit>,
    ) -> Console {
        Console {
            mover,
            moves: None,
            looker: None,
            looks: None,
            last: 0,
            voice: Voice::start(),
            heard,
            hears,
            limit,
            usual: None,
            prompt: PROMPT,
            good: true,
            quits: false,
            is_left: false,
        }
    }

    /// From here on lines are typed.
    pub fn is_typed(&mut self) {
        self.usual = Some(TYPED);
    }

    pub fn voice(&self) -> &Voice {
        &self.voice
    }

    /// Who may move the program: words are completed there.
    pub fn mover(&self) -> &Worker {
        &self.mover
    }

    /// What it waits for: the lines of `commands`, or a command.
    pub fn prompt(&self) -> &'static str {
        self.prompt
    }

    /// Somebody has enough.
    pub fn quits(&self) -> bool {
        self.quits
    }

    /// Everything that was done went well, as far as it is over.
    pub fn is_good(&mut self) -> bool {
        self.note_over();
        self.good
    }

    /// Whether what moves the program is free.
    pub fn is_free(&mut self) -> bool {
        self.listen();
        self.moves.is_none()
    }

    /// Whether something is done in the background.
    pub fn has_jobs(&self) -> bool {
        self.moves.is_some() || self.looks.is_some()
    }

    /// Does what a line says, and says why if that cannot be.
    pub fn execute(&mut self, line: &str) -> Done {
        self.listen();
        if self.quits {
            return Done::of(true);
        }
        let done = match self.run(line) {
            Ok(done) => done,
            Err(failure) => {
                failure.show();
                Done::of(false)
            }
        };
        self.good &= done.well;
        done
    }

    fn run(&mut self, line: &str) -> Result<Done, Failure> {
        let line = line.trim();
        if self.prompt != PROMPT {
            return self.begin(line, "its answer", false);
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(Done::of(true));
        }
        let (first, rest) = word_and_rest(line);
        let (word, at_once) = (first.trim_end_matches('&'), line.ends_with('&'));
        let command = match Prompt::is_rule(first) {
            true => None,
            false => Some(find(word.split('/').next().unwrap_or(word))?),
        };
        if let Some(command) = command
            && let Some(done) = self.own(command, rest)
        {
            return done.map(|()| Done {
                well: true,
                is_interrupted: std::mem::take(&mut self.is_left),
            });
        }
        let (line, at_once) = match line.strip_suffix('&') {
            Some(before) if at_once && !before.ends_with('&') => (before.trim_end(), true),
            _ => (line, false),
        };
        let Some(busy) = self.moves.clone() else {
            let waits_for = command.map_or("its answer", |command| command.waits_for);
            return self.begin(line, waits_for, at_once);
        };
        match command {
            Some(command) if command.meanwhile == Meanwhile::Looks => {
                self.look(line, command, &busy)
            }
            _ => Err(in_the_way(word, &busy)),
        }
    }

    /// What the console does by itself, whoever is busy.
    fn own(&mut self, command: &Command, rest: &str) -> Option<Result<(), Failure>> {
        Some(match command.name {
            "jobs" => self.list(),
            "join" => self.join(rest),
            "interrupt" => self.interrupt(rest),
            "kill" if rest.starts_with('%') => self.interrupt(rest),
            "shell" => super::alive::shell(rest),
            "echo" => super::table::echo(rest),
            "help" => super::commands::help(rest),
            "set" => match rest.strip_prefix("time-limit") {
                Some(text) => self.limit.set(text.trim()),
                None => return None,
            },
            "quit" => {
                self.quits = true;
                Ok(())
            }
            _ => return None,
        })
    }

    /// Has a line done by who may move the program.
    fn begin(
        &mut self,
        line: &str,
        waits_for: &'static str,
        at_once: bool,
    ) -> Result<Done, Failure> {
        let job = Job::new(line, waits_for, &self.voice);
        if at_once {
            // Before it begins: it may come to its end at once, and that is told of it by its number.
            if let Some(number) = self.background(&job) {
                say!("Job {number}: {line}")?;
            }
        }
        if !self.mover.begin(&job) {
            return Err(not_here());
        }
        self.moves = Some(Arc::clone(&job));
        match at_once {
            true => Ok(Done::of(true)),
            false => self.attend(&job),
        }
    }

    /// Has a line done by who looks meanwhile.
    fn look(&mut self, line: &str, command: &Command, busy: &Arc<Job>) -> Result<Done, Failure> {
        if let Some(looks) = &self.looks {
            return Err(in_the_way(command.name, looks));
        }
        // Where another job began nobody may be any more.
        self.looker.take_if(|(of, _)| !Arc::ptr_eq(of, busy));
        let (_, looker) = match &self.looker {
            Some(looker) => looker,
            None => {
                let snapshot = busy.snapshot();
                let snapshot = snapshot.ok_or_else(|| in_the_way(command.name, busy))?;
                let looker = Worker::beside(snapshot, self.hears.clone())?;
                self.looker.insert((Arc::clone(busy), looker))
            }
        };
        let job = Job::new(line, command.waits_for, &self.voice);
        if !looker.begin(&job) {
            return Err(not_here());
        }
        self.looks = Some(Arc::clone(&job));
        self.attend(&job)
    }

    /// Waits for a line for as long as it may take; then it goes on in the background.
    fn attend(&mut self, job: &Arc<Job>) -> Result<Done, Failure> {
        let limit = self.limit.get(self.usual);
        let mut until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            match self.next(until) {
                Some(Heard::Over(over)) => {
                    let done = self.note(&over);
                    if !Arc::ptr_eq(&over, job) {
                        continue;
                    }
                    let well = done.is_ok();
                    if let Err(failure) = done {
                        failure.show();
                    }
                    return Ok(Done {
                        well,
                        is_interrupted: job.cancel().is_cancelled(),
                    });
                }
                Some(Heard::Interrupted) => {
                    job.stop();
                    if self.usual.is_some() {
                        until = Instant::now().checked_add(STOPPING);
                    }
                }
                None => {
                    let Some(number) = self.background(job) else {
                        // It has just come to its end.
                        until = None;
                        continue;
                    };
                    let line = &job.line;
                    match (job.is_stopped(), limit) {
                        (false, Some(limit)) => say!(
                            "`{line}` takes longer than {}: it goes on in the background as job {number} (`jobs`, `join`; `interrupt` stops it).",
                            length(limit)
                        )?,
                        _ => say!(
                            "`{line}` does not stop yet: that goes on in the background as job {number} (`jobs`, `join`)."
                        )?,
                    }
                    return Ok(Done::of(true));
                }
            }
        }
    }

    /// The number of a job that is not waited for any more. None: it is over.
    fn background(&mut self, job: &Job) -> Option<u32> {
        let number = self.last + 1;
        job.to_background(number).then(|| {
            self.last = number;
            number
        })
    }

    /// What is heard next, until then.
    fn next(&self, until: Option<Instant>) -> Option<Heard> {
        let heard = match until {
            None => self
                .heard
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.heard.recv_timeout(left)
            }
        };
        heard.ok()
    }

    /// Takes in what came meanwhile. (Ctrl-C that came when nobody waited is old.)
    fn listen(&mut self) {
        while let Ok(heard) = self.heard.try_recv() {
            if let Heard::Over(job) = heard {
                // Why it has failed was told.
                let _ = self.note(&job);
            }
        }
    }

    /// A job is over: who did it is free. What came of it.
    fn note(&mut self, job: &Arc<Job>) -> Result<(), Failure> {
        let is_it = |own: &mut Arc<Job>| Arc::ptr_eq(own, job);
        self.looks.take_if(is_it);
        let has_moved = self.moves.take_if(is_it).is_some();
        // Where everybody is now is looked at by who has moved them.
        if self.moves.is_none() && self.looks.is_none() {
            self.looker = None;
        }
        let Some(Outcome { done, prompt }) = job.outcome() else {
            return Ok(());
        };
        if has_moved {
            self.prompt = prompt;
        }
        self.good &= done.is_ok();
        self.quits |= done? == Next::Quit;
        Ok(())
    }

    fn jobs(&self) -> Vec<Arc<Job>> {
        let all = [&self.moves, &self.looks].into_iter().flatten();
        let mut jobs: Vec<_> = all.filter(|job| job.number().is_some()).cloned().collect();
        jobs.sort_by_key(|job| job.number());
        jobs
    }

    /// `jobs`.
    fn list(&mut self) -> Result<(), Failure> {
        let jobs = self.jobs();
        if jobs.is_empty() {
            return say!("No jobs.");
        }
        for job in jobs {
            let does = match job.is_stopped() {
                true => "is being stopped".to_string(),
                false => format!("waits for {}", job.waits_for),
            };
            say!(
                "{:>3}  {:>8}  {:<28} {does}",
                job.number().unwrap_or(0),
                length(job.age()),
                job.line
            )?;
        }
        Ok(())
    }

    /// Those that a text means: one by its number, or all.
    fn meant(&self, text: &str) -> Result<Vec<Arc<Job>>, Failure> {
        let text = text.trim().trim_start_matches('%');
        let jobs = self.jobs();
        if text.is_empty() {
            return match jobs.is_empty() {
                true => Err(Failure::new("nothing is done in the background")
                    .hint("`continue &` has something done there")),
                false => Ok(jobs),
            };
        }
        let wanted = number(text)?;
        let found = jobs.into_iter().find(|job| job.number() == Some(wanted));
        let found = found.ok_or_else(|| {
            Failure::new(format!("there is no job {wanted}")).hint("`jobs` lists them")
        });
        found.map(|job| vec![job])
    }

    /// `join [N]`. Ctrl-C ends the waiting, not what is waited for. What has come to its end
    /// meanwhile need not be waited for.
    fn join(&mut self, text: &str) -> Result<(), Failure> {
        let jobs = match self.meant(text) {
            Err(_) if self.is_over(text) => {
                self.note_over();
                return Ok(());
            }
            meant => meant?,
        };
        match self.wait_for(&jobs, None) {
            true => Ok(()),
            false => {
                self.is_left = true;
                say!("It is waited for no longer.")
            }
        }
    }

    /// Whether there were such jobs, and are none any more.
    fn is_over(&self, text: &str) -> bool {
        let text = text.trim().trim_start_matches('%');
        match text.is_empty() {
            true => self.last > 0 && self.jobs().is_empty(),
            false => number(text).is_ok_and(|wanted| (1..=self.last).contains(&wanted)),
        }
    }

    /// `interrupt [N]`.
    fn interrupt(&mut self, text: &str) -> Result<(), Failure> {
        let jobs = self.meant(text)?;
        for job in &jobs {
            job.stop();
        }
        let until = Instant::now().checked_add(STOPPING);
        if !self.wait_for(&jobs, until) {
            for job in jobs.iter().filter(|job| !job.is_over()) {
                let number = job.number().unwrap_or(0);
                say!("Job {number} does not stop yet: {}", job.line)?;
            }
        }
        Ok(())
    }

    /// Waits for jobs until then, or until Ctrl-C: whether all are over.
    fn wait_for(&mut self, jobs: &[Arc<Job>], until: Option<Instant>) -> bool {
        while !jobs.iter().all(|job| self.is_noted(job)) {
            match self.next(until) {
                // Why it has failed was told.
                Some(Heard::Over(job)) => drop(self.note(&job)),
                Some(Heard::Interrupted) | None => return false,
            }
        }
        true
    }

    /// What has come of those that are over in the background is heard in a moment.
    fn note_over(&mut self) {
        let own = [&self.moves, &self.looks].into_iter().flatten();
        let over = own.filter(|job| job.number().is_none()).cloned();
        let over: Vec<Arc<Job>> = over.collect();
        self.wait_for(&over, None);
    }

    fn is_noted(&self, job: &Arc<Job>) -> bool {
        let mut own = [&self.moves, &self.looks].into_iter().flatten();
        !own.any(|own| Arc::ptr_eq(own, job))
    }

    /// The panic button: whatever moves the program stops.
    pub fn panic(&mut self) {
        self.listen();
        for job in [&self.moves, &self.looks].into_iter().flatten() {
            job.stop();
        }
    }

    /// Nobody types any more: what is done in the background is stopped. False: it does not
    /// stop.
    pub fn leave(&mut self) -> bool {
        self.panic();
        let jobs: Vec<_> = [&self.moves, &self.looks]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let until = Instant::now().checked_add(LEAVING);
        self.wait_for(&jobs, until)
    }
}

impl Done {
    fn of(well: bool) -> Done {
        Done {
            well,
            is_interrupted: false,
        }
    }
}

fn in_the_way(what: &str, job: &Job) -> Failure {
    let number = job.number().unwrap_or(0);
    Failure::new(format!(
        "`{what}` has to wait: job {number} (`{}`) is under way",
        job.line
    ))
    .hint(format!(
        "`join {number}` waits for it, `interrupt {number}` stops it"
    ))
}

/// A length of time, as people say it.
fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1.0 => format!("{} ms", time.as_millis()),
        ..10.0 if time.subsec_millis() != 0 => format!("{seconds:.1} s"),
        ..600.0 => format!("{} s", time.as_secs()),
        _ => format!("{} min", time.as_secs() / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_as_people_say_them() {
        for (ms, text) in [
            (20, "20 ms"),
            (2000, "2 s"),
            (2500, "2.5 s"),
            (70_200, "70 s"),
            (1_200_000, "20 min"),
        ] {
            assert_eq!(length(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_limit_that_is_not_said_is_the_usual_one() {
        let limit = TimeLimit::default();
        assert_eq!(
            (limit.get(None), limit.get(Some(TYPED))),
            (None, Some(TYPED))
        );
        assert!(limit.set("200ms").is_ok());
        assert_eq!(limit.get(None), Some(Duration::from_millis(200)));
        assert!(limit.set("none").is_ok());
        assert_eq!(limit.get(Some(TYPED)), None);
        assert!(limit.set("").is_err() && limit.set("soon").is_err());
    }
}
