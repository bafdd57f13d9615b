//! Request ids of our own making.

use crate::exit::Exit;
use crate::failure::Failure;
use tenure_core::RequestId;
use tenure_store::printed::hex;

/// The given request id, or a fresh one: `req_` and 32 hex digits of the kernel's randomness.
pub(crate) fn request_id_or_new(given: Option<RequestId>) -> Result<RequestId, Failure> {
    given.map_or_else(fresh_id::<16>, Ok)
}

/// A fresh request id with two hex digits for each of `BYTES` random bytes.
pub(crate) fn fresh_id<const BYTES: usize>() -> Result<RequestId, Failure> {
    let no_id = || {
        Failure::new(
            Exit::General,
            "NO_RANDOMNESS",
            "the system gives no random bytes for a request id; give one with --request-id",
        )
    };
    let mut bytes = [0_u8; BYTES];
    tenure_os::process::fill_randomly(&mut bytes).map_err(|_| no_id())?;
    RequestId::new(format!("req_{}", hex(&bytes))).map_err(|_| no_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_valid_and_differ() {
        let ids: Vec<_> = (0..2)
            .filter_map(|_| request_id_or_new(None).ok())
            .collect();
        let [first, second] = ids.as_slice() else {
            panic!("two ids");
        };
        assert_ne!(first, second);
    }
}
