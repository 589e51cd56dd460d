//! The threads that follow execs, one for each.
//!
//! ptrace belongs to a thread, and its end lets go of whom it traces, also of one that was killed
//! in the middle of its exec: so none serves twice. But to start one when it is asked
//! for takes as long as a loaded machine lets others run first. So once a program has
//! executed another, one stands by, and is woken by whoever execs next, without a detour.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::id::ProcessNo;
use protocol::shared::{EXEC_SLOTS, request_kind, request_state};

use crate::arena;
use crate::asker::Asker;
use crate::exec;
use crate::service::{Shared, answer, text_of};

/// Follows the exec of who asked; then another thread stands by for the next.
pub fn serve(shared: &Arc<Shared>, index: usize) {
    let Some(request) = shared.arena.control().requests.get(index) else {
        return;
    };
    let arg = |i: usize| request.args.get(i).map_or(0, |a| a.load(Relaxed));
    let process = ProcessNo(request.process.load(Relaxed));
    let refuse = |text: &str| {
        shared.note(process, "unrecorded", text);
        answer(request, 1);
        stand_by(shared);
    };
    if arg(1) != 0 {
        return refuse(&format!(
            "{} has rights of its own (set-user-ID, set-group-ID or file capabilities): \
             it ran unrecorded",
            text_of(request)
        ));
    }
    let Some(Asker { tid, .. }) = Asker::of(shared.arena.file(), index, request) else {
        return refuse("a process that the recorder cannot see executed a program");
    };
    exec::follow(shared, tid, arg(0) as usize, |go| {
        answer(request, u64::from(!go));
        // It is under way now, and not waited for.
        stand_by(shared);
    });
}

/// Starts the thread that waits for the next exec, if there is none.
fn stand_by(shared: &Arc<Shared>) {
    if shared.has_spare.swap(true, AcqRel) {
        return;
    }
    let spare = Arc::clone(shared);
    if std::thread::Builder::new()
        .spawn(move || wait(&spare))
        .is_err()
    {
        shared.has_spare.store(false, Release);
        let control = shared.arena.control();
        // Who has rung for one meanwhile is served all the same.
        control.doorbell.fetch_add(1, AcqRel);
        arena::wake(&control.doorbell, i32::MAX);
    }
}

/// Waits for somebody who is about to exec.
fn wait(shared: &Arc<Shared>) {
    let control = shared.arena.control();
    loop {
        let bell = control.exec_bell.load(Acquire);
        control.exec_spare.store(1, Release);
        if shared.over.load(Acquire) {
            return;
        }
        let asked = control.requests.iter().position(|request| {
            let (posted, active) = (request_state::POSTED, request_state::ACTIVE);
            request.kind.load(Relaxed) == request_kind::EXEC
                && request.state.load(Acquire) == posted
                && request
                    .state
                    .compare_exchange(posted, active, AcqRel, Relaxed)
                    .is_ok()
        });
        if let Some(index) = asked {
            control.exec_spare.store(0, Release);
            shared.has_spare.store(false, Release);
            return serve(shared, index);
        }
        arena::wait(&control.exec_bell, bell, 1000);
    }
}

/// Nobody execs any more.
pub fn dismiss(shared: &Shared) {
    let control = shared.arena.control();
    control.exec_bell.fetch_add(1, AcqRel);
    arena::wake(&control.exec_bell, i32::MAX);
}

/// Images that could not map the monitor have said so.
pub fn look_for_failures(shared: &Shared) {
    let control = shared.arena.control();
    for (failure, slot) in control
        .exec_failures
        .iter()
        .zip(&control.execs)
        .take(EXEC_SLOTS)
    {
        let error = failure.load(Acquire);
        if error == 0 {
            continue;
        }
        failure.store(0, Release);
        let process = ProcessNo(slot.process.load(Relaxed));
        let errno = (error as i64).wrapping_neg();
        let text = format!(
            "what process {} executed cannot map the monitor (error {errno})",
            process.0
        );
        shared.note(process, "unrecorded", &text);
        slot.taken.store(0, Release);
    }
}
