//! `/v1/xsk`: AF_XDP sockets of applications.

use super::answer::{Answer, Daemon, blocking};
use crate::doors::view;
use crate::model::messages::XskStatus;

/// Shows all AF_XDP sockets with rings and statistics, and the socket path for applications.
#[utoipa::path(get, path = "/v1/xsk", responses((status = 200, body = XskStatus)))]
pub(super) async fn sockets(control: Daemon) -> Answer<XskStatus> {
    blocking(&control, |control| {
        let socket = control.xsk_socket().display().to_string();
        Ok(XskStatus { socket, sockets: control.read(view::sockets) })
    })
    .await
}
