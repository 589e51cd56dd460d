//! `mw agent`: what `mw` runs on another host to record there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use hosts::connect::PORT;
use hosts::listen::Door;
use hosts::session::{Log, Session};
use hosts::trust::Identity;

use crate::failure::Failure;
use crate::output::{date, now_ns};
use crate::select;

/// Record on this host for an `mw` on another. Over ssh that starts it by
/// itself; where there is no ssh, it is to listen (see docs/kubernetes.md).
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("how").required(true)))]
pub struct Cmd {
    /// Speak on standard input and output
    #[arg(long, group = "how")]
    stdio: bool,

    /// Listen there, for whoever has a certificate that holds here; the port is
    /// 7462 unless another is given
    #[arg(long, group = "how", value_name = "ADDRESS", requires = "identity")]
    listen: Option<String>,

    /// With --listen: the file that `mw hosts trust` made for this host
    #[arg(long, value_name = "FILE", requires = "listen")]
    identity: Option<PathBuf>,

    /// Only say, by the exit status, whether this is the program meant
    #[arg(long, group = "how", value_name = "DIGEST")]
    verify: Option<String>,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(digest) = self.verify {
            if hosts::ssh::Binary::is_own(&digest) {
                return Ok(ExitCode::SUCCESS);
            }
            return Err(Failure::new("the copy of mw that arrived is damaged"));
        }
        let home = select::home().ok_or_else(|| {
            Failure::new("neither HOME nor XDG_DATA_HOME is set: there is no place for recordings")
        })?;
        if let (Some(address), Some(identity)) = (&self.listen, &self.identity) {
            return listen(address, identity, &home);
        }
        // What reaches the group of whoever connected is not for the agent: it
        // ends when nobody speaks to it any more. (A leader has a session.)
        let _ = rustix::process::setsid();
        let served = hosts::serve::serve(
            std::io::BufReader::with_capacity(64 << 10, std::io::stdin()),
            std::io::stdout(),
            &home,
            &Arc::new(Session::alone()),
        );
        served
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::new(format!("the conversation ends: {error}")))
    }
}

/// Listens until it is ended. Says on standard output where, and on standard
/// error who does what.
fn listen(address: &str, identity: &Path, home: &Path) -> Result<ExitCode, Failure> {
    let address = match address.parse::<std::net::IpAddr>() {
        Ok(ip) => std::net::SocketAddr::new(ip, PORT).to_string(),
        Err(_) => address.to_string(),
    };
    let log: Log = Arc::new(|what: &str| {
        let (day, time) = date(now_ns());
        // Nobody may listen; the agent goes on.
        let _ = writeln!(std::io::stderr(), "{day} {time} {what}");
    });
    let door = Door::open(&address, &Identity::read(identity)?, home, log)?;
    writeln!(std::io::stdout(), "listening at {}", door.address()?)?;
    let error = door.run();
    Err(Failure::new(format!(
        "nobody can connect any more: {error}"
    )))
}
