//! The signature that tells a receiver who calls, and when.
//!
//! `Jobtree-Signature: t=1700000000,v1=<hex>`, where the latter is the HMAC-SHA256, by the webhook's secret, of the time,
//! a dot and the body. A receiver computes it again, compares in constant time, and refuses times that are too old.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header.
pub const SIGNATURE: &str = "Jobtree-Signature";

/// The header's value for a body that is sent at this time (seconds since 1970).
///
/// ```
/// use jobtree_server::webhooks::signature;
///
/// let value = signature("a secret of 24 characters", 1_700_000_000, b"{}");
/// assert!(value.starts_with("t=1700000000,v1="));
/// assert_ne!(value, signature("another secret of 30 characters", 1_700_000_000, b"{}"));
/// ```
pub fn signature(secret: &str, at: i64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(format!("{at}.").as_bytes());
    mac.update(body);
    let digest = mac.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_what_others_compute() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
        let known = "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";
        assert_eq!(
            signature("key", 1_700_000_000, b"{}"),
            format!("t=1700000000,v1={known}")
        );
    }
}
