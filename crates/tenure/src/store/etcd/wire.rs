//! One connection to one server: what etcd's client library sends its requests over.
//!
//! The library brings a channel of its own, made for many servers and long streams: a request passes
//! two more tasks on its way, and leaves in three writes, each of which wakes the server. A lock is
//! two short requests that somebody waits for, one after the other. So the library is given a
//! channel that does less: a request goes to HTTP/2 (`h2`, which is also what the other channel ends
//! in) as a whole, and leaves in one write. What that channel does besides is done elsewhere here:
//! which server is asked, and when another one is, is `link`'s affair, and a connection that has
//! ended is never begun anew but replaced.
//!
//! Nothing is repeated here: a request whose connection ends before its answer counts as lost, and
//! whether it was carried out is for its caller to find out.

use super::address::Credentials;
use crate::printed::whole;
use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::USER_AGENT;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body as _, Frame};
use hyper_util::client::legacy::connect::HttpConnector;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tonic::Status;
use tonic::body::Body;
use tower::{BoxError, Service, ServiceExt};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How often a connection is tried from which an answer is expected. Servers take it amiss below
/// five seconds.
const PING_EVERY: Duration = Duration::from_secs(6);

/// How long such a try may take.
const PING_MAX: Duration = Duration::from_secs(3);

/// How much the server may send on a stream, and on all together, before it is told that it was
/// read: a long list comes without a pause.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;

/// How many streams are remembered for a moment that were called off: whoever sleeps is woken often.
const RESET_MAX: usize = 1_024;

/// How connections are made.
pub(super) struct Wires {
    /// Finds the addresses of a name, and tries them beside each other where the first is silent.
    sockets: HttpConnector,
    tls: Option<TlsConnector>,
}

/// A connection. Each request has a clone of it; with the last one it ends.
#[derive(Clone)]
pub(super) struct Wire {
    requests: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
    /// How many requests and streams are under way.
    open: Arc<AtomicUsize>,
}

impl Wires {
    /// Prepares them. Answers with what is wrong with a certificate or a key.
    pub(super) fn new(is_encrypted: bool, credentials: &Credentials) -> Result<Self, String> {
        let mut sockets = HttpConnector::new();
        sockets.enforce_http(false);
        sockets.set_nodelay(true);
        sockets.set_connect_timeout(Some(CONNECT_MAX));
        let tls = is_encrypted.then(|| encryption(credentials)).transpose()?;
        Ok(Self { sockets, tls })
    }

    /// Connects to a server: `http://` or `https://`, a host, a port.
    pub(super) async fn connect(&self, url: &str) -> Result<Wire, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let parts = uri.clone().into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(format!("{url}: it names no server"));
        };
        let failed = |why: &dyn std::error::Error| format!("{authority}: {}", whole(why));
        let socket = self.sockets.clone().oneshot(uri).await;
        let socket = socket.map_err(|error| failed(&error))?.into_inner();
        let open = Arc::default();
        let begun = match &self.tls {
            None => begin(socket, &open).await,
            Some(tls) => {
                let host = authority.host();
                let host = host.strip_prefix('[').unwrap_or(host);
                let host = host.strip_suffix(']').unwrap_or(host).to_owned();
                let name = ServerName::try_from(host).map_err(|error| failed(&error))?;
                let stream = tls.connect(name, socket).await;
                let stream = stream.map_err(|error| failed(&error))?;
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return Err(format!("{authority}: it does not speak HTTP/2"));
                }
                begin(stream, &open).await
            }
        };
        Ok(Wire {
            requests: begun.map_err(|error| failed(&error))?,
            scheme,
            authority,
            open,
        })
    }
}

/// The certificate authority that vouches for the servers, and the own certificate.
fn encryption(credentials: &Credentials) -> Result<TlsConnector, String> {
    // Nothing that the system trusts: an etcd has an authority of its own.
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
    // A bundle may have one among others that this library does not take.
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

/// Begins HTTP/2 on a stream, and has it carried from then on.
async fn begin<S>(stream: S, open: &Arc<AtomicUsize>) -> Result<SendRequest<Bytes>, h2::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (requests, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .enable_push(false)
        // What a server says on a stream that was just called off is no offence of it.
        .max_concurrent_reset_streams(RESET_MAX)
        .max_local_error_reset_streams(None)
        .handshake(stream)
        .await?;
    tokio::spawn(carry(connection, Arc::clone(open)));
    Ok(requests)
}

/// Carries a connection until it ends, nobody needs it any more, or the other side is silent. With
/// its drop all that wait for an answer are told, and `is_over` tells.
async fn carry<S>(mut connection: Connection<S, Bytes>, open: Arc<AtomicUsize>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let pings = connection.ping_pong();
    let mut silence = pin!(async {
        match pings {
            Some(pings) => silence(pings, &open).await,
            // It is had once, and was.
            None => std::future::pending().await,
        }
    });
    poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => silence.as_mut().poll(context),
    })
    .await;
}

/// Ends when the other side does not answer any more.
///
/// Tried only while it owes somebody an answer: etcd takes pings for nothing amiss, and ends the
/// connection. One that has died meanwhile shows at the next request.
async fn silence(mut pings: PingPong, open: &AtomicUsize) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        if open.load(Ordering::SeqCst) == 0 {
            continue;
        }
        let answer = tokio::time::timeout(PING_MAX, pings.ping(Ping::opaque()));
        if !matches!(answer.await, Ok(Ok(_))) {
            return;
        }
    }
}

impl Wire {
    /// Whether it has ended, or takes no more requests because the server is about to end it.
    pub(super) fn is_over(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // A clone waits for nothing, so what it says is about the connection.
        let takes = self.requests.clone().poll_ready(&mut context);
        matches!(takes, Poll::Ready(Err(_)))
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let open = Open::new(self.open);
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().cloned();
        head.uri = Uri::builder()
            .scheme(self.scheme)
            .authority(self.authority)
            .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
            .build()?;
        let agent = HeaderValue::from_static(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        head.headers.insert(USER_AGENT, agent);
        let mut requests = self
            .requests
            .ready()
            .await
            .map_err(|error| unanswered(&error))?;
        let (answer, stream) = requests
            .send_request(Request::from_parts(head, ()), false)
            .map_err(|error| unanswered(&error))?;
        let mut upload = Upload {
            body,
            held: None,
            stream,
        };
        // All of a short request is there by now; what a watch says comes when there is something.
        let is_whole = poll_fn(|context| Poll::Ready(upload.poll_some(context).is_ready())).await;
        if !is_whole {
            tokio::spawn(upload);
        }
        let answer = answer.await.map_err(|error| unanswered(&error))?;
        Ok(answer.map(|stream| {
            Body::new(Download {
                stream,
                _open: open,
            })
        }))
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

/// What a caller says, on its way to the server.
struct Upload {
    body: Body,
    /// The last piece: it is sent when it is known whether it is the end.
    held: Option<Bytes>,
    stream: SendStream<Bytes>,
}

impl Upload {
    /// Sends what there is. It is over at the end of the body, or of the stream.
    ///
    /// What the server does not take yet waits in the connection, without a bound: a request is one
    /// message of a size that etcd limits, and a stream says a few words now and then.
    fn poll_some(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data()
                        && let Some(before) = self.held.replace(piece)
                        && self.stream.send_data(before, false).is_err()
                    {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    // Where it fails the stream has ended, which its answer says too.
                    let _ = self
                        .stream
                        .send_data(self.held.take().unwrap_or_default(), true);
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    if let Some(before) = self.held.take()
                        && self.stream.send_data(before, false).is_err()
                    {
                        return Poll::Ready(());
                    }
                    return self.stream.poll_reset(context).map(|_| ());
                }
            }
        }
    }
}

impl Future for Upload {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_some(context)
    }
}

/// What the server says, on its way to the caller.
struct Download {
    stream: RecvStream,
    _open: Open,
}

/// A request that is under way, with the rest of its answer.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.stream.poll_data(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(piece))) => {
                // Taken; where this fails, the stream has ended.
                let _ = self.stream.flow_control().release_capacity(piece.len());
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(unanswered(&error)))),
            Poll::Ready(None) => {}
        }
        match self.stream.poll_trailers(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(trailers)) => {
                Poll::Ready(trailers.map(|last| Ok(Frame::trailers(last))))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(unanswered(&error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// A request, or the rest of its answer, that was lost with its connection or its stream. Whatever
/// the reason given: it says nothing of whether the request was carried out.
fn unanswered(error: &h2::Error) -> Status {
    Status::unavailable(whole(error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::*;
    use h2::server::SendResponse;
    use http::HeaderMap;
    use tokio::io::DuplexStream;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::Instant;

    type Asked = (Request<RecvStream>, SendResponse<Bytes>);
    type Server = h2::server::Connection<DuplexStream, Bytes>;

    async fn connected() -> (Wire, Server) {
        let (here, there) = tokio::io::duplex(1 << 16);
        let open = Arc::default();
        let (requests, server) = tokio::join!(begin(here, &open), h2::server::handshake(there));
        let wire = Wire {
            requests: requests.expect("a connection"),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("one:2379"),
            open,
        };
        (wire, server.expect("a connection"))
    }

    /// A server that goes on by itself, and what it is asked.
    async fn served() -> (Wire, UnboundedReceiver<Asked>) {
        let (wire, mut server) = connected().await;
        let (sender, asked) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(request) = server.accept().await {
                let _ = sender.send(request.expect("a request"));
            }
        });
        (wire, asked)
    }

    /// A body of pieces that come when they are sent.
    struct Pieces(UnboundedReceiver<&'static str>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let piece = self.0.poll_recv(context);
            piece.map(|piece| piece.map(|piece| Ok(Frame::data(Bytes::from(piece)))))
        }
    }

    fn request() -> (Request<Body>, UnboundedSender<&'static str>) {
        let (sender, pieces) = unbounded_channel();
        let request = Request::post("/etcdserverpb.KV/Txn").body(Body::new(Pieces(pieces)));
        (request.expect("a request"), sender)
    }

    /// A request that is there as a whole.
    fn short() -> Request<Body> {
        let (request, pieces) = request();
        pieces.send("ask").expect("it is there");
        request
    }

    fn trailers() -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers
    }

    /// Everything that is in an answer: how many bytes, and what stands at its end.
    async fn read(answer: Response<Body>) -> Result<(usize, Option<HeaderMap>), Status> {
        let (mut bytes, mut last) = (0, None);
        let mut body = answer.into_body();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame?.into_data() {
                Ok(piece) => bytes += piece.len(),
                Err(frame) => last = frame.into_trailers().ok(),
            }
        }
        Ok((bytes, last))
    }

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

    #[tokio::test]
    async fn a_request_that_is_there_is_sent_with_its_end() {
        let (mut wire, mut asked) = served().await;
        let answer = tokio::spawn(wire.call(short()));
        let (request, mut respond) = asked.recv().await.expect("a request");
        assert_eq!(request.uri(), "http://one:2379/etcdserverpb.KV/Txn");
        assert!(
            request.headers()[USER_AGENT]
                .as_bytes()
                .starts_with(b"tenure/")
        );
        let mut body = request.into_body();
        let piece = body.data().await.expect("a piece").expect("a piece");
        assert_eq!(piece, "ask");
        assert!(body.is_end_stream(), "the end comes with the last piece");
        let mut stream = respond.send_response(Response::new(()), false);
        let stream = stream.as_mut().expect("a stream");
        stream.send_data(Bytes::from("told"), false).expect("data");
        stream.send_trailers(trailers()).expect("trailers");
        let answer = answer.await.expect("no panic").expect("an answer");
        let (bytes, last) = read(answer).await.expect("an answer");
        assert_eq!((bytes, last), (4, Some(trailers())));
    }

    #[tokio::test]
    async fn an_answer_may_be_longer_than_what_is_taken_at_once() {
        let (mut wire, mut asked) = served().await;
        let answer = tokio::spawn(wire.call(short()));
        let (_, mut respond) = asked.recv().await.expect("a request");
        let long = Bytes::from(vec![b'x'; 2 * CONNECTION_WINDOW as usize]);
        let mut stream = respond.send_response(Response::new(()), false);
        let stream = stream.as_mut().expect("a stream");
        stream.send_data(long.clone(), false).expect("data");
        stream.send_trailers(trailers()).expect("trailers");
        let answer = answer.await.expect("no panic").expect("an answer");
        let (bytes, last) = read(answer).await.expect("an answer");
        assert_eq!((bytes, last), (long.len(), Some(trailers())));
    }

    #[tokio::test]
    async fn what_a_stream_says_later_is_sent_later_and_its_end_too() {
        let (mut wire, mut asked) = served().await;
        let (request, pieces) = request();
        pieces.send("first").expect("it is there");
        let answer = tokio::spawn(wire.call(request));
        let (request, mut respond) = asked.recv().await.expect("a request");
        let _stream = respond.send_response(Response::new(()), false);
        let _answer = answer.await.expect("no panic").expect("an answer");
        let mut body = request.into_body();
        assert_eq!(body.data().await.expect("a piece").expect("data"), "first");
        pieces.send("second").expect("it is there");
        assert_eq!(body.data().await.expect("a piece").expect("data"), "second");
        drop(pieces);
        // A piece without anything in it carries the end.
        let end = body.data().await.map(|piece| piece.expect("the end").len());
        assert!(matches!(end, None | Some(0)), "{end:?}");
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn a_stream_that_the_server_ends_says_no_more() {
        let (mut wire, mut asked) = served().await;
        let (request, pieces) = request();
        let answer = tokio::spawn(wire.call(request));
        let (_, mut respond) = asked.recv().await.expect("a request");
        respond.send_reset(Reason::REFUSED_STREAM);
        let refused = answer.await.expect("no panic").expect_err("a refusal");
        let refused = refused.downcast::<Status>().expect("a status");
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
        // Its body is dropped, so that whoever has something to say hears of it.
        pieces.closed().await;
    }

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_is_called_off() {
        let (mut wire, mut asked) = served().await;
        let answer = tokio::spawn(wire.call(short()));
        let (_, mut respond) = asked.recv().await.expect("a request");
        answer.abort();
        let reset = poll_fn(|context| respond.poll_reset(context)).await;
        assert_eq!(reset.expect("a reset"), Reason::CANCEL);
        assert!(!wire.is_over(), "other requests go on");
    }

    #[tokio::test]
    async fn a_connection_that_ends_fails_what_is_under_way_and_what_comes() {
        let (mut wire, server) = connected().await;
        let answer = tokio::spawn(wire.call(short()));
        tokio::task::yield_now().await;
        assert!(!wire.is_over());
        drop(server);
        let lost = answer.await.expect("no panic").expect_err("no answer");
        let lost = lost.downcast::<Status>().expect("a status");
        assert_eq!(lost.code(), tonic::Code::Unavailable, "{lost}");
        while !wire.is_over() {
            tokio::task::yield_now().await;
        }
        let late = wire.call(short()).await.expect_err("no connection");
        let late = late.downcast::<Status>().expect("a status");
        assert_eq!(late.code(), tonic::Code::Unavailable, "{late}");
    }

    #[tokio::test]
    async fn a_connection_ends_with_the_last_who_has_it() {
        let (wire, mut server) = connected().await;
        let other = wire.clone();
        drop(wire);
        let soon = tokio::time::timeout(Duration::from_millis(50), server.accept()).await;
        assert!(soon.is_err(), "somebody has it");
        drop(other);
        assert!(server.accept().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_given_up() {
        let (mut wire, server) = connected().await;
        let began = Instant::now();
        let lost = wire.call(short()).await.expect_err("no answer");
        assert!(lost.downcast_ref::<Status>().is_some(), "{lost}");
        let took = began.elapsed();
        let most = PING_EVERY + PING_MAX + Duration::from_secs(1);
        assert!(took >= PING_EVERY && took <= most, "{took:?}");
        drop(server);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_nothing_to_say_is_kept() {
        let (mut wire, mut asked) = served().await;
        let answer = tokio::spawn(wire.call(short()));
        let _unanswered = asked.recv().await.expect("a request");
        tokio::time::sleep(100 * PING_EVERY).await;
        assert!(!wire.is_over() && !answer.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_owes_nothing_is_not_tried() {
        let (mut wire, mut server) = connected().await;
        let answer = tokio::spawn(wire.call(short()));
        let (_, mut respond) = server
            .accept()
            .await
            .expect("a request")
            .expect("a request");
        let _stream = respond
            .send_response(Response::new(()), true)
            .expect("a stream");
        let answer = tokio::select! {
            answer = answer => answer.expect("no panic").expect("an answer"),
            _ = server.accept() => unreachable!("there is one request"),
        };
        assert!(answer.body().is_end_stream(), "there is nothing in it");
        assert_eq!(read(answer).await.expect("an answer"), (0, None));
        // From here on it says nothing, not even to a ping.
        tokio::time::sleep(100 * PING_EVERY).await;
        assert!(!wire.is_over());
        drop(server);
    }

    #[tokio::test]
    async fn a_server_that_is_about_to_end_is_asked_nothing_more() {
        let (mut wire, mut server) = connected().await;
        let answer = tokio::spawn(wire.call(short()));
        let asked = server
            .accept()
            .await
            .expect("a request")
            .expect("a request");
        server.graceful_shutdown();
        let goes_on = tokio::spawn(async move { server.accept().await.is_none() });
        while !wire.is_over() {
            tokio::task::yield_now().await;
        }
        assert!(!answer.is_finished() && !goes_on.is_finished());
        let (_, mut respond) = asked;
        let _stream = respond
            .send_response(Response::new(()), true)
            .expect("a stream");
        answer
            .await
            .expect("no panic")
            .expect("what was asked before is answered");
    }
}
