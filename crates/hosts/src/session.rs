//! Who speaks with an agent, and which programs are whose.
//!
//! While somebody records a program through an agent, nobody else does through the
//! same agent, unless they say that they take it over. What the one who had it
//! before asks from then on is refused: two who believe that a program is theirs
//! do more harm than one who is told that it is not.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Refusal;

/// Where it is said who did what.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Whose programs are.
#[derive(Default)]
pub struct Claims {
    by_program: Mutex<HashMap<String, Claim>>,
    next: AtomicU64,
}

struct Claim {
    session: u64,
    who: String,
}

/// One who speaks with an agent.
pub struct Session {
    id: u64,
    who: String,
    claims: Arc<Claims>,
    own: Mutex<Option<String>>,
    log: Log,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Somebody of many.
    pub fn new(who: String, claims: &Arc<Claims>, log: &Log) -> Session {
        Session {
            id: claims.next.fetch_add(1, Relaxed),
            who,
            claims: Arc::clone(claims),
            own: Mutex::default(),
            log: Arc::clone(log),
        }
    }

    /// The only one: who started the agent.
    pub fn alone() -> Session {
        Session::new(
            String::new(),
            &Arc::default(),
            &(Arc::new(|_: &str| {}) as Log),
        )
    }

    /// Says what was done.
    pub fn note(&self, what: &str) {
        (self.log)(&format!("{}: {what}", self.who));
    }

    /// A program is this one's from now on.
    pub fn claim(&self, program: &str, takes_over: bool) -> Result<(), Refusal> {
        let mut claims = locked(&self.claims.by_program);
        if let Some(claim) = claims.get(program)
            && claim.session != self.id
            && !takes_over
        {
            let who = &claim.who;
            self.note(&format!("is refused {program}, which is recorded by {who}"));
            return Err(Refusal::Taken {
                program: program.to_string(),
                who: who.clone(),
            });
        }
        let claim = Claim {
            session: self.id,
            who: self.who.clone(),
        };
        let before = claims.insert(program.to_string(), claim);
        if let Some(before) = before.filter(|before| before.session != self.id) {
            self.note(&format!("takes {program} over from {}", before.who));
        }
        *locked(&self.own) = Some(program.to_string());
        Ok(())
    }

    /// Whether what it claimed is still its own.
    pub fn check(&self) -> Result<(), Refusal> {
        let own = locked(&self.own);
        let Some(program) = &*own else {
            return Ok(());
        };
        match locked(&self.claims.by_program).get(program) {
            Some(claim) if claim.session == self.id => Ok(()),
            Some(claim) => Err(Refusal::TakenOver {
                program: program.clone(),
                who: claim.who.clone(),
            }),
            None => Err(Refusal::Nobodys(program.clone())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut claims = locked(&self.claims.by_program);
        claims.retain(|_, claim| claim.session != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_one_session_s_until_another_takes_it_over() {
        let claims = Arc::default();
        let log: Log = Arc::new(|_: &str| {});
        let ann = Session::new("ann".to_string(), &claims, &log);
        let bob = Session::new("bob".to_string(), &claims, &log);
        assert!(ann.claim("etcd", false).is_ok());
        assert!(bob.claim("redis", false).is_ok());
        assert!(
            matches!(bob.claim("etcd", false), Err(Refusal::Taken { who, .. }) if who == "ann")
        );
        assert!(ann.check().is_ok());
        assert!(bob.claim("etcd", true).is_ok());
        assert!(matches!(ann.check(), Err(Refusal::TakenOver { who, .. }) if who == "bob"));
        assert!(bob.check().is_ok());
        drop(bob);
        assert!(ann.check().is_err());
        assert!(ann.claim("etcd", false).is_ok());
        assert!(ann.check().is_ok());
    }
}
