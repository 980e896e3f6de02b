//! TLS with a key for one run, without certificates (RFC 7250): the client knows the server's key.

use std::sync::Arc;

use ::aws_lc_rs::signature::Ed25519KeyPair;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// The configurations of a server with a new key, and of its clients.
pub(crate) fn configs() -> Result<(quinn::ServerConfig, quinn::ClientConfig), Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let pair = Ed25519KeyPair::generate().map_err(|_unspecified| failed("no key"))?;
    let pair = pair.to_pkcs8().map_err(|_unspecified| failed("no key"))?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.as_ref().to_vec()));
    let key = aws_lc_rs::sign::any_supported_type(&key)?;
    let public = key.public_key().ok_or_else(|| failed("no public key"))?.into_owned();
    let known = CertificateDer::from(public.to_vec());
    let certified = Arc::new(CertifiedKey::new(vec![known.clone()], key));
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    let verifier = Arc::new(KnownKey { known, provider: Arc::clone(&provider) });
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let no_suite = |_none| failed("no cipher suite");
    let server = QuicServerConfig::try_from(server).map_err(no_suite)?;
    let client = QuicClientConfig::try_from(client).map_err(no_suite)?;
    let server = quinn::ServerConfig::with_crypto(Arc::new(server));
    Ok((server, quinn::ClientConfig::new(Arc::new(client))))
}

fn failed(why: &str) -> Error {
    Error::General(why.to_owned())
}

/// Accepts one key.
#[derive(Debug)]
struct KnownKey {
    known: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KnownKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *key == self.known {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(failed("QUIC has TLS 1.3"))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
