//! A line of `mw events --json`.

use serde_json::Value;

#[derive(Debug)]
pub struct Event(Value);

impl Event {
    pub fn new(object: Value) -> Event {
        Event(object)
    }

    fn text(&self, key: &str) -> &str {
        self.0[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    /// `redis-server-0:1042`.
    pub fn name(&self) -> &str {
        self.text("event")
    }

    /// `1042`.
    pub fn number(&self) -> u64 {
        let (_, number) = self.name().rsplit_once(':').unwrap();
        number.parse().unwrap()
    }

    pub fn process(&self) -> &str {
        self.text("process")
    }

    pub fn thread(&self) -> &str {
        self.text("thread")
    }

    pub fn kind(&self) -> &str {
        self.text("type")
    }

    pub fn call(&self) -> &str {
        self.text("call")
    }

    /// Of a call: `call` if it cannot block, else `start` and `end`.
    pub fn phase(&self) -> &str {
        self.text("phase")
    }

    pub fn time_ns(&self) -> u64 {
        self.0["time_ns"].as_u64().unwrap()
    }

    pub fn result(&self) -> Option<i64> {
        self.0["result"].as_i64()
    }

    pub fn error(&self) -> Option<&str> {
        self.0["error"].as_str()
    }

    pub fn arg(&self, name: &str) -> &Value {
        &self.0["args"][name]
    }

    /// An argument that is a word or a text. Of what is long, the beginning
    /// may be all there is.
    pub fn word(&self, name: &str) -> &str {
        let arg = self.arg(name);
        arg.as_str().or(arg["text"].as_str()).unwrap_or("")
    }

    /// Whether an argument's data has this text in it, be the rest text or
    /// not.
    pub fn holds(&self, name: &str, text: &str) -> bool {
        match self.arg(name)["hex"].as_str() {
            Some(hex) => {
                let wanted: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                hex.contains(&wanted)
            }
            None => self.word(name).contains(text),
        }
    }

    /// What a descriptor leads to: the argument of this name, or `result`.
    pub fn file(&self, name: &str) -> &str {
        self.0["files"][name].as_str().unwrap_or("")
    }

    /// The process it made.
    pub fn child(&self) -> Option<&str> {
        self.0["child"].as_str()
    }

    /// The thread it made.
    pub fn child_thread(&self) -> Option<&str> {
        self.0["child_thread"].as_str()
    }

    /// The event that began what this one ends.
    pub fn started(&self) -> Option<&str> {
        self.0["started"].as_str()
    }

    /// Whether it is a call that returned.
    pub fn returned(&self) -> bool {
        matches!(self.phase(), "call" | "end")
    }

    pub fn succeeded(&self) -> bool {
        self.returned() && self.result().is_some_and(|result| result >= 0)
    }

    /// A call that failed so.
    pub fn failed(&self, call: &str, error: &str) -> bool {
        self.call() == call && self.error() == Some(error)
    }

    /// Whether it is the delivery of this signal.
    pub fn delivers(&self, signal: &str) -> bool {
        self.call() == "signal" && self.word("signal") == signal
    }

    pub fn json(&self) -> &Value {
        &self.0
    }
}
