//! The commands that only a program that is alive allows: to change it, to send it
//! signals, to end it or to let it go.

use ::session::{Called, Direction, Error, How};
use ::target::{Stuck, ThreadState};
use protocol::id::ProcessId;

use super::commands::Prompt;
use super::info::signal_of;
use super::look::does;
use super::moves::only;
use super::screen::say;
use crate::failure::Failure;

impl Prompt {
    /// What a process of a program that is alive does.
    pub(super) fn state_alive(
        &mut self,
        process: ProcessId,
        is_over: bool,
    ) -> Result<String, Failure> {
        if is_over {
            return Ok("ended".to_string());
        }
        if self.is_beside {
            return Ok("runs".to_string());
        }
        let view = self.debugger.group.at(process)?;
        let threads = view.target().threads();
        let is_stuck = |t: &&ThreadState| t.stuck == Some(Stuck::Uninterruptible);
        let stuck = threads.iter().filter(is_stuck).count();
        let first = view.target().running();
        let does = first.map_or_else(|| "runs".to_string(), |thread| does(&thread));
        let mut state = match threads.len() {
            1 => does,
            count => format!("{does}; {count} threads"),
        };
        if stuck > 0 {
            state.push_str(&format!("; {stuck} in an uninterruptible wait"));
        }
        Ok(state)
    }

    /// A process by its name or number, or by its program if only one executes it.
    pub(super) fn living_process(&self, name: &str) -> Result<ProcessId, Failure> {
        let members = self.debugger.group.members();
        if let Some(member) = members.iter().find(|member| member.name == name) {
            return Ok(member.id);
        }
        // Without its host, by its id, or by its program: if that is one only.
        let without_host = |full: &str| full.rsplit_once('@').map(|(own, _)| own == name);
        let is_it = |member: &&::session::MemberInfo| {
            without_host(&member.name) == Some(true) || member.id.number.to_string() == name
        };
        let same: Vec<_> = members.iter().filter(is_it).collect();
        let same = match same.is_empty() {
            true => members.iter().filter(|m| m.program == name).collect(),
            false => same,
        };
        match same.as_slice() {
            [one] => Ok(one.id),
            _ => Err(Failure::new(format!("there is no process `{name}` here"))
                .hint("`processes` lists them")),
        }
    }

    /// `set [var] PLACE = EXPR`.
    pub(super) fn set(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(limit) = text.strip_prefix("time-limit") {
            return self.limit.set(limit.trim());
        }
        if !self.debugger.is_alive() {
            return Err(
                Failure::new("a recording cannot be changed: it says what happened")
                    .hint("to try what would happen, change the program and record again"),
            );
        }
        if let Some(kind) = text.strip_prefix("time ") {
            return self.set_time(kind.trim());
        }
        let text = ["variable ", "var "]
            .iter()
            .find_map(|word| text.strip_prefix(word))
            .unwrap_or(text);
        let Some((place, value)) = assignment(text) else {
            return Err(Failure::new("set what?").hint("`set var balance = 100`, `set $rax = 0`"));
        };
        let frame = self.debugger.frame_ref();
        let seen = self.debugger.group.assign(frame, place, value)?;
        say!("{place} = {}", seen.text)
    }

    /// Calls a function of the program.
    pub(super) fn call(&mut self, text: &str) -> Result<(), Failure> {
        let frame = self.debugger.frame_ref();
        let cancel = self.debugger.cancel.clone();
        match self.debugger.group.call(frame, text, &cancel)? {
            Called::Nothing => Ok(()),
            Called::Value(seen) => {
                self.values += 1;
                say!("${} = {}", self.values, seen.text)
            }
        }
    }

    /// Runs on with a signal, or without the one that is about to come.
    pub(super) fn signal(&mut self, text: &str) -> Result<(), Failure> {
        let (only, name) = only(text);
        let signal = match name {
            "" => {
                return Err(Failure::new("which signal?")
                    .hint("`signal SIGUSR1`; `signal 0` runs on without one"));
            }
            "0" => None,
            name => Some(signal_of(name)? as u32),
        };
        let process = self.debugger.process;
        let chosen = self.debugger.thread;
        let thread = chosen.unwrap_or(self.debugger.view()?.target().thread());
        let alive = self.debugger.group.alive(process)?;
        alive.set_pending(thread, signal).map_err(Error::from)?;
        self.go(How::Continue, Direction::Forwards, only)
    }

    /// Ends the process at hand, or another.
    pub(super) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let process = self.named(name)?;
        let name = self.debugger.name(process);
        self.debugger.group.kill(process)?;
        say!("{name} was killed.")
    }

    fn named(&self, name: &str) -> Result<ProcessId, Failure> {
        match name {
            "" => Ok(self.debugger.process),
            name => self.living_process(name),
        }
    }

    /// Lets a process go, or all of them.
    pub(super) fn detach(&mut self, name: &str) -> Result<(), Failure> {
        let name = match name.strip_prefix("--real-time") {
            Some(rest) => {
                self.catch_up()?;
                rest.trim()
            }
            None => name,
        };
        let members = self.debugger.group.members();
        let leaving: Vec<ProcessId> = match name {
            "" | "all" => members.iter().map(|member| member.id).collect(),
            name => vec![self.named(name)?],
        };
        for process in leaving {
            let is_over = members.iter().any(|m| m.id == process && m.is_empty);
            let name = self.debugger.name(process);
            self.debugger.group.leave(process)?;
            if !is_over {
                say!("{name} runs on.")?;
            }
        }
        let left = self.debugger.group.members();
        match left.iter().find(|m| !m.is_empty).or(left.first()) {
            Some(member) if !left.iter().any(|m| m.id == self.debugger.process) => {
                self.debugger.choose(member.id);
            }
            Some(_) => {}
            None => self.quits = true,
        }
        Ok(())
    }

    /// Ends what was started by the debugger.
    pub fn end_all(&mut self) -> Result<(), Failure> {
        let mut done = Ok(());
        for member in self.debugger.group.members() {
            if !member.is_empty {
                // One on a host that is lost does not keep the others from it.
                done = done.and(self.debugger.group.kill(member.id));
            }
        }
        Ok(done?)
    }
}

/// Runs a command of the shell.
pub(super) fn shell(command: &str) -> Result<(), Failure> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut child = std::process::Command::new(&shell);
    if !command.is_empty() {
        child.arg("-c").arg(command);
    }
    let status = child.status().map_err(|error| {
        Failure::new(format!("cannot run {}: {error}", shell.to_string_lossy()))
    })?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => say!("(status {code})"),
        None => say!("(it was ended by a signal)"),
    }
}

/// The two sides of `place = value`: the first `=` that is not part of another sign.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let is_sign = |at: usize| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i)).copied();
        bytes.get(at) == Some(&b'=')
            && bytes.get(at + 1) != Some(&b'=')
            && !before.is_some_and(|b| b"=!<>".contains(&b))
    };
    let at = (0..bytes.len()).find(|at| is_sign(*at))?;
    let (place, value) = (text.get(..at)?.trim(), text.get(at + 1..)?.trim());
    (!place.is_empty() && !value.is_empty()).then_some((place, value))
}

#[cfg(test)]
mod tests {
    use super::assignment;

    #[test]
    fn sides_are_told_apart() {
        assert_eq!(assignment("x = 1"), Some(("x", "1")));
        assert_eq!(
            assignment("a[i == 2] = b == 3"),
            Some(("a[i == 2]", "b == 3"))
        );
        assert_eq!(assignment("x=y"), Some(("x", "y")));
        for bad in ["x", "x =", "= 1", "x == 1", ""] {
            assert_eq!(assignment(bad), None, "{bad}");
        }
    }
}
