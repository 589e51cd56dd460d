//! Hosts for tests: network namespaces that see each other and nothing else,
//! each with an ssh server of its own.
//!
//! Everything is made for one test and goes with it: namespaces, keys,
//! configuration. Addresses are private ones that lead nowhere outside of these
//! namespaces.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{MW, Scratch, find_tool, is_root, wait_for};

pub struct Hosts {
    dir: PathBuf,
    /// What the names of the namespaces begin with.
    tag: String,
    names: Vec<String>,
    servers: Vec<Child>,
    /// What leads to far away, and how many milliseconds that takes.
    late: Option<(PathBuf, u32)>,
}

/// Runs something, which must succeed.
fn run(program: &str, arguments: &[&str]) {
    let path = find_tool(program).unwrap_or_else(|| program.into());
    let output = Command::new(path).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn ip(arguments: &str) {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    run("ip", &words);
}

impl Hosts {
    /// Hosts with these names. `None` where no namespaces can be made: that takes
    /// root.
    pub fn new(scratch: &Scratch, names: &[&str]) -> Option<Hosts> {
        Hosts::made(scratch, names, &|_| String::new())
    }

    /// Hosts that are peculiar: what a shell does on each before its server is
    /// started, with mounts of its own.
    pub fn made(
        scratch: &Scratch,
        names: &[&str],
        before: &dyn Fn(&str) -> String,
    ) -> Option<Hosts> {
        if !is_root() {
            return None;
        }
        let tag = format!("mw{}", std::process::id());
        let middle = format!("{tag}-net");
        let ip_tool = find_tool("ip")?;
        let made = Command::new(ip_tool)
            .args(["netns", "add", &middle])
            .output()
            .ok()?;
        if !made.status.success() {
            return None;
        }
        let mut hosts = Hosts {
            dir: scratch.path().join("hosts"),
            tag,
            names: names.iter().map(|name| name.to_string()).collect(),
            servers: Vec::new(),
            late: None,
        };
        std::fs::create_dir_all(&hosts.dir).unwrap();
        ip(&format!("-n {middle} link set lo up"));
        ip(&format!("-n {middle} link add bridge type bridge"));
        ip(&format!("-n {middle} addr add 10.77.0.254/24 dev bridge"));
        ip(&format!("-n {middle} link set bridge up"));
        for key in ["user", "host"] {
            let path = hosts.dir.join(key);
            let path = path.to_str().unwrap();
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", path]);
        }
        std::fs::create_dir_all("/run/sshd").unwrap();
        let mut config = String::new();
        for at in 0..names.len() {
            config.push_str(&hosts.add(at, before));
        }
        let dir = hosts.dir.display();
        config.push_str(&format!(
            "Host *\n  User root\n  IdentityFile {dir}/user\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        ));
        std::fs::write(hosts.dir.join("ssh_config"), config).unwrap();
        Some(hosts)
    }

    /// One host and its server. Returns how ssh finds it.
    fn add(&mut self, at: usize, before: &dyn Fn(&str) -> String) -> String {
        let (tag, name) = (self.tag.clone(), self.names[at].clone());
        let own = self.namespace(&name);
        let middle = format!("{tag}-net");
        let address = self.address(&name);
        ip(&format!("netns add {own}"));
        ip(&format!("-n {own} link set lo up"));
        ip(&format!(
            "-n {own} link add eth0 type veth peer name port{at} netns {middle}"
        ));
        ip(&format!("-n {own} addr add {address}/24 dev eth0"));
        ip(&format!("-n {own} link set eth0 up"));
        ip(&format!("-n {middle} link set port{at} master bridge"));
        ip(&format!("-n {middle} link set port{at} up"));
        let home = self.home(&name);
        std::fs::create_dir_all(&home).unwrap();
        let (dir, home) = (self.dir.display(), home.display());
        let config = self.dir.join(format!("sshd_config-{name}"));
        // (A home of its own: what somebody's shell does when it begins is not for tests.)
        let text = format!(
            "Port 22\nListenAddress {address}\nHostKey {dir}/host\nPidFile none\n\
             AuthorizedKeysFile {dir}/user.pub\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\n\
             SetEnv HOME={home} XDG_DATA_HOME={home}/data XDG_CACHE_HOME={home}/cache\n"
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(self.dir.join(format!("sshd-{name}.log"))).unwrap();
        let mut server = Command::new(find_tool("ip").unwrap());
        server
            .args(["netns", "exec", &own, "sh", "-ec"])
            .arg(format!("{}\nexec $UNDER \"$@\"", before(&name)))
            .arg("sh")
            .arg(find_tool("sshd").unwrap())
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone().unwrap());
        self.servers.push(server.spawn().unwrap());
        let path = self.dir.join(format!("sshd-{name}.log"));
        wait_for("the ssh server", || {
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            said.contains("Server listening").then_some(())
        });
        format!("Host {name}\n  HostName {address}\n")
    }

    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.tag)
    }

    pub fn address(&self, name: &str) -> Ipv4Addr {
        let at = self.names.iter().position(|own| own == name).unwrap();
        Ipv4Addr::new(10, 77, 0, at as u8 + 1)
    }

    /// Where a host keeps its recordings, and what it has been sent.
    pub fn home(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// `mw` on a host of its own that has no recordings yet, from which the
    /// others can be reached.
    pub fn mw(&self) -> Command {
        let mut command = Command::new(MW);
        let ip = find_tool("ip").unwrap();
        let config = self.dir.join("ssh_config");
        let late = self.late.as_ref();
        let late = late.map(|(late, ms)| format!("{} {ms} ", late.display()));
        let ssh = format!(
            "{}{} netns exec {}-net ssh -F {}",
            late.unwrap_or_default(),
            ip.display(),
            self.tag,
            config.display()
        );
        command
            .env("MW_SSH", ssh)
            .env("XDG_DATA_HOME", self.dir.join("data"))
            .env("XDG_CACHE_HOME", self.dir.join("cache"))
            .stdin(Stdio::null());
        command
    }

    /// Something that runs between the hosts, at 10.77.0.254, and is not recorded.
    pub fn between(&self) -> Command {
        let mut command = Command::new(find_tool("ip").unwrap());
        command.args(["netns", "exec", &format!("{}-net", self.tag)]);
        command
    }

    /// Adds to what ssh knows of hosts, in front of all else.
    pub fn configure(&self, text: &str) {
        let path = self.dir.join("ssh_config");
        let known = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}{known}")).unwrap();
    }

    /// Something that is started on a host by somebody else than `mw`.
    pub fn on(&self, name: &str, program: &Path) -> Command {
        let mut command = Command::new(find_tool("ip").unwrap());
        command.args(["netns", "exec", &self.namespace(name)]);
        command.arg(program);
        command
    }

    /// Whoever comes from `mw` is far away from now on: what is said takes so long, each way.
    /// `late` is `debug/late.c`.
    pub fn move_away(&mut self, late: &Path, ms: u32) {
        self.late = Some((late.to_path_buf(), ms));
    }

    /// Hosts reach each other no more; they are reached as before from between them.
    pub fn part(&self) {
        for at in 0..self.names.len() {
            let middle = format!("{}-net", self.tag);
            ip(&format!(
                "-n {middle} link set port{at} type bridge_slave isolated on"
            ));
        }
    }

    /// Gives a host one more address.
    pub fn add_address(&self, name: &str, address: &str) {
        let own = self.namespace(name);
        ip(&format!("-n {own} addr add {address} dev lo"));
    }

    /// Cuts the line to a host: nothing comes through any more, and nobody is told.
    pub fn cut(&self, name: &str) {
        let at = self.names.iter().position(|other| other == name).unwrap();
        ip(&format!("-n {}-net link set port{at} down", self.tag));
    }

    /// What runs on a host.
    pub fn pids(&self, name: &str) -> Vec<i32> {
        let tool = find_tool("ip").unwrap();
        let output = Command::new(tool)
            .args(["netns", "pids", &self.namespace(name)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let names = self.names.iter().map(|name| self.namespace(name));
        let middle = [format!("{}-net", self.tag)];
        for namespace in names.chain(middle) {
            // What still runs there was started by the test.
            let tool = find_tool("ip").unwrap();
            let pids = Command::new(&tool)
                .args(["netns", "pids", &namespace])
                .output();
            for pid in String::from_utf8_lossy(&pids.map(|o| o.stdout).unwrap_or_default())
                .split_whitespace()
            {
                if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            let _ = Command::new(&tool)
                .args(["netns", "delete", &namespace])
                .output();
        }
    }
}
