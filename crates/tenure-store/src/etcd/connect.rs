//! How a client connects to a server: addresses, TLS, and when it gives up a silent connection.
//!
//! The channel is the gRPC library's. It connects anew by itself after a working connection has ended.
//! `connection` decides which server is asked, and when another one is.

use super::address::Credentials;
use crate::printed::whole;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto};
use tonic::transport::{self, Channel, Endpoint};
use tower::{BoxError, ServiceExt, service_fn};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How often a connection that owes an answer is tested. Servers object to intervals below five seconds.
const PING_EVERY: Duration = Duration::from_secs(6);

/// How long such a test may take.
const PING_MAX: Duration = Duration::from_secs(3);

/// How much a server may send, on one stream and on all together, before the client confirms that it was
/// read. So a long list comes without a pause.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;

/// How many cancelled streams are remembered for a moment: a waiter that sleeps is woken often.
const RESET_MAX: usize = 1_024;

/// How connections are made.
#[derive(Clone)]
pub(super) struct Connections {
    /// Finds the addresses of a name, and tries them in parallel if the first is silent.
    sockets: HttpConnector,
    /// What an encrypted connection shows and trusts. The files are read for each connection, as etcd itself does it:
    /// a certificate that was renewed, or an authority that changes, ends nobody's work.
    tls: Option<Arc<Credentials>>,
}

impl Connections {
    /// Prepares them. The error says what is wrong with a certificate or a key.
    pub(super) fn new(is_encrypted: bool, credentials: &Credentials) -> Result<Self, String> {
        let mut sockets = HttpConnector::new();
        sockets.enforce_http(false);
        sockets.set_nodelay(true);
        sockets.set_connect_timeout(Some(CONNECT_MAX));
        if is_encrypted {
            encryption(credentials)?;
        }
        let tls = is_encrypted.then(|| Arc::new(credentials.clone()));
        Ok(Self { sockets, tls })
    }

    /// Whether a server that was asked in the clear speaks TLS.
    pub(super) async fn speaks_tls(&self, url: &str) -> bool {
        let Ok(server) = url.parse::<Uri>() else {
            return false;
        };
        let config =
            ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions();
        let (Ok(config), Ok(name)) = (config, ServerName::try_from("localhost")) else {
            return false;
        };
        let config = config.with_root_certificates(RootCertStore::empty());
        let tls = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        let Ok(socket) = self.sockets.clone().oneshot(server).await else {
            return false;
        };
        // No authority is trusted. So a server that speaks TLS is refused for its certificate.
        let asked = tls.connect(name, socket.into_inner()).await;
        let error = asked.err().map(std::io::Error::into_inner);
        let error = error
            .flatten()
            .and_then(|error| error.downcast::<rustls::Error>().ok());
        error.is_some_and(|error| matches!(*error, rustls::Error::InvalidCertificate(_)))
    }

    /// Connects to a server: `http://` or `https://`, a host, a port.
    pub(super) async fn connect(&self, url: &str) -> Result<Channel, String> {
        let server = url.split_once("://").map_or(url, |(_, server)| server);
        // The outermost sentence only says that there is no connection.
        let failed = |error: &dyn std::error::Error| {
            format!("{server}: {}", whole(error.source().unwrap_or(error)))
        };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| failed(&error))?;
        let endpoint = settings(endpoint).map_err(|error| failed(&error))?;
        let (sockets, tls) = (self.sockets.clone(), self.tls.clone());
        let channel = match tls {
            None => endpoint.connect_with_connector(sockets).await,
            Some(credentials) => {
                let connector = service_fn(move |server: Uri| {
                    let (sockets, credentials) = (sockets.clone(), Arc::clone(&credentials));
                    async move {
                        let tls = credentials.again().map_err(|error| error.to_string());
                        let tls = tls.and_then(|credentials| encryption(&credentials))?;
                        let host = server.host().unwrap_or_default();
                        let host = host.strip_prefix('[').unwrap_or(host);
                        let host = host.strip_suffix(']').unwrap_or(host).to_owned();
                        let name = ServerName::try_from(host)?;
                        let socket = sockets.oneshot(server).await?.into_inner();
                        let stream = tls.connect(name, socket).await?;
                        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                            return Err(BoxError::from("it does not speak HTTP/2"));
                        }
                        Ok(TokioIo::new(stream))
                    }
                });
                endpoint.connect_with_connector(connector).await
            }
        };
        channel.map_err(|error| failed(&error))
    }
}

/// The settings of every connection.
fn settings(endpoint: Endpoint) -> Result<Endpoint, transport::Error> {
    Ok(endpoint
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))?
        .connect_timeout(CONNECT_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // A server may still send on a stream that was just cancelled; that is no error.
        .http2_max_concurrent_reset_streams(RESET_MAX)
        .http2_max_local_error_reset_streams(None)
        // Only while a server owes an answer: etcd objects to other pings, and ends the connection.
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_MAX)
        .keep_alive_while_idle(false))
}

/// The certificate authority that vouches for the servers, and the client's own certificate.
fn encryption(credentials: &Credentials) -> Result<TlsConnector, String> {
    // Not the system's authorities: an etcd has one of its own.
    let Some(authority) = &credentials.authority else {
        return Err(
            "no authority is named that vouches for the servers; set TENURE_ETCD_CACERT".to_owned(),
        );
    };
    let certificates = |pem: &[u8], what: &str| {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read {
            Ok(read) if !read.is_empty() => Ok(read),
            Ok(_) => Err(format!("there is no certificate in {what}")),
            Err(error) => Err(format!("{what} cannot be read: {error}")),
        }
    };
    let mut roots = RootCertStore::empty();
    // A bundle may contain a certificate that this library does not accept.
    let (taken, _) =
        roots.add_parsable_certificates(certificates(authority, "the file of the authority")?);
    if taken == 0 {
        return Err("there is no certificate of an authority in its file".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match &credentials.certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate, "the file of the own certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("the own key cannot be read: {error}"))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("the own certificate is not taken: {error}"))?
        }
    };
    config.alpn_protocols.push(b"h2".to_vec());
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::*;
    use crate::etcd::api::{Client, TxnRequest};
    use crate::etcd::connection::{Fault, classify};
    use h2::Reason;
    use prost::bytes::Bytes;
    use std::sync::Mutex;
    use tokio::io::DuplexStream;

    #[test]
    fn an_authority_that_cannot_be_had_is_said_before_anybody_is_asked() {
        let said = |authority: Option<&str>| {
            let credentials = Credentials {
                authority: authority.map(|pem| pem.as_bytes().to_vec()),
                ..Credentials::default()
            };
            encryption(&credentials).err().expect("an error")
        };
        assert!(said(None).contains("set TENURE_ETCD_CACERT"));
        assert_eq!(
            said(Some("nothing of the kind")),
            "there is no certificate in the file of the authority"
        );
        let framed =
            |inside| format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n");
        assert_eq!(
            said(Some(&framed("AAAA"))),
            "there is no certificate of an authority in its file"
        );
        let unreadable = said(Some(&framed("*")));
        assert!(
            unreadable.starts_with("the file of the authority cannot be read: "),
            "{unreadable}"
        );
    }

    /// A connection to a server in memory.
    async fn connected() -> (Client, h2::server::Connection<DuplexStream, Bytes>) {
        let (here, there) = tokio::io::duplex(1 << 16);
        let here = Mutex::new(Some(TokioIo::new(here)));
        let connector = service_fn(move |_: Uri| {
            let here = here.lock().expect("no panic").take();
            std::future::ready(here.ok_or("it is connected to once"))
        });
        let endpoint = settings(Endpoint::from_static("http://one:2379")).expect("settings");
        let (channel, server) = tokio::join!(
            endpoint.connect_with_connector(connector),
            h2::server::handshake(there)
        );
        let client = Client::new(channel.expect("a connection"), None, false, None).await;
        let client = client.expect("it asks for nothing");
        (client, server.expect("a connection"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_given_up() {
        let (client, server) = connected().await;
        let began = tokio::time::Instant::now();
        let lost = client
            .txn(TxnRequest::default())
            .await
            .expect_err("no answer");
        let took = tokio::time::Instant::now() - began;
        assert!(matches!(classify(&lost), Fault::Unsure(_)), "{lost}");
        let most = PING_EVERY + PING_MAX + Duration::from_secs(1);
        assert!(took >= PING_EVERY && took <= most, "{took:?}");
        drop(server);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_nothing_to_say_is_kept() {
        let (client, mut server) = connected().await;
        let asked = tokio::spawn(async move { client.txn(TxnRequest::default()).await });
        let mut unanswered = Vec::new();
        let goes_on = tokio::time::timeout(100 * PING_EVERY, async {
            while let Some(request) = server.accept().await {
                unanswered.push(request.expect("a request"));
            }
        });
        assert!(goes_on.await.is_err(), "the connection lasts");
        assert!(!asked.is_finished() && unanswered.len() == 1);
    }

    #[tokio::test]
    async fn what_ends_a_request_on_its_way_says_nothing_of_what_became_of_it() {
        for reason in [
            Reason::NO_ERROR,
            Reason::PROTOCOL_ERROR,
            Reason::REFUSED_STREAM,
            Reason::CANCEL,
            Reason::ENHANCE_YOUR_CALM,
            Reason::INADEQUATE_SECURITY,
        ] {
            for whole in [false, true] {
                let (client, mut server) = connected().await;
                let asked = tokio::spawn(async move { client.txn(TxnRequest::default()).await });
                let request = server.accept().await.expect("a request");
                let (_, mut respond) = request.expect("a request");
                if whole {
                    server.abrupt_shutdown(reason);
                } else {
                    respond.send_reset(reason);
                }
                let carried = tokio::spawn(async move { while server.accept().await.is_some() {} });
                let lost = asked.await.expect("no panic").expect_err("no answer");
                let fault = classify(&lost);
                assert!(matches!(fault, Fault::Unsure(_)), "{reason:?}: {fault:?}");
                carried.abort();
            }
        }
    }
}
