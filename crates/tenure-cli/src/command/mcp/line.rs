//! The lines between the client and the protocol's library: stdin and stdout, one message a line.
//!
//! Each line that asks for something gets an answer: a line that is no message, or too long, is answered here (`message`).
//! A notification that is no message gets none, as the protocol wants. A line without an end is no message.

use super::grants::Grants;
use super::message::{self, Sight, Wrong};
use rmcp::RoleServer;
use rmcp::model::{ErrorData, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use serde_json::Value;
use std::io;
use tokio::io::{AsyncBufReadExt, BufReader, Empty};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a line may be.
const LINE_MAX: usize = 1 << 20;

/// How many answers of this module may be on their way. Then it reads nothing until one of them has been written.
const ANSWERS_MAX: usize = 64;

pub(super) struct Line {
    reader: BufReader<StdioReader>,
    /// What has been read of a line.
    read: Vec<u8>,
    /// What has been read of a line that is too long: only its id is kept.
    long: Option<Sight>,
    writer: AsyncRwTransport<RoleServer, Empty, StdioWriter>,
    answers: JoinSet<io::Result<()>>,
    grants: Grants,
    /// Cancelled at the end of stdin: what waits for a lock then waits for nobody.
    ending: CancellationToken,
}

impl Line {
    pub(super) fn new(grants: Grants, ending: CancellationToken) -> Self {
        let (reader, writer) = stdio_pipes();
        Self {
            reader: BufReader::new(reader),
            read: Vec::new(),
            long: None,
            writer: AsyncRwTransport::new(tokio::io::empty(), writer),
            answers: JoinSet::new(),
            grants,
            ending,
        }
    }

    /// The next line, or what is known of one that is too long. `None` at the end of stdin.
    ///
    /// The future may be cancelled at its only `await`: what was read until then is kept.
    async fn next(&mut self) -> Option<Result<Vec<u8>, Sight>> {
        loop {
            let filled = self.reader.fill_buf().await.ok()?;
            if filled.is_empty() {
                return None;
            }
            let end = filled.iter().position(|byte| *byte == b'\n');
            let part = filled
                .get(..end.unwrap_or(filled.len()))
                .unwrap_or_default();
            if self.long.is_none() && self.read.len() + part.len() > LINE_MAX {
                let mut sight = Sight::default();
                sight.see(&std::mem::take(&mut self.read));
                self.long = Some(sight);
            }
            match &mut self.long {
                Some(sight) => sight.see(part),
                None => self.read.extend_from_slice(part),
            }
            let taken = part.len() + usize::from(end.is_some());
            self.reader.consume(taken);
            if end.is_some() {
                let line = std::mem::take(&mut self.read);
                return Some(self.long.take().map_or(Ok(line), Err));
            }
        }
    }
}

impl Transport<RoleServer> for Line {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let told = granted(&item);
        // Not in the future: the library cancels the call's token in this same step.
        let item = match &told {
            Some(handle) if !self.grants.begin(handle) => given_back(item),
            _ => item,
        };
        let sending = self.writer.send(item);
        let grants = self.grants.clone();
        async move {
            let sent = sending.await;
            if let Some(handle) = told {
                grants.written(&handle, sent.is_ok());
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.answers.try_join_next().is_some() {}
            if self.answers.len() >= ANSWERS_MAX {
                self.answers.join_next().await;
            }
            let Some(line) = self.next().await else {
                self.ending.cancel();
                return None;
            };
            let read = line.map_or_else(|sight| Err(sight.too_long()), |line| message::read(&line));
            match read {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(Wrong { id, error }) => {
                    let sending = self.writer.send(JsonRpcMessage::error(error, id));
                    self.answers.spawn(sending);
                }
            }
        }
    }

    /// Does nothing: every message is flushed by itself. To close the writer would wait for a client that does not read.
    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The handle that a message tells an agent of: the answer to `lock_acquire` that grants it.
fn granted(message: &TxJsonRpcMessage<RoleServer>) -> Option<String> {
    let JsonRpcMessage::Response(response) = message else {
        return None;
    };
    let ServerResult::CallToolResult(result) = &response.result else {
        return None;
    };
    let structured = result.structured_content.as_ref()?;
    let text = |key: &str| structured.get(key).and_then(Value::as_str);
    let handle = text("handle").filter(|_| text("status") == Some("acquired"));
    handle.map(str::to_owned)
}

/// What is said in place of an answer that grants what was given back.
fn given_back(message: TxJsonRpcMessage<RoleServer>) -> TxJsonRpcMessage<RoleServer> {
    let JsonRpcMessage::Response(response) = message else {
        return message;
    };
    let error =
        ErrorData::internal_error("the call was cancelled, and nothing is held for it", None);
    JsonRpcMessage::error(error, Some(response.id))
}
