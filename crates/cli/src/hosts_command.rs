//! `mw hosts`: whether hosts can be recorded on, and who may ask their agents.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use hosts::connect::Connector;
use hosts::trust::{ANY, Authority, Person, is_name};

use crate::failure::Failure;
use crate::output::{Output, Style, bytes};
use crate::select;

/// See whether programs can be recorded on other hosts, and who may do so.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(Check),
    Trust(Trust),
}

/// Make certificates for hosts on which an agent listens (`mw agent --listen`), and
/// for who asks these.
///
/// An authority is made with the first. Each host gets a file of its own, to be put
/// there and given to its agent; the last is for who asks, and is found by itself.
/// All of them are secret.
#[derive(clap::Args)]
struct Trust {
    /// The hosts, by the names or addresses that they are reached at
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,

    /// Who asks [default: the name of the user]
    #[arg(long, value_name = "NAME")]
    person: Option<String>,

    /// Users whose agents may be asked; `*` for all [default: the name of the user]
    #[arg(long = "as", value_name = "USER,...", value_delimiter = ',')]
    users: Vec<String>,

    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 90)]
    days: u32,

    /// Where the authority is, and what it makes
    /// [default: ${XDG_CONFIG_HOME:-~/.config}/meanwhile/trust]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Trust {
    fn run(self) -> Result<ExitCode, Failure> {
        let dir = self.dir.or_else(select::trust).ok_or_else(|| {
            Failure::new("neither HOME nor XDG_CONFIG_HOME is set: there is no place for keys")
                .hint("name a directory with `--dir DIR`")
        })?;
        let user = recording::Manifest::here(Vec::new()).user;
        let person = Person {
            name: self.person.unwrap_or_else(|| user.clone()),
            hosts: self.hosts.clone(),
            users: match self.users.is_empty() {
                true => vec![user],
                false => self.users,
            },
        };
        let words = person.hosts.iter().chain(&person.users);
        for word in words.chain([&person.name]) {
            if !is_name(word) {
                return Err(
                    Failure::new(format!("`{word}` cannot stand in a certificate"))
                        .hint("names and addresses have letters, digits and `.-_:`"),
                );
            }
        }
        let until = SystemTime::now() + Duration::from_secs(u64::from(self.days) * 86_400);
        let authority = Authority::open(&dir)?;
        let mut out = Output::new();
        for host in self.hosts.iter().filter(|host| *host != ANY) {
            let path = authority.host(host, until)?;
            out.line(&format!("{host}: {}", path.display()))?;
        }
        let path = authority.person(&person, until)?;
        out.line(&format!("{}: {}", person.name, path.display()))?;
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Connect to each host, record something small there, and say what was found.
#[derive(clap::Args)]
struct Check {
    /// The hosts, as ssh understands them; `tls:HOST` where an agent listens
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// What was found out about a host.
#[derive(serde::Serialize)]
struct Row {
    host: String,
    ok: bool,
    /// Why nothing can be recorded there.
    trouble: Option<String>,
    version: Option<String>,
    kernel: Option<String>,
    cpu: Option<String>,
    user: Option<String>,
    disk_free_bytes: Option<u64>,
    recordings: Option<String>,
    /// How far its clock is ahead of ours, and how far that may be wrong.
    clock_ahead_ns: Option<i64>,
    clock_within_ns: Option<u64>,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Check(check) => check.run(),
            Command::Trust(trust) => trust.run(),
        }
    }
}

impl Check {
    fn run(self) -> Result<ExitCode, Failure> {
        let connector = Connector::new(select::identity())?;
        let here = recording::cpu_model();
        let rows = hosts::at_once(&self.hosts, |host| look(host, &connector));
        let mut out = Output::new();
        for row in &rows {
            if self.json {
                out.json(row)?;
            } else {
                print(row, here.as_deref(), &mut out)?;
            }
        }
        out.finish()?;
        let ok = rows.iter().all(|row| row.ok);
        Ok(ExitCode::from(if ok { 0 } else { crate::failure::TROUBLE }))
    }
}

fn failed(host: &str, trouble: String) -> Row {
    Row {
        host: host.to_string(),
        ok: false,
        trouble: Some(trouble),
        version: None,
        kernel: None,
        cpu: None,
        user: None,
        disk_free_bytes: None,
        recordings: None,
        clock_ahead_ns: None,
        clock_within_ns: None,
    }
}

fn look(host: &str, connector: &Connector) -> Row {
    let found = connector
        .connect(host)
        .and_then(|client| Ok((client.facts()?, client.clock_offset()?)));
    let (facts, (ahead, within)) = match found {
        Ok(found) => found,
        Err(error) => {
            // The host is named in front of it already.
            let text = Failure::from(error).words();
            let text = text.lines().next().unwrap_or_default().to_string();
            return failed(host, text);
        }
    };
    Row {
        host: host.to_string(),
        ok: facts.obstacle.is_none(),
        trouble: facts.obstacle,
        version: Some(facts.version),
        kernel: Some(facts.kernel),
        cpu: Some(facts.cpu),
        user: Some(facts.user),
        disk_free_bytes: Some(facts.disk_free),
        recordings: Some(facts.home),
        clock_ahead_ns: Some(ahead),
        clock_within_ns: Some(within),
    }
}

fn print(row: &Row, here: Option<&str>, out: &mut Output) -> Result<(), Failure> {
    let verdict = match &row.trouble {
        None => out.paint(Style::Bold, "can be recorded on"),
        Some(trouble) => out.paint(Style::Red, trouble),
    };
    out.line(&format!("{}: {verdict}", row.host))?;
    let mut lines = Vec::new();
    if let (Some(kernel), Some(user)) = (&row.kernel, &row.user) {
        lines.push(("kernel", kernel.clone()));
        lines.push(("user", user.clone()));
    }
    if let Some(cpu) = &row.cpu {
        let other = here.is_some_and(|here| here != cpu);
        let note = if other {
            ": not that of this host, on which a recording may not replay"
        } else {
            ""
        };
        lines.push(("cpu", format!("{cpu}{note}")));
    }
    if let (Some(free), Some(home)) = (row.disk_free_bytes, &row.recordings) {
        lines.push(("disk", format!("{} free for {home}", bytes(free))));
    }
    if let (Some(ahead), Some(within)) = (row.clock_ahead_ns, row.clock_within_ns) {
        let way = if ahead < 0 { "behind" } else { "ahead" };
        let ms = |ns: u64| ns as f64 / 1e6;
        let text = format!(
            "{:.3} ms {way}, give or take {:.3}",
            ms(ahead.unsigned_abs()),
            ms(within)
        );
        lines.push(("clock", text));
    }
    for (label, text) in lines {
        out.line(&format!("    {label:<7} {text}"))?;
    }
    Ok(())
}
