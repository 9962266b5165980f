//! The numbers of a connection.

use std::time::Duration;

/// The numbers of a connection, for either side.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::remote::RemoteSettings;
///
/// let settings = RemoteSettings {
///     heartbeat: Duration::from_millis(250),
///     ..RemoteSettings::default()
/// };
/// assert_eq!(settings.max_frame, 16 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    /// The largest message in either direction, in bytes, with everything that belongs to it; 16 MiB.
    pub max_frame: u32,
    /// How long one may say nothing: then a sign of life is sent; 5 s.
    pub heartbeat: Duration,
    /// A peer that is silent for so many of *its* heartbeats is lost; 3.
    pub silent_heartbeats: u32,
    /// How long making a connection may take, with the greetings and the wait for threads; 5 s.
    pub connect_timeout: Duration,
    /// How long a single message may take on its way, once it has begun: what bounds slow peers; 30 s.
    pub message_timeout: Duration,
    /// How many bytes may wait to be written; senders wait for room. 32 MiB.
    pub outgoing: usize,
    /// How long a request may take that does not say so itself; 30 s. `None` is for ever.
    pub request_timeout: Option<Duration>,
    /// The pause before the second attempt to connect; it doubles with each further one. 50 ms.
    pub first_pause: Duration,
    /// The longest pause between two attempts; 10 s. Each pause is shortened at random by up to a half, so that many
    /// clients do not come back all at once.
    pub longest_pause: Duration,
}

impl Default for RemoteSettings {
    fn default() -> RemoteSettings {
        RemoteSettings {
            max_frame: 16 << 20,
            heartbeat: Duration::from_secs(5),
            silent_heartbeats: 3,
            connect_timeout: Duration::from_secs(5),
            message_timeout: Duration::from_secs(30),
            outgoing: 32 << 20,
            request_timeout: Some(Duration::from_secs(30)),
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl RemoteSettings {
    /// The heartbeat; not so short that it is all there is to do.
    pub(super) fn heartbeat(&self) -> Duration {
        self.heartbeat.max(Duration::from_millis(1))
    }

    /// How long a peer with this heartbeat may be silent. At least a moment, whatever the peer says; and no longer than
    /// a day.
    pub(super) fn silence(&self, heartbeat: Duration) -> Duration {
        const LEAST: Duration = Duration::from_millis(10);
        const MOST: Duration = Duration::from_secs(24 * 3600);
        heartbeat
            .saturating_mul(self.silent_heartbeats.max(1))
            .clamp(LEAST, MOST)
    }

    /// The pause after so many attempts in a row that failed; `chance` is any number.
    pub(super) fn pause(&self, failed: u32, chance: u64) -> Duration {
        let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
        let whole = self.first_pause.saturating_mul(doubled);
        let whole = whole.min(self.longest_pause);
        // Between a half and all of it.
        whole.mul_f64(0.5 + (chance % 1024) as f64 / 2048.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_vary_by_half() {
        let settings = RemoteSettings {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_millis(1000),
            ..RemoteSettings::default()
        };
        for (failed, most) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1000),
            (99, 1000),
        ] {
            let most = Duration::from_millis(most);
            assert_eq!(settings.pause(failed, 0), most / 2);
            for chance in [1, 511, 1023, 1024, u64::MAX] {
                let pause = settings.pause(failed, chance);
                assert!(most / 2 <= pause && pause <= most, "{pause:?}");
            }
        }
    }

    #[test]
    fn the_silence_a_peer_may_keep_is_bounded_both_ways() {
        let settings = RemoteSettings::default();
        assert_eq!(
            settings.silence(Duration::from_secs(2)),
            Duration::from_secs(6)
        );
        assert!(settings.silence(Duration::ZERO) > Duration::ZERO);
        assert!(settings.silence(Duration::MAX) <= Duration::from_secs(24 * 3600));
    }
}
