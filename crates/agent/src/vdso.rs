//! How the functions of the kernel's vdso that tell the time are led to the monitor's.

use inject::{CODE_AT, Detours, Image, Patch};

/// Works it out for a process that has the vdso's code at `base`, and memory for what
/// lies beside it at `page`. None: its code is not of a kind that can be led elsewhere.
pub fn lead(image: &Image, code: &[u8], base: u64, page: u64) -> Option<Detours> {
    let mut detours = Detours::default();
    for (name, offset, ours) in inject::vdso_functions(image) {
        let here = |detours: &Detours| page + CODE_AT + detours.code.len() as u64;
        let stub = here(&detours);
        // movabs r11, ours; jmp r11
        detours.code.extend([0x49, 0xbb]);
        detours.code.extend(ours.to_le_bytes());
        detours.code.extend([0x41, 0xff, 0xe3]);
        let moved = here(&detours);
        let function = base + offset;
        let mut room = [0; 64];
        let code = patch::Code { base, bytes: code };
        let detour = patch::detour(code, function, moved, &mut room)?;
        detours.code.extend(room.get(..detour.len)?);
        let at = usize::try_from(detour.start - base).ok()?;
        let original = code.bytes.get(at..at + detour.moved)?.to_vec();
        let mut new = original.clone();
        let jump = patch::jump_to(detour.start, stub)?;
        for (to, from) in new.iter_mut().zip(jump) {
            *to = from;
        }
        if name == "__vdso_clock_gettime" {
            detours.clock = moved;
        }
        detours.patches.push(Patch {
            at: detour.start,
            original,
            new,
            moved,
        });
    }
    Some(detours)
}
