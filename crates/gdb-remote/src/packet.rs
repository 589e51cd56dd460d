//! Framing: `$data#checksum`, acknowledgements, and the interruption.

/// Longer packets are not taken. (gdb keeps to the size that it is told.)
pub const LONGEST: usize = 0x2_0000;

/// What came from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What a packet holds; escapes stay, for what they mean depends on the
    /// command.
    Packet(Vec<u8>),
    /// The checksum is wrong, or it is too long: it is to be sent again.
    Corrupt,
    /// The last packet of ours arrived.
    Ack,
    /// It did not.
    Nack,
    /// Ctrl-C.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Data,
    Sum(Option<u8>),
}

/// Takes bytes as they come and gives what they are.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    data: Vec<u8>,
    sum: u8,
    too_long: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder {
            state: State::Between,
            data: Vec::new(),
            sum: 0,
            too_long: false,
        }
    }

    fn begin(&mut self) {
        self.state = State::Data;
        self.data.clear();
        self.sum = 0;
        self.too_long = false;
    }

    /// Takes one byte.
    pub fn take(&mut self, byte: u8) -> Option<Input> {
        match self.state {
            State::Between => match byte {
                b'$' => {
                    self.begin();
                    None
                }
                b'+' => Some(Input::Ack),
                b'-' => Some(Input::Nack),
                3 => Some(Input::Interrupt),
                // Noise.
                _ => None,
            },
            State::Data => match byte {
                b'#' => {
                    self.state = State::Sum(None);
                    None
                }
                // A packet that was given up.
                b'$' => {
                    self.begin();
                    Some(Input::Corrupt)
                }
                _ => {
                    self.sum = self.sum.wrapping_add(byte);
                    if self.data.len() < LONGEST {
                        self.data.push(byte);
                    } else {
                        self.too_long = true;
                    }
                    None
                }
            },
            State::Sum(None) => {
                self.state = State::Sum(Some(byte));
                None
            }
            State::Sum(Some(first)) => {
                self.state = State::Between;
                let said = crate::hex::number(&[first, byte]);
                if said != Some(self.sum.into()) || self.too_long {
                    return Some(Input::Corrupt);
                }
                Some(Input::Packet(std::mem::take(&mut self.data)))
            }
        }
    }
}

/// The packet that holds `data`, which is escaped already where it must be.
pub fn frame(data: &[u8]) -> Vec<u8> {
    let sum = data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let mut packet = Vec::with_capacity(data.len() + 4);
    packet.push(b'$');
    packet.extend_from_slice(data);
    packet.push(b'#');
    packet.extend_from_slice(crate::hex::encode(&[sum]).as_bytes());
    packet
}

/// Makes arbitrary bytes fit for a packet.
pub fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 32);
    for byte in bytes {
        if matches!(byte, b'$' | b'#' | b'}' | b'*') {
            out.push(b'}');
            out.push(byte ^ 0x20);
        } else {
            out.push(*byte);
        }
    }
    out
}

/// As much of `bytes` as fits into `room` when it is escaped, and how many
/// bytes of it that is.
pub fn escape_within(bytes: &[u8], room: usize) -> (Vec<u8>, usize) {
    let mut used = 0;
    let mut len = 0;
    for byte in bytes {
        let takes = 1 + usize::from(matches!(byte, b'$' | b'#' | b'}' | b'*'));
        if used + takes > room {
            break;
        }
        used += takes;
        len += 1;
    }
    (escape(bytes.get(..len).unwrap_or(bytes)), len)
}

/// What escaped bytes stand for.
pub fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'}' => out.extend(rest.next().map(|next| next ^ 0x20)),
            byte => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Vec<Input> {
        let mut decoder = Decoder::new();
        bytes.iter().filter_map(|b| decoder.take(*b)).collect()
    }

    #[test]
    fn a_packet_is_what_was_framed() {
        let packet = frame(b"qSupported:multiprocess+");
        assert_eq!(packet, b"$qSupported:multiprocess+#c6");
        assert_eq!(
            decode(&packet),
            [Input::Packet(b"qSupported:multiprocess+".to_vec())]
        );
        assert_eq!(frame(b""), b"$#00");
    }

    #[test]
    fn acknowledgements_noise_and_ctrl_c() {
        assert_eq!(
            decode(b"+-xyz\x03$g#67\x03"),
            [
                Input::Ack,
                Input::Nack,
                Input::Interrupt,
                Input::Packet(b"g".to_vec()),
                Input::Interrupt,
            ]
        );
        // Inside of a packet it is data.
        assert_eq!(decode(b"$\x03#03"), [Input::Packet(vec![3])]);
    }

    #[test]
    fn wrong_sums_and_packets_given_up_are_said() {
        assert_eq!(decode(b"$g#68"), [Input::Corrupt]);
        assert_eq!(decode(b"$g#zz"), [Input::Corrupt]);
        assert_eq!(
            decode(b"$mhalf$g#67"),
            [Input::Corrupt, Input::Packet(b"g".to_vec())]
        );
    }

    #[test]
    fn too_long_a_packet_is_refused_and_the_next_one_read() {
        let mut bytes = frame(&vec![b'a'; LONGEST + 1]);
        bytes.extend(frame(b"?"));
        assert_eq!(
            decode(&bytes),
            [Input::Corrupt, Input::Packet(b"?".to_vec())]
        );
    }

    #[test]
    fn escapes_are_inverse_and_keep_a_packet_whole() {
        let all: Vec<u8> = (0..=255).collect();
        let escaped = escape(&all);
        assert_eq!(unescape(&escaped), all);
        assert_eq!(decode(&frame(&escaped)), [Input::Packet(escaped)]);
        let (some, len) = escape_within(b"a$b$", 4);
        assert_eq!((some.as_slice(), len), (&b"a}\x04b"[..], 3));
    }

    /// Bytes at random, some of them likely: nothing panics.
    #[test]
    fn no_bytes_panic() {
        let mut seed = crate::seed::seed("packets", 1);
        let mut decoder = Decoder::new();
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let pick = (seed >> 33) as usize;
            let byte = *b"$#+-}*vQZp:;,.0a\x03\xff".get(pick % 18).unwrap();
            if let Some(Input::Packet(data)) = decoder.take(byte) {
                let _ = crate::command::parse(&data);
                let _ = unescape(&data);
            }
        }
    }
}
