//! Events in words: a line each in the manner of strace, or a JSON object.
//!
//! A call that may block is two lines, one when it begins and one when it
//! returns:
//!
//! ```text
//! read(7<127.0.0.1:6379->127.0.0.1:50712>, 0x7ffc1000, 16384) <unfinished ...>
//! <... resumed> read(7<127.0.0.1:6379->127.0.0.1:50712>, "PING\r\n", 16384) = 6
//! ```

mod arguments;
mod shapes;
mod value;

use std::collections::HashMap;

use protocol::id::{EventNo, ProcessNo, ThreadNo, Ticks};
use protocol::instruction::Instruction;
use protocol::names::{errno_name, errno_text, signal_name};
use protocol::record::{answer, at, begin, clock, kind, tag};
use protocol::syscall::{Ret, Type};
use serde::Serialize;
use serde_json::Map;

use crate::calls;
use crate::descriptors::{Births, Descriptors};
use crate::event::{Child, Event, Phase};
use crate::log::ByNumber;
use crate::names::ThreadNames;
use crate::recording::Recording;
use crate::set::Set;

pub use value::{Limits, Value};

/// A path as it is shown between `<` and `>`.
pub fn escape_path(path: &[u8]) -> String {
    let mut out = String::new();
    value::escape(&mut out, path);
    out
}

/// What an event is shown against: the descriptors and processes of the
/// moment.
#[derive(Clone, Copy, Default)]
struct Context<'a> {
    descriptors: Option<&'a Descriptors>,
    recording: Option<&'a Recording>,
    among: Option<Among<'a>>,
    time: Ticks,
    /// The pid namespace of whoever did it.
    namespace: u32,
}

impl Context<'_> {
    fn fd(&self, fd: i32) -> Value {
        let name = self
            .descriptors
            .and_then(|descriptors| descriptors.describe(fd));
        Value::Fd(fd, name)
    }

    fn pid(&self, pid: i64) -> Value {
        let process = u32::try_from(pid)
            .ok()
            .and_then(|pid| self.recording?.pids().at(self.namespace, pid, self.time));
        Value::Pid(pid, process.and_then(|number| self.process_name(number)))
    }

    fn process_name(&self, number: ProcessNo) -> Option<String> {
        name_of(self.recording?, self.among, number)
    }
}

/// A set, and which of its members is meant.
type Among<'r> = (&'r Set, u16);

/// The name of a process, among those of a set if it is of one.
fn name_of(recording: &Recording, among: Option<Among<'_>>, number: ProcessNo) -> Option<String> {
    let own = recording.process(number)?;
    let among = among.and_then(|(set, member)| {
        let place = set.place(number.of_member(member))?;
        Some(set.process_name(place))
    });
    Some(among.unwrap_or_else(|| own.name.clone()))
}

/// An event, with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Details {
    /// Its name.
    pub event: String,
    /// Name of its process.
    pub process: String,
    /// Name of its thread.
    pub thread: String,
    /// When, since the recording began.
    pub time_ns: u64,
    /// Its type, as patterns have it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The call, or what else it is.
    pub call: String,
    /// Arguments by name.
    pub args: Map<String, serde_json::Value>,
    /// What the call returned.
    pub result: Option<i64>,
    /// Which part of a call it is.
    pub phase: &'static str,
    /// Of a call that failed: the error, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Option<&'static str>>,
    /// The process that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// The thread that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_thread: Option<String>,
    /// The event at which the call that ends here began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// It came in the middle of computation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preempted: bool,
    /// What its descriptors lead to, by name of the argument.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub files: Map<String, serde_json::Value>,
}

/// Shows events. Each event of a process must be passed through
/// [`Renderer::before`] and [`Renderer::after`] in order, shown or not, for
/// descriptors to be known by what they lead to.
pub struct Renderer<'r> {
    recording: &'r Recording,
    /// The set whose member that is, if names are to be those of the set.
    among: Option<Among<'r>>,
    names: ThreadNames,
    limits: Limits,
    births: Births<'r>,
    now: HashMap<ProcessNo, Descriptors, ByNumber>,
}

impl<'r> Renderer<'r> {
    /// Shows events of this recording.
    pub fn new(recording: &'r Recording, names: &ThreadNames, limits: Limits) -> Renderer<'r> {
        Renderer {
            recording,
            among: None,
            names: names.clone(),
            limits,
            births: Births::new(recording),
            now: HashMap::default(),
        }
    }

    /// Has processes called as they are among all of a set, of which the
    /// recording is this member.
    pub fn among(mut self, set: &'r Set, member: u16) -> Renderer<'r> {
        self.among = set.is_joined().then_some((set, member));
        self
    }

    /// Shows events of a member of a set. `names` are of any member.
    pub fn of_member(
        set: &'r Set,
        member: u16,
        names: &ThreadNames,
        limits: Limits,
    ) -> Option<Renderer<'r>> {
        let renderer = Renderer::new(set.member(member)?, &names.member(member), limits);
        Some(renderer.among(set, member))
    }

    /// Takes in what an event makes, before it is shown.
    pub fn before(&mut self, event: &Event<'_>) {
        self.now
            .entry(event.process)
            .or_insert_with(|| self.births.of(event.process))
            .before(event);
    }

    /// Takes in what an event ends, after it was shown.
    pub fn after(&mut self, event: &Event<'_>) {
        if let Some(descriptors) = self.now.get_mut(&event.process) {
            descriptors.after(event);
        }
    }

    fn context(&self, event: &Event<'_>) -> Context<'_> {
        Context {
            descriptors: self.now.get(&event.process),
            recording: Some(self.recording),
            among: self.among,
            time: event.time,
            namespace: self
                .recording
                .process(event.process)
                .map_or(0, |process| process.namespace),
        }
    }

    /// The type of an event.
    pub fn type_of(&self, event: &Event<'_>) -> Type {
        match self.now.get(&event.process) {
            Some(descriptors) => descriptors.type_of(event),
            None => event.type_(),
        }
    }

    /// The name of a process.
    pub fn process_name(&self, number: ProcessNo) -> String {
        let name = name_of(self.recording, self.among, number);
        name.unwrap_or_else(|| format!("process {number}"))
    }

    /// The name of a thread of the event's process.
    fn thread_name(&self, event: &Event<'_>, thread: ThreadNo) -> String {
        self.names.thread(event.process, thread)
    }

    /// The name of an event.
    pub fn event_name(&self, process: ProcessNo, number: EventNo) -> String {
        format!("{}:{number}", self.process_name(process))
    }

    /// The event in one line, without position and time.
    pub fn text(&self, event: &Event<'_>) -> String {
        if event.is_call() {
            self.call_text(event)
        } else {
            self.other_text(event)
        }
    }

    fn call_text(&self, event: &Event<'_>) -> String {
        let context = self.context(event);
        let row = calls::row(event.nr);
        let mut out = String::new();
        if event.phase == Phase::End {
            out.push_str("<... resumed> ");
        }
        out.push_str(&event.name());
        out.push('(');
        let arguments = match row {
            _ if !event.args_known => vec![("", Value::Unknown)],
            _ if event.kind == kind::CLOCK => clock_arguments(event),
            Some(row) => arguments::arguments(event, row, &context),
            None => event
                .args
                .iter()
                .map(|arg| ("", Value::Hex(*arg)))
                .collect(),
        };
        for (i, (_, argument)) in arguments.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            argument.write(&mut out, &self.limits);
        }
        out.push(')');
        if event.phase == Phase::Start {
            // What never returns is not waited for.
            let returns = row.is_none_or(|row| row.ret != Ret::None);
            out.push_str(if returns { " <unfinished ...>" } else { " = ?" });
            return out;
        }
        out.push_str(" = ");
        match event.errno() {
            Some(errno) => {
                // The kernel's own codes for a call to be made again are not
                // a result.
                out.push_str(if errno >= 512 { "? " } else { "-1 " });
                match (errno_name(errno), errno_text(errno)) {
                    (Some(name), Some(text)) => out.push_str(&format!("{name} ({text})")),
                    _ => out.push_str(&format!("error {errno}")),
                }
            }
            None => arguments::result(event, row, &context).write(&mut out, &self.limits),
        }
        out
    }

    fn other_text(&self, event: &Event<'_>) -> String {
        match event.kind {
            kind::SIGNAL => {
                let mut out = format!("--- {}", signal_word(event.value(0)));
                if let Some(info) = self.siginfo(event) {
                    out.push(' ');
                    info.write(&mut out, &self.limits);
                }
                out.push_str(match event.value(1) {
                    at::FAULT => " (fault)",
                    at::PREEMPTED => " (preempted)",
                    _ => "",
                });
                out.push_str(" ---");
                out
            }
            kind::PREEMPT => "--- preempted ---".to_string(),
            kind::THREAD_START => format!(
                "+++ {} began (made by {}) +++",
                self.thread_name(event, event.thread_in(0)),
                self.thread_name(event, event.thread_in(3))
            ),
            kind::BEGIN => {
                let image = self.image(event);
                match event.value(0) {
                    begin::FIRST => format!("+++ began{} +++", command(image)),
                    begin::JOINED => format!("+++ runs{} +++", command(image)),
                    begin::EXEC => format!("+++ new image{} +++", command(image)),
                    how => {
                        let parent = event.process_in(1);
                        let how = match how {
                            begin::FORK => "fork",
                            begin::VFORK => "vfork",
                            _ => "made in an unknown way",
                        };
                        format!(
                            "+++ began ({how} of {} at {}) +++",
                            self.process_name(parent),
                            self.event_name(parent, event.event_in(2))
                        )
                    }
                }
            }
            kind::TSC => match event.value(2) {
                3 => format!("rdtscp() = {}", event.value(0)),
                _ => format!("rdtsc() = {}", event.value(0)),
            },
            kind::ANSWER => answered(event),
            _ => format!("{} {:?}", event.name(), event.values),
        }
    }

    fn siginfo(&self, event: &Event<'_>) -> Option<Value> {
        shapes::siginfo(event.blob(tag::SIGINFO)?.bytes, &self.context(event))
    }

    fn image(&self, event: &Event<'_>) -> Option<&'r crate::recording::Image> {
        let process = self.recording.process(event.process)?;
        self.recording
            .images_of(process)
            .find(|image| u64::from(image.image.0) == event.value(4))
    }

    /// All there is to tell of an event. Data is cut after `limit` bytes.
    pub fn details(&self, event: &Event<'_>, limit: usize) -> Details {
        let arguments = self.arguments(event);
        let mut files = Map::new();
        let mut args = Map::new();
        for (name, value) in &arguments {
            if let Value::Fd(_, Some(file)) = value {
                files.insert(name.to_string(), file.as_str().into());
            }
            args.insert(name.to_string(), value.json(limit));
        }
        let error = event.errno().map(errno_name);
        if error.is_none()
            && event.is_call()
            && let Value::Fd(_, Some(file)) =
                arguments::result(event, calls::row(event.nr), &self.context(event))
        {
            files.insert("result".to_string(), file.into());
        }
        let (child, child_thread) = match event.child() {
            Some(Child::Process(number)) => (Some(self.process_name(number)), None),
            Some(Child::Thread(number)) => (None, Some(self.thread_name(event, number))),
            None => (None, None),
        };
        Details {
            event: self.event_name(event.process, event.number),
            process: self.process_name(event.process),
            thread: self.thread_name(event, event.thread),
            time_ns: self.recording.clock().since_start_ns(event.time),
            kind: self.type_of(event).name(),
            call: event.name(),
            args,
            result: event.result,
            phase: event.phase.name(),
            error,
            child,
            child_thread,
            started: event
                .started
                .map(|started| self.event_name(event.process, started)),
            preempted: event.preempted(),
            files,
        }
    }

    /// The argument of this name, for programs. Data is cut after `limit`
    /// bytes.
    pub fn argument(
        &self,
        event: &Event<'_>,
        name: &str,
        limit: usize,
    ) -> Option<serde_json::Value> {
        let all = self.arguments(event);
        let (_, value) = all.iter().rfind(|(own, _)| *own == name)?;
        Some(value.json(limit))
    }

    fn arguments(&self, event: &Event<'_>) -> Vec<(&'static str, Value)> {
        match (event.is_call(), calls::row(event.nr)) {
            (false, _) => self.other_arguments(event),
            (true, _) if !event.args_known => Vec::new(),
            (true, _) if event.kind == kind::CLOCK => clock_arguments(event),
            (true, Some(row)) => arguments::arguments(event, row, &self.context(event)),
            (true, None) => UNNAMED
                .into_iter()
                .zip(event.args.map(Value::Hex))
                .collect(),
        }
    }

    /// What is not a call has arguments too.
    fn other_arguments(&self, event: &Event<'_>) -> Vec<(&'static str, Value)> {
        let name = |name: &str| Value::Name(name.to_string());
        match event.kind {
            kind::SIGNAL => {
                let mut shown = vec![
                    ("signal", Value::Name(signal_word(event.value(0)))),
                    (
                        "at",
                        name(match event.value(1) {
                            at::CALL_ENTRY => "call-entry",
                            at::CALL_EXIT => "call-exit",
                            at::FAULT => "fault",
                            _ => "preempted",
                        }),
                    ),
                ];
                shown.extend(self.siginfo(event).map(|info| ("siginfo", info)));
                shown.extend(registers(event).map(|words| ("registers", words)));
                shown
            }
            kind::PREEMPT => registers(event)
                .map(|words| ("registers", words))
                .into_iter()
                .collect(),
            kind::THREAD_START => vec![
                (
                    "thread",
                    Value::Name(self.thread_name(event, event.thread_in(0))),
                ),
                ("tid", Value::Uint(event.value(1))),
                ("start", Value::Hex(event.value(2))),
                (
                    "by",
                    Value::Name(self.thread_name(event, event.thread_in(3))),
                ),
            ],
            kind::BEGIN => {
                let mut shown = vec![(
                    "how",
                    name(match event.value(0) {
                        begin::FIRST => "first",
                        begin::JOINED => "joined",
                        begin::EXEC => "exec",
                        begin::FORK => "fork",
                        begin::VFORK => "vfork",
                        _ => "unknown",
                    }),
                )];
                if matches!(event.value(0), begin::FORK | begin::VFORK) {
                    let parent = event.process_in(1);
                    shown.push(("parent", Value::Name(self.process_name(parent))));
                    let event = self.event_name(parent, event.event_in(2));
                    shown.push(("parent_event", Value::Name(event)));
                }
                let pid = event.value(3) & u64::from(u32::MAX);
                shown.push(("pid", Value::Uint(pid)));
                shown.push(("image", Value::Uint(event.value(4))));
                if let Some(image) = self.image(event) {
                    shown.push(("exe", Value::Path(image.exe.clone())));
                    let argv = image.argv.iter().map(|arg| Value::Path(arg.clone()));
                    shown.push(("argv", Value::List(argv.collect())));
                }
                shown
            }
            kind::TSC => vec![("value", Value::Uint(event.value(0)))],
            kind::ANSWER => answer_fields(event),
            _ => Vec::new(),
        }
    }
}

/// An instruction that the processor answered.
fn answered(event: &Event<'_>) -> String {
    let (asked, answered) = (answer::ASKED, answer::ANSWERED);
    let is_there = event.value(answered + 1) != 0;
    match Instruction::from_number(event.value(0)) {
        Some(Instruction::Cpuid) => format!(
            "cpuid({:#x}, {:#x}) = {:#x} {:#x} {:#x} {:#x}",
            event.value(asked),
            event.value(asked + 1),
            event.value(answered),
            event.value(answered + 1),
            event.value(answered + 2),
            event.value(answered + 3),
        ),
        Some(Instruction::Lsl) if is_there => format!(
            "lsl({:#x}) = {:#x}",
            event.value(asked),
            event.value(answered)
        ),
        Some(Instruction::Lsl) => format!("lsl({:#x}) = ?", event.value(asked)),
        Some(what) if is_there => format!("{}() = {:#x}", what.name(), event.value(answered)),
        Some(what) => format!("{}() = ?", what.name()),
        None => format!("{} {:?}", event.name(), event.values),
    }
}

fn answer_fields(event: &Event<'_>) -> Vec<(&'static str, Value)> {
    let value = |index| Value::Hex(event.value(index));
    let (asked, answered) = (answer::ASKED, answer::ANSWERED);
    match Instruction::from_number(event.value(0)) {
        Some(Instruction::Cpuid) => vec![
            ("leaf", value(asked)),
            ("subleaf", value(asked + 1)),
            ("eax", value(answered)),
            ("ebx", value(answered + 1)),
            ("ecx", value(answered + 2)),
            ("edx", value(answered + 3)),
        ],
        Some(Instruction::Lsl) => vec![("selector", value(asked)), ("value", value(answered))],
        _ => vec![("value", value(answered))],
    }
}

/// Where a thread was in the middle of its code.
fn registers(event: &Event<'_>) -> Option<Value> {
    const NAMES: [&str; 18] = [
        "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx",
        "rax", "rcx", "rsp", "rip", "eflags",
    ];
    let words = event.blob(tag::REGISTERS)?.bytes.as_chunks::<8>().0;
    let values = words
        .iter()
        .map(|word| Value::Hex(u64::from_le_bytes(*word)));
    Some(Value::Struct(
        NAMES.into_iter().zip(values).collect(),
        false,
    ))
}

/// A clock read keeps its value instead of its arguments.
fn clock_arguments(event: &Event<'_>) -> Vec<(&'static str, Value)> {
    let (id, value) = (event.value(1), event.value(2));
    let (seconds, rest) = (value / 1_000_000_000, value % 1_000_000_000);
    let time = |unit: &'static str, rest: u64| {
        let seconds = ("tv_sec", Value::Int(seconds as i64));
        Value::Struct(vec![seconds, (unit, Value::Int(rest as i64))], false)
    };
    match u8::try_from(event.value(0)).unwrap_or(u8::MAX) {
        clock::GETTIMEOFDAY => vec![("tv", time("tv_usec", rest / 1000)), ("tz", Value::Null)],
        clock::TIME => Vec::new(),
        _ => {
            let mut name = String::new();
            let _ = protocol::names::CLOCK.describe(id, &mut name);
            vec![
                ("clock", Value::Name(name)),
                ("time", time("tv_nsec", rest)),
            ]
        }
    }
}

const UNNAMED: [&str; 6] = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];

fn signal_word(number: u64) -> String {
    match signal_name(number) {
        Some(name) => name.to_string(),
        None => format!("signal {number}"),
    }
}

fn command(image: Option<&crate::recording::Image>) -> String {
    let Some(image) = image else {
        return String::new();
    };
    let mut out = ": ".to_string();
    value::escape(&mut out, &image.exe);
    for arg in image.argv.iter().skip(1) {
        out.push(' ');
        value::escape(&mut out, arg);
    }
    out
}
