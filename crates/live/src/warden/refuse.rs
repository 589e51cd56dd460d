//! Calls that are not made: a thread that stands as it is about to make one gets an error for
//! an answer instead.

use super::Warden;
use crate::Error;

impl Warden {
    /// The thread stands where its call was caught. The kernel makes none that has no number,
    /// and leaves the answer as it is.
    pub(super) fn refuse(&mut self, tid: i32, errno: i32) -> Result<(), Error> {
        let task = self.tasks.get(&tid).filter(|task| task.at_call);
        let task = task.ok_or(Error::NotBeforeCall(tid))?;
        let stopped = task.stopped().ok_or(Error::NoThread(tid))?;
        let failed = |error: std::io::Error| Error::Failed {
            what: "set the registers of".to_string(),
            pid: tid,
            why: error.to_string(),
        };
        let mut registers = stopped.registers().map_err(failed)?;
        registers.orig_rax = u64::MAX;
        registers.rax = i64::from(-errno) as u64;
        stopped.set_registers(&registers).map_err(failed)
    }
}
