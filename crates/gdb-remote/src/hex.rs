//! Bytes and numbers as hexadecimal digits.

/// Two digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0')
}

/// The bytes that pairs of digits stand for; `None` if there is anything else.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2)
        .map(|pair| number(pair).and_then(|n| u8::try_from(n).ok()))
        .collect()
}

/// A number in hexadecimal digits, without a prefix.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_and_decode_are_inverse() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()), Some(all));
    }

    #[test]
    fn what_is_no_number_is_none() {
        for bad in ["", "+1", "-1", "0x1", "g", "10000000000000000"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(number(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(decode(b"abc"), None);
        assert_eq!(decode(b"zz"), None);
    }
}
