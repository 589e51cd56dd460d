//! Signals have numbers of the protocol's own, the same on all systems.

/// By Linux's numbers: the protocol's number of signals 1 to 31.
const PROTOCOL: [u8; 31] = [
    1,  // HUP
    2,  // INT
    3,  // QUIT
    4,  // ILL
    5,  // TRAP
    6,  // ABRT
    10, // BUS
    8,  // FPE
    9,  // KILL
    30, // USR1
    11, // SEGV
    31, // USR2
    13, // PIPE
    14, // ALRM
    15, // TERM
    0,  // STKFLT: it has none
    20, // CHLD
    19, // CONT
    17, // STOP
    18, // TSTP
    21, // TTIN
    22, // TTOU
    16, // URG
    24, // XCPU
    25, // XFSZ
    26, // VTALRM
    27, // PROF
    28, // WINCH
    23, // IO
    32, // PWR
    12, // SYS
];

/// One that is not known.
const UNKNOWN: u8 = 143;

/// The protocol's number of one of Linux's signals.
pub fn to_protocol(signal: u32) -> u8 {
    match signal {
        0 => 0,
        32 => 77,
        33..=63 => (signal - 33 + 45) as u8,
        64 => 78,
        _ => {
            let known = PROTOCOL.get(signal as usize - 1).copied();
            known.filter(|number| *number != 0).unwrap_or(UNKNOWN)
        }
    }
}

/// Linux's number of one of the protocol's signals. None: Linux does not have it.
pub fn from_protocol(number: u32) -> Option<u32> {
    match number {
        0 => Some(0),
        77 => Some(32),
        45..=75 => Some(number - 45 + 33),
        78 => Some(64),
        _ => {
            let place = PROTOCOL.iter().position(|own| u32::from(*own) == number)?;
            Some(place as u32 + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for signal in (0..=64).filter(|signal| *signal != 16) {
            let number = to_protocol(signal);
            assert_eq!(from_protocol(number.into()), Some(signal), "{signal}");
        }
        assert_eq!(to_protocol(16), UNKNOWN);
        assert_eq!(from_protocol(UNKNOWN.into()), None);
        // SIGEMT, SIGLOST.
        assert_eq!((from_protocol(7), from_protocol(29)), (None, None));
        assert_eq!((to_protocol(10), to_protocol(17)), (30, 20));
    }
}
