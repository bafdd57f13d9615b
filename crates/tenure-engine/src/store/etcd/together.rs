//! Sends what belongs together in one piece.
//!
//! The HTTP/2 library flushes the head of a request before it asks for the message. Both are there within
//! one round of the runtime over its tasks. Two pieces would be two system calls, and would wake the
//! server twice. So a flush waits for one such round, and what is written meanwhile goes with it.
//!
//! Nothing is lost by that: the flush has asked to be polled again before it waits. A server reads the
//! same bytes in the same order.

use std::io::Result;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// How many bytes are gathered at most. A frame has up to 16 KiB, and what is written before it is short.
const GATHERED_MAX: usize = 32 << 10;

/// A connection whose flushes wait for one round.
pub(super) struct Together<S> {
    inner: BufWriter<S>,
    /// The flush that is under way has waited.
    has_waited: bool,
}

impl<S: AsyncWrite> Together<S> {
    pub(super) fn new(connection: S) -> Self {
        Self {
            inner: BufWriter::with_capacity(GATHERED_MAX, connection),
            has_waited: false,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Together<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let is_first = !std::mem::replace(&mut self.has_waited, true);
        if is_first && !self.inner.buffer().is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let flushed = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        self.has_waited = false;
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::*;
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// The sizes of what was written to a connection at once.
    #[derive(Clone, Default)]
    pub(crate) struct Pieces(Arc<Mutex<Vec<usize>>>);

    impl Pieces {
        pub(crate) fn of(&self, connection: DuplexStream) -> Watched {
            let pieces = self.clone();
            Watched { connection, pieces }
        }

        pub(crate) fn sizes(&self) -> Vec<usize> {
            self.0.lock().expect("no panic").clone()
        }
    }

    /// A connection whose writes are noted.
    pub(crate) struct Watched {
        connection: DuplexStream,
        pieces: Pieces,
    }

    impl AsyncRead for Watched {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            Pin::new(&mut self.connection).poll_read(cx, into)
        }
    }

    impl AsyncWrite for Watched {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize>> {
            let written = ready!(Pin::new(&mut self.connection).poll_write(cx, bytes));
            let mut pieces = self.pieces.0.lock().expect("no panic");
            pieces.extend(written.as_ref().ok());
            drop(pieces);
            Poll::Ready(written)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.connection).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.connection).poll_shutdown(cx)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_in_one_round_goes_together() {
        let pieces = Pieces::default();
        let (here, mut there) = tokio::io::duplex(64);
        let mut connection = Together::new(pieces.of(here));
        for round in 1..=3 {
            connection.write_all(b"head ").await.expect("room");
            let flushed = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll_flush(cx)));
            assert!(flushed.await.is_pending());
            connection.write_all(b"message").await.expect("room");
            // It is polled again although nothing else happens.
            let flushed = tokio::time::timeout(Duration::from_secs(60), connection.flush());
            flushed.await.expect("in time").expect("room");
            assert_eq!(pieces.sizes(), vec![12; round]);
        }
        connection.write_all(b".").await.expect("room");
        let flushed = tokio::time::timeout(Duration::from_secs(60), connection.flush());
        flushed.await.expect("in time").expect("room");
        assert_eq!(pieces.sizes(), [12, 12, 12, 1]);
        // There is nothing to wait for.
        let flushed = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll_flush(cx)));
        assert!(flushed.await.is_ready());
        connection.write_all(b"!").await.expect("room");
        connection.shutdown().await.expect("its end");
        let mut read = String::new();
        there.read_to_string(&mut read).await.expect("all of it");
        assert_eq!(read, "head message".repeat(3) + ".!");
    }
}
