//! The word of a halt, as one host sends it to another: a datagram that says from whom it
//! is and which motion is over, and nothing else.
//!
//! Whoever has the secret of the session can say it, and nobody else. The motions of a
//! session are numbered, so that a word that comes late, or a second time, is known by its
//! number to be of what is over.

use std::net::SocketAddr;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// What it begins with; the last byte is a version.
const MAGIC: [u8; 8] = *b"mw-halt\x01";
const SAID: usize = MAGIC.len() + 2 + 8;
/// Its length: what is said, and what proves it.
pub const LENGTH: usize = SAID + 32;

/// Addresses of one host that are written to, at most.
pub const ADDRESSES: usize = 8;

/// What the hosts of one session have in common, and nobody else knows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one. None: the kernel has no chance to give.
    pub fn new() -> Option<Secret> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Secret(bytes))
    }

    pub fn key(&self) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, &self.0))
    }
}

/// Requests are logged.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Proves words, and tells whether they are proven.
pub struct Key(hmac::Key);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The member of who says it.
    pub from: u16,
    /// The motion that is over.
    pub motion: u64,
}

impl Word {
    pub fn seal(self, key: &Key) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let said = MAGIC.into_iter();
        let said = said.chain(self.from.to_le_bytes());
        let said = said.chain(self.motion.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(said) {
            *place = byte;
        }
        let (said, proof) = bytes.split_at_mut(SAID);
        proof.copy_from_slice(hmac::sign(&key.0, said).as_ref());
        bytes
    }

    /// What a datagram says. None: it is something else, or not proven.
    pub fn open(bytes: &[u8], key: &Key) -> Option<Word> {
        if bytes.len() != LENGTH || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let (said, proof) = bytes.split_at_checked(SAID)?;
        hmac::verify(&key.0, said, proof).ok()?;
        let (from, motion) = said.get(MAGIC.len()..)?.split_first_chunk::<2>()?;
        Some(Word {
            from: u16::from_le_bytes(*from),
            motion: u64::from_le_bytes(*motion.first_chunk::<8>()?),
        })
    }
}

/// Whether a host can be written to there by another one.
pub fn is_reachable(address: &SocketAddr) -> bool {
    let ip = address.ip();
    let is_local = match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        // It means something with an interface only.
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    address.port() != 0
        && !is_local
        && !ip.is_loopback()
        && !ip.is_unspecified()
        && !ip.is_multicast()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_secret_is_believed_and_nobody_else() {
        let (key, other) = (Secret::new().unwrap().key(), Secret::new().unwrap().key());
        let word = Word {
            from: 3,
            motion: 77,
        };
        let sealed = word.seal(&key);
        assert_eq!(Word::open(&sealed, &key), Some(word));
        assert_eq!(Word::open(&sealed, &other), None);
        assert_eq!(Word::open(&word.seal(&other), &key), None);
        for at in 0..sealed.len() * 8 {
            let mut forged = sealed;
            *forged.get_mut(at / 8).unwrap() ^= 1 << (at % 8);
            assert_eq!(Word::open(&forged, &key), None, "bit {at}");
        }
        for length in 0..LENGTH {
            assert_eq!(Word::open(sealed.get(..length).unwrap(), &key), None);
        }
        let longer: Vec<u8> = sealed.iter().copied().chain([0]).collect();
        assert_eq!(Word::open(&longer, &key), None);
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_ne!(secret, Secret::new().unwrap());
    }

    #[test]
    fn what_means_something_on_one_host_alone_is_not_written_to() {
        for (text, is) in [
            ("10.0.0.1:9", true),
            ("[2001:db8::1]:9", true),
            ("10.0.0.1:0", false),
            ("127.0.0.1:9", false),
            ("169.254.1.1:9", false),
            ("255.255.255.255:9", false),
            ("224.0.0.1:9", false),
            ("0.0.0.0:9", false),
            ("[fe80::1]:9", false),
            ("[::1]:9", false),
        ] {
            assert_eq!(is_reachable(&text.parse().unwrap()), is, "{text}");
        }
    }
}
