//! What operators do: pauses, draining, a look now, what the host measured, the policy.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::routing::{get, post};
use jobtree_protocol::{
    DrainRequest, FieldError, PauseList, PauseRequest, PauseView, PolicyVerdict, ResumeAnswer,
    Scope, SignalsRequest, paths,
};

use super::check_reason;
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Json, Told, Toml};
use crate::policy;
use crate::problem::Answered;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::KICK, post(kick))
        .route(paths::PAUSE, post(pause))
        .route(paths::RESUME, post(resume))
        .route(paths::PAUSES, get(pauses))
        .route(paths::DRAIN, post(drain))
        .route(paths::SIGNALS, post(signals))
        .route(paths::POLICY, get(policy).put(set_policy))
        .route(paths::POLICY_VALIDATE, post(validate_policy))
}

async fn kick(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    daemon.scheduler.kick();
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<PauseRequest>,
) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    check_reason(request.reason.as_deref())?;
    daemon.scheduler.pause(request).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resume(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<PauseRequest>,
) -> Answered<Told<ResumeAnswer>> {
    caller.needs(Scope::Admin)?;
    check_reason(request.reason.as_deref())?;
    let resumed = daemon.scheduler.resume(request).await?;
    Ok(Told(ResumeAnswer { resumed }))
}

async fn pauses(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<PauseList>> {
    caller.needs(Scope::Read)?;
    let all = daemon.scheduler.pauses().await?.into_iter();
    let seen = all.filter(|pause| caller.sees(&pause.addon_id));
    let pauses = seen.map(|pause| PauseView {
        addon_id: pause.addon_id,
        job_type: pause.job_type,
        since: pause.since,
        reason: pause.reason,
    });
    Ok(Told(PauseList {
        pauses: pauses.collect(),
    }))
}

async fn drain(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<DrainRequest>,
) -> Answered<Told<DrainRequest>> {
    caller.needs(Scope::Admin)?;
    daemon.scheduler.drain(request.draining);
    Ok(Told(request))
}

async fn signals(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<SignalsRequest>,
) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    let each = [
        ("p95_latency_ms", request.p95_latency_ms, f64::MAX),
        ("in_flight", request.in_flight, f64::MAX),
        ("requests_per_sec", request.requests_per_sec, f64::MAX),
        ("error_rate", request.error_rate, 1.0),
    ];
    let wrong = each.into_iter().filter_map(|(field, value, most)| {
        let value = value.filter(|value| !(0.0..=most).contains(value))?;
        let wanted = if most == 1.0 { "0 to 1" } else { "0 or more" };
        Some(FieldError::new(
            field,
            format!("is {value}: write {wanted}"),
        ))
    });
    let wrong: Vec<_> = wrong.collect();
    if !wrong.is_empty() {
        return Err(jobtree_protocol::ApiError::invalid(wrong).into());
    }
    daemon.scheduler.push_signals(request)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn policy(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
) -> Answered<([(HeaderName, &'static str); 1], String)> {
    caller.needs(Scope::Read)?;
    let text = daemon.scheduler.policy().to_toml();
    Ok(([(CONTENT_TYPE, "application/toml")], text))
}

async fn set_policy(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Toml(text): Toml,
) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    let kept = daemon.policy.set(&daemon.scheduler, daemon.stamp(), &text);
    kept.await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn validate_policy(caller: Caller, Toml(text): Toml) -> Answered<Told<PolicyVerdict>> {
    caller.needs(Scope::Read)?;
    policy::read(&text)?;
    Ok(Told(PolicyVerdict { valid: true }))
}
