//! The lines between the client and the protocol's library: stdin and stdout, one message a line.
//!
//! What is no JSON is passed over, and a line longer than 1 MiB too. What is JSON and no message is answered as an
//! invalid request. A line without an end is no message.

use super::grants::Grants;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use serde_json::Value;
use std::io;
use tokio_util::sync::CancellationToken;

/// How long a line may be.
const LINE_MAX: usize = 1 << 20;

pub(super) struct Line {
    inner: AsyncRwTransport<RoleServer, StdioReader, StdioWriter>,
    grants: Grants,
    /// Cancelled at the end of stdin: what waits for a lock then waits for nobody.
    ending: CancellationToken,
}

impl Line {
    pub(super) fn new(grants: Grants, ending: CancellationToken) -> Self {
        let (reader, writer) = stdio_pipes();
        Self {
            inner: AsyncRwTransport::new(reader, writer).with_max_line_length(LINE_MAX),
            grants,
            ending,
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
        let sending = self.inner.send(item);
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
        let message = self.inner.receive().await;
        if message.is_none() {
            self.ending.cancel();
        }
        message
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
    let envelope = result.structured_content.as_ref()?;
    let is_grant = envelope.pointer("/meta/command").and_then(Value::as_str) == Some("acquire");
    let handle = envelope.pointer("/data/handle").filter(|_| is_grant);
    handle.and_then(Value::as_str).map(str::to_owned)
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
