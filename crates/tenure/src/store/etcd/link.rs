//! The connection: requests to etcd whose time is bounded.
//!
//! A store's callers are blocking; what etcd's client library needs is a runtime. Who turns it, and on
//! which thread, is `driver`'s affair; it is started with the first store and ends with its last
//! clone. Beside requests, leases are kept alive on it (`session`), keys are watched for whoever
//! sleeps (`watch`), and what a request left behind whose answer never came is cleared away.
//!
//! One endpoint is asked at a time. When it fails, or does not answer in time, the next one is: a
//! member that is cut off from the others still accepts connections, and would be asked again and
//! again by a balancer.
//!
//! In a forked child there is no thread that turns it. Whatever is asked there fails at once, and
//! dropping a seat there does nothing.

use super::address::{Address, Credentials};
use super::driver::{Driver, Sleeping};
use crate::clock::instant;
use crate::store::StoreError;
use etcd_client::{
    Certificate, Client, ConnectOptions, Error, Identity, KeyValue, ResponseHeader, TlsOptions,
    TxnOpResponse, TxnResponse,
};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::pause_ms;

/// How long one request may take before its answer counts as lost: a put on a loaded disk takes
/// some 100 ms, an election one to two seconds.
const REQUEST_MAX: Duration = Duration::from_secs(2);

/// The least time that a request is given.
const REQUEST_MIN: Duration = Duration::from_millis(100);

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// How often a connection without traffic is tried. Servers take it amiss below five seconds.
const PING_EVERY: Duration = Duration::from_secs(6);

/// How long such a try may take.
const PING_MAX: Duration = Duration::from_secs(3);

/// The first pause between tries, in milliseconds; the longest is sixteen times as long.
const PAUSE_MS: u64 = 20;

/// How a request ended that was not answered as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It may have been carried out, or be carried out later.
    Unsure(String),
    /// It was not, and never will be.
    Refused(String),
    /// It was not, because the lease that it names has run out.
    LeaseGone,
}

/// The endpoints and the clients for them.
pub(super) struct Endpoints {
    urls: Vec<String>,
    options: ConnectOptions,
    state: Mutex<Current>,
}

/// Which endpoint is asked.
struct Current {
    index: usize,
    /// Counts the changes, so that one failure that several requests see changes it once.
    turns: u64,
    /// Each request takes out of it what it needs: a clone of the whole makes seventeen channels.
    client: Option<Arc<Client>>,
    /// Since when no request has been answered; `None` if the last one was.
    failing: Option<Instant>,
}

/// The connection, as its callers see it.
pub(super) struct Link {
    driver: Driver,
    endpoints: Arc<Endpoints>,
    place: String,
}

/// Says what failed without the request's own words around it.
pub(super) fn classify(error: &Error) -> Fault {
    let said = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let Error::GRpcStatus(status) = error else {
        return match error {
            Error::InvalidArgs(_) | Error::InvalidUri(_) => Fault::Refused(said),
            _ => Fault::Unsure(said),
        };
    };
    // The numbers of gRPC's own list.
    match status.code() as i32 {
        // Refused because of too much to do, which passes; the other reason of this code, a full
        // disk, does not.
        8 if said.contains("too many") => Fault::Unsure(said),
        5 if said.contains("lease") => Fault::LeaseGone,
        // Of a revision that was compacted away (11), nothing can be read however often one asks.
        3 | 5 | 7 | 8 | 9 | 11 | 12 | 16 => Fault::Refused(said),
        _ => Fault::Unsure(said),
    }
}

/// The revision of a store that an answer tells of.
pub(super) fn revision_of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

/// What a transaction has read, and whether that is all that there was to read.
pub(super) fn read_by(answer: &TxnResponse) -> (Vec<KeyValue>, bool) {
    let (mut found, mut is_whole) = (Vec::new(), true);
    for response in answer.op_responses() {
        if let TxnOpResponse::Get(mut get) = response {
            is_whole &= !get.more();
            found.extend(get.take_kvs());
        }
    }
    (found, is_whole)
}

/// Whether etcd takes no more writes for want of room.
pub(super) fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreachable { why, .. } if why.contains("space exceeded"))
}

impl Endpoints {
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        // Every change is a few assignments that cannot fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client for the endpoint that is asked now, and its turn.
    pub(super) async fn client(&self) -> Result<(Arc<Client>, u64), Fault> {
        let (index, turn) = {
            let current = self.lock();
            if let Some(client) = &current.client {
                return Ok((Arc::clone(client), current.turns));
            }
            (current.index, current.turns)
        };
        let url = self.urls.get(index).cloned().unwrap_or_default();
        let connected = Client::connect([url], Some(self.options.clone())).await;
        let client = Arc::new(connected.map_err(|error| classify(&error))?);
        let mut current = self.lock();
        if current.turns == turn {
            current.client.get_or_insert_with(|| Arc::clone(&client));
        }
        Ok((client, turn))
    }

    /// For how long no request has been answered.
    pub(super) fn failing(&self) -> Option<Duration> {
        let since = self.lock().failing?;
        Some(instant().saturating_duration_since(since))
    }

    /// Asks the next endpoint from now on, unless somebody has seen to that since `turn`.
    pub(super) fn turn_away(&self, turn: u64) {
        let mut current = self.lock();
        if current.turns == turn {
            current.turns += 1;
            current.index = (current.index + 1) % self.urls.len().max(1);
            current.client = None;
        }
    }

    /// One request to one endpoint.
    pub(super) async fn once<T, F, A>(&self, ask: F) -> Result<T, Fault>
    where
        F: FnOnce(Arc<Client>) -> A,
        A: Future<Output = Result<T, Error>>,
    {
        self.once_within(REQUEST_MAX, ask).await
    }

    /// The same for less time than a request may take.
    pub(super) async fn once_within<T, F, A>(&self, limit: Duration, ask: F) -> Result<T, Fault>
    where
        F: FnOnce(Arc<Client>) -> A,
        A: Future<Output = Result<T, Error>>,
    {
        let limit = limit.clamp(REQUEST_MIN, REQUEST_MAX);
        let turn = self.lock().turns;
        let asked = async {
            let (client, _) = self.client().await?;
            ask(client).await.map_err(|error| classify(&error))
        };
        let answer = match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::Unsure(format!(
                "no answer within {} ms",
                limit.as_millis()
            ))),
        };
        if let Err(Fault::Refused(why)) = &answer
            && why.contains("auth")
        {
            // A client keeps its token; a new one gets another.
            self.turn_away(turn);
        }
        if let Err(Fault::Unsure(_)) = &answer {
            self.turn_away(turn);
            self.lock().failing.get_or_insert_with(instant);
        } else {
            self.lock().failing = None;
        }
        answer
    }

    /// The same again and again, for a request that may be carried out any number of times.
    pub(super) async fn until<T, F, A>(&self, end: Instant, ask: F) -> Result<T, Fault>
    where
        F: Fn(Arc<Client>) -> A,
        A: Future<Output = Result<T, Error>>,
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

/// A number as good as any other.
fn random() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0) >> 32) as u32
}

impl Link {
    /// Prepares it. Nothing is asked of any server yet.
    pub(super) fn start(address: &Address, credentials: &Credentials) -> Result<Self, StoreError> {
        let place = address.to_string();
        let refused = |why: String| StoreError::Unreachable {
            place: place.clone(),
            doing: "connecting",
            why,
        };
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_MAX)
            .with_keep_alive(PING_EVERY, PING_MAX)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(credentials.user.is_some());
        if let Some((name, password)) = &credentials.user {
            options = options.with_user(name.clone(), password.clone());
        }
        if address.is_encrypted() {
            let Some(authority) = &credentials.authority else {
                return Err(refused(
                    "no authority is named that vouches for the servers; set TENURE_ETCD_CACERT"
                        .to_owned(),
                ));
            };
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(authority));
            if let Some((certificate, key)) = &credentials.certificate {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            options = options.with_tls(tls);
        }
        let endpoints = Arc::new(Endpoints {
            urls: address.urls(),
            options,
            state: Mutex::new(Current {
                index: 0,
                turns: 0,
                client: None,
                failing: None,
            }),
        });
        Ok(Self {
            driver: Driver::start().map_err(|error| refused(error.to_string()))?,
            endpoints,
            place,
        })
    }

    /// What the connection is called in messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn endpoints(&self) -> &Arc<Endpoints> {
        &self.endpoints
    }

    /// Whether it is this process's own.
    pub(super) fn is_ours(&self) -> bool {
        self.driver.is_ours()
    }

    /// Has something done and waits for it. It has to end by itself.
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
        let answer = self.driver.block(work).unwrap_or_else(|| {
            Err(Fault::Unsure(
                "the connection's thread has ended".to_owned(),
            ))
        });
        answer.map_err(|fault| self.fault(doing, &fault))
    }

    /// Has something done and does not wait for it.
    pub(super) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Option<tokio::task::AbortHandle> {
        // A runtime that nobody drives keeps what it is given for ever.
        self.is_ours().then(|| self.driver.spawn(work))
    }

    /// Notes that somebody sleeps until something that was spawned has an answer, or news.
    pub(super) fn sleeping(&self) -> Arc<Sleeping> {
        self.driver.sleeping()
    }

    pub(super) fn fault(&self, doing: &'static str, fault: &Fault) -> StoreError {
        let why = match fault {
            Fault::Unsure(why) | Fault::Refused(why) => why.clone(),
            Fault::LeaseGone => "the lease has run out".to_owned(),
        };
        StoreError::Unreachable {
            place: self.place.clone(),
            doing,
            why: printable(&why),
        }
    }
}

/// A server's words, for a terminal.
fn printable(said: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    said.chars().map(clean).take(400).collect()
}
