//! The messages and calls of etcd's API, version 3, that the store needs.
//!
//! The numbers are those of `rpc.proto` and `kv.proto` as etcd publishes them. They are written here by
//! hand: a generator takes `protoc`, and then a source build would need it. A message leaves out the
//! fields that no code here sets or reads.
//!
//! A request is sent once. Only if the server refuses it because the token of its user has run out, it
//! is sent again with a new token. The caller has to find out whether a lost request was carried out.
//!
//! The tests compile this file once more, as a client of their own.

use http::uri::PathAndQuery;
use prost::{Enumeration, Message, Oneof};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// The head of every answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    revision: i64,
}

impl ResponseHeader {
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
    #[prost(int64, tag = "6")]
    lease: i64,
}

impl KeyValue {
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    pub(super) fn create_revision(&self) -> i64 {
        self.create_revision
    }

    pub(super) fn mod_revision(&self) -> i64 {
        self.mod_revision
    }

    pub(super) fn lease(&self) -> i64 {
        self.lease
    }
}

/// What to read: a key, or a range that begins with it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetOptions {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int64, tag = "4")]
    revision: i64,
    #[prost(bool, tag = "8")]
    keys_only: bool,
    #[prost(int64, tag = "13")]
    max_create_revision: i64,
}

impl GetOptions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// All keys from the first one up to this one, which is left out.
    pub(super) fn with_range(mut self, end: impl Into<Vec<u8>>) -> Self {
        self.range_end = end.into();
        self
    }

    pub(super) fn with_limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// As it was at that revision.
    pub(super) fn with_revision(mut self, revision: i64) -> Self {
        self.revision = revision;
        self
    }

    pub(super) fn with_keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Without keys that were created after that revision.
    pub(super) fn with_max_create_revision(mut self, revision: i64) -> Self {
        self.max_create_revision = revision;
        self
    }
}

/// What was read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    more: bool,
}

impl GetResponse {
    pub(super) fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }

    pub(super) fn kvs(&self) -> &[KeyValue] {
        &self.kvs
    }

    pub(super) fn take_kvs(&mut self) -> Vec<KeyValue> {
        std::mem::take(&mut self.kvs)
    }

    /// Whether the limit has cut something off.
    pub(super) fn more(&self) -> bool {
        self.more
    }
}

/// What to write.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutOptions {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

impl PutOptions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The key ends with that lease.
    pub(super) fn with_lease(mut self, lease: i64) -> Self {
        self.lease = lease;
        self
    }
}

/// The answer to a write.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {}

/// What to delete.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteOptions {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

/// The answer to a deletion, whether or not the key existed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteResponse {}

/// How two numbers or values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum CompareOp {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

/// What is compared of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
    Lease = 4,
}

/// What it is compared with.
#[derive(Clone, PartialEq, Oneof)]
enum ComparedWith {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "CompareOp", tag = "1")]
    op: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "ComparedWith", tags = "5, 6, 7, 8")]
    with: Option<ComparedWith>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

impl Compare {
    fn of(key: Vec<u8>, target: CompareTarget, op: CompareOp, with: ComparedWith) -> Self {
        Self {
            op: op.into(),
            target: target.into(),
            key,
            with: Some(with),
            range_end: Vec::new(),
        }
    }

    /// The revision at which the key was created; 0 if it does not exist.
    pub(super) fn create_revision(key: impl Into<Vec<u8>>, op: CompareOp, revision: i64) -> Self {
        let with = ComparedWith::Create(revision);
        Self::of(key.into(), CompareTarget::Create, op, with)
    }

    /// The revision at which the key was last written.
    pub(super) fn mod_revision(key: impl Into<Vec<u8>>, op: CompareOp, revision: i64) -> Self {
        let with = ComparedWith::Mod(revision);
        Self::of(key.into(), CompareTarget::Mod, op, with)
    }

    /// The value of the key.
    pub(super) fn value(key: impl Into<Vec<u8>>, op: CompareOp, value: impl Into<Vec<u8>>) -> Self {
        let with = ComparedWith::Value(value.into());
        Self::of(key.into(), CompareTarget::Value, op, with)
    }

    /// The lease with which the key ends.
    pub(super) fn lease(key: impl Into<Vec<u8>>, op: CompareOp, lease: i64) -> Self {
        let with = ComparedWith::Lease(lease);
        Self::of(key.into(), CompareTarget::Lease, op, with)
    }

    /// For all keys from the first one up to this one, which is left out.
    pub(super) fn with_range(mut self, end: impl Into<Vec<u8>>) -> Self {
        self.range_end = end.into();
        self
    }
}

/// A step of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnOp {
    #[prost(oneof = "Step", tags = "1, 2, 3, 4")]
    step: Option<Step>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Step {
    #[prost(message, tag = "1")]
    Get(GetOptions),
    #[prost(message, tag = "2")]
    Put(PutOptions),
    #[prost(message, tag = "3")]
    Delete(DeleteOptions),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

impl TxnOp {
    fn of(step: Step) -> Self {
        Self { step: Some(step) }
    }

    pub(super) fn get(key: impl Into<Vec<u8>>, options: Option<GetOptions>) -> Self {
        let mut options = options.unwrap_or_default();
        options.key = key.into();
        Self::of(Step::Get(options))
    }

    pub(super) fn put(
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        options: Option<PutOptions>,
    ) -> Self {
        let mut options = options.unwrap_or_default();
        (options.key, options.value) = (key.into(), value.into());
        Self::of(Step::Put(options))
    }

    pub(super) fn delete(key: impl Into<Vec<u8>>, options: Option<DeleteOptions>) -> Self {
        let mut options = options.unwrap_or_default();
        options.key = key.into();
        Self::of(Step::Delete(options))
    }

    pub(super) fn txn(txn: Txn) -> Self {
        Self::of(Step::Txn(txn))
    }
}

/// A transaction: some steps if all conditions are met, else other steps.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<TxnOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<TxnOp>,
}

impl Txn {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn when(mut self, compares: impl Into<Vec<Compare>>) -> Self {
        self.compare = compares.into();
        self
    }

    pub(super) fn and_then(mut self, steps: impl Into<Vec<TxnOp>>) -> Self {
        self.success = steps.into();
        self
    }

    pub(super) fn or_else(mut self, steps: impl Into<Vec<TxnOp>>) -> Self {
        self.failure = steps.into();
        self
    }
}

/// The answer to one step.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum TxnOpResponse {
    #[prost(message, tag = "1")]
    Get(GetResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

#[derive(Clone, PartialEq, Message)]
struct StepResponse {
    #[prost(oneof = "TxnOpResponse", tags = "1, 2, 3, 4")]
    response: Option<TxnOpResponse>,
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<StepResponse>,
}

impl TxnResponse {
    pub(super) fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }

    /// Whether all conditions were met.
    pub(super) fn succeeded(&self) -> bool {
        self.succeeded
    }

    /// The answers to the steps that were done.
    pub(super) fn op_responses(&self) -> impl Iterator<Item = &TxnOpResponse> {
        self.responses.iter().flat_map(|step| &step.response)
    }
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

/// The events of a watch that are no notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum WatchFilterType {
    NoPut = 0,
    NoDelete = 1,
}

/// What to watch.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchOptions {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    start_revision: i64,
    #[prost(enumeration = "WatchFilterType", repeated, tag = "5")]
    filters: Vec<i32>,
}

impl WatchOptions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// All keys up to this one, which is left out.
    pub(super) fn with_range(mut self, end: impl Into<Vec<u8>>) -> Self {
        self.range_end = end.into();
        self
    }

    /// From that revision on, be it in the past.
    pub(super) fn with_start_revision(mut self, revision: i64) -> Self {
        self.start_revision = revision;
        self
    }

    pub(super) fn with_filters(
        mut self,
        filters: impl IntoIterator<Item = WatchFilterType>,
    ) -> Self {
        self.filters = filters.into_iter().map(i32::from).collect();
        self
    }
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(oneof = "WatchStep", tags = "1")]
    step: Option<WatchStep>,
}

impl WatchRequest {
    fn of((key, mut options): (Vec<u8>, WatchOptions)) -> Self {
        options.key = key;
        let step = Some(WatchStep::Create(options));
        Self { step }
    }
}

#[derive(Clone, PartialEq, Oneof)]
enum WatchStep {
    #[prost(message, tag = "1")]
    Create(WatchOptions),
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(message, optional, tag = "2")]
    kv: Option<KeyValue>,
}

impl Event {
    pub(super) fn kv(&self) -> Option<&KeyValue> {
        self.kv.as_ref()
    }
}

/// An answer of a watch.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(bool, tag = "4")]
    canceled: bool,
    #[prost(int64, tag = "5")]
    compact_revision: i64,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

impl WatchResponse {
    pub(super) fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }

    /// The watch has begun.
    pub(super) fn created(&self) -> bool {
        self.created
    }

    /// The watch was refused, or has ended.
    pub(super) fn canceled(&self) -> bool {
        self.canceled
    }

    /// The first revision that etcd still has, if the watch ended because its own was compacted away.
    pub(super) fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }
}

#[derive(Clone, PartialEq, Message)]
struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    password: String,
}

#[derive(Clone, PartialEq, Message)]
struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    token: String,
}

/// The user of a client.
struct User {
    name: String,
    password: String,
    /// The token that the server gave in exchange for the password.
    token: Mutex<Option<AsciiMetadataValue>>,
}

/// A client of a server. Clones share its connection and token.
#[derive(Clone)]
pub(super) struct Client {
    channel: Channel,
    user: Option<Arc<User>>,
}

impl Client {
    /// A client for this user and password. It shows them to the server first.
    pub(super) async fn new(
        channel: Channel,
        user: Option<(String, String)>,
    ) -> Result<Self, Status> {
        let user = user.map(|(name, password)| {
            Arc::new(User {
                name,
                password,
                token: Mutex::default(),
            })
        });
        let client = Self { channel, user };
        client.known_unless(None).await?;
        Ok(client)
    }

    /// The user's token. It is a new one if the present one is the one that was refused.
    async fn known_unless(
        &self,
        refused: Option<AsciiMetadataValue>,
    ) -> Result<Option<AsciiMetadataValue>, Status> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        let mut token = user.token.lock().await;
        if token.is_none() || *token == refused {
            let asked = AuthenticateRequest {
                name: user.name.clone(),
                password: user.password.clone(),
            };
            let path = "/etcdserverpb.Auth/Authenticate";
            let answer: AuthenticateResponse = self.send(path, asked, None).await?;
            let new = MetadataValue::try_from(answer.token);
            *token = Some(new.map_err(|_| Status::internal("the server gives no token"))?);
        }
        Ok(token.clone())
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
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(path);
        let asked = request(message, token);
        let answer = grpc.unary(asked, path, ProstCodec::<Q, A>::default());
        Ok(answer.await?.into_inner())
    }

    /// The same with the user's token.
    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
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

    pub(super) async fn get(
        &self,
        key: impl Into<Vec<u8>>,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, Status> {
        let mut options = options.unwrap_or_default();
        options.key = key.into();
        self.ask("/etcdserverpb.KV/Range", options).await
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
        let (key, value) = (key.into(), value.into());
        let written = PutOptions {
            key,
            value,
            lease: 0,
        };
        let _: PutResponse = self.ask("/etcdserverpb.KV/Put", written).await?;
        Ok(())
    }

    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Status> {
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
        // The sender is kept: a proxy might take the end of the requests for the end of the
        // conversation.
        let (_sender, mut answers): (_, Streaming<LeaseKeepAliveResponse>) =
            self.converse(path, &asked).await?;
        match answers.message().await? {
            // A lease that is gone has no time left.
            Some(answer) => Ok(answer.ttl > 0),
            None => Err(Status::unavailable("the renewal got no answer")),
        }
    }

    /// Watches keys; more may follow.
    pub(super) async fn watch(
        &self,
        keys: impl IntoIterator<Item = (Vec<u8>, WatchOptions)>,
    ) -> Result<WatchStream, Status> {
        let keys: Vec<WatchRequest> = keys.into_iter().map(WatchRequest::of).collect();
        let (sender, answers) = self.converse("/etcdserverpb.Watch/Watch", &keys).await?;
        Ok(WatchStream { sender, answers })
    }
}

/// How many messages may be on their way after the first ones.
const LATER_MAX: usize = 16;

/// One conversation about any number of keys.
pub(super) struct WatchStream {
    sender: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl WatchStream {
    /// Watches one key more. False if the conversation has ended.
    pub(super) async fn watch(&mut self, key: Vec<u8>, options: WatchOptions) -> bool {
        let asked = WatchRequest::of((key, options));
        self.sender.send(asked).await.is_ok()
    }

    /// The next answer; `None` at the end.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        self.answers.message().await
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

/// Whether the server no longer knows the token.
fn is_unknown(status: &Status) -> bool {
    let is_told = status.message() == "etcdserver: invalid auth token";
    status.code() == Code::Unauthenticated || (status.code() == Code::Unknown && is_told)
}
