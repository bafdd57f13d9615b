//! The connection: requests to etcd whose time is bounded.
//!
//! A store's callers block, and the gRPC library works on a thread of its own (`runtime`), which ends
//! with the store's last clone. It carries requests, keeps leases alive (`session`), and watches keys for
//! sleeping callers (`watch`). It also clears away what a request left behind whose answer never came.
//!
//! Requests go to one endpoint at a time: the first that answers. If it fails, or does not answer in time, the next one is asked. A
//! balancer would ask a member that is cut off from the others again and again, because it still accepts
//! connections.
//!
//! In a forked child there is no such thread. There every request fails at once, and dropping a claim
//! does nothing.

use super::address::{Address, Credentials};
use super::api::{
    Client, Heads, KeyValue, Known, RangeRequest, Response, ResponseHeader, TxnResponse, User,
};
use super::cluster::{Cluster, Stranger};
use super::connect::Connections;
use super::keys::Keys;
use super::runtime::BackgroundRuntime;
use crate::StoreError;
use crate::printed::whole;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::pause_ms;
use tenure_os::clock::instant;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// How long one request may take before its answer counts as lost: a put on a loaded disk takes
/// some 100 ms, an election one to two seconds.
const REQUEST_MAX: Duration = Duration::from_secs(2);

/// The longest time that an attempt to connect may take: some requests.
const ATTEMPT_MAX: Duration = Duration::from_secs(4);

/// How long a server has to be silent to a request before another one is asked.
const ASKED_MIN: Duration = Duration::from_millis(500);

/// How long the others of a list are heard after that.
const HEARD_MAX: Duration = Duration::from_secs(20);

/// The least time that a request is given.
const REQUEST_MIN: Duration = Duration::from_millis(100);

/// The first pause between tries, in milliseconds; the longest is sixteen times as long.
const PAUSE_MS: u64 = 20;

/// How long one member of a cluster may be silent before the next one is asked as well.
const SILENT: Duration = Duration::from_millis(100);

/// How long the others are waited for after the first one of a list has answered: each has to belong to its cluster.
const OTHERS: Duration = Duration::from_millis(50);

/// How long servers are waited for that this machine has never met. Later calls know them, also when they are silent.
const STRANGERS: Duration = Duration::from_millis(500);

/// How a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request may have been carried out, or be carried out later.
    Unsure(String),
    /// The request was not carried out, and never will be.
    Refused(String),
    /// The request was refused because of the user: it has no right, its password is wrong, or there is none.
    Denied(String),
    /// The request was not carried out, because the lease that it names has run out.
    LeaseGone,
    /// A server of another cluster has answered. The locks are not there.
    Stranger(String),
}

/// The endpoints and the clients for them.
pub(super) struct Endpoints {
    urls: Vec<String>,
    connections: Connections,
    user: Option<Arc<User>>,
    cluster: Arc<Cluster>,
    /// The key that a read which only asks for an answer reads.
    probe: String,
    state: Mutex<Current>,
}

/// A server of the list: whose answers its client shows to the cluster.
struct ListedServer {
    cluster: Arc<Cluster>,
    server: usize,
    probe: String,
}

impl Heads for ListedServer {
    fn known(&self) -> Known {
        self.cluster.known()
    }

    fn look(&self, head: ResponseHeader, since: Known, agreed: bool) -> Result<bool, Status> {
        self.cluster.look(self.server, head, since, agreed)
    }

    fn probe(&self) -> RangeRequest {
        RangeRequest::of(self.probe.clone())
    }
}

/// The endpoint that is asked now.
#[derive(Default)]
struct Current {
    index: usize,
    /// Counts the changes of the endpoint, so that several requests that see one failure change it once.
    turns: u64,
    client: Option<Client>,
    /// The attempt to connect, which all requests wait for. Otherwise each of them would make a connection when the last
    /// one breaks, and each watch would keep its own.
    connecting: Option<watch::Receiver<Option<Attempted>>>,
    /// Since when no request has been answered; `None` if the last one was.
    failing: Option<Instant>,
    /// Each server of the list was asked which cluster it belongs to.
    asked_all: bool,
}

/// How an attempt to connect ended.
type Attempted = Result<Client, Fault>;

/// The connection, as its callers see it.
pub(super) struct Connection {
    runtime: BackgroundRuntime,
    endpoints: Arc<Endpoints>,
    place: String,
}

/// The fault that a status means, without the request's own words around it.
pub(super) fn classify(status: &Status) -> Fault {
    let said = status.message().to_owned();
    if let Some(why) = std::error::Error::source(status) {
        if let Some(Stranger(why)) = why.downcast_ref() {
            return Fault::Stranger(why.clone());
        }
        // The words are the connection's, not the server's: the server may have received the request
        // all the same.
        return Fault::Unsure(whole(why));
    }
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => Fault::Denied(said),
        // For a wrong password, and for no user at all, etcd reports an invalid argument.
        Code::InvalidArgument
            if said.contains("authentication failed") || said.contains("user name is empty") =>
        {
            Fault::Denied(said)
        }
        // etcd refused because it has too much to do, which passes. The other reason for this code, a
        // full disk, does not.
        Code::ResourceExhausted if said.contains("too many") => Fault::Unsure(said),
        Code::NotFound if said.contains("lease") => Fault::LeaseGone,
        // A revision that was compacted away (out of range) can never be read again.
        Code::InvalidArgument
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Fault::Refused(said),
        _ => Fault::Unsure(said),
    }
}

/// The revision of the store in an answer's header.
pub(super) fn revision_of(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// The keys that a transaction has read, and whether they are all that there was to read.
pub(super) fn read_by(answer: &TxnResponse) -> (Vec<KeyValue>, bool) {
    let (mut found, mut is_whole) = (Vec::new(), true);
    for step in &answer.responses {
        if let Some(Response::ResponseRange(range)) = &step.response {
            is_whole &= !range.more;
            found.extend_from_slice(&range.kvs);
        }
    }
    (found, is_whole)
}

/// Whether etcd has no room for more writes.
pub(super) fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreachable { why, .. } if why.contains("space exceeded"))
}

impl Endpoints {
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        // Every change is a few assignments that cannot fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client for the endpoint that is asked now.
    ///
    /// Connecting goes on beside the request that began it: servers that all ask at once, as after an outage, may take longer
    /// than a request is given. An attempt that ended with its request would be work for nothing, again and again.
    async fn client(self: &Arc<Self>) -> Result<Client, Fault> {
        let mut attempt = {
            let mut current = self.lock();
            if let Some(client) = &current.client {
                return Ok(client.clone());
            }
            if let Some(attempt) = &current.connecting {
                attempt.clone()
            } else {
                let (ends, attempt) = watch::channel(None);
                current.connecting = Some(attempt.clone());
                if let (Some(user), Some(failing)) = (&self.user, current.failing) {
                    user.forget_older(instant().saturating_duration_since(failing));
                }
                tokio::spawn(Arc::clone(self).attempt(current.index, ends));
                attempt
            }
        };
        let ended = attempt.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| {
            // The attempt ended without a word.
            let mut current = self.lock();
            let is_this = |other: &watch::Receiver<_>| other.same_channel(&attempt);
            current.connecting.take_if(|other| is_this(other));
            Err(Fault::Unsure(
                "the attempt to connect was given up".to_owned(),
            ))
        })
    }

    async fn attempt(self: Arc<Self>, index: usize, ends: watch::Sender<Option<Attempted>>) {
        // The others are waited for a moment longer than that.
        let most = ATTEMPT_MAX + STRANGERS;
        let tried = tokio::time::timeout(most, self.first_that_answers(index)).await;
        let silent = |_| Err(Fault::Unsure("no server answers".to_owned()));
        let tried = tried.unwrap_or_else(silent);
        let mut current = self.lock();
        current.connecting = None;
        if let Ok((answers, client)) = &tried {
            current.index = *answers;
            current.client = Some(client.clone());
        }
        drop(current);
        ends.send_replace(Some(tried.map(|(_, client)| client)));
    }

    /// A client for a server of the list.
    async fn connect(&self, server: usize) -> Result<Client, Fault> {
        let url = self.urls.get(server).map_or("", String::as_str);
        let shown = ListedServer {
            cluster: Arc::clone(&self.cluster),
            server,
            probe: self.probe.clone(),
        };
        let channel = self.connections.connect(url).await.map_err(Fault::Unsure)?;
        // A server of another cluster may be silent about a token that is not its own, and so hide what it is.
        let is_met = self.cluster.has_met(server);
        let client = Client::new(channel, self.user.clone(), !is_met, Some(Arc::new(shown))).await;
        client.map_err(|error| classify(&error))
    }

    /// A client for the first endpoint that answers, from `index` on. While one is silent, the next one is asked beside it
    /// after [`SILENT`]: a member that is stopped takes connections and says nothing. A single endpoint is only connected
    /// to, and whatever is asked of it first finds out the rest.
    ///
    /// The first time all of them are asked at once, because each has to belong to the same cluster. Those that do not
    /// answer within [`OTHERS`] after the first, or [`STRANGERS`], are heard later.
    async fn first_that_answers(self: &Arc<Self>, index: usize) -> Result<(usize, Client), Fault> {
        let count = self.urls.len();
        if count < 2 {
            return Ok((index, self.connect(index).await?));
        }
        let asks_all = !self.lock().asked_all;
        let end = instant() + ATTEMPT_MAX;
        let mut tries = JoinSet::new();
        let mut asked = 0;
        let mut failed = None;
        let mut found = None;
        loop {
            let more = if asks_all {
                count
            } else {
                count.min(asked + 1)
            };
            for nth in asked..more {
                tries.spawn(Arc::clone(self).tried((index + nth) % count));
            }
            asked = more;
            let patience = match &found {
                Some((_, since)) => {
                    let most = if (0..count).any(|server| self.cluster.is_new(server)) {
                        STRANGERS
                    } else {
                        OTHERS
                    };
                    most.saturating_sub(instant().saturating_duration_since(*since))
                }
                None if asked < count => SILENT,
                None => end.saturating_duration_since(instant()),
            };
            let mut is_over = false;
            match tokio::time::timeout(patience, tries.join_next()).await {
                Ok(Some(Ok(Ok(first)))) if found.is_none() => found = Some((first, instant())),
                Ok(Some(Ok(Err(fault @ (Fault::Denied(_) | Fault::Stranger(_)))))) => {
                    // What the others say may end a division.
                    tokio::spawn(Arc::clone(self).hear(tries));
                    return Err(fault);
                }
                Ok(Some(Ok(Err(fault)))) => drop(failed.get_or_insert(fault)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => is_over = found.is_some() || asked == count,
            }
            match &found {
                Some((first, _)) if is_over || !asks_all => {
                    self.lock().asked_all = true;
                    let first = first.clone();
                    if asks_all {
                        tokio::spawn(Arc::clone(self).hear(tries));
                    }
                    return Ok(first);
                }
                None if is_over => {
                    let silent = || Fault::Unsure("no member answers".to_owned());
                    return Err(failed.unwrap_or_else(silent));
                }
                _ => {}
            }
        }
    }

    /// Hears what the others say later. It is looked at as every answer is.
    async fn hear(self: Arc<Self>, mut others: JoinSet<Result<(usize, Client), Fault>>) {
        let end = instant() + HEARD_MAX;
        let rest = || end.saturating_duration_since(instant());
        while let Ok(Some(answer)) = tokio::time::timeout(rest(), others.join_next()).await {
            if let Ok(Err(Fault::Stranger(_))) = answer {
                let turn = self.lock().turns;
                self.meet_stranger(turn);
            }
        }
    }

    /// The next request asks all of them again, so that a list of two clusters is refused as long as it is one.
    fn meet_stranger(&self, turn: u64) {
        self.turn_away(turn);
        self.lock().asked_all = false;
    }

    /// A client for a server that answers.
    async fn tried(self: Arc<Self>, server: usize) -> Result<(usize, Client), Fault> {
        let client = self.connect(server).await?;
        // The answer needs a leader, and what the cluster has agreed on.
        let answer = client.get(RangeRequest::of(self.probe.clone())).await;
        match answer.map_err(|error| classify(&error)) {
            // What one member refuses, each of them would.
            Ok(_) | Err(Fault::Refused(_) | Fault::LeaseGone) => Ok((server, client)),
            Err(Fault::Denied(why)) if why.contains("permission denied") => Ok((server, client)),
            Err(fault) => Err(fault),
        }
    }

    /// Asks each server of the list which cluster it belongs to.
    pub(super) async fn each(&self) -> Vec<Result<u64, Fault>> {
        let mut answers = Vec::new();
        for url in &self.urls {
            let asked = async {
                let channel = self.connections.connect(url).await.map_err(Fault::Unsure)?;
                let client = Client::new(channel, self.user.clone(), true, None).await;
                let client = client.map_err(|error| classify(&error))?;
                let probe = RangeRequest::of(self.probe.clone());
                client.get(probe).await.map_err(|error| classify(&error))
            };
            let silent = |_| Err(Fault::Unsure("it does not answer".to_owned()));
            let answer = tokio::time::timeout(REQUEST_MAX, asked).await;
            let answer = answer.unwrap_or_else(silent);
            answers.push(answer.map(|answer| answer.header.map_or(0, |head| head.cluster_id)));
        }
        answers
    }

    /// What this process knows of the cluster.
    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// For how long no request has been answered.
    pub(super) fn failing(&self) -> Option<Duration> {
        let since = self.lock().failing?;
        Some(instant().saturating_duration_since(since))
    }

    /// Asks the next endpoint from now on, unless another request has changed it since `turn`. An attempt to connect asks
    /// the next ones by itself.
    pub(super) fn turn_away(&self, turn: u64) {
        let mut current = self.lock();
        if current.turns == turn && current.connecting.is_none() {
            current.turns += 1;
            current.index = (current.index + 1) % self.urls.len().max(1);
            current.client = None;
        }
    }

    /// Sends a request to a single endpoint.
    pub(super) async fn once<T, F, A>(self: &Arc<Self>, ask: F) -> Result<T, Fault>
    where
        F: FnOnce(Client) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        self.once_within(REQUEST_MAX, ask).await
    }

    /// Sends a request to a single endpoint, for less time than a request may take.
    pub(super) async fn once_within<T, F, A>(
        self: &Arc<Self>,
        limit: Duration,
        ask: F,
    ) -> Result<T, Fault>
    where
        F: FnOnce(Client) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        let limit = limit.clamp(REQUEST_MIN, REQUEST_MAX);
        let turn = self.lock().turns;
        let mut had = None;
        let asked = async {
            let client = self.client().await?;
            had = Some(instant());
            ask(client).await.map_err(|error| classify(&error))
        };
        let (answer, is_over) = match tokio::time::timeout(limit, asked).await {
            Ok(answer) => (answer, false),
            Err(_) => (
                Err(Fault::Unsure(format!(
                    "no answer within {} ms",
                    limit.as_millis()
                ))),
                true,
            ),
        };
        // Who waited for a connection, and had no time left to ask, knows nothing of the server.
        let asked_for = had.map_or(Duration::ZERO, |had| {
            instant().saturating_duration_since(had)
        });
        let is_judged = !is_over || asked_for >= limit.min(ASKED_MIN);
        if let Err(Fault::Refused(why) | Fault::Denied(why)) = &answer
            && why.contains("auth")
        {
            if let Some(user) = &self.user {
                user.forget();
            }
            self.turn_away(turn);
        }
        if let Err(Fault::Stranger(_)) = &answer {
            self.meet_stranger(turn);
        }
        if let Err(Fault::Unsure(_)) = &answer {
            if is_judged {
                self.turn_away(turn);
            }
            self.lock().failing.get_or_insert_with(instant);
        } else {
            self.lock().failing = None;
        }
        match answer {
            Err(Fault::Unsure(why)) if !self.cluster.is_known() => {
                Err(self.in_the_clear(why).await)
            }
            answer => answer,
        }
    }

    /// What it means that no server has ever answered: perhaps it was asked in the clear, and speaks TLS.
    async fn in_the_clear(&self, why: String) -> Fault {
        let index = self.lock().index;
        let url = self.urls.get(index).map_or("", String::as_str);
        let Some(server) = url.strip_prefix("http://") else {
            return Fault::Unsure(why);
        };
        let speaks = tokio::time::timeout(SILENT, self.connections.speaks_tls(url)).await;
        if speaks == Ok(true) {
            return Fault::Refused(format!("{server} speaks TLS: write etcds:// for etcd://"));
        }
        Fault::Unsure(why)
    }

    /// Sends a request again and again until `end`. The request may be carried out any number of times.
    pub(super) async fn until<T, F, A>(self: &Arc<Self>, end: Instant, ask: F) -> Result<T, Fault>
    where
        F: Fn(Client) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        let mut pause = Pause::default();
        loop {
            let rest = end.saturating_duration_since(instant());
            match self.once_within(rest, &ask).await {
                Err(Fault::Unsure(why)) if !Pause::fits(end) => return Err(Fault::Unsure(why)),
                Err(Fault::Unsure(_)) => tokio::time::sleep(pause.next()).await,
                other => return other,
            }
        }
    }
}

/// The pauses between tries.
#[derive(Debug, Default)]
pub(super) struct Pause {
    tries: u32,
}

impl Pause {
    /// Whether another try makes sense before `end`.
    pub(super) fn fits(end: Instant) -> bool {
        instant() + Duration::from_millis(PAUSE_MS) < end
    }

    pub(super) fn next(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        Duration::from_millis(pause_ms(PAUSE_MS, self.tries, random()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The end of a connection takes a lock. If another thread had it at the fork, it stays
            // locked for ever.
            std::mem::forget(Arc::clone(&self.endpoints));
        }
    }
}

/// A random number for the pauses.
fn random() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0) >> 32) as u32
}

impl Connection {
    /// Prepares a connection. No server is asked yet.
    pub(super) fn new(address: &Address, credentials: &Credentials) -> Result<Self, StoreError> {
        let place = address.to_string();
        let connections = Connections::new(address.is_encrypted(), credentials);
        let connections = connections.map_err(|why| StoreError::Unreachable {
            place: place.clone(),
            doing: "connecting",
            why,
        })?;
        let endpoints = Arc::new(Endpoints {
            urls: address.urls(),
            connections,
            user: credentials.user.clone().map(User::new),
            cluster: Arc::new(Cluster::new(address.clone())),
            probe: Keys::new(address.prefix().to_owned()).floor(),
            state: Mutex::default(),
        });
        Ok(Self {
            runtime: BackgroundRuntime::new(),
            endpoints,
            place,
        })
    }

    /// Remembers the cluster of each server in a folder.
    pub(super) fn remember(&mut self, folder: PathBuf) {
        let endpoints = Arc::get_mut(&mut self.endpoints);
        if let Some(cluster) = endpoints.and_then(|all| Arc::get_mut(&mut all.cluster)) {
            cluster.remember(folder);
        }
    }

    /// The name of the connection in messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn endpoints(&self) -> &Arc<Endpoints> {
        &self.endpoints
    }

    /// Whether the connection belongs to this process.
    pub(super) fn is_ours(&self) -> bool {
        self.runtime.is_ours()
    }

    /// Runs a task and waits for it. The task has to end by itself.
    pub(super) fn block<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, StoreError> {
        if !self.is_ours() {
            return Err(self.fault(
                doing,
                &Fault::Refused(
                    "the connection belongs to the process that this one was forked from"
                        .to_owned(),
                ),
            ));
        }
        let answer = self.runtime.block(work);
        let answer = answer.unwrap_or_else(|error| Err(Fault::Unsure(error.to_string())));
        answer.map_err(|fault| self.fault(doing, &fault))
    }

    /// Runs a task and does not wait for it. `None` if it cannot run.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Option<tokio::task::AbortHandle> {
        // A runtime without a thread keeps its tasks for ever.
        self.is_ours().then(|| self.runtime.spawn(work).ok())?
    }

    pub(super) fn fault(&self, doing: &'static str, fault: &Fault) -> StoreError {
        let place = self.place.clone();
        let why = match fault {
            Fault::Unsure(why) | Fault::Refused(why) => printable(why),
            Fault::LeaseGone => "the lease has run out".to_owned(),
            Fault::Stranger(why) => {
                let why = printable(why);
                return StoreError::Unsafe { place, why };
            }
            Fault::Denied(why) => {
                let why = printable(why);
                return StoreError::Denied { place, doing, why };
            }
        };
        StoreError::Unreachable { place, doing, why }
    }
}

/// A server's words, for a terminal.
fn printable(said: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    said.chars().map(clean).take(1_000).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::*;
    use crate::etcd::api::TxnRequest;
    use prost::bytes::Bytes;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    /// A server that speaks HTTP/2 and counts its connections, and its URL.
    async fn server() -> (Arc<AtomicUsize>, String) {
        server_after(Duration::ZERO).await
    }

    async fn server_after(pause: Duration) -> (Arc<AtomicUsize>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let count = Arc::new(AtomicUsize::new(0));
        let connected = Arc::clone(&count);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                connected.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    let mut server = h2::server::handshake(socket).await.expect("HTTP/2");
                    // The server answers one request, and then ends the connection.
                    while let Some(asked) = server.accept().await {
                        answer(asked.expect("a request").1);
                        server.graceful_shutdown();
                    }
                });
            }
        });
        (count, url)
    }

    /// Answers that a transaction is done.
    fn answer(mut respond: h2::server::SendResponse<Bytes>) {
        let mut stream = respond
            .send_response(http::Response::new(()), false)
            .expect("a stream");
        let nothing = Bytes::from_static(&[0; 5]);
        stream.send_data(nothing, false).expect("data");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        stream.send_trailers(trailers).expect("trailers");
    }

    fn endpoints(urls: Vec<String>) -> Arc<Endpoints> {
        let connections = Connections::new(false, &Credentials::default());
        Arc::new(Endpoints {
            urls,
            connections: connections.expect("no certificates"),
            user: None,
            cluster: Arc::new(Cluster::new(
                Address::parse("etcd://one,two,three").expect("an address"),
            )),
            probe: "/probe".to_owned(),
            state: Mutex::default(),
        })
    }

    async fn clients(endpoints: &Arc<Endpoints>, callers: usize) -> Vec<Client> {
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let endpoints = Arc::clone(endpoints);
                tokio::spawn(async move { endpoints.client().await.expect("a client") })
            })
            .collect();
        let mut clients = Vec::new();
        for caller in callers {
            clients.push(caller.await.expect("no panic"));
        }
        clients
    }

    #[tokio::test]
    async fn many_that_come_at_once_have_one_connection() {
        let (connected, url) = server().await;
        let endpoints = endpoints(vec![url]);
        assert_eq!(clients(&endpoints, 20).await.len(), 20);
        assert_eq!(connected.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_server_that_ended_the_connection_while_nobody_asked_has_failed_at_nothing() {
        let (connected, url) = server().await;
        let endpoints = endpoints(vec![url, "http://127.0.0.1:1".to_owned()]);
        for asked in 1..=3 {
            let answer =
                endpoints.once(|client| async move { client.txn(TxnRequest::default()).await });
            answer.await.expect("an answer");
            // The first answer of all went to the question whether it answers.
            assert_eq!(connected.load(Ordering::SeqCst), asked + 1, "connections");
            // The client hears of the end only after a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(endpoints.lock().turns, 0, "no other endpoint was asked");
    }

    #[tokio::test]
    async fn a_member_that_is_silent_costs_a_tenth_of_a_second() {
        // The member takes connections, as a stopped server does.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let silent = format!("http://{}", silent.local_addr().expect("an address"));
        for place in 0..3 {
            let (connected, url) = server().await;
            let mut urls = vec![silent.clone(), silent.clone()];
            urls.insert(place, url);
            let endpoints = endpoints(urls);
            let began = instant();
            assert_eq!(clients(&endpoints, 5).await.len(), 5);
            let took = instant().saturating_duration_since(began);
            assert!(took < Duration::from_secs(1), "{took:?} at {place}");
            assert_eq!(connected.load(Ordering::SeqCst), 1);
            assert_eq!(endpoints.lock().index, place);
        }
        let endpoints = endpoints(vec![silent, "http://127.0.0.1:1".to_owned()]);
        let failed = tokio::time::timeout(2 * ATTEMPT_MAX, endpoints.client()).await;
        let failed = failed
            .expect("bounded")
            .map(|_| ())
            .expect_err("nobody answers");
        assert!(matches!(failed, Fault::Unsure(_)), "{failed:?}");
    }

    #[tokio::test]
    async fn an_attempt_outlasts_the_request_that_began_it() {
        // The server takes the connection at once, and speaks after a second.
        let (connected, url) = server_after(Duration::from_secs(1)).await;
        let endpoints = endpoints(vec![url.clone(), url]);
        let tries = 3;
        for _ in 0..tries {
            let asked = |client: Client| async move { client.txn(TxnRequest::default()).await };
            let late = endpoints.once_within(REQUEST_MIN, asked).await;
            assert!(matches!(late, Err(Fault::Unsure(_))), "{late:?}");
        }
        clients(&endpoints, 2).await;
        // A connection for each server of the list, and each try looks whether the server speaks TLS.
        assert_eq!(connected.load(Ordering::SeqCst), 2 + tries);
    }
}
