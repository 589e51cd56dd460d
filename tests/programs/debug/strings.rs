//! For the tests of conditions: texts as Rust has them.
use std::hint::black_box;

static mut SLICE: &str = "first";
static mut TEXT: String = String::new();

fn main() {
    // Nothing else runs.
    unsafe {
        black_box(std::process::id());
        SLICE = black_box("second");
        TEXT = String::from(black_box("long live the text"));
        black_box(std::process::id());
        SLICE = black_box("third");
    }
}
