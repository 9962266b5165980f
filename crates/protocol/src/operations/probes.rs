//! What is asked outside of the interface's base path: probes, metrics, the description of the interface.

use super::{AnyQuery, JsonObject, PrometheusText};

use super::define::{access, define_operations, given, method};

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! probe_operations {
    ($read:ident) => {
        $read! {
            base: "";
            HEALTH = "/healthz" {
                /// Returns whether the process is alive.
                get health: Health {
                    scope: Open,
                    query: AnyQuery,
                    answer: JsonObject = "It is alive.",
                }
            }
            READY = "/readyz" {
                /// Returns whether the server can take jobs.
                get ready: Ready {
                    scope: Open,
                    query: AnyQuery,
                    answer: JsonObject = "It can.",
                }
            }
            OPENAPI = "/openapi.json" {
                /// Returns this document.
                get openapi: Openapi {
                    scope: Open,
                    answer: JsonObject = "OpenAPI 3.1.",
                    client: openapi,
                }
            }
            METRICS = "/metrics" {
                /// Returns metrics for Prometheus, of all addons: a token that is bound to one addon is refused.
                get get_metrics: GetMetrics {
                    scope: Read,
                    answer: PrometheusText = "In the text format of Prometheus. Lines with the label `node` are about the machine of this daemon alone. Counts of jobs are of the whole store: where several daemons share one, take them from one daemon.",
                    client: metrics,
                }
            }
        }
    };
}

probe_operations!(define_operations);
