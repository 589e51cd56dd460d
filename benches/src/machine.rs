//! What the reader must know of the machine to judge the figures.

use std::fs;
use std::path::Path;
use std::thread;

pub fn facts(scratch: &Path) -> Vec<(&'static str, String)> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let virtual_machine = match field(&cpuinfo, "flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => {
            " (in a virtual machine)"
        }
        _ => "",
    };
    let model = field(&cpuinfo, "model name").unwrap_or("unknown");
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = field(&meminfo, "MemTotal").and_then(gibibytes);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let file_system = file_system(&mounts, scratch).unwrap_or("unknown");
    vec![
        ("CPU", format!("{model}{virtual_machine}")),
        ("cores", cores.to_string()),
        ("memory", memory.unwrap_or_else(|| "unknown".into())),
        // The version alone: what builders append to it says nothing here.
        (
            "kernel",
            format!(
                "Linux {}",
                kernel.trim().split('-').next().unwrap_or_default()
            ),
        ),
        ("recordings on", file_system.to_string()),
    ]
}

/// `24682416 kB` as `23.5 GiB`.
fn gibibytes(text: &str) -> Option<String> {
    let kib: f64 = text.strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.1} GiB", kib / 1024.0 / 1024.0))
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// The type of the file system mounted nearest above `path`.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\nflags : a b\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "nothing"), None);
    }

    #[test]
    fn memory_is_for_people() {
        assert_eq!(gibibytes("24682416 kB").as_deref(), Some("23.5 GiB"));
        assert_eq!(gibibytes("many"), None);
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nx /tmpfoo xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/x")), Some("tmpfs"));
        assert_eq!(file_system(mounts, Path::new("/tmpother")), Some("ext4"));
    }
}
