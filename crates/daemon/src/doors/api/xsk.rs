//! `/v1/xsk`: AF_XDP sockets of applications.

use super::answer::{Answer, Daemon, blocking};
use crate::doors::view;
use crate::model::messages::XskStatus;

/// All AF_XDP sockets, their rings and statistics, and where applications get one.
#[utoipa::path(get, path = "/v1/xsk", responses((status = 200, body = XskStatus)))]
pub(super) async fn sockets(control: Daemon) -> Answer<XskStatus> {
    blocking(&control, |control| {
        let socket = control.xsk_socket().display().to_string();
        Ok(XskStatus { socket, sockets: control.read(view::sockets) })
    })
    .await
}
