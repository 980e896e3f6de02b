//! `/v1/xsk`: AF_XDP sockets of applications.

use super::types::XskStatus;
use super::{Answer, Daemon, blocking};
use crate::view;

/// All AF_XDP sockets, their rings and statistics, and where applications get one.
#[utoipa::path(get, path = "/v1/xsk", responses((status = 200, body = XskStatus)))]
pub(super) async fn sockets(control: Daemon) -> Answer<XskStatus> {
    blocking(&control, |control| {
        let socket = control.xsk_socket().display().to_string();
        Ok(XskStatus { socket, sockets: control.read(view::sockets) })
    })
    .await
}
