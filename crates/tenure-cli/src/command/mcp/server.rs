//! The tools as the protocol's library wants them: each call has a thread of its own, and is told of, ended and answered
//! from here.
//!
//! What a call does stands in `tools`.

use super::catalog::{INSTRUCTIONS, Tool};
use super::client::Watch;
use super::grants::Grants;
use super::tools::{Answer, Call, Tools, too_many};
use crate::args::value::AgentHost;
use crate::host::Caller;
use crate::render::Listener;
use crate::render::lock::age;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::{AgentKey, LockName};
use tenure_engine::engine::Waiting;
use tenure_engine::envelope::LockView;
use tenure_os::cancel::Cancel;
use tenure_os::clock::instant;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How many calls are carried out at a time: each has a thread.
const CALLS_MAX: usize = 200;

/// How often a client that wants to know is told of a wait.
const TELL: Duration = Duration::from_secs(5);

/// A thread's stack. The deepest call is a change of a long list.
const STACK: usize = 1 << 20;

pub(super) struct Server {
    tools: Arc<Tools>,
    grants: Grants,
    /// Ends the conversation.
    stopping: CancellationToken,
    /// Ends the waits.
    ending: CancellationToken,
}

/// What a call answers, and the handle of what it has taken.
type Told = (Answer, Option<String>);

/// What is known of a wait, for the next message about it.
type Sight = Arc<Mutex<Option<String>>>;

impl Server {
    pub(super) fn new(tools: Arc<Tools>, grants: Grants, watch: &Watch) -> Self {
        Self {
            tools,
            grants,
            stopping: watch.stopping(),
            ending: watch.ending(),
        }
    }

    /// Has a thread carry the call out, and answers when it is done.
    async fn carry_out(
        &self,
        tool: Tool,
        arguments: serde_json::Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Told {
        let sight = Sight::default();
        let cancel = Cancel::new();
        let call = Call {
            client: client_of(context),
            agent: agent_of(context),
            named: call_of(context),
            cancel: cancel.clone(),
            listener: listener(&sight),
        };
        let mut done = match self.start(tool, arguments, call) {
            Ok(done) => done,
            Err(why) => return (Answer::failed(tool, too_many(&why)), None),
        };
        let token = context.meta.get_progress_token();
        let (began, mut tick) = (instant(), tokio::time::interval(TELL));
        tick.reset();
        loop {
            tokio::select! {
                answer = &mut done => return answer.unwrap_or_else(|_| {
                    (Answer::failed(tool, too_many("the thread of this call ended early")), None)
                }),
                () = context.ct.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                () = self.ending.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                _ = tick.tick(), if token.is_some() => {
                    let waited = instant().saturating_duration_since(began);
                    if let Some(token) = token.clone() {
                        tell(&context.peer, token, waited, &sight);
                    }
                }
            }
        }
    }

    /// Starts the thread of a call.
    fn start(
        &self,
        tool: Tool,
        arguments: serde_json::Map<String, Value>,
        call: Call,
    ) -> Result<oneshot::Receiver<Told>, String> {
        let Some(running) = self.grants.begin_call(&call.cancel, CALLS_MAX) else {
            return Err(format!("{CALLS_MAX} calls are being carried out already"));
        };
        let (sender, receiver) = oneshot::channel();
        let (tools, grants) = (Arc::clone(&self.tools), self.grants.clone());
        let work = move || {
            // Dropped last: until the hold is added, the end of this process waits for this call.
            let _running = running;
            let mut answer = tools.carry_out(tool, arguments, call);
            let handle = answer.granted.take().map(|(handle, granted)| {
                grants.add(&handle, granted);
                handle
            });
            // The conversation may be over: then no one is told of what was taken. If it ends after this, `finish`
            // finds the hold.
            if let Err((_, Some(handle))) = sender.send((answer, handle)) {
                grants.settle(&handle);
            }
        };
        let thread = std::thread::Builder::new()
            .name(tool.name().to_owned())
            .stack_size(STACK);
        thread
            .spawn(work)
            .map(|_| receiver)
            .map_err(|error| format!("no thread could be started: {error}"))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("tenure", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("{INSTRUCTIONS} {}", self.tools.place()))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = Tool::ALL.into_iter().map(described).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        Tool::named(name).map(described)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Tool::named(&request.name) else {
            let message = format!("there is no tool {:?}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let (answer, handle) = self.carry_out(tool, arguments, &context).await;
        if let Some(handle) = handle {
            let (grants, over) = (self.grants.clone(), context.ct.clone());
            let stopping = self.stopping.clone();
            tokio::spawn(async move {
                over.cancelled().await;
                // At the end the answer may still be sent; what was not is settled after that.
                if !stopping.is_cancelled() {
                    grants.settle(&handle);
                }
            });
        }
        let content = vec![ContentBlock::text(answer.text)];
        let mut result = if answer.is_error {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        };
        result.structured_content = Some(answer.structured);
        Ok(result.into())
    }
}

/// A tool as the library wants it.
fn described(tool: Tool) -> rmcp::model::Tool {
    let (name, title, description) = tool.told();
    let annotations = rmcp::model::ToolAnnotations::with_title(title)
        .read_only(tool.is_read_only())
        .destructive(tool.is_destructive())
        .idempotent(tool.is_idempotent())
        .open_world(false);
    rmcp::model::Tool::new(name, description, tool.input())
        .with_title(title)
        .with_raw_output_schema(Arc::new(Tool::output()))
        .with_annotations(annotations)
}

/// What the client calls itself.
fn client_of(context: &RequestContext<RoleServer>) -> String {
    context.client_info().map_or_else(String::new, |info| {
        format!("{} {}", info.name, info.version)
    })
}

/// The agent that calls, where its host says it.
fn agent_of(context: &RequestContext<RoleServer>) -> Option<AgentKey> {
    AgentHost::all().find_map(|host| {
        let Caller::Agent { session, thread } = host.table().caller else {
            return None;
        };
        let thread = text_of(context, thread)?;
        let session = text_of(context, session).unwrap_or_else(|| thread.clone());
        let agent = Some(&*thread).filter(|thread| *thread != session);
        AgentKey::new(host.word(), &session, agent).ok()
    })
}

/// The id of the call, where its host says no more.
fn call_of(context: &RequestContext<RoleServer>) -> Option<String> {
    AgentHost::all().find_map(|host| match host.table().caller {
        Caller::Call(key) => text_of(context, key),
        Caller::Agent { .. } => None,
    })
}

/// What the host says of a call beside its arguments.
fn text_of(context: &RequestContext<RoleServer>, key: &str) -> Option<String> {
    let text = context.meta.get(key).and_then(Value::as_str);
    text.map(str::to_owned)
}

/// Notes what each look at the lock showed.
fn listener(sight: &Sight) -> Listener {
    let sight = Arc::clone(sight);
    Listener(Arc::new(move |name: &LockName, waiting: &Waiting<'_>| {
        let holder = waiting.front().filter(|front| front.token.is_some());
        let holder = holder.map(|claim| LockView::holder_of(claim, waiting.now));
        let by = holder.map_or_else(String::new, |holder| {
            let stopped = (holder.is_stopped_and()).map(|stopped| format!(", {stopped}"));
            format!(", held by {}{}", holder.who(), stopped.unwrap_or_default())
        });
        let place = waiting.before() + 1;
        let seen = format!("waiting for {name}, place {place} in line{by}");
        *sight.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }))
}

/// Tells the client of a wait. A client that does not read is told later, or not at all.
fn tell(peer: &Peer<RoleServer>, token: ProgressToken, waited: Duration, sight: &Sight) {
    let seen = sight.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let seen = seen.unwrap_or_else(|| "waiting".to_owned());
    let message = format!(
        "{seen}, for {}",
        age(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
    );
    let told = ProgressNotificationParam::new(token, waited.as_secs_f64()).with_message(message);
    let peer = peer.clone();
    tokio::spawn(async move {
        let _ = peer.notify_progress(told).await;
    });
}
