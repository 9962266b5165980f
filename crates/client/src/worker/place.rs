//! The machine that a daemon runs on: process ids mean something to a daemon of this machine alone.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use jobtree_worker::SchedulerPlace;
use ureq::http::Uri;

/// Returns where the daemon at an address runs. A name is looked up for that; one that also stands for another machine, or
/// that is not known, is elsewhere.
pub(super) fn place_of(url: &str) -> SchedulerPlace {
    if is_here(url) {
        SchedulerPlace::SameMachine
    } else {
        SchedulerPlace::Elsewhere
    }
}

fn is_here(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse() {
        return is_of_this_machine(address);
    }
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let Ok(addresses) = (host, 0).to_socket_addrs() else {
        return false;
    };
    let mut addresses = addresses.map(|it| it.ip()).peekable();
    addresses.peek().is_some() && addresses.all(is_of_this_machine)
}

/// Returns `true` if an address is one of this machine's: it lets no program listen at another one.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_on_this_machine_is_known_by_its_address() {
        for url in [
            "http://127.0.0.1:7717",
            "http://127.3.2.1:7717",
            "http://[::1]:7717",
            "http://localhost:7717",
            "https://LocalHost",
        ] {
            assert_eq!(place_of(url), SchedulerPlace::SameMachine, "{url}");
        }
        // Of the blocks that are kept for documentation.
        for url in [
            "http://192.0.2.7:7717",
            "https://[2001:db8::7]",
            "no address",
        ] {
            assert_eq!(place_of(url), SchedulerPlace::Elsewhere, "{url}");
        }
    }
}
