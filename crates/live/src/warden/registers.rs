//! Registers of threads that stand: the program's own, wherever the thread stands in the
//! monitor meanwhile.

use super::Warden;
use super::process::{State, Task};
use super::raw;
use crate::Error;
use crate::talk::Registers;

impl Warden {
    pub(super) fn set_registers(
        &mut self,
        tid: i32,
        general: &[u64; 27],
        xmm: &[[u64; 2]; 16],
    ) -> Result<(), Error> {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.reported = None;
        }
        let task = self.tasks.get(&tid).ok_or(Error::NoThread(tid))?;
        let stopped = task.stopped().ok_or(Error::NoThread(tid))?;
        if self.is_inside(tid) {
            return self.set_pulled(tid, general, xmm);
        }
        let failed = |error: std::io::Error| Error::Failed {
            what: "set the registers of".to_string(),
            pid: tid,
            why: error.to_string(),
        };
        stopped
            .set_registers(&raw::from_words(general))
            .map_err(failed)?;
        let mut vectors = stopped.vectors().map_err(failed)?;
        let mut is_other = false;
        let words = xmm.iter().flatten().flat_map(|word| word.to_le_bytes());
        for (byte, value) in vectors.iter_mut().skip(XMM).zip(words) {
            is_other |= *byte != value;
            *byte = value;
        }
        if is_other {
            // The state of SSE is among what is there.
            if let Some(present) = vectors.get_mut(STATE) {
                *present |= 2;
            }
            stopped.set_vectors(&mut vectors).map_err(failed)?;
        }
        // One that was taken out of a call, and has done something else since, is as it was: the
        // call has not failed.
        const EINTR: u64 = -4i64 as u64;
        let given = raw::from_words(general);
        if given.rax == EINTR
            && (given.orig_rax as i64) >= 0
            && let Some(State::Stopped(stopped)) = self.tasks.get_mut(&tid).map(|t| &mut t.state)
        {
            stopped.interrupted = true;
        }
        Ok(())
    }

    /// The program's registers of a thread that stands in the monitor.
    pub(super) fn inside(&self, tid: i32, task: &Task, own: &raw::General) -> Option<Registers> {
        let governor = self.governor.as_ref()?;
        let process = self.processes.get(&task.process)?;
        if !governor.is_inside(process, own.rip) {
            return None;
        }
        let mut general = governor.registers(process, tid, own)?;
        if task.at_call {
            general.orig_rax = own.orig_rax;
        }
        let vectors = governor.vectors(process, tid, own).unwrap_or_default();
        Some(of(&general, &vectors))
    }

    fn set_inside(
        &mut self,
        tid: i32,
        general: &[u64; 27],
        xmm: &[[u64; 2]; 16],
    ) -> Result<(), Error> {
        let parts = || {
            let task = self.tasks.get(&tid)?;
            let own = task.stopped()?.registers().ok()?;
            let process = self.processes.get(&task.process)?;
            Some((self.governor.as_ref()?, process, own))
        };
        let (governor, process, own) = parts().ok_or(Error::NoThread(tid))?;
        if !governor.set_registers(tid, &raw::from_words(general)) {
            return Err(Error::InCall(tid));
        }
        if let Some(at) = governor.vectors_at(process, tid, &own) {
            let bytes: Vec<u8> = xmm
                .iter()
                .flatten()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            process.write(at, &bytes);
        }
        Ok(())
    }

    /// A thread in the monitor gets other registers. One that is in a call is taken out of
    /// it first, and is as it is then when it gets back those that it had.
    fn set_pulled(
        &mut self,
        tid: i32,
        general: &[u64; 27],
        xmm: &[[u64; 2]; 16],
    ) -> Result<(), Error> {
        let seen = self.threads_registers(tid).ok_or(Error::NoThread(tid))?;
        if !self.is_parked(tid) {
            // A signal that it stands at is not for what it is taken out of: whether it comes
            // to it is said later.
            let signal = self.exchange_signal(tid, 0);
            let is_out = self.pull_out(tid);
            self.exchange_signal(tid, signal);
            is_out?;
            let actual = self.threads_registers(tid).ok_or(Error::NoThread(tid))?;
            if let Some(task) = self.tasks.get_mut(&tid)
                // (One that was taken out of a call before gets back what it had there.)
                && task.pulled.as_ref().is_none_or(|pulled| pulled.0 != *general)
            {
                task.pulled = Some(Box::new((seen, actual)));
            }
        }
        let pulled = self
            .tasks
            .get_mut(&tid)
            .and_then(|task| task.pulled.take_if(|pulled| pulled.0 == *general));
        let general = pulled.map_or(*general, |pulled| pulled.1);
        self.set_inside(tid, &general, xmm)
    }

    /// Gives a thread that stands another signal to go on with; which it had.
    fn exchange_signal(&mut self, tid: i32, signal: u32) -> u32 {
        match self.tasks.get_mut(&tid).map(|task| &mut task.state) {
            Some(State::Stopped(stopped)) => std::mem::replace(&mut stopped.signal, signal),
            _ => 0,
        }
    }

    /// The registers of a thread, as the debugger sees them.
    fn threads_registers(&self, tid: i32) -> Option<[u64; 27]> {
        let task = self.tasks.get(&tid)?;
        let own = task.stopped()?.registers().ok()?;
        self.inside(tid, task, &own).map(|seen| seen.general)
    }
}

/// Where things are in the image that XSAVE makes.
pub(super) const XMM: usize = 160;
pub(super) const STATE: usize = 512;
const YMM_HIGH: usize = 576;

/// What is told of a thread's registers.
pub(super) fn of(general: &raw::General, vectors: &[u8]) -> Registers {
    let has_avx = vectors.get(STATE).is_some_and(|present| present & 4 != 0);
    let high = vectors.get(YMM_HIGH..YMM_HIGH + 256);
    Registers {
        general: raw::words(general),
        fxsave: vectors.get(..512).map_or(Vec::new(), <[u8]>::to_vec),
        ymm_high: match (has_avx, high) {
            (true, Some(high)) => high.to_vec(),
            // The processor leaves out what is zero.
            (false, Some(_)) => vec![0; 256],
            (_, None) => Vec::new(),
        },
    }
}
