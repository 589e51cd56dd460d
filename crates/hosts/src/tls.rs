//! A connection that only the two ends can read.
//!
//! One thread reads, any may write. Bytes are decrypted and encrypted under a
//! lock that is never held while the network is waited for: so a side that only
//! writes for a while does not keep what comes from being read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::Error;
use crate::trust::{Identity, Person};

const PIECE: usize = 64 << 10;

struct Shared {
    /// Held by who writes to the network; taken before the other.
    out: Mutex<()>,
    connection: Mutex<Connection>,
    socket: TcpStream,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end that is read from.
pub struct Reading {
    shared: Arc<Shared>,
    /// What came and was not decrypted yet.
    arrived: Vec<u8>,
    at: usize,
}

/// The end that is written to.
pub struct Writing {
    shared: Arc<Shared>,
}

/// The two ends of a connection whose handshake is done.
pub fn split(connection: Connection, socket: TcpStream) -> (Reading, Writing) {
    let shared = Arc::new(Shared {
        out: Mutex::new(()),
        connection: Mutex::new(connection),
        socket,
    });
    let reading = Reading {
        shared: Arc::clone(&shared),
        arrived: Vec::new(),
        at: 0,
    };
    (reading, Writing { shared })
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, words(&error))
}

impl Read for Reading {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut connection = locked(&self.shared.connection);
                match connection.reader().read(out) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                }
                let mut rest = self.arrived.get(self.at..).unwrap_or_default();
                if !rest.is_empty() {
                    self.at += connection.read_tls(&mut rest)?;
                    connection.process_new_packets().map_err(broken)?;
                    continue;
                }
            }
            self.arrived.resize(PIECE, 0);
            let got = (&self.shared.socket).read(&mut self.arrived)?;
            self.arrived.truncate(got);
            self.at = 0;
            if got == 0 {
                return Ok(0);
            }
        }
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _turn = locked(&self.shared.out);
        let mut sealed = Vec::new();
        let taken = {
            let mut connection = locked(&self.shared.connection);
            let taken = connection.writer().write(bytes)?;
            while connection.wants_write() {
                connection.write_tls(&mut sealed)?;
            }
            taken
        };
        (&self.shared.socket).write_all(&sealed)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.shared.socket).flush()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Whoever reads at the other end sees that nothing follows.
        let _ = self.shared.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// What is wrong with a certificate, in words of ours.
pub fn words(error: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    use rustls::Error as Tls;
    let text = match error {
        Tls::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is of another authority"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate does not hold yet: is a clock wrong?"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another host"
            }
            CertificateError::ApplicationVerificationFailure => {
                "the certificate does not hold for this host and user"
            }
            _ => return format!("its certificate is not taken: {why}"),
        },
        Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "our certificate is of another authority than it believes"
        }
        Tls::AlertReceived(Alert::CertificateExpired) => "our certificate has expired",
        Tls::AlertReceived(Alert::AccessDenied) => {
            "our certificate does not hold for that host, or for the user of its agent"
        }
        Tls::AlertReceived(Alert::CertificateRequired) | Tls::NoCertificatesPresented => {
            "no certificate was shown"
        }
        other => return other.to_string(),
    };
    text.to_string()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots
        .add(identity.authority.clone())
        .map_err(|error| unusable(identity, &error.to_string()))?;
    Ok(Arc::new(roots))
}

fn unusable(identity: &Identity, why: &str) -> Error {
    Error::Identity {
        path: identity.path().to_path_buf(),
        why: why.to_string(),
    }
}

/// Takes only who has a certificate that holds for this host and user.
#[derive(Debug)]
struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
    host: String,
    user: String,
}

/// Whose certificate it is.
pub fn person(certificate: &CertificateDer<'_>) -> Option<Person> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(Person::of(parsed.valid_uri_names()))
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        match person(end_entity) {
            Some(person) if person.may_ask(&self.host, &self.user) => Ok(verified),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// How an agent of this user on this host listens.
pub fn server(identity: &Identity, host: &str, user: &str) -> Result<Arc<ServerConfig>, Error> {
    let inner = WebPkiClientVerifier::builder_with_provider(roots(identity)?, provider())
        .build()
        .map_err(|error| unusable(identity, &error.to_string()))?;
    let verifier = Verifier {
        inner,
        host: host.to_string(),
        user: user.to_string(),
    };
    let wrong = |error: rustls::Error| unusable(identity, &error.to_string());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(wrong)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .map_err(wrong)?;
    // Nothing is taken up again: each connection shows its certificate.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// Connects to an agent. `host` is what its certificate must be for.
pub fn client(identity: &Identity, host: &str, socket: &TcpStream) -> Result<Connection, Error> {
    let wrong = |error: rustls::Error| unusable(identity, &error.to_string());
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(wrong)?
        .with_root_certificates(roots(identity)?)
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .map_err(wrong)?;
    let refused = |said: String| Error::Unsafe {
        host: host.to_string(),
        said,
    };
    let name = ServerName::try_from(host.to_string())
        .map_err(|_| refused("that is no name of a host".to_string()))?;
    let mut connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| refused(words(&error)))?;
    let mut stream = socket;
    while connection.is_handshaking() {
        if connection.wants_write() {
            let written = connection.write_tls(&mut stream);
            written.map_err(|error| refused(error.to_string()))?;
            continue;
        }
        match connection.read_tls(&mut stream) {
            Ok(0) => {
                return Err(refused(
                    "it closed the connection without a word".to_string(),
                ));
            }
            Ok(_) => {}
            Err(error) => return Err(refused(error.to_string())),
        }
        connection
            .process_new_packets()
            .map_err(|error| refused(words(&error)))?;
    }
    // Its last words are ours to say: the other side waits for them.
    while connection.wants_write() {
        let written = connection.write_tls(&mut stream);
        written.map_err(|error| refused(error.to_string()))?;
    }
    Ok(connection.into())
}
