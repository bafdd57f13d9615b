//! The calls of etcd's API, version 3, that the store needs, and its messages.
//!
//! `scripts/etcd-messages` generates the messages, and CI compares them.
//!
//! A request is sent once. Only if the server refuses it because it wants a new token of the user, it is
//! sent again with one. The caller has to find out whether a lost request was carried out.
//!
//! The tests compile this file once more, as a client of their own.

// Found from this file, so also where the tests compile it.
#[path = "messages.rs"]
#[rustfmt::skip]
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "a generator has written it"
)]
mod messages;

use http::uri::PathAndQuery;
pub(super) use messages::compare::CompareResult;
pub(super) use messages::response_op::Response;
pub(super) use messages::watch_create_request::FilterType;
use messages::{
    AuthenticateRequest, AuthenticateResponse, DeleteRangeRequest, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, PutRequest, WatchRequest,
};
pub(super) use messages::{
    Compare, KeyValue, RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchResponse,
};
use messages::{
    compare::{CompareTarget, TargetUnion},
    request_op::Request as Step,
    watch_request::RequestUnion,
};
use prost::Message;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

impl RangeRequest {
    /// Reads one key.
    pub(super) fn of(key: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }

    /// Reads all keys up to this one, which is left out.
    pub(super) fn with_range(mut self, end: impl Into<Vec<u8>>) -> Self {
        self.range_end = end.into();
        self
    }
}

impl Compare {
    fn of(
        key: impl Into<Vec<u8>>,
        target: CompareTarget,
        result: CompareResult,
        with: TargetUnion,
    ) -> Self {
        Self {
            result: result.into(),
            target: target.into(),
            key: key.into(),
            target_union: Some(with),
            range_end: Vec::new(),
        }
    }

    /// The revision at which the key was created; 0 if it does not exist.
    pub(super) fn create_revision(
        key: impl Into<Vec<u8>>,
        result: CompareResult,
        revision: i64,
    ) -> Self {
        let with = TargetUnion::CreateRevision(revision);
        Self::of(key, CompareTarget::Create, result, with)
    }

    /// The revision at which the key was last written.
    pub(super) fn mod_revision(
        key: impl Into<Vec<u8>>,
        result: CompareResult,
        revision: i64,
    ) -> Self {
        let with = TargetUnion::ModRevision(revision);
        Self::of(key, CompareTarget::Mod, result, with)
    }

    /// The value of the key.
    pub(super) fn value(
        key: impl Into<Vec<u8>>,
        result: CompareResult,
        value: impl Into<Vec<u8>>,
    ) -> Self {
        let with = TargetUnion::Value(value.into());
        Self::of(key, CompareTarget::Value, result, with)
    }

    /// The lease with which the key ends.
    pub(super) fn lease(key: impl Into<Vec<u8>>, result: CompareResult, lease: i64) -> Self {
        let with = TargetUnion::Lease(lease);
        Self::of(key, CompareTarget::Lease, result, with)
    }

    /// For all keys from the first one up to this one, which is left out.
    pub(super) fn with_range(mut self, end: impl Into<Vec<u8>>) -> Self {
        self.range_end = end.into();
        self
    }
}

impl From<Step> for RequestOp {
    fn from(step: Step) -> Self {
        Self {
            request: Some(step),
        }
    }
}

impl RequestOp {
    pub(super) fn get(range: RangeRequest) -> Self {
        Step::RequestRange(range).into()
    }

    pub(super) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::leased(key, value, 0)
    }

    /// Puts a key that ends with a lease.
    pub(super) fn leased(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        let (key, value) = (key.into(), value.into());
        Step::RequestPut(PutRequest { key, value, lease }).into()
    }

    pub(super) fn delete(key: impl Into<Vec<u8>>) -> Self {
        Step::RequestDeleteRange(DeleteRangeRequest { key: key.into() }).into()
    }

    pub(super) fn txn(txn: TxnRequest) -> Self {
        Step::RequestTxn(txn).into()
    }
}

impl TxnRequest {
    pub(super) fn when(mut self, compare: impl Into<Vec<Compare>>) -> Self {
        self.compare = compare.into();
        self
    }

    pub(super) fn and_then(mut self, steps: impl Into<Vec<RequestOp>>) -> Self {
        self.success = steps.into();
        self
    }

    pub(super) fn or_else(mut self, steps: impl Into<Vec<RequestOp>>) -> Self {
        self.failure = steps.into();
        self
    }
}

impl From<WatchCreateRequest> for WatchRequest {
    fn from(watched: WatchCreateRequest) -> Self {
        Self {
            request_union: Some(RequestUnion::CreateRequest(watched)),
        }
    }
}

/// What a client's process knows of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// The number of times that it turned out to be another one, or set back.
    pub(super) epoch: u64,
    /// The highest revision that it has shown.
    pub(super) revision: i64,
}

/// Looks at the head of each answer of a server before the answer is used.
pub(super) trait Heads: Send + Sync {
    /// What is known before a request is sent.
    fn known(&self) -> Known;

    /// Refuses an answer that does not count. True: the answer is older than what is known, and `probe` has to decide
    /// what that means. `agreed`: the cluster has agreed on the revision after the request.
    fn look(&self, head: ResponseHeader, since: Known, agreed: bool) -> Result<bool, Status>;

    /// A read that every user of the locks may make.
    fn probe(&self) -> RangeRequest;
}

/// An answer of a server.
trait ServerAnswer: Message + Default + 'static {
    /// Whether the cluster has agreed on its revision after the request, so that it is no lower than any revision shown
    /// before. Else it is the one member's own, which may lag.
    const AGREED: bool;

    fn head(&self) -> Option<ResponseHeader>;
}

macro_rules! answers {
    ($($answer:ty: $agreed:literal),+) => {
        $(impl ServerAnswer for $answer {
            const AGREED: bool = $agreed;

            fn head(&self) -> Option<ResponseHeader> {
                self.header
            }
        })+
    };
}

answers!(
    RangeResponse: true,
    TxnResponse: true,
    messages::PutResponse: true,
    LeaseGrantResponse: true,
    LeaseRevokeResponse: true,
    LeaseKeepAliveResponse: false,
    WatchResponse: false,
    AuthenticateResponse: false
);

/// How long a server is given to prove a password, in which it works for some 100 ms by itself.
const PROVING_MAX: Duration = Duration::from_secs(10);

/// The user of a process. Each member of a cluster knows the token that one of them gave.
pub(super) struct User {
    name: String,
    password: String,
    /// What a server gave last in exchange for the password, and when.
    token: Mutex<Option<(AsciiMetadataValue, Instant)>>,
}

impl User {
    pub(super) fn new((name, password): (String, String)) -> Arc<Self> {
        let token = Mutex::default();
        Arc::new(Self {
            name,
            password,
            token,
        })
    }

    fn token(&self) -> MutexGuard<'_, Option<(AsciiMetadataValue, Instant)>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the password again for the next request, if the token is older than servers have been failing, or than some
    /// moments.
    ///
    /// A simple token names a place in etcd's log. Servers that were restored to an earlier one do not refuse the token: they
    /// say nothing until the log has reached that place.
    pub(super) fn forget_older(&self, failing: Duration) {
        let is_old = |(_, since): &mut (_, Instant)| since.elapsed() > failing.min(PROVING_MAX);
        self.token().take_if(is_old);
    }

    /// Shows the password again for the next request.
    pub(super) fn forget(&self) {
        *self.token() = None;
    }

    fn token_unless(&self, refused: Option<&AsciiMetadataValue>) -> Option<AsciiMetadataValue> {
        let token = self.token().as_ref().map(|(token, _)| token.clone());
        token.filter(|token| Some(token) != refused)
    }
}

/// A client of a server. Clones share its connection.
#[derive(Clone)]
pub(super) struct Client {
    channel: Channel,
    user: Option<Arc<User>>,
    /// Taken while the server proves the password.
    proving: Arc<tokio::sync::Mutex<()>>,
    heads: Option<Arc<dyn Heads>>,
}

impl Client {
    /// A client for this user. With `shows` the password is shown to the server first, and not the token of another one.
    /// `heads` looks at each answer.
    pub(super) async fn new(
        channel: Channel,
        user: Option<Arc<User>>,
        shows: bool,
        heads: Option<Arc<dyn Heads>>,
    ) -> Result<Self, Status> {
        let client = Self {
            channel,
            user,
            proving: Arc::default(),
            heads,
        };
        match &client.user {
            Some(user) if shows => drop(client.proved(user, None, true).await?),
            _ => drop(client.known_unless(None).await?),
        }
        Ok(client)
    }

    /// The user's token. It is a new one if the present one is the one that was refused.
    ///
    /// A server that many ask at once, as after an outage, may take longer than the request is given. It does the work all the
    /// same, so its answer is kept for the next request: else each try would add to what keeps the server from answering.
    async fn known_unless(
        &self,
        refused: Option<AsciiMetadataValue>,
    ) -> Result<Option<AsciiMetadataValue>, Status> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        if let Some(token) = user.token_unless(refused.as_ref()) {
            return Ok(Some(token));
        }
        self.proved(user, refused, false).await.map(Some)
    }

    /// A token for the password, by work that goes on where nobody waits for it. With `anew` no other token will do.
    async fn proved(
        &self,
        user: &Arc<User>,
        refused: Option<AsciiMetadataValue>,
        anew: bool,
    ) -> Result<AsciiMetadataValue, Status> {
        let (client, user) = (self.clone(), Arc::clone(user));
        let proving = tokio::spawn(async move {
            let proved = tokio::time::timeout(PROVING_MAX, client.prove(&user, refused, anew));
            let silent = |_| Err(Status::unavailable("no answer to a password"));
            proved.await.unwrap_or_else(silent)
        });
        let stopped = |_| Err(Status::unavailable("this program ends"));
        proving.await.unwrap_or_else(stopped)
    }

    async fn prove(
        &self,
        user: &User,
        refused: Option<AsciiMetadataValue>,
        anew: bool,
    ) -> Result<AsciiMetadataValue, Status> {
        let _alone = self.proving.lock().await;
        if let Some(token) = user.token_unless(refused.as_ref()).filter(|_| !anew) {
            return Ok(token);
        }
        let asked = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.clone(),
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer: AuthenticateResponse = self.send(path, asked, None).await?;
        let new = MetadataValue::try_from(answer.token);
        let new: AsciiMetadataValue =
            new.map_err(|_| Status::internal("the server gives no token"))?;
        *user.token() = Some((new.clone(), Instant::now()));
        Ok(new)
    }

    /// Sends one message, and waits for one answer.
    async fn send<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        token: Option<AsciiMetadataValue>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: ServerAnswer,
    {
        let since = self.known();
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(path);
        let asked = request(message, token);
        let answer = grpc.unary(asked, path, ProstCodec::<Q, A>::default());
        let answer = answer.await?.into_inner();
        // What a member says by itself decides nothing here: it gives out a token, and the request follows.
        let _: bool = self.look(&answer, since)?;
        Ok(answer)
    }

    fn known(&self) -> Option<Known> {
        self.heads.as_ref().map(|heads| heads.known())
    }

    /// Looks at the head of an answer. True: the answer is older than what is known.
    fn look<A: ServerAnswer>(&self, answer: &A, since: Option<Known>) -> Result<bool, Status> {
        match (&self.heads, since, answer.head()) {
            (Some(heads), Some(since), Some(head)) => heads.look(head, since, A::AGREED),
            _ => Ok(false),
        }
    }

    /// Looks at the head of an answer that the member has not agreed on with the others. If the answer is older than
    /// what is known, a read decides whether the member lags or the cluster was set back.
    async fn look_closely<A: ServerAnswer>(
        &self,
        answer: &A,
        since: Option<Known>,
    ) -> Result<(), Status> {
        if self.look(answer, since)?
            && let Some(heads) = &self.heads
        {
            self.get(heads.probe()).await?;
        }
        Ok(())
    }

    /// Sends a request with the user's token.
    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: ServerAnswer,
    {
        if self.user.is_none() {
            return self.send(path, message, None).await;
        }
        let token = self.known_unless(None).await?;
        match self.send(path, message.clone(), token.clone()).await {
            Err(status) if is_unknown(&status) => {
                let token = self.known_unless(token).await?;
                self.send(path, message, token).await
            }
            answer => answer,
        }
    }

    /// Begins a conversation with some messages. It lasts as long as both ends are kept.
    async fn converse<Q, A>(
        &self,
        path: &'static str,
        messages: &[Q],
    ) -> Result<(mpsc::Sender<Q>, Streaming<A>), Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut refused = None;
        loop {
            let token = self.known_unless(refused.clone()).await?;
            let (sender, later) = mpsc::channel(LATER_MAX);
            let asked = tokio_stream::iter(messages.to_vec()).chain(ReceiverStream::new(later));
            let mut grpc = self.grpc().await?;
            let asked = request(asked, token.clone());
            let at = PathAndQuery::from_static(path);
            let answers = grpc.streaming(asked, at, ProstCodec::<Q, A>::default());
            match answers.await {
                Err(status) if is_unknown(&status) && token.is_some() && refused.is_none() => {
                    refused = token;
                }
                answers => return Ok((sender, answers?.into_inner())),
            }
        }
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        // A list may be long, and we trust its server.
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    pub(super) async fn get(&self, range: RangeRequest) -> Result<RangeResponse, Status> {
        self.ask("/etcdserverpb.KV/Range", range).await
    }

    /// A put by itself, as the tests do it.
    #[cfg(test)]
    #[allow(
        dead_code,
        reason = "the tests that compile this file as theirs have it"
    )]
    pub(super) async fn put(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), Status> {
        let written = PutRequest {
            key: key.into(),
            value: value.into(),
            lease: 0,
        };
        let _: messages::PutResponse = self.ask("/etcdserverpb.KV/Put", written).await?;
        Ok(())
    }

    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Status> {
        self.ask("/etcdserverpb.KV/Txn", txn).await
    }

    /// A new lease, of so many seconds; answers with its number.
    pub(super) async fn grant_lease(&self, ttl: i64) -> Result<i64, Status> {
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: LeaseGrantResponse = self.ask(path, LeaseGrantRequest { ttl }).await?;
        Ok(granted.id)
    }

    /// Ends a lease, and all keys with it.
    pub(super) async fn revoke_lease(&self, id: i64) -> Result<(), Status> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let _: LeaseRevokeResponse = self.ask(path, LeaseRevokeRequest { id }).await?;
        Ok(())
    }

    /// Renews a lease. False if there is none.
    pub(super) async fn renew_lease(&self, id: i64) -> Result<bool, Status> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let asked = [LeaseKeepAliveRequest { id }];
        let since = self.known();
        // The sender is kept: a proxy might take the end of the requests for the end of the
        // conversation.
        let (_sender, mut answers): (_, Streaming<LeaseKeepAliveResponse>) =
            self.converse(path, &asked).await?;
        match answers.message().await? {
            // A lease that is gone has no time left.
            Some(answer) => {
                self.look_closely(&answer, since).await?;
                Ok(answer.ttl > 0)
            }
            None => Err(Status::unavailable("the renewal got no answer")),
        }
    }

    /// Watches keys.
    pub(super) async fn watch(
        &self,
        keys: impl IntoIterator<Item = WatchCreateRequest>,
    ) -> Result<WatchStream, Status> {
        let keys: Vec<WatchRequest> = keys.into_iter().map(Into::into).collect();
        let since = self.known();
        let (sender, answers) = self.converse("/etcdserverpb.Watch/Watch", &keys).await?;
        Ok(WatchStream {
            client: self.clone(),
            since,
            _sender: sender,
            answers,
        })
    }
}

/// How many messages may be on their way after the first ones.
const LATER_MAX: usize = 16;

/// A conversation about any number of keys.
pub(super) struct WatchStream {
    client: Client,
    /// What was known when it began.
    since: Option<Known>,
    /// Without it the conversation ends.
    _sender: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl WatchStream {
    /// The next answer; `None` at the end.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        let answer = self.answers.message().await?;
        if let Some(answer) = &answer {
            // A watch of a revision that the servers no longer have would hear nothing.
            self.client.look_closely(answer, self.since).await?;
        }
        Ok(answer)
    }
}

fn request<T>(message: T, token: Option<AsciiMetadataValue>) -> Request<T> {
    let mut request = Request::new(message);
    let head = request.metadata_mut();
    // With this, a member that is cut off from the others says so.
    head.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        head.insert("token", token);
    }
    request
}

/// Whether the server wants a new token: it no longer knows this one, or users were changed since. Versions of etcd
/// answer so under several codes.
fn is_unknown(status: &Status) -> bool {
    let says = |words: &str| status.message().contains(words);
    status.code() == Code::Unauthenticated
        || says("invalid auth token")
        || says("revision of auth store is old")
}

#[cfg(test)]
mod answers {
    use super::{Code, Status, is_unknown};

    /// As etcd 3.4 to 3.6 answer, with simple tokens and with those of JWT.
    #[test]
    fn a_new_token_is_wanted_whatever_code_says_so() {
        for (code, said, wants) in [
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                true,
            ),
            (Code::Unknown, "etcdserver: invalid auth token", true),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                true,
            ),
            (
                Code::Unknown,
                "etcdserver: revision of auth store is old",
                true,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                false,
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                false,
            ),
        ] {
            assert_eq!(
                is_unknown(&Status::new(code, said)),
                wants,
                "{code}: {said}"
            );
        }
    }
}
