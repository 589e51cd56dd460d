//! What can go wrong between hosts, said so that a person knows what to do.

use std::path::PathBuf;

/// Something could not be done on, or with, another host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program that leads to other hosts could not be started.
    #[error("cannot start `{program}`: {source}")]
    NoSsh {
        /// `ssh`, or what stands in for it.
        program: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The host is not there, or does not let us in.
    #[error("{host} cannot be reached: {said}")]
    Unreachable {
        /// The host as it was named.
        host: String,
        /// The last that ssh said.
        said: String,
    },
    /// Nobody listens there.
    #[error("{host} cannot be reached: {said}")]
    NotThere {
        /// The host as it was named.
        host: String,
        /// What the kernel said.
        said: String,
    },
    /// One of the sides does not believe the other's certificate.
    #[error("{host} is not to be trusted, or does not trust us: {said}")]
    Unsafe {
        /// The host as it was named.
        host: String,
        /// What is wrong.
        said: String,
    },
    /// A file that should say who we are.
    #[error("{} cannot be used as identity: {why}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No certificate could be made.
    #[error("no certificate can be made: {why}")]
    Trust {
        /// Why.
        why: String,
    },
    /// Nothing can be listened to.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Something is there, but no agent.
    #[error("{host} answers, but no agent of Meanwhile: {said}")]
    NoAgent {
        /// The host as it was named.
        host: String,
        /// What was there instead.
        said: String,
    },
    /// Another version.
    #[error("the agent on {host} speaks version {theirs} of the protocol; this mw speaks {ours}")]
    Version {
        /// The host as it was named.
        host: String,
        /// What the agent speaks.
        theirs: u16,
        /// What is spoken here.
        ours: u16,
    },
    /// The connection ended before the answer was complete.
    #[error("the connection to {host} is lost: {said}")]
    Lost {
        /// The host as it was named.
        host: String,
        /// What is known of why.
        said: String,
    },
    /// The agent could not do it.
    #[error("{host}: {said}")]
    Refused {
        /// The host as it was named.
        host: String,
        /// Why, in the agent's words.
        said: String,
    },
    /// What came is not what was there.
    #[error("{file} of {recording} came from {host} damaged")]
    Damaged {
        /// The host as it was named.
        host: String,
        /// The recording there.
        recording: String,
        /// Which file of it.
        file: String,
    },
    /// A file of our own.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// A verb.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The plan makes no sense.
    #[error("the plan {} cannot be followed: {why}", path.display())]
    Plan {
        /// Its file.
        path: PathBuf,
        /// Where and what.
        why: crate::plan::PlanError,
    },
    /// A command cannot be split into words.
    #[error("the command `{command}` cannot be understood: {why}")]
    Command {
        /// The command.
        command: String,
        /// Why.
        why: &'static str,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Error::NoSsh { .. } => {
                "install an ssh client, or name another program in MW_SSH".to_string()
            }
            Error::Unreachable { host, .. } => {
                format!("try `ssh {host} true`: a host is what ssh understands")
            }
            Error::NoAgent { host, .. } => {
                format!(
                    "try `ssh {host} true`: it must print nothing, and the host must be Linux on x86-64"
                )
            }
            Error::NotThere { .. } => {
                "an agent listens there by `mw agent --listen ADDRESS --identity FILE`".to_string()
            }
            Error::Unsafe { .. } | Error::Identity { .. } => {
                "`mw hosts trust HOST...` makes identities, of which each host has its own"
                    .to_string()
            }
            Error::Version { .. } => "use the same mw on both sides".to_string(),
            Error::Lost { host, .. } => format!(
                "what runs there goes on, and so does its recording: `mw pull {host}:` lists recordings, \
                 `mw pull {host}:REC` fetches one"
            ),
            Error::Damaged { host, .. } => {
                format!("fetch it again; if that does not help, look at {host}'s disk")
            }
            Error::Command { .. } => "close the quotation, or write it otherwise".to_string(),
            Error::Refused { .. }
            | Error::File { .. }
            | Error::Plan { .. }
            | Error::Trust { .. }
            | Error::Listen { .. } => return None,
        })
    }
}
