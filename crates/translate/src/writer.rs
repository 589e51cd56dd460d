//! Writes machine code into a piece of memory. What does not fit is dropped:
//! whoever writes makes sure of the room before.

/// Numbers of general registers, as instructions have them.
pub const RAX: u8 = 0;
pub const RCX: u8 = 1;
pub const RDX: u8 = 2;

pub struct Writer<'a> {
    memory: &'a mut [u8],
    /// Address of `memory`.
    base: u64,
    /// Where the next byte goes.
    pub at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(memory: &'a mut [u8], base: u64, at: usize) -> Self {
        Writer { memory, base, at }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.memory.get_mut(self.at) {
                *place = *byte;
            }
            self.at = self.at.wrapping_add(1);
        }
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// An instruction up to its ModRM byte, which names a displacement from
    /// `rip`: makes that lead to `offset`. So many bytes follow it.
    fn relative(&mut self, head: &[u8], offset: usize, following: usize) {
        self.bytes(head);
        let end = self.at.wrapping_add(4).wrapping_add(following);
        self.u32(offset.wrapping_sub(end) as u32);
    }

    /// `mov [slot], register`
    pub fn store(&mut self, slot: usize, register: u8) {
        self.relative(&[rex_w(register), 0x89, slot_operand(register)], slot, 0);
    }

    /// `movups [slot], register`
    pub fn store_vector(&mut self, slot: usize, register: u8) {
        let rex = 0x40 | (register >> 3) << 2;
        self.relative(&[rex, 0x0f, 0x11, slot_operand(register)], slot, 0);
    }

    /// `mov register, [slot]`
    pub fn load(&mut self, register: u8, slot: usize) {
        self.relative(&[rex_w(register), 0x8b, slot_operand(register)], slot, 0);
    }

    /// `lea register, [offset]`
    pub fn address_of(&mut self, register: u8, offset: usize) {
        self.relative(&[rex_w(register), 0x8d, slot_operand(register)], offset, 0);
    }

    /// `mov dword ptr [slot], value`
    pub fn store_value(&mut self, slot: usize, value: u32) {
        self.relative(&[0xc7, 0x05], slot, 4);
        self.u32(value);
    }

    /// `jmp [slot]`
    pub fn jump_through(&mut self, slot: usize) {
        self.relative(&[0xff, 0x25], slot, 0);
    }

    /// `mov register, value`
    pub fn value(&mut self, register: u8, value: u64) {
        self.bytes(&[0x48 | register >> 3, 0xb8 | register & 7]);
        self.u64(value);
    }

    /// `jmp offset`
    pub fn jump(&mut self, offset: usize) {
        self.relative(&[0xe9], offset, 0);
    }

    /// A jump (`head`) whose target comes later: where to write it.
    pub fn jump_later(&mut self, head: &[u8]) -> usize {
        self.bytes(head);
        let site = self.at;
        self.u32(0);
        site
    }

    /// Fills in a target left open by `jump_later`.
    pub fn settle(&mut self, site: usize, offset: usize) {
        let relative = offset.wrapping_sub(site.wrapping_add(4)) as u32;
        if let Some(place) = self.memory.get_mut(site..site.wrapping_add(4)) {
            place.copy_from_slice(&relative.to_le_bytes());
        }
    }

    /// Fills in a jump of one byte (`jrcxz` and the like), so that it leads
    /// here.
    pub fn settle_short(&mut self, site: usize) {
        let distance = self.at.wrapping_sub(site.wrapping_add(1)) as u8;
        if let Some(place) = self.memory.get_mut(site) {
            *place = distance;
        }
    }

    /// `jrcxz` to a place that comes later, within 127 bytes.
    pub fn jump_if_rcx_is_zero(&mut self) -> usize {
        self.bytes(&[0xe3, 0]);
        self.at.wrapping_sub(1)
    }

    pub fn align(&mut self) {
        while !self.at.is_multiple_of(16) {
            self.bytes(&[0xcc]);
        }
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }
}

fn rex_w(register: u8) -> u8 {
    0x48 | (register >> 3) << 2
}

fn slot_operand(register: u8) -> u8 {
    0x05 | (register & 7) << 3
}
