//! One webhook's way through the trail.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;

use super::book::{Hook, Record};
use super::sign::{SIGNATURE, signature};
use crate::events::{Hub, Told};

/// How often a delivery is tried: for some two and a half hours.
pub(super) const ATTEMPTS: u32 = 15;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// How long a receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one look at the trail waits.
const LOOK: Duration = Duration::from_secs(60);
const PAGE: usize = 200;

/// Follows the trail from where the webhook is, until the task is aborted.
pub(super) async fn deliver(hook: Arc<Hook>, hub: Arc<Hub>) {
    loop {
        let Record { id, cursor, .. } = hook.record();
        let page = match hub.next_page(cursor, PAGE, LOOK).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(webhook = %id, %error, "the trail cannot be read; trying again");
                tokio::time::sleep(Duration::from_secs(5)).await;
                continue;
            }
        };
        let Some(last) = page.last().and_then(|told| told.cursor) else {
            continue;
        };
        for told in page {
            if wants(&hook.record(), &told) {
                send(&hook, &told).await;
            }
            // Saved with the page: a crash in its midst repeats what was delivered of it.
            hook.update(|record| record.cursor = told.cursor.unwrap_or(record.cursor));
        }
        hook.update(|record| record.cursor = last);
        if let Err(error) = hook.save().await {
            tracing::warn!(webhook = %id, %error, "how far a webhook is was not written down");
        }
    }
}

fn wants(record: &Record, told: &Told) -> bool {
    let of_addon = record.addon_id.is_none() || record.addon_id == told.addon_id;
    of_addon && record.events.iter().any(|kind| kind.as_str() == told.kind)
}

/// Delivers one event, or gives it up.
async fn send(hook: &Hook, told: &Told) {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=ATTEMPTS {
        let record = hook.record();
        let body = told.data.clone();
        let sent = tokio::task::spawn_blocking(move || post(&record, &body)).await;
        let error = match sent {
            Ok(Ok(())) => {
                hook.update(|record| {
                    record.delivered += 1;
                    record.last_error = None;
                });
                return;
            }
            Ok(Err(error)) => error,
            Err(stopped) => stopped.to_string(),
        };
        hook.update(|record| record.last_error = Some(error));
        if attempt < ATTEMPTS {
            // Up to a quarter more, so that receivers that came back are not met by all at once.
            let spread = told
                .cursor
                .unwrap_or_default()
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                >> 32;
            let more = pause.mul_f64(0.25 * spread as f64 / f64::from(u32::MAX));
            tokio::time::sleep(pause + more).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    hook.update(|record| record.given_up += 1);
    let record = hook.record();
    tracing::warn!(webhook = %record.id, event = told.kind, "a delivery was given up after {ATTEMPTS} attempts");
}

/// One connection pool for all, with no patience: a receiver that hangs must not hold a thread for long. Redirects are not
/// followed: the signature is for the address that was registered.
static AGENT: LazyLock<ureq::Agent> = LazyLock::new(|| {
    ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .http_status_as_error(false)
        .build()
        .into()
});

fn post(record: &Record, body: &[u8]) -> Result<(), String> {
    let signed = signature(&record.secret, Timestamp::now().as_second(), body);
    let answer = AGENT
        .post(&record.url)
        .header("Content-Type", "application/json")
        .header("Jobtree-Webhook", record.id.to_string())
        .header(SIGNATURE, signed)
        .send(body)
        .map_err(|error| error.to_string())?;
    let status = answer.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("the receiver answered {status}"))
    }
}
