//! Floating-point numbers with as many digits as tell them apart.

/// Digits that tell numbers with so many bits of precision apart.
fn digits(precision: u32) -> usize {
    (2.0 + f64::from(precision) * std::f64::consts::LOG10_2) as usize
}

/// C's `%.{digits}g` of decimal digits and an exponent: the value is
/// `0.d1d2d3... * 10^(exponent + 1)`.
fn general(digits: &str, exponent: i32, precision: usize, negative: bool) -> String {
    let sign = if negative { "-" } else { "" };
    let trimmed = digits.trim_end_matches('0');
    let trimmed = if trimmed.is_empty() { "0" } else { trimmed };
    if exponent < -4 || exponent >= precision as i32 {
        let (first, rest) = trimmed.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let mark = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{mark}{:02}", exponent.abs());
    }
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return format!("{sign}0.{zeros}{trimmed}");
    }
    let whole = exponent as usize + 1;
    if trimmed.len() <= whole {
        let zeros = "0".repeat(whole - trimmed.len());
        return format!("{sign}{trimmed}{zeros}");
    }
    let (a, b) = trimmed.split_at(whole);
    format!("{sign}{a}.{b}")
}

fn from_f64(value: f64, precision: usize) -> String {
    let text = format!("{:.*e}", precision - 1, value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    general(
        &digits,
        exponent.parse().unwrap_or(0),
        precision,
        value.is_sign_negative(),
    )
}

/// A number of 4, 8, 10 or 16 bytes.
pub fn show(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        2 => {
            let bits = u16::from_le_bytes(bytes.try_into().ok()?);
            let (sign, exp, man) = (bits >> 15, i32::from((bits >> 10) & 31), bits & 0x3ff);
            let size = match exp {
                0 => f64::from(man) * 2f64.powi(-24),
                31 if man == 0 => f64::INFINITY,
                31 => f64::NAN,
                _ => f64::from(man | 0x400) * 2f64.powi(exp - 25),
            };
            let value = if sign == 1 { -size } else { size };
            Some(
                special(
                    value.is_nan(),
                    value.is_infinite(),
                    sign == 1,
                    u64::from(man),
                )
                .unwrap_or_else(|| from_f64(value, digits(11))),
            )
        }
        4 => {
            let value = f32::from_le_bytes(bytes.try_into().ok()?);
            let mantissa = u64::from(value.to_bits() & 0x7f_ffff);
            Some(
                special(
                    value.is_nan(),
                    value.is_infinite(),
                    value.is_sign_negative(),
                    mantissa,
                )
                .unwrap_or_else(|| from_f64(f64::from(value), digits(24))),
            )
        }
        8 => {
            let value = f64::from_le_bytes(bytes.try_into().ok()?);
            let mantissa = value.to_bits() & ((1 << 52) - 1);
            Some(
                special(
                    value.is_nan(),
                    value.is_infinite(),
                    value.is_sign_negative(),
                    mantissa,
                )
                .unwrap_or_else(|| from_f64(value, digits(53))),
            )
        }
        10 | 12 | 16 => {
            let mantissa = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
            let top = u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?);
            Some(extended(mantissa, top))
        }
        _ => None,
    }
}

fn special(nan: bool, infinite: bool, negative: bool, mantissa: u64) -> Option<String> {
    let sign = if negative { "-" } else { "" };
    if nan {
        Some(format!("{sign}nan({mantissa:#x})"))
    } else if infinite {
        Some(format!("{sign}inf"))
    } else {
        None
    }
}

/// An 80-bit number: `mantissa * 2^(exponent - 16383 - 63)`.
fn extended(mantissa: u64, top: u16) -> String {
    let negative = top & 0x8000 != 0;
    let exponent = i32::from(top & 0x7fff);
    let sign = if negative { "-" } else { "" };
    if exponent != 0 && mantissa >> 63 == 0 {
        // Not a number that a processor makes.
        return "<invalid float value>".to_string();
    }
    if exponent == 0x7fff {
        let infinite = mantissa & !(1 << 63) == 0;
        return special(!infinite, infinite, negative, mantissa).unwrap_or_default();
    }
    if mantissa == 0 {
        return format!("{sign}0");
    }
    exact(
        u128::from(mantissa),
        exponent.max(1) - 16383 - 63,
        digits(64),
        negative,
    )
}

/// A number of the format with 128 bits.
pub fn quad(bytes: &[u8]) -> Option<String> {
    let bits = u128::from_le_bytes(bytes.try_into().ok()?);
    let negative = bits >> 127 == 1;
    let exponent = ((bits >> 112) & 0x7fff) as i32;
    let fraction = bits & ((1 << 112) - 1);
    let sign = if negative { "-" } else { "" };
    if exponent == 0x7fff {
        return Some(if fraction == 0 {
            format!("{sign}inf")
        } else {
            format!("{sign}nan({fraction:#x})")
        });
    }
    if exponent == 0 && fraction == 0 {
        return Some(format!("{sign}0"));
    }
    let mantissa = if exponent == 0 {
        fraction
    } else {
        fraction | (1 << 112)
    };
    let power = exponent.max(1) - 16383 - 112;
    Some(exact(mantissa, power, digits(113), negative))
}

/// `mantissa * 2^power`, which is not zero, in whole numbers: the value is
/// `number / 10^scale`.
fn exact(mantissa: u128, power: i32, precision: usize, negative: bool) -> String {
    let mut number: Vec<u32> = (0..4).map(|i| (mantissa >> (32 * i)) as u32).collect();
    let mut scale = 0i32;
    for _ in 0..power.unsigned_abs() {
        if power >= 0 {
            multiply(&mut number, 2);
        } else {
            multiply(&mut number, 5);
            scale += 1;
        }
    }
    let text = decimal(number);
    let exponent = text.len() as i32 - 1 - scale;
    let (rounded, carried) = round(&text, precision);
    general(&rounded, exponent + i32::from(carried), precision, negative)
}

fn multiply(number: &mut Vec<u32>, by: u32) {
    let mut carry = 0u64;
    for word in number.iter_mut() {
        let product = u64::from(*word) * u64::from(by) + carry;
        *word = product as u32;
        carry = product >> 32;
    }
    if carry != 0 {
        number.push(carry as u32);
    }
}

fn decimal(mut number: Vec<u32>) -> String {
    let mut groups = Vec::new();
    while number.iter().any(|w| *w != 0) {
        let mut rest = 0u64;
        for word in number.iter_mut().rev() {
            let value = (rest << 32) | u64::from(*word);
            *word = (value / 1_000_000_000) as u32;
            rest = value % 1_000_000_000;
        }
        groups.push(rest);
        while number.last() == Some(&0) {
            number.pop();
        }
    }
    let mut text = String::new();
    for (at, group) in groups.iter().rev().enumerate() {
        if at == 0 {
            text.push_str(&group.to_string());
        } else {
            text.push_str(&format!("{group:09}"));
        }
    }
    text
}

/// Rounds decimal digits half to even; whether a digit was added in front.
fn round(text: &str, precision: usize) -> (String, bool) {
    let (Some(kept), Some(rest)) = (text.get(..precision), text.get(precision..)) else {
        return (text.to_string(), false);
    };
    let mut digits: Vec<u8> = kept.bytes().collect();
    let half = rest.as_bytes().first().copied().unwrap_or(b'0');
    let exact = rest.bytes().skip(1).all(|d| d == b'0');
    let odd = digits.last().is_some_and(|d| d % 2 == 1);
    if half > b'5' || (half == b'5' && (!exact || odd)) {
        for digit in digits.iter_mut().rev() {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                return (String::from_utf8_lossy(&digits).into_owned(), false);
            }
        }
        digits.insert(0, b'1');
        digits.pop();
        return (String::from_utf8_lossy(&digits).into_owned(), true);
    }
    (kept.to_string(), false)
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn numbers_are_as_gdb_has_them() {
        let double = |v: f64| show(&v.to_le_bytes()).unwrap();
        assert_eq!(double(1.0 / 3.0), "0.33333333333333331");
        assert_eq!(double(1e100), "1e+100");
        assert_eq!(double(0.001), "0.001");
        assert_eq!(double(-0.0), "-0");
        assert_eq!(double(6.25e-310), "6.2499999999999933e-310");
        assert_eq!(double(f64::INFINITY), "inf");
        assert_eq!(show(&1.5f32.to_le_bytes()).unwrap(), "1.5");
        assert_eq!(
            show(&0xffc0_0000u32.to_le_bytes()).unwrap(),
            "-nan(0x400000)"
        );
        let mut wide = [0u8; 16];
        wide[..8].copy_from_slice(&0x9000_0000_0000_0000u64.to_le_bytes());
        wide[8..10].copy_from_slice(&0x4000u16.to_le_bytes());
        assert_eq!(show(&wide).unwrap(), "2.25");
        wide[..8].copy_from_slice(&0xc90f_daa2_2168_c235u64.to_le_bytes());
        assert_eq!(show(&wide).unwrap(), "3.14159265358979323851");
    }
}
