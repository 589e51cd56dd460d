//! Agents that listen, on hosts that no ssh leads to.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::joined::said;
use super::namespaces::Hosts;
use super::{MW, find_tool, wait_for};

/// Makes certificates of a person, who may ask any user's agent, and of hosts by address.
pub fn trusted(dir: &Path, person: &str, addresses: &[&str]) {
    let made = Command::new(MW)
        .args(["hosts", "trust"])
        .args(addresses)
        .args(["--person", person, "--as", "*", "--dir"])
        .arg(dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", said(&made));
}

/// An agent on a host, until it is dropped.
pub struct Agent {
    child: Child,
    log: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    pub fn start(hosts: &Hosts, host: &str, trust: &Path) -> Agent {
        let address = hosts.address(host).to_string();
        let log = hosts.home(host).join("agent.log");
        let mut child = Command::new(find_tool("ip").unwrap())
            .args(["netns", "exec", &hosts.namespace(host), MW, "agent"])
            .args(["--listen", &address, "--identity"])
            .arg(trust.join(format!("{address}.pem")))
            .env("XDG_DATA_HOME", hosts.home(host).join("data"))
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("listening at {address}:7462"));
        Agent { child, log }
    }

    pub fn has_said(&self, what: &str) {
        wait_for(what, || {
            let said = std::fs::read_to_string(&self.log).unwrap();
            said.contains(what).then_some(())
        });
    }
}
