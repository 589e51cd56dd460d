//! Who may ask an agent that listens on the network, and how each side knows the
//! other.
//!
//! An *authority* is a key and a certificate in a directory of the user's. It
//! signs *identities*: one for each host, which an agent there shows, and one for
//! each person who asks. An identity is one file with all that its holder needs:
//! its certificate, its key, and the authority's certificate.
//!
//! A person's certificate says on which hosts it holds, and for agents of which
//! users. Both are names in it (URIs), so they cannot be changed by who has it.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

const CERTIFICATE: &str = "authority.pem";
const KEY: &str = "authority.key";

/// In place of a name: all of them.
pub const ANY: &str = "*";

/// What the names in a person's certificate begin with.
const PERSON: &str = "meanwhile:person/";
const HOST: &str = "meanwhile:host/";
const USER: &str = "meanwhile:user/";

/// What a person's certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Who it is.
    pub name: String,
    /// The hosts on which it holds.
    pub hosts: Vec<String>,
    /// The users whose agents it may ask.
    pub users: Vec<String>,
}

impl Person {
    /// What the names in a certificate say.
    pub fn of<'n>(names: impl Iterator<Item = &'n str>) -> Person {
        let mut person = Person::default();
        for name in names {
            if let Some(name) = name.strip_prefix(PERSON) {
                person.name = name.to_string();
            } else if let Some(host) = name.strip_prefix(HOST) {
                person.hosts.push(host.to_string());
            } else if let Some(user) = name.strip_prefix(USER) {
                person.users.push(user.to_string());
            }
        }
        person
    }

    /// Whether it may ask an agent of this user on this host.
    pub fn may_ask(&self, host: &str, user: &str) -> bool {
        let holds = |list: &[String], own: &str| list.iter().any(|n| n == own || n == ANY);
        !self.name.is_empty() && holds(&self.hosts, host) && holds(&self.users, user)
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let own = std::iter::once(format!("{PERSON}{}", self.name));
        let hosts = self.hosts.iter().map(|host| format!("{HOST}{host}"));
        let users = self.users.iter().map(|user| format!("{USER}{user}"));
        own.chain(hosts).chain(users)
    }
}

/// Whether a word can be the name of a person, a host or a user: letters,
/// digits, `.-_`, and `:` of an address.
pub fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    word == ANY || !word.is_empty() && word.len() <= 128 && word.chars().all(plain)
}

/// What signs identities.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_path_buf();
    move |source| Error::File { what, path, source }
}

fn not_made(error: rcgen::Error) -> Error {
    Error::Trust {
        why: error.to_string(),
    }
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> Result<(), Error> {
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&fresh, path));
    written.map_err(failed("write", path))
}

impl Authority {
    /// The authority in a directory; it is made if there is none.
    pub fn open(dir: &Path) -> Result<Authority, Error> {
        let (path, key_path) = (dir.join(CERTIFICATE), dir.join(KEY));
        if !key_path.exists() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(failed("create", dir))?;
            let key = KeyPair::generate().map_err(not_made)?;
            let made = params(&key).self_signed(&key).map_err(not_made)?;
            write_secret(&path, &made.pem())?;
            write_secret(&key_path, &key.serialize_pem())?;
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(failed("read", path));
        let key = KeyPair::from_pem(&read(&key_path)?).map_err(not_made)?;
        Ok(Authority {
            dir: dir.to_path_buf(),
            certificate: read(&path)?,
            issuer: Issuer::new(params(&key), key),
        })
    }

    /// Makes the identity of an agent on a host. Where it is.
    pub fn host(&self, host: &str, until: SystemTime) -> Result<PathBuf, Error> {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().map_err(not_made)?),
        };
        self.sign(host, vec![name], ExtendedKeyUsagePurpose::ServerAuth, until)
    }

    /// Makes the identity of a person. Where it is.
    pub fn person(&self, person: &Person, until: SystemTime) -> Result<PathBuf, Error> {
        let mut names = Vec::new();
        for name in person.names() {
            names.push(SanType::URI(name.try_into().map_err(not_made)?));
        }
        let file = format!("{}@", person.name);
        self.sign(&file, names, ExtendedKeyUsagePurpose::ClientAuth, until)
    }

    fn sign(
        &self,
        file: &str,
        names: Vec<SanType>,
        purpose: ExtendedKeyUsagePurpose,
        until: SystemTime,
    ) -> Result<PathBuf, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, file);
        params.subject_alt_names = names;
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Clocks of other hosts may be a little behind.
        let since = SystemTime::now() - Duration::from_secs(3600);
        params.not_before = since.min(until).into();
        params.not_after = until.into();
        let key = KeyPair::generate().map_err(not_made)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(not_made)?;
        let path = self.dir.join(format!("{file}.pem"));
        let text = [signed.pem(), key.serialize_pem(), self.certificate.clone()].concat();
        write_secret(&path, &text)?;
        Ok(path)
    }
}

/// What an authority's certificate says: the same for the same key.
fn params(key: &KeyPair) -> CertificateParams {
    let digest = xxhash_rust::xxh3::xxh3_64(key.public_key_raw());
    let mut params = CertificateParams::default();
    let name = format!("Meanwhile authority {digest:016x}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// What one side shows the other, and whom it believes.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    pub authority: CertificateDer<'static>,
    path: PathBuf,
}

impl Identity {
    /// Reads an identity from its file.
    pub fn read(path: &Path) -> Result<Identity, Error> {
        let text = fs::read(path).map_err(failed("read", path))?;
        let bad = |why: &str| Error::Identity {
            path: path.to_path_buf(),
            why: why.to_string(),
        };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let certificates = certificates.map_err(|error| bad(&error.to_string()))?;
        let [certificate, authority] = certificates.as_slice() else {
            return Err(bad("it does not have a certificate and its authority's"));
        };
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| bad("it has no key"))?;
        Ok(Identity {
            certificate: certificate.clone().into_owned(),
            authority: authority.clone().into_owned(),
            key,
            path: path.to_path_buf(),
        })
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The host whose agent it is for: the first that its certificate names.
    pub fn host(&self) -> Option<String> {
        let parsed = webpki::EndEntityCert::try_from(&self.certificate).ok()?;
        let named = parsed.valid_dns_names().next().map(str::to_string);
        // Addresses are told by the file's name.
        named.or_else(|| Some(self.path.file_stem()?.to_str()?.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_holds_where_and_for_whom_it_says() {
        let person = Person {
            name: "ann".to_string(),
            hosts: vec!["a".to_string(), "b".to_string()],
            users: vec!["etcd".to_string()],
        };
        let names: Vec<String> = person.names().collect();
        let read = Person::of(names.iter().map(String::as_str));
        assert_eq!(read, person);
        assert!(read.may_ask("a", "etcd"));
        assert!(!read.may_ask("c", "etcd"));
        assert!(!read.may_ask("a", "root"));
        let nobody = Person {
            name: String::new(),
            ..person
        };
        assert!(!nobody.may_ask("a", "etcd"));
    }

    #[test]
    fn an_authority_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let day = SystemTime::now() + Duration::from_secs(86_400);
        let first = Authority::open(dir.path()).unwrap();
        let a = Identity::read(&first.host("a", day).unwrap()).unwrap();
        let again = Authority::open(dir.path()).unwrap();
        let b = Identity::read(&again.host("10.0.0.7", day).unwrap()).unwrap();
        assert_eq!(a.authority, b.authority);
        assert_eq!(a.host().as_deref(), Some("a"));
        assert_eq!(b.host().as_deref(), Some("10.0.0.7"));
        let mode = fs::metadata(dir.path().join(KEY)).unwrap().permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
            0o600
        );
    }
}
