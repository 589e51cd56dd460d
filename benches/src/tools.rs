//! The programs a workload needs. Nothing is installed: what is missing is named with its package.

use std::env;
use std::path::{Path, PathBuf};

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    pub program: &'static str,
    pub package: &'static str,
}

pub const REDIS_SERVER: Tool = tool("redis-server", "redis-server");
pub const REDIS_BENCHMARK: Tool = tool("redis-benchmark", "redis-tools");
pub const NGINX: Tool = tool("nginx", "nginx-light");
pub const WRK: Tool = tool("wrk", "wrk");
pub const MEMCACHED: Tool = tool("memcached", "memcached");
pub const GO: Tool = tool("go", "golang-go");
pub const GCC: Tool = tool("gcc", "gcc");
pub const PYTHON: Tool = tool("/usr/bin/python3", "python3");
pub const TRUE: Tool = tool("/bin/true", "coreutils");
pub const STRACE: Tool = tool("strace", "strace");

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// Servers live where the PATH of an ordinary user does not lead.
const MORE_DIRECTORIES: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"];

impl Tool {
    pub fn find(&self) -> Option<PathBuf> {
        find(self.program)
    }
}

pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(MORE_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| is_executable(path))
}

pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The missing ones of `tools`, with their packages, or None if all are there.
pub fn missing(tools: &[Tool]) -> Option<String> {
    let missing: Vec<String> = tools
        .iter()
        .filter(|tool| tool.find().is_none())
        .map(|tool| format!("{} (Debian package {})", tool.program, tool.package))
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let there = tool("/bin/sh", "dash");
        let absent = tool("no-such-program", "no-such-package");
        assert_eq!(missing(&[there]), None);
        let text = missing(&[there, absent]);
        assert_eq!(
            text.as_deref(),
            Some("no-such-program (Debian package no-such-package)")
        );
    }
}
