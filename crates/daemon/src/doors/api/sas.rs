//! `/v1/sas` and `/v1/policies`: security associations and policies of ports of kind `ipsec`.

use serde::Deserialize;
use towpath_bpf::suggest;

use super::answer::{Answer, Asked, Body, Daemon, Done, Part, blocking, working};
use super::error::ErrorBody;
use crate::control::Inner;
use crate::doors::sas;
use crate::model::ipsec::{PolicyState, SaState};
use crate::model::messages::{PolicyView, SaView};
use crate::model::refusal::Refusal;
use crate::model::state::State;

/// Lists all SAs with their counters, without their keys.
#[utoipa::path(get, path = "/v1/sas", responses((status = 200, body = Vec<SaView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<SaView>> {
    blocking(&control, |control| Ok(control.read(sas::all))).await
}

/// Adds an SA. The daemon reads the keys from `key_file`, an absolute path.
#[utoipa::path(post, path = "/v1/sas", request_body = SaState,
    responses((status = 200, body = SaView), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn add(control: Daemon, Body(sa): Body<SaState>) -> Answer<SaView> {
    working(&control, move |control| {
        let name = sa.name.clone();
        control.change(&format!("adding SA {name}"), |state, _| {
            if state.sas.iter().any(|known| known.name == sa.name) {
                return Err(Refusal::conflict(format!(
                    "there is an SA {} already (EEXIST)",
                    sa.name
                )));
            }
            state.sas.push(sa);
            Ok(())
        })?;
        control.read(|inner| find(inner, &name))
    })
    .await
}

/// Shows an SA with its counters, without its keys.
#[utoipa::path(get, path = "/v1/sas/{name}", params(("name" = String, Path)),
    responses((status = 200, body = SaView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(name): Part<String>) -> Answer<SaView> {
    blocking(&control, move |control| control.read(|inner| find(inner, &name))).await
}

/// Removes an SA.
#[utoipa::path(delete, path = "/v1/sas/{name}", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove(control: Daemon, Part(name): Part<String>) -> Answer<Done> {
    working(&control, move |control| {
        control.change(&format!("removing SA {name}"), |state, _| {
            let before = state.sas.len();
            state.sas.retain(|sa| sa.name != name);
            if state.sas.len() == before { Err(no_sa(state, &name)) } else { Ok(Done {}) }
        })
    })
    .await
}

/// Parameters of a removal of several SAs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FlushQuery {
    /// Only SAs of this port.
    port: Option<String>,
}

/// Removes all SAs, or all those of a port. Policies stay: what they protect is refused.
#[utoipa::path(delete, path = "/v1/sas", params(("port" = Option<String>, Query)),
    responses((status = 200), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn flush(
    control: Daemon,
    Asked(FlushQuery { port }): Asked<FlushQuery>,
) -> Answer<Done> {
    working(&control, move |control| {
        control.change("removing SAs", |state, _| {
            if let Some(name) = port.as_deref().filter(|name| state.port(name).is_none()) {
                return Err(super::ports::no_port(state, name));
            }
            state.sas.retain(|sa| port.as_ref().is_some_and(|port| *port != sa.port));
            Ok(Done {})
        })
    })
    .await
}

/// Lists all policies.
#[utoipa::path(get, path = "/v1/policies", responses((status = 200, body = Vec<PolicyView>)))]
pub(super) async fn policies(control: Daemon) -> Answer<Vec<PolicyView>> {
    blocking(&control, |control| Ok(control.read(sas::policies))).await
}

/// Adds a policy.
#[utoipa::path(post, path = "/v1/policies", request_body = PolicyState,
    responses((status = 200, body = PolicyView), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn add_policy(
    control: Daemon,
    Body(policy): Body<PolicyState>,
) -> Answer<PolicyView> {
    working(&control, move |control| {
        let name = policy.name.clone();
        control.change(&format!("adding policy {name}"), |state, _| {
            if state.policies.iter().any(|known| known.name == policy.name) {
                let message = format!("there is a policy {} already (EEXIST)", policy.name);
                return Err(Refusal::conflict(message));
            }
            state.policies.push(policy);
            Ok(())
        })?;
        control.read(|inner| find_policy(inner, &name))
    })
    .await
}

/// Removes a policy.
#[utoipa::path(delete, path = "/v1/policies/{name}", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove_policy(control: Daemon, Part(name): Part<String>) -> Answer<Done> {
    working(&control, move |control| {
        control.change(&format!("removing policy {name}"), |state, _| {
            let before = state.policies.len();
            state.policies.retain(|policy| policy.name != name);
            if state.policies.len() == before { Err(no_policy(state, &name)) } else { Ok(Done {}) }
        })
    })
    .await
}

fn find(inner: &Inner, name: &str) -> Result<SaView, Refusal> {
    let state = inner.wanted.state();
    let sa = state.sas.iter().find(|sa| sa.name == name);
    sa.map(|sa| sas::view(inner, sa)).ok_or_else(|| no_sa(state, name))
}

fn find_policy(inner: &Inner, name: &str) -> Result<PolicyView, Refusal> {
    let state = inner.wanted.state();
    let policy = state.policies.iter().find(|policy| policy.name == name);
    policy.map(|it| sas::policy(inner, it)).ok_or_else(|| no_policy(state, name))
}

/// The answer 404, with a suggestion.
fn no_sa(state: &State, name: &str) -> Refusal {
    let hint = suggest::among(name, state.sas.iter().map(|sa| sa.name.as_str()));
    Refusal::missing(format!("no SA \"{name}\"{hint} (ESRCH)"))
}

/// The answer 404, with a suggestion.
fn no_policy(state: &State, name: &str) -> Refusal {
    let hint = suggest::among(name, state.policies.iter().map(|policy| policy.name.as_str()));
    Refusal::missing(format!("no policy \"{name}\"{hint} (ENOENT)"))
}
