//! Names of threads, from what they call themselves.

use std::collections::HashMap;

/// Names for the threads that have given themselves one: that, with a number
/// where several of a process have the same and it does not end in one.
pub(crate) fn threads<'a>(
    comms: impl Iterator<Item = (u32, u32, &'a str)>,
) -> Vec<(u32, u32, String)> {
    let comms: Vec<(u32, u32, &str)> = comms
        .filter(|(_, thread, comm)| *thread != 0 && !comm.is_empty())
        .collect();
    let mut alike: HashMap<(u32, &str), u32> = HashMap::new();
    for (process, _, comm) in &comms {
        *alike.entry((*process, comm)).or_default() += 1;
    }
    let mut given: HashMap<(u32, &str), u32> = HashMap::new();
    let mut names = Vec::new();
    for (process, thread, comm) in comms {
        let clean: String = comm
            .chars()
            .map(|c| match c {
                c if c.is_control() || c.is_whitespace() || ":,/".contains(c) => '_',
                c => c,
            })
            .collect();
        let numbered = clean.rsplit_once('-').is_some_and(|(_, digits)| {
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        });
        let unique = alike.get(&(process, comm)) == Some(&1);
        let name = if unique && numbered {
            clean
        } else {
            let number = given.entry((process, comm)).or_default();
            *number += 1;
            format!("{clean}-{}", *number - 1)
        };
        names.push((process, thread, name));
    }
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_tell_threads_apart() {
        let comms = [
            (0, 0, "server"),
            (0, 1, "worker"),
            (0, 2, "worker"),
            (0, 3, "poster-7"),
            (0, 4, "log ger"),
            (1, 1, "worker"),
        ];
        let names: Vec<_> = super::threads(comms.into_iter())
            .into_iter()
            .map(|(_, _, name)| name)
            .collect();
        assert_eq!(
            names,
            ["worker-0", "worker-1", "poster-7", "log_ger-0", "worker-0"]
        );
    }
}
