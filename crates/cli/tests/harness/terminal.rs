//! A terminal for a program to run in.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::processes::{Marker, VARIABLE};
use super::recorded::shell_status;

/// The side of a terminal where the person sits.
pub struct Terminal {
    person: File,
    program: PathBuf,
    screen: Arc<Mutex<Vec<u8>>>,
    marker: Marker,
}

impl Terminal {
    /// A terminal of 33 lines of 99 characters, which none has by chance.
    pub fn new() -> Terminal {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let size = Winsize {
            ws_row: 33,
            ws_col: 99,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(person.as_fd(), size).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let program = PathBuf::from(name.to_str().unwrap());
        let person = File::from(person);
        Terminal {
            person,
            program,
            screen: Arc::default(),
            marker: Marker::unique(),
        }
    }

    /// Runs a command in a session of its own, which this terminal controls.
    pub fn run(&self, command: &[&str]) -> Child {
        let side = || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&self.program);
            Stdio::from(file.unwrap())
        };
        let child = super::with_default_signals("setsid")
            .args(["--ctty", "--wait"])
            .args(command)
            .env("TERM", "dumb")
            .env(VARIABLE, self.marker.value())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let mut person = self.person.try_clone().unwrap();
        let screen = Arc::clone(&self.screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last program is gone.
            while let Ok(count @ 1..) = person.read(&mut bytes) {
                screen.lock().unwrap().extend(&bytes[..count]);
            }
        });
        child
    }

    /// Waits for the end of what was run: the status, as a shell tells it.
    pub fn wait(&self, child: &mut Child) -> i32 {
        super::wait_for("the end of the program", || {
            child.try_wait().unwrap().map(shell_status)
        })
    }

    /// Everything that was shown so far.
    pub fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap();
        String::from_utf8_lossy(&screen).replace("\r\n", "\n")
    }

    /// Waits until a text was shown this often.
    pub fn await_text(&self, text: &str, times: usize) {
        super::wait_for(&format!("{text:?} on the screen"), || {
            (self.screen().matches(text).count() >= times).then_some(())
        });
    }

    pub fn type_in(&self, text: &str) {
        (&self.person).write_all(text.as_bytes()).unwrap();
    }

    /// Whether anything that ran in it is still there.
    pub fn is_empty(&self) -> bool {
        self.marker.processes().is_empty()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on the screen:\n{}", self.screen());
        }
        self.marker.kill_all();
    }
}
